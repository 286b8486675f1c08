"""Requests that wait are answered when consumers may read what they wait for."""

from __future__ import annotations

from typing import Any

from sparrowmq.broker.base import arrivals as module
from sparrowmq.broker.base.arrivals import ConfirmedArrivals
from sparrowmq.store.base.segments import MapPool
from sparrowmq.store.base.settings import StoreSettings
from sparrowmq.store.log.commit_log import NOT_TOLD, CommitLog, LogEnd
from sparrowmq.store.log.raw_log import RawLog


class Bench:
    """ConfirmedArrivals over a log without files; queues are texts."""

    def __init__(self, root: Any, end: int = 0) -> None:
        self.commit_log = CommitLog(StoreSettings(root=root), MapPool(10))
        self.grow(end)
        self.log = RawLog(self.commit_log)
        self.woken: list[Any] = []
        self.arrivals = ConfirmedArrivals(
            self.log, wake=self.woken.append, answer_all=lambda: self.woken.append("all")
        )

    def grow(self, end: int) -> None:
        self.commit_log.begin_at(LogEnd(end, 0, 0))

    def stored(self, end: int, *queues: str) -> None:
        self.grow(end)
        self.arrivals.stored(set(queues))  # type: ignore[arg-type]

    def told(self) -> list[Any]:
        told = [one if one == "all" else "".join(sorted(one)) for one in self.woken]
        self.woken.clear()
        return told


def test_without_copies_requests_are_answered_at_once(tmp_path: Any) -> None:
    bench = Bench(tmp_path)
    bench.stored(100, "a", "b")
    assert bench.told() == ["ab"]


def test_requests_wait_until_what_they_wait_for_is_confirmed(tmp_path: Any) -> None:
    bench = Bench(tmp_path)
    bench.log.confirm(0)
    for end, queue in ((100, "a"), (200, "b"), (300, "a"), (400, "c")):
        bench.stored(end, queue)
    assert bench.told() == []
    for confirmed, told in ((99, []), (100, ["a"]), (399, ["ab"]), (400, ["c"])):
        bench.log.confirm(confirmed)
        assert bench.told() == told
    bench.stored(400, "d")
    assert bench.told() == ["d"]
    bench.stored(500, "e")
    bench.log.confirm(None)
    assert bench.told() == ["e"]


def test_all_are_answered_when_it_becomes_known_what_is_confirmed(tmp_path: Any) -> None:
    """They may wait for messages that were there before."""
    bench = Bench(tmp_path, 1000)
    bench.log.confirm(NOT_TOLD)
    bench.stored(1100, "a")
    assert bench.told() == []
    bench.log.confirm(900)
    assert bench.told() == ["all"]
    bench.log.confirm(1000)
    assert bench.told() == ["all"]
    bench.log.confirm(1100)
    assert bench.told() == ["a"]


def test_what_waits_is_bounded(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 3)
    bench = Bench(tmp_path)
    bench.log.confirm(0)
    for number in range(10):
        bench.stored(100 + number, str(number))
    assert len(bench.arrivals._waiting) == 3
    bench.log.confirm(102)
    assert bench.told() == ["01"]
    bench.log.confirm(109)
    assert bench.told() == ["23456789"]
