"""Shared helpers of the tests of polling and scheduled consumers: a scripted cluster with messages, and
short intervals."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from tests.client.fake import FakeCluster, fake_cluster
from tests.support import run

from sparrowmq.client.base.settings import PullSettings
from sparrowmq.client.pull.pull_consumer import PullConsumer

QUICK: dict[str, Any] = {
    "consume_from": "first",
    "pull_hold": 0.2,
    "rebalance_interval": 0.3,
    "rebalance_interval_min": 0.01,
    "persist_interval": 0.02,
    "error_delay": 0.02,
    "topic_check_interval": 0.02,
    "heartbeat_interval": 0.1,
    "route_interval": 0.1,
}


def quick(cluster: FakeCluster, **changes: Any) -> PullSettings:
    """Settings with short intervals."""
    return PullSettings(namesrv=cluster.namesrv, **{**QUICK, **changes})


def store(cluster: FakeCluster, count: int, topic: str = "T", queue_id: int = 0, tag: str = "A") -> None:
    """Put numbered messages into a queue of the first broker."""
    for number in range(count):
        cluster.broker.store(topic, queue_id, str(number).encode(), f"TAGS\x01{tag}\x02".encode())


def flow(
    test: Callable[[FakeCluster, PullConsumer], Coroutine[Any, Any, None]],
    *,
    queues: int = 1,
    brokers: int = 1,
    messages: int = 0,
    **settings: Any,
) -> None:
    """Run `test` with a cluster that has topic T and a consumer of group g that is not started yet."""

    async def main() -> None:
        async with fake_cluster("T", queues=queues, brokers=brokers) as cluster:
            store(cluster, messages)
            consumer = PullConsumer("g", settings=quick(cluster, **settings))
            try:
                await test(cluster, consumer)
            finally:
                await consumer.close()

    run(main())
