"""Shared by tests of producers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from tests.client.fake import FakeCluster, fake_cluster
from tests.support import run

from sparrowmq.client.base.settings import ProducerSettings
from sparrowmq.client.producer.producer import Producer
from sparrowmq.protocol import headers
from sparrowmq.protocol.codes import RequestCode

SEND = int(RequestCode.SEND_MESSAGE_V2)


def flow(
    test: Callable[[FakeCluster, Producer], Coroutine[Any, Any, None]],
    *,
    brokers: int = 1,
    queues: int = 4,
    **settings: Any,
) -> None:
    """Run `test` with a cluster that has topic T and a started producer."""

    async def main() -> None:
        async with fake_cluster("T", brokers=brokers, queues=queues) as cluster:
            made = ProducerSettings(namesrv=cluster.namesrv, **settings)
            async with Producer("g", settings=made) as producer:
                await test(cluster, producer)

    run(main())


def sends(cluster: FakeCluster, broker: str = "broker-a") -> list[headers.SendMessageRequest]:
    return [headers.send_from_v2(c.ext) for c in cluster.brokers[broker].seen if c.code in (SEND, 320)]
