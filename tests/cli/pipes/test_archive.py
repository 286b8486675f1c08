"""`sparrow pipe archive` where no Spark is needed; tests/spark/commands/test_pipe_archive.py runs it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sparrowmq as mq
from sparrowmq.testing import LocalCluster

if TYPE_CHECKING:
    from tests.cli.conftest import Sparrow


@pytest.fixture(scope="module", autouse=True)
def topic(cluster: LocalCluster) -> str:
    cluster.create_topic("Archived", queues=2)
    with mq.Producer("archived", namesrv=cluster.namesrv) as producer:
        producer.send_batch([mq.Message("Archived", b"x") for _ in range(7)])
    return "Archived"


def test_a_plan(sparrow: Sparrow, tmp_path: Path) -> None:
    where = tmp_path / "archive"
    shown = sparrow("pipe", "archive", "Archived", "--to", str(where), "--plan").out
    assert shown.startswith("archive: 3 steps, 7 messages wait\n")
    assert f"write {where}/data/batch=00000000/date=…/topic=…" in shown
    assert not where.exists()
    (value,) = sparrow("pipe", "archive", "Archived", "--to", str(where), "--plan", "--json").values
    assert [step["action"] for step in value["steps"]] == ["read", "write", "merge"]
    filling = sparrow("pipe", "archive", "Archived", "--to", str(where), "--backfill", "--plan").out
    assert filling == "backfill: nothing to do, 0 messages wait\n", "nothing is missing before its end"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "an archive needs either topics or a pattern"),
        (["Archived", "--start", "now"], "start='now': must be earliest or latest"),
        (["Archived", "--since", "2026-01-01"], "narrow a --backfill"),
        (
            ["Archived", "--backfill", "--since", "2026-01-02", "--until", "2026-01-01"],
            "is not before until=",
        ),
        (["Archived", "--option", "x"], "--option 'x': give NAME=VALUE"),
        (["Archived", "--option", "batchrow=5", "--plan"], "did you mean batchRows"),
        (["Nowhere", "--plan"], "Nowhere"),
        (["Archived", "--columns", "boddy"], "column 'boddy' is unknown"),
    ],
)
def test_what_is_wrong_is_said(sparrow: Sparrow, tmp_path: Path, arguments: list[str], text: str) -> None:
    done = sparrow("pipe", "archive", *arguments, "--to", str(tmp_path / "a"), status=1)
    assert text in done.err
    assert done.err.startswith("sparrow: ")
