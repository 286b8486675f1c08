from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.store.rig import open_store, put
from tests.support import run, until

from sparrowmq.broker import indexing
from sparrowmq.broker.indexing import FAR_BYTES, NEAR_BYTES, SHARE_MAX, SHARE_MIN, Indexer, share
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


def test_the_share_grows_with_the_distance() -> None:
    assert share(0, quiet=False) == share(NEAR_BYTES, quiet=False) == SHARE_MIN
    assert share(FAR_BYTES, quiet=False) == share(10 * FAR_BYTES, quiet=False) == SHARE_MAX
    assert share(1, quiet=True) == SHARE_MAX
    steps = [share(behind, quiet=False) for behind in range(NEAR_BYTES, FAR_BYTES, FAR_BYTES // 10)]
    assert steps == sorted(set(steps))


@pytest.mark.proves("broker:4.2")
def test_the_index_follows_by_itself(tmp_path: Path) -> None:
    async def main() -> None:
        async with indexed(tmp_path) as (store, indexer):
            fill(store, 600)
            indexer.start()
            await until(lambda: store.index.behind == 0)
            fill(store, 1)
            await until(lambda: store.index.behind == 0)

    run(main())


def test_whoever_asks_has_it_catch_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with indexed(tmp_path) as (store, indexer):
            fill(store, 600)
            assert await indexer.catch_up()
            assert store.index.behind == 0
            fill(store, 600)
            monkeypatch.setattr(indexing, "CATCH_UP_SECONDS", -1)
            assert not await indexer.catch_up()
            assert store.index.behind > 0
            store.index.enabled = False
            assert await indexer.catch_up()

    run(main())


def test_a_disk_that_refuses_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
