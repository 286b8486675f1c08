"""A broker that comes back on an empty disk while consumers run: they handle all new messages."""

from __future__ import annotations

import asyncio
import shutil
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support import run, until

import sparrowmq as mq
from sparrowmq import aio
from sparrowmq.testing import LocalCluster

OLD, NEW = 15, 5
PUSHES: dict[str, dict[str, Any]] = {
    "concurrent": {},
    "ordered": {"ordered": True},
    "broadcasting": {"model": "broadcasting"},
}
Got = defaultdict[str, list[bytes]]


@asynccontextmanager
async def pushed(namesrv: str, group: str, got: list[bytes], **how: Any) -> AsyncIterator[None]:
    settings = mq.ConsumerSettings(namesrv=namesrv, consume_from="first", persist_interval=0.1, **how)
    consumer = aio.PushConsumer(group, settings=settings)
    consumer.subscribe("T", handler=lambda message: got.append(message.body))
    async with consumer:
        yield


@asynccontextmanager
async def polled(namesrv: str, group: str, got: list[bytes]) -> AsyncIterator[None]:
    settings = mq.PullSettings(namesrv=namesrv, consume_from="first", auto_commit_interval=1)
    consumer = aio.PullConsumer(group, settings=settings)
    consumer.subscribe("T", "*")

    async def poll() -> None:
        while True:
            got.extend(message.body for message in await consumer.poll(timeout=1))

    async with consumer:
        polling = asyncio.create_task(poll())
        try:
            yield
        finally:
            polling.cancel()


def new_disk(cluster: LocalCluster) -> None:
    """Restart the broker without anything that it had stored."""
    cluster.stop_broker()
    shutil.rmtree(cluster.data)
    cluster.data.mkdir()
    cluster.start_broker()


async def lags(admin: aio.Admin, group: str) -> list[int]:
    return [row.lag for row in await admin.groups.progress(group, "T")]


def test_all_consumers_handle_all_messages_after_the_disk_was_replaced(tmp_path: Path) -> None:
    got: Got = defaultdict(list)
    groups = [*PUSHES, "polling"]
    dividing = ["concurrent", "ordered", "polling"]
    new = {b"new%d" % number for number in range(NEW)}

    async def test(cluster: LocalCluster, stack: AsyncExitStack) -> None:
        namesrv = cluster.namesrv
        admin = await stack.enter_async_context(aio.Admin(namesrv=namesrv))
        producer = await stack.enter_async_context(aio.Producer("p", namesrv=namesrv))
        await admin.topics.create("T", queues=1)
        for group, how in PUSHES.items():
            how = {"offset_dir": tmp_path / "offsets", **how}
            await stack.enter_async_context(pushed(namesrv, group, got[group], **how))
        await stack.enter_async_context(polled(namesrv, "polling", got["polling"]))
        for _ in range(OLD):
            await producer.send(mq.Message("T", b"old"))
        await until(lambda: all(len(got[group]) == OLD for group in groups))
        for group in dividing:
            await until(lambda group=group: _is_committed(admin, group))

        await asyncio.to_thread(new_disk, cluster)
        await admin.topics.create("T", queues=1)
        for body in sorted(new):
            await producer.send(mq.Message("T", body))

        async def all_handled() -> bool:
            for group in dividing:
                assert min(await lags(admin, group), default=0) >= 0, group
            return all({body for body in got[group] if body != b"old"} == new for group in groups)

        await until(all_handled)
        for group in dividing:
            await until(lambda group=group: _is_committed(admin, group))

    async def main() -> None:
        with LocalCluster(tmp_path / "store") as cluster:
            async with AsyncExitStack() as stack:
                await test(cluster, stack)

    run(main())


async def _is_committed(admin: aio.Admin, group: str) -> bool:
    return await lags(admin, group) == [0]
