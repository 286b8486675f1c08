"""Java's clients in rounds of `sparrow torture`: what they were told holds after the faults, too."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest
from tests.interop.driver import JavaDriver
from tests.interop.torture_clients import GROUP, ORDERED_GROUP, JavaClients
from tests.support import run

from sparrowmq.torture.events import MessageReceived, SendAcknowledged, decode_lines
from sparrowmq.torture.network import is_possible
from sparrowmq.torture.plan import KILL, MASTER, PlannedFault
from sparrowmq.torture.rounds import HISTORY, RoundSettings, run_round

pytestmark = pytest.mark.interop
LONG: Final = os.environ.get("SPARROW_TEST_TIER") == "long"

SHORT: Final = RoundSettings(1, faults=(PlannedFault(0.5, KILL, MASTER, 0.2),))
ROUNDS: Final = {"kill": SHORT} | (
    {f"seed-{seed}": RoundSettings(seed, with_network=is_possible()) for seed in (11, 12)} if LONG else {}
)


@pytest.mark.parametrize("settings", ROUNDS.values(), ids=ROUNDS)
def test_what_javas_clients_were_told_holds(
    settings: RoundSettings, tmp_path: Path, driver: JavaDriver
) -> None:
    root = tmp_path / "round"
    clients = JavaClients(driver, tmp_path / "java.jsonl")
    result = run(run_round(settings, root, print, beside=(clients,)))
    assert [str(one) for one in result.broken] == []
    events = list(decode_lines((root / HISTORY).read_bytes().splitlines()))
    told = {one.client for one in events if isinstance(one, SendAcknowledged)}
    assert told > {"java-single-0", "java-single-1", "java-retrying-0", "java-retrying-1"}
    received = [one for one in events if isinstance(one, MessageReceived)]
    for group in (GROUP, ORDERED_GROUP):
        places = {(one.queue, one.offset) for one in received if one.group == group}
        assert len(places) >= result.figures["stored"]
