"""Queues of topics, their end offsets and times."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from tests.client.fake import NOW_MS, FakeCluster, answer
from tests.client.pull.test_pull_consumer import QUEUE, flow
from tests.support import about

from sparrowmq.client.pull.pull_consumer import PullConsumer
from sparrowmq.core.errors import NoRouteError, SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.codes import RequestCode


@pytest.mark.proves("client:E-43", "client:E-55")
def test_queues_are_sorted_and_current() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        assert await consumer.queues("T") == [QUEUE, MessageQueue("T", "broker-a", 1)]
        cluster.add_topic("T", 3)
        assert len(await consumer.queues("T")) == 3
        with pytest.raises(NoRouteError, check=about(topic="Nowhere")):
            await consumer.queues("Nowhere")

    flow(test)


@pytest.mark.proves("client:E-43")
def test_end_offsets_and_offset_of_a_time_are_returned() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        assert await consumer.min_offset(QUEUE) == 0
        assert await consumer.max_offset(QUEUE) == 50
        assert await consumer.search_offset(QUEUE, 123) == 25
        assert await consumer.search_offset(QUEUE, datetime(2024, 5, 1, tzinfo=UTC)) == 25
        (_, asked) = cluster.broker.requests(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
        assert asked.ext["timestamp"] == "1714521600000"
        with pytest.raises(SettingsError, check=about(setting="timestamp", value=datetime(2024, 5, 1))):
            await consumer.search_offset(QUEUE, datetime(2024, 5, 1))
        assert await consumer.earliest_time(QUEUE) == NOW_MS
        earliest = int(RequestCode.GET_EARLIEST_MSG_STORETIME)
        cluster.broker.on[earliest] = lambda conn, c: answer(ext={"timestamp": "-1"})
        assert await consumer.earliest_time(QUEUE) is None

    flow(test)
