"""The programs under examples/ run, each against a cluster of its own."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from sparrowmq.testing import LocalCluster

EXAMPLES = sorted((Path(__file__).resolve().parent.parent / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_program_runs(path: Path) -> None:
    main = runpy.run_path(str(path))["main"]
    with LocalCluster() as cluster:
        main(cluster.namesrv)


def test_there_are_programs() -> None:
    assert len(EXAMPLES) >= 3
