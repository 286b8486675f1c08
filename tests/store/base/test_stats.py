from __future__ import annotations

from pathlib import Path

import pytest
from tests.store.rig import opened, put

from sparrowmq.core.errors import StoreError
from sparrowmq.store.base.stats import SLOTS, StoreStats
from sparrowmq.store.writer import ChunkWriter


@pytest.mark.proves("broker:16.1")
def test_put_times_are_counted_in_rocketmqs_intervals() -> None:
    stats = StoreStats()
    for seconds in (0.0, 0.0009, 0.005, 0.02, 0.099, 0.15, 0.3, 0.9, 1.5, 2.5, 3.5, 4.5, 9.0, 60.0):
        stats.put_took(seconds)
    assert stats.put_slots == [2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
    assert len(SLOTS) == 13
    assert stats.put_seconds_max == 60.0
    assert stats.put_percentile(0.1) == 0.001
    assert stats.put_percentile(0.999) == 60.0
    assert StoreStats().put_percentile(0.99) == 0.0


@pytest.mark.proves("broker:16.1")
def test_rates_over_ten_sixty_and_six_hundred_seconds_are_computed() -> None:
    stats = StoreStats()
    assert stats.rates("puts") == (0.0, 0.0, 0.0)
    for second in range(1001):
        stats.tick(float(second))
        if second < 995:
            stats.puts += 10
            stats.found += 1
            stats.missed += 2
            stats.transferred += 3
    ten, sixty, long = stats.rates("puts")
    assert ten == pytest.approx(5.0)
    assert sixty == pytest.approx(10 * 55 / 60)
    assert long == pytest.approx(10 * 595 / 600)
    assert stats.rates("total")[0] == pytest.approx(1.5)
    assert stats.rates("transferred")[0] == pytest.approx(1.5)


def test_rates_of_a_young_store_cover_its_lifetime() -> None:
    stats = StoreStats()
    stats.tick(0.0)
    stats.puts = 40
    stats.tick(2.0)
    assert stats.rates("puts") == (20.0, 20.0, 20.0)
    same = StoreStats()
    same.tick(5.0)
    same.tick(5.0)
    assert same.rates("puts") == (0.0, 0.0, 0.0)


def test_store_counts_its_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        for body in (b"a", b"b", b"c"):
            put(store, queue, body)
        stats = store.stats
        assert (stats.puts, stats.put_bytes, stats.put_failures) == (3, store.position, 0)
        assert sum(stats.put_slots) >= 3
        store.get_messages(queue, 0, max_count=2, max_bytes=1000)
        store.get_messages(queue, 3, max_count=2, max_bytes=1000)
        store.get_messages(None, 0, max_count=2, max_bytes=1000)
        assert (stats.found, stats.missed, stats.transferred) == (1, 2, 2)

        def refuse(self: ChunkWriter) -> None:
            self.drop()
            raise StoreError("no")

        with monkeypatch.context() as patch:
            patch.setattr(ChunkWriter, "commit", refuse)
            with pytest.raises(StoreError):
                put(store, queue, b"d")
        assert (stats.puts, stats.put_failures) == (3, 1)
