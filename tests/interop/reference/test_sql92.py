"""SQL92 filters between Java's and our consumers and Apache's and our brokers."""

from __future__ import annotations

from typing import Any, Final

import pytest
from tests.interop.apache import ApacheCluster
from tests.interop.driver import JavaDriver, JavaError
from tests.interop.ours import CONSUMER, OurClients
from tests.support import until, until_sync

from sparrowmq import aio
from sparrowmq.core.errors import InvalidExpressionError
from sparrowmq.core.message import Message, ReceivedMessage
from sparrowmq.core.subscription import Sql
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.interop

FILTER: Final = "amount BETWEEN 2 AND 3 OR region = 'eu' AND amount > 8 -- what is asked for"
WANTED: Final = {"2", "3", "9"}
SERVERS: Final = ["apache", "ours"]


def _messages(topic: str) -> list[Message]:
    return [
        Message(
            topic,
            str(number).encode(),
            tags="T",
            properties={"amount": str(number), "region": "eu" if number % 2 else "us"},
        )
        for number in range(10)
    ] + [Message(topic, b"text", properties={"amount": "many"}), Message(topic, b"none")]


@pytest.fixture(params=SERVERS)
def cluster(request: pytest.FixtureRequest) -> Any:
    """Apache's or our servers."""
    return request.getfixturevalue(request.param)


@pytest.mark.proves("broker:14.2", "client:D.2-14")
def test_a_java_consumer_gets_what_its_filter_names(
    cluster: ApacheCluster | LocalCluster, driver: JavaDriver, our_clients: OurClients, name: str
) -> None:
    driver.admin(cluster.namesrv).create_topic(cluster.broker_address, name, 2)
    with our_clients.producer(cluster.namesrv, f"{name}_p") as producer:
        messages = _messages(name)
        producer.send(messages)
        arguments = {"namesrv": cluster.namesrv, "group": f"{name}_c", "topic": name}
        handle = driver.call("Filters.consume", **arguments, expression=FILTER)
        try:
            until_sync(lambda: set(driver.call("Filters.consumed", handle=handle)) == WANTED)
            producer.send(messages)  # while its pulls are held
            until_sync(
                lambda: sorted(driver.call("Filters.consumed", handle=handle)) == sorted([*WANTED] * 2)
            )
        finally:
            driver.call("Filters.stop", handle=handle)


@pytest.mark.proves("broker:14.2", "client:D.2-14")
def test_our_consumers_get_what_their_filter_names(
    cluster: ApacheCluster | LocalCluster, driver: JavaDriver, our_clients: OurClients, name: str
) -> None:
    driver.admin(cluster.namesrv).create_topic(cluster.broker_address, name, 2)
    messages = _messages(name)
    with our_clients.producer(cluster.namesrv, f"{name}_p") as producer:
        producer.send(messages)

    async def consume() -> None:
        got: list[ReceivedMessage] = []
        consumer = aio.PushConsumer(f"{name}_c", namesrv=cluster.namesrv, settings=CONSUMER)
        consumer.subscribe(name, Sql(FILTER), got.append)
        async with consumer, aio.PullConsumer(namesrv=cluster.namesrv) as pulling:
            await until(lambda: {message.body.decode() for message in got} == WANTED)
            found = set()
            for queue in await pulling.queues(name):
                offset, end = await pulling.min_offset(queue), await pulling.max_offset(queue)
                while offset < end:
                    result = await pulling.pull(queue, offset, expression=Sql(FILTER))
                    found |= {message.body.decode() for message in result.messages}
                    offset = result.next_offset
            assert found == WANTED
        assert len(got) == len(WANTED)
        polled: set[str] = set()
        settings = aio.PullSettings(consume_from="first")
        sharing = aio.PullConsumer(f"{name}_l", namesrv=cluster.namesrv, settings=settings)
        sharing.subscribe(name, Sql(FILTER))
        async with sharing:
            while polled < WANTED:
                found = {message.body.decode() for message in await sharing.poll(10)}
                assert found and found <= WANTED, (found, polled)
                polled |= found

    our_clients.run(consume())


@pytest.mark.proves("broker:14.2", "client:D.2-14")
def test_a_wrong_filter_is_refused_before_anything_is_consumed(
    cluster: ApacheCluster | LocalCluster, driver: JavaDriver, our_clients: OurClients, name: str
) -> None:
    driver.admin(cluster.namesrv).create_topic(cluster.broker_address, name, 1)
    arguments = {"namesrv": cluster.namesrv, "group": f"{name}_c", "topic": name}
    with pytest.raises(JavaError) as caught:
        driver.call("Filters.consume", **arguments, expression="amount > 'x'")
    assert caught.value.code == 23

    async def subscribe() -> None:
        consumer = aio.PushConsumer(f"{name}_o", namesrv=cluster.namesrv, settings=CONSUMER)
        with pytest.raises(InvalidExpressionError, match="column 8: '>' compares numbers"):
            consumer.subscribe(name, Sql("amount > 'x'"), print)

    our_clients.run(subscribe())
