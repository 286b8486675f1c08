"""Shared by tests of consumers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.client.fake import FakeCluster, fake_cluster
from tests.support import run

from sparrowmq.client.base.settings import ConsumerSettings
from sparrowmq.client.push.push_consumer import PushConsumer
from sparrowmq.core.message import ReceivedMessage
from sparrowmq.protocol import properties
from sparrowmq.protocol.codes import RequestCode

PULL = int(RequestCode.PULL_MESSAGE)


SEND_BACK = int(RequestCode.CONSUMER_SEND_MSG_BACK)


FAST: dict[str, Any] = {
    "consume_from": "first",
    "rebalance_interval_min": 0.01,
    "persist_interval": 0.02,
    "error_delay": 0.02,
    "redeliver_delay": 0.02,
    "close_timeout": 5.0,
}


def consumer_of(cluster: FakeCluster, group: str = "g", **values: Any) -> PushConsumer:
    return PushConsumer(group, settings=ConsumerSettings(namesrv=cluster.namesrv, **{**FAST, **values}))


@asynccontextmanager
async def cluster_with(count: int, *, queues: int = 2, tags: tuple[str, ...] = ("",)) -> Any:
    """A cluster whose topic T has `count` messages, bodies 0, 1, 2, …, spread over the queues."""
    async with fake_cluster("T", queues=queues) as cluster:
        for number in range(count):
            put(cluster, number, queues=queues, tag=tags[number % len(tags)])
        yield cluster


def put(cluster: FakeCluster, number: int, *, queues: int = 2, tag: str = "") -> None:
    props = properties.encode({"UNIQ_KEY": f"U{number}", "TAGS": tag})
    cluster.broker.store("T", number % queues, b"%d" % number, props)


def flow(test: Callable[[FakeCluster], Coroutine[Any, Any, None]], count: int = 0, **values: Any) -> None:
    async def main() -> None:
        async with cluster_with(count, **values) as cluster:
            await test(cluster)

    run(main())


def committed(cluster: FakeCluster, group: str = "g") -> dict[int, int]:
    return {
        q: offset
        for (name, topic, q), offset in cluster.broker.offsets.items()
        if (name, topic) == (group, "T")
    }


def numbers(messages: Sequence[ReceivedMessage]) -> list[int]:
    return sorted(int(message.body) for message in messages)
