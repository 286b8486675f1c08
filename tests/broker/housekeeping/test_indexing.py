from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.store.rig import open_store, put
from tests.support import run, until

from sparrowmq.broker.housekeeping import indexing
from sparrowmq.broker.housekeeping.indexing import (
    FAR_BYTES,
    IDLE_LOOP,
    NEAR_BYTES,
    SHARE_BESIDE_READS,
    SHARE_MAX,
    SHARE_MIN,
    Busyness,
    Indexer,
    share,
)
from sparrowmq.core.errors import StoreError
from sparrowmq.store.message_store import MessageStore


@asynccontextmanager
async def indexed(root: Path) -> AsyncIterator[tuple[MessageStore, Indexer]]:
    store = open_store(root)
    indexer = Indexer(store)
    try:
        yield store, indexer
    finally:
        await indexer.close()
        store.close()


def fill(store: MessageStore, count: int) -> None:
    for number in range(count):
        put(store, store.queue("T", 0), b"x", properties=b"KEYS\x01k%d\x02" % number)


def test_share_grows_with_the_distance() -> None:
    def storing(behind: int) -> float:
        return share(behind, storing=True, busy=1.0)

    assert storing(0) == storing(NEAR_BYTES) == SHARE_MIN
    assert storing(FAR_BYTES) == storing(10 * FAR_BYTES) == SHARE_MAX
    steps = [storing(behind) for behind in range(NEAR_BYTES, FAR_BYTES, FAR_BYTES // 10)]
    assert steps == sorted(set(steps))


def test_readers_have_priority_while_nothing_is_stored() -> None:
    assert share(1, storing=False, busy=0.0) == SHARE_MAX
    for behind in (1, FAR_BYTES, 10 * FAR_BYTES):
        assert share(behind, storing=False, busy=IDLE_LOOP) == SHARE_BESIDE_READS < SHARE_MAX


def test_thread_load_is_measured_and_forgotten_quickly() -> None:
    busy = Busyness()
    busy.note(0.0, 0.0)
    assert busy.part == 0.0
    for _ in range(100):
        busy.note(0.0018, 0.002)
    assert 0.7 < busy.part < 0.9
    for _ in range(100):
        busy.note(0.0, 0.002)
    assert busy.part < IDLE_LOOP


def test_loop_that_serves_reads_indexes_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop's other work decides, measured in processor time: the test compares no clock."""
    asked: list[tuple[bool, float]] = []

    def noted(behind: int, *, storing: bool, busy: float) -> float:
        asked.append((storing, busy))
        return SHARE_MAX

    async def main() -> None:
        async with indexed(tmp_path) as (store, indexer):
            fill(store, 40 * indexing.SLICE_RECORDS)
            monkeypatch.setattr(indexing, "share", noted)
            indexer.start()
            while store.index.behind:
                store.get_messages(store.queue("T", 0), 0, max_count=5000, max_bytes=1 << 23)
                await asyncio.sleep(0)

    run(main())
    assert asked[-1][0] is False
    assert asked[0][1] == 0.0 < max(busy for _, busy in asked)


@pytest.mark.proves("broker:4.2")
def test_index_follows_the_log_in_the_background(tmp_path: Path) -> None:
    async def main() -> None:
        async with indexed(tmp_path) as (store, indexer):
            fill(store, 600)
            indexer.start()
            await until(lambda: store.index.behind == 0)
            fill(store, 1)
            await until(lambda: store.index.behind == 0)

    run(main())


def test_query_waits_until_the_index_has_caught_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with indexed(tmp_path) as (store, indexer):
            fill(store, 600)
            assert await indexer.catch_up()
            assert store.index.behind == 0
            fill(store, 600)
            monkeypatch.setattr(indexing, "CATCH_UP_SECONDS", -1)
            assert not await indexer.catch_up()
            assert store.index.behind > 0
            store.index.switch(on=False)
            assert await indexer.catch_up()

    run(main())


def test_failing_disk_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "RETRY_SECONDS", 0.01)

    async def main() -> None:
        async with indexed(tmp_path) as (store, indexer):
            fill(store, 10)
            asked = asyncio.Event()

            def refuse(records: int) -> int:
                asked.set()
                raise StoreError("no room")

            with monkeypatch.context() as patch:
                patch.setattr(store, "follow_index", refuse)
                assert not await indexer.catch_up()
                asked.clear()
                indexer.start()
                await asked.wait()
            await until(lambda: store.index.behind == 0)

    run(main())
