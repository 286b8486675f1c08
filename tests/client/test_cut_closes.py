"""A close that is cancelled at any step, by a time limit or a second Ctrl-C, leaves no task, thread or
connection behind: a member whose heartbeats went on would keep its queues from the others for ever.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
from tests.client.fake import FakeCluster, fake_cluster
from tests.support import run, until

import sparrowmq as mq
from sparrowmq import aio
from sparrowmq.client.base.lifecycle import ClientObject, State

STEPS_MAX = 500


def push(namesrv: str, *, ordered: bool = False) -> ClientObject:
    settings = mq.ConsumerSettings(namesrv=namesrv, consume_from="first", ordered=ordered, trace=True)
    consumer = aio.PushConsumer("g", settings=settings)
    consumer.subscribe("T", handler=lambda message: None)
    return consumer


def pull(namesrv: str) -> ClientObject:
    consumer = aio.PullConsumer("g", namesrv=namesrv, trace=True)
    consumer.subscribe("T")
    return consumer


def schedule(namesrv: str) -> ClientObject:
    found = aio.PullSchedule("g", namesrv=namesrv)
    found.register("T", lambda queue, context: None)
    return found


def simple(namesrv: str) -> ClientObject:
    consumer = aio.SimpleConsumer("g", namesrv=namesrv)
    consumer.subscribe("T")
    return consumer


KINDS: dict[str, Callable[[str], ClientObject]] = {
    "push": push,
    "ordered": lambda namesrv: push(namesrv, ordered=True),
    "pull": pull,
    "schedule": schedule,
    "simple": simple,
    "producer": lambda namesrv: aio.Producer("p", namesrv=namesrv, trace=True),
    "admin": lambda namesrv: aio.Admin(namesrv=namesrv),
}


async def close_cut_after(steps: int, client: ClientObject) -> bool:
    """Whether the close was still in progress after so many steps of the loop, and was cancelled."""
    closing = asyncio.create_task(client.close())
    for _ in range(steps):
        await asyncio.sleep(0)
    was_cut = closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    return was_cut


@pytest.mark.parametrize("kind", KINDS)
def test_a_close_that_is_cancelled_leaves_nothing_behind(kind: str) -> None:
    async def main(cluster: FakeCluster) -> None:
        tasks, threads = asyncio.all_tasks(), set(threading.enumerate())
        for steps in range(STEPS_MAX):
            client = KINDS[kind](cluster.namesrv)
            await client.start()
            was_cut = await close_cut_after(steps, client)
            await client.close()
            assert client.state is State.CLOSED
            await until(lambda: asyncio.all_tasks() <= tasks and {*threading.enumerate()} <= threads, 10)
            if not was_cut:
                return
        raise AssertionError(f"a close takes more than {STEPS_MAX} steps")

    async def flow() -> None:
        async with fake_cluster("T") as cluster:
            await main(cluster)

    run(flow())
