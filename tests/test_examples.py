"""Every program under examples/ runs against a cluster of its own and does what it says."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from sparrowmq.testing import LocalCluster

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
PROGRAMS = sorted(EXAMPLES.glob("*.py"))
SAYS = {
    "batches": "2000 stored",
    "broadcast_cache_refresh": "3 servers know 3 prices",
    "delay": "at a moment: ",
    "push_gateway": "2 of 3 pushes were confirmed",
    "hooks": "{'stored': 1}",
    "request_reply": "4 1 = 5",
    "transaction": "to be shipped: book",
}
"""The last thing a program prints, where that is known."""


@pytest.mark.proves("client:D-110")
@pytest.mark.parametrize("program", PROGRAMS, ids=[program.stem for program in PROGRAMS])
def test_the_program_runs(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(program))["main"]
    with LocalCluster() as cluster:
        main(cluster.namesrv)
    told = capsys.readouterr().out
    assert told, "it says what it does"
    assert SAYS.get(program.stem, "") in told


def test_there_are_programs() -> None:
    assert len(PROGRAMS) >= 8
