from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.client.fake import answer, fake_cluster
from tests.support import run

from sparrowmq.client.base.settings import ClientSettings
from sparrowmq.client.cluster.broker_api import no_generation
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.client.consumer.offset_store import BrokerOffsetStore, LocalOffsetStore
from sparrowmq.client.consumer.start_offset import start_offset
from sparrowmq.core.errors import BrokerError
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.codes import RequestCode

MOMENT = datetime(2024, 1, 1, tzinfo=UTC)


async def start(cluster: Any, topic: str, consume_from: Any) -> int:
    instance = ClientInstance(ClientSettings(namesrv=cluster.namesrv))
    try:
        queue = MessageQueue(topic, "broker-a", 0)
        store = BrokerOffsetStore(instance, "g", no_generation)
        return await start_offset(instance, store, queue, consume_from)
    finally:
        await instance.close()


@pytest.mark.proves("client:C-36")
@pytest.mark.parametrize(
    ("topic", "consume_from", "expected"),
    [
        ("T", "last", 10),
        ("T", "first", 0),
        ("T", MOMENT, 5),
        ("T", 1_704_067_200_000, 5),
        ("%RETRY%g", "last", 0),
        ("%RETRY%g", "first", 0),
        ("%RETRY%g", MOMENT, 10),
    ],
)
def test_start_policy_decides_without_a_stored_offset(topic: str, consume_from: Any, expected: int) -> None:
    async def main() -> None:
        async with fake_cluster(topic) as cluster:
            for _ in range(10):
                cluster.broker.store(topic, 0, b"x")
            assert await start(cluster, topic, consume_from) == expected
            cluster.broker.offsets["g", topic, 0] = 3
            assert await start(cluster, topic, consume_from) == 3

    run(main())


@pytest.mark.proves("client:C-36")
def test_time_is_sent_in_epoch_milliseconds() -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster:
            await start(cluster, "T", MOMENT)
            (asked,) = cluster.broker.requests(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
            assert asked.ext["timestamp"] == str(int(MOMENT.timestamp() * 1000))

    run(main())


@pytest.mark.proves("client:C-34")
def test_error_does_not_count_as_no_stored_offset() -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster:
            cluster.broker.on[RequestCode.QUERY_CONSUMER_OFFSET] = lambda conn, c: answer(1, remark="x")
            with pytest.raises(BrokerError):
                await start(cluster, "T", "first")

    run(main())


@pytest.mark.parametrize(("told", "expected"), [(0, 0), (None, 10)])
def test_local_store_asks_whether_the_queue_is_young(told: int | None, expected: int, tmp_path: Path) -> None:
    """A message may arrive between the question whether the queue is empty and that for its end."""

    async def main() -> None:
        async with fake_cluster("T") as cluster:
            for _ in range(10):
                cluster.broker.store("T", 0, b"x")
            if told is not None:
                cluster.broker.offsets["TOOLS_CONSUMER", "T", 0] = told
            instance = ClientInstance(ClientSettings(namesrv=cluster.namesrv))
            try:
                await instance.find_route("T")
                store = LocalOffsetStore(tmp_path / "offsets.json")
                queue = MessageQueue("T", "broker-a", 0)
                assert await start_offset(instance, store, queue, "last") == expected
            finally:
                await instance.close()

    run(main())
