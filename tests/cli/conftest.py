"""One cluster for all tests of the command line, and a way to call it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from typer.testing import CliRunner

from sparrowmq.cli.main import app
from sparrowmq.testing import LocalCluster


@dataclass
class Outcome:
    """What one command printed and its exit status."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def values(self) -> list[Any]:
        """The output as JSON, one value a line."""
        return [json.loads(line) for line in self.lines]


class Sparrow:
    """`sparrow …` in this process, with --namesrv of the cluster."""

    def __init__(self, namesrv: str) -> None:
        self.namesrv = namesrv

    def __call__(self, *arguments: str, status: int | None = 0, stdin: str | bytes | None = None) -> Outcome:
        environment = {"SPARROW_NAMESRV": self.namesrv, "COLUMNS": "200"}
        result = CliRunner().invoke(app, list(arguments), input=stdin, env=environment)
        outcome = Outcome(result.exit_code, result.stdout, result.stderr)
        assert status in (None, outcome.status), f"{outcome}\n{result.exception!r}"
        return outcome


@pytest.fixture(scope="package")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as running:
        yield running


@pytest.fixture
def sparrow(cluster: LocalCluster) -> Sparrow:
    return Sparrow(cluster.namesrv)
