from __future__ import annotations

import pytest
from tests.client.fake import FakeCluster, answer
from tests.client.pulling import flow
from tests.support import until

from sparrowmq.client.pull.pull_consumer import PullConsumer
from sparrowmq.core.errors import InvalidNameError
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.codes import RequestCode

ROUTE = int(RequestCode.GET_ROUTEINFO_BY_TOPIC)


@pytest.mark.proves("client:E-42")
def test_listener_is_called_for_more_and_fewer_queues_but_not_initially() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        told: list[tuple[str, int]] = []
        looks: list[int] = []

        async def listener(topic: str, queues: list[MessageQueue]) -> None:
            told.append((topic, len(queues)))

        def plain(topic: str, queues: list[MessageQueue]) -> None:
            looks.append(len(queues))
            raise ZeroDivisionError("my watcher")

        cluster.add_topic("U", 1)
        consumer.watch_topic("T", listener)
        consumer.watch_topic("U", plain)
        await consumer.start()
        assert consumer._watch._known == {}
        await until(lambda: len(consumer._watch._known) == 2)
        assert (told, looks) == ([], [])
        cluster.add_topic("T", 5)
        await until(lambda: told == [("T", 5)])
        cluster.add_topic("T", 1)
        await until(lambda: told == [("T", 5), ("T", 1)])
        for number in (3, 4):
            cluster.add_topic("U", number)
            await until(lambda number=number: looks[-1:] == [number])
        with pytest.raises(InvalidNameError):
            consumer.watch_topic("a b", listener)

    flow(test, queues=2)


@pytest.mark.proves("client:E-42")
def test_failed_check_calls_no_listener_and_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        told: list[int] = []

        async def listener(topic: str, queues: list[MessageQueue]) -> None:
            told.append(len(queues))

        consumer.watch_topic("T", listener)
        await consumer.start()
        await until(lambda: consumer._watch._known)
        cluster.on[ROUTE] = lambda conn, c: answer(1, remark="name server is confused")
        await until(lambda: "the queues of T could not be checked" in caplog.text)
        assert told == []
        cluster.add_topic("T", 3)
        cluster.on.clear()
        await until(lambda: told == [3])

    flow(test)


def test_topic_temporarily_without_a_broker_calls_no_listener(caplog: pytest.LogCaptureFixture) -> None:
    """A name server that was just started knows no brokers yet: the queues still exist."""

    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        told: list[int] = []
        consumer.watch_topic("T", lambda topic, queues: told.append(len(queues)))
        await consumer.start()
        await until(lambda: consumer._watch._known)
        cluster.on[ROUTE] = lambda conn, c: answer(17, remark="No topic route info")
        await until(lambda: "the queues of T could not be checked: no broker serves it" in caplog.text)
        cluster.on.clear()
        cluster.add_topic("T", 3)
        await until(lambda: told)
        assert told == [3]

    flow(test)
