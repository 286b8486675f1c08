"""A group whose members, brokers and connections start and stop loses nothing and keeps order.

A failing run names its seed; `SPARROW_CHURN_SEED=17 pytest tests/client/test_churn.py` replays it.
"""

from __future__ import annotations

import os

import pytest
from tests.client.churn import simulate
from tests.conftest import LONG

GIVEN = os.environ.get("SPARROW_CHURN_SEED")
SEEDS = [int(GIVEN)] if GIVEN else list(range(1, 101 if LONG else 3))
SECONDS = 150
"""Of virtual time, the same in every tier, so that a seed replays exactly."""


@pytest.mark.proves("client:C-11", "client:C-53", "client:C-55", "MUST-22")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
def test_nothing_is_lost_and_order_is_kept(seed: int, ordered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    churn = simulate(seed, monkeypatch, ordered=ordered, seconds=SECONDS)
    text = (
        f"seed {seed}: {churn.problems}; replay with SPARROW_CHURN_SEED={seed}; "
        f"{len(churn.sent)} sent, {churn.duplicates} duplicates, {churn.overlaps} overlaps, "
        f"{dict(churn.events)}"
    )
    print(text)
    assert not churn.problems, text
    assert len(churn.sent) > 6 * SECONDS
    assert churn.duplicates < len(churn.sent), text
    assert churn.overlaps == 0, text


def test_seed_replays_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [simulate(5, monkeypatch, ordered=False, seconds=60) for _ in range(2)]
    assert runs[0].deliveries == runs[1].deliveries
    assert runs[0].events == runs[1].events
