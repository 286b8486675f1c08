"""A round on real processes, and what its history would show if a promise were broken."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support import run

from sparrowmq.torture.checker import judge
from sparrowmq.torture.events import (
    AnyEvent,
    MessageReceived,
    MessageStored,
    OffsetCommitted,
    SendAcknowledged,
    decode_lines,
)
from sparrowmq.torture.network import is_possible
from sparrowmq.torture.plan import COORDINATOR, CUT, KILL, MASTER, NAME_SERVER, SLAVE, PlannedFault
from sparrowmq.torture.rounds import HISTORY, RoundSettings, run_round

pytestmark = pytest.mark.crash

FAULTS = (
    PlannedFault(0.2, KILL, NAME_SERVER, 0.2),
    PlannedFault(0.3, KILL, COORDINATOR, 0.1),
    PlannedFault(1.0, CUT, SLAVE, 1.5),
    PlannedFault(2.2, KILL, MASTER, 3.0),
)


def test_a_round_keeps_all_promises(tmp_path: Path) -> None:
    said: list[str] = []
    settings = RoundSettings(6, with_network=is_possible(), faults=FAULTS)
    result = run(run_round(settings, tmp_path / "round", said.append))
    assert result.as_json()["faults"] == [str(one) for one in FAULTS]
    assert sum("is over" in text for text in said) >= 2
    assert [str(one) for one in result.broken] == []
    assert result.figures["received"] >= result.figures["stored"] >= result.figures["acknowledged"] >= 50
    events = list(decode_lines((tmp_path / "round" / HISTORY).read_bytes().splitlines()))
    assert judge(events).is_kept
    lose_a_message(events)
    miss_a_message(events)


def lose_a_message(events: Sequence[AnyEvent]) -> None:
    """What a history shows whose first acknowledged message is gone."""
    lost = next(one for one in events if isinstance(one, SendAcknowledged))
    verdict = judge(one for one in events if not (isinstance(one, MessageStored) and one.id == lost.id))
    assert {one.promise for one in verdict.broken} >= {"acknowledged-is-stored", "no-holes"}


def miss_a_message(events: Sequence[AnyEvent]) -> None:
    """What a history shows whose group never received a message that it committed."""
    commit = next(
        one for one in events if isinstance(one, OffsetCommitted) and one.client.startswith("reader")
    )
    missed = (commit.queue, commit.offset - 1)
    verdict = judge(
        one for one in events if not (isinstance(one, MessageReceived) and (one.queue, one.offset) == missed)
    )
    assert {one.promise for one in verdict.broken} >= {"nothing-missed"}
