"""A sample of all crashes of all scripts: what was acknowledged is there, and nothing else.

The long tier takes all of them, and every operation failing in every way. `python -m tests.simulation.search`
does the same and counts.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from tests.conftest import LONG
from tests.simulation.scripts import CHUNKS, SCRIPTS
from tests.simulation.search import lost_sectors, search

from sparrowmq.files import disk

PAGE = Path(__file__).parent.parent.parent / "docs" / "quality.md"
HISTORIES = 1 if LONG else 40
FAULTS = 1 if LONG else 100
AGAIN = 100 if LONG else 2500
SLOW = {"lives": 3, "pops": 4, "pop_changes": 6, "pop_lives": 8, "pop_order": 8}
"""A clock that jumps a year makes the timers look at each of its days, and POP writes many records: fewer of
these in a sample."""


@pytest.mark.crash
@pytest.mark.timeout(20_000 if LONG else 240)
@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_a_crash_at_any_time_breaks_no_promise(name: str) -> None:
    fewer = 1 if LONG else SLOW.get(name, 1)
    every, faults, again = HISTORIES * fewer, FAULTS * fewer, AGAIN * fewer
    found = asyncio.run(search([name], every=every, fault_every=faults, again_every=again, thorough=LONG))
    assert found.findings == [], "\n".join(str(finding) for finding in found.findings[:20])
    assert found.states > 20
    assert found.runs > 2


@pytest.mark.crash
@pytest.mark.timeout(240)
@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize("name", sorted(CHUNKS))
def test_a_record_that_says_done_does_not_outlive_what_was_done(name: str, sync: bool) -> None:
    """A power cut may lose any sector of a chunk: a copy, and not the acknowledgement of its original."""
    found = asyncio.run(lost_sectors(name, sync=sync))
    assert found.findings == [], "\n".join(str(finding) for finding in found.findings[:20])
    assert found.states > 5


@pytest.mark.crash
@pytest.mark.parametrize(
    ("name", "broken", "said"),
    [
        ("sends", "datasync", "was acknowledged"),
        ("topics", "sync", "is lost"),
        ("fences", "sync", "the policy of"),
        ("topics", "sync_directory", "is lost"),
    ],
)
def test_a_broker_that_forces_too_little_to_disk_is_found_out(
    name: str, broken: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search can fail."""
    if broken == "sync":
        monkeypatch.setattr("tests.simulation.disk.SimulatedDisk.fsync", lambda self, fd: None)
    else:
        monkeypatch.setattr(disk, broken, lambda where: None)
    found = asyncio.run(search([name], every=25, fault_every=0, thorough=False))
    assert any(said in finding.text for finding in found.findings)


def test_the_page_says_how_much_was_searched() -> None:
    text = PAGE.read_text()
    found = re.search(r"([\d,]+) histories, ([\d,]+) distinct states of the disk", text)
    assert found is not None
    histories, states = (int(number.replace(",", "")) for number in found.groups())
    assert histories > states > 1000
    assert f"one in {HISTORIES} of them" in text or LONG
    assert "python -m tests.simulation.search --count" in text
