"""The number of popped and invisible messages."""

from __future__ import annotations

import pytest

from sparrowmq.broker.pop import in_flight
from sparrowmq.broker.pop.in_flight import PopsInFlight


def test_messages_in_flight_are_counted_by_group_and_topic_until_they_end() -> None:
    flying = PopsInFlight()
    flying.handed_out("T", "g", 0, 3, 60_500, 0)
    flying.handed_out("T", "g", 0, 2, 60_900, 0)
    flying.handed_out("T", "h", 0, 1, 60_000, 0)
    flying.ended("T", "g", 0, 1, 60_500)
    assert [flying.invisible("T", group, 0) for group in ("g", "h", "i")] == [4, 1, None]
    assert flying.invisible("T", "g", 61_000) == 0, "they are visible again"


def test_acknowledgements_of_unknown_pops_change_nothing() -> None:
    flying = PopsInFlight()
    flying.ended("T", "g", 0, 1, 60_000)
    assert flying.invisible("T", "g", 0) is None
    flying.handed_out("T", "g", 0, 1, 60_000, 0)
    flying.ended("T", "g", 0, 5, 60_000)
    flying.ended("T", "g", 0, 1, 90_000)
    flying.handed_out("T", "g", 0, 2, 61_000, 0)
    assert flying.invisible("T", "g", 0) == 2


def test_count_is_unknown_after_an_overflow_until_uncounted_messages_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(in_flight, "COUNTS_MAX", 10)
    flying = PopsInFlight()
    for at in range(10):
        flying.handed_out("T", f"g{at}", 0, 1, 1_000 * (at + 1), 0)
    flying.handed_out("T", "more", 0, 1, 20_000, 0)
    assert flying.invisible("T", "g9", 0) is None and flying.invisible("T", "more", 0) is None
    flying.handed_out("T", "more", 0, 7, 30_000, 11_001)
    assert flying.invisible("T", "more", 15_000) is None, "a message is not counted"
    assert flying.invisible("T", "more", 20_000) == 7, "the counts that were over made room"


def test_full_table_is_not_searched_for_each_pop(monkeypatch: pytest.MonkeyPatch) -> None:
    """One client can keep it full for days, by changing invisible times."""
    monkeypatch.setattr(in_flight, "COUNTS_MAX", 10)
    flying = PopsInFlight()
    for at in range(10):
        flying.handed_out("T", "g", 0, 1, 1_000 * (at + 100), 0)
    searched = 0
    forget = PopsInFlight._forget

    def counting(self: PopsInFlight, now_ms: int) -> None:
        nonlocal searched
        searched += 1
        forget(self, now_ms)

    monkeypatch.setattr(PopsInFlight, "_forget", counting)
    for at in range(100):
        flying.handed_out("T", f"h{at}", 0, 1, 200_000, 60_000 + 100 * at)
    assert searched == 2
    flying.handed_out("T", "more", 0, 1, 300_000, 250_000)
    assert flying.invisible("T", "more", 250_000) == 1


def test_messages_in_flight_are_counted_by_queue_and_cleared_by_a_reset() -> None:
    flying = PopsInFlight()
    flying.handed_out("T", "g", 0, 3, 60_000, 0)
    flying.handed_out("T", "g", 1, 2, 60_000, 0)
    flying.ended("T", "g", 1, 1, 60_000)
    assert flying.of_queues("T", "g", 0) == {0: 3, 1: 1}
    flying.clear("T", "g", 0)
    flying.clear("T", "h", 0)
    assert flying.of_queues("T", "g", 0) == {1: 1} and flying.invisible("T", "g", 0) == 1


def test_queue_that_is_read_for_long_keeps_few_counts() -> None:
    flying = PopsInFlight()
    for second in range(1, 1_000):
        now = 1_000 * second
        flying.handed_out("T", "g", 0, 1, now + 10_000, now)
    assert flying.invisible("T", "g", 999_000) == 11
    assert flying._counts <= 13, "those that are over were dropped"
