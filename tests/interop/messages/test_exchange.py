"""Java's transactions, ordered consumers, requests and tools against our broker."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.interop.driver import JavaDriver, Received
from tests.interop.ours import OurClients
from tests.support import first_arrivals, until_sync

from sparrowmq.broker.transactions.half_messages import op_numbers
from sparrowmq.core.message import Message, MessageQueue
from sparrowmq.core.names import OP_HALF_TOPIC
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Our servers, with quick checks of transactions."""
    with LocalCluster(transaction_time_out=500, transaction_check_interval=300) as cluster:
        yield cluster


def bodies(driver: JavaDriver, cluster: LocalCluster, topic: str) -> list[str]:
    return sorted(one.body.decode() for one in driver.dump(cluster.namesrv, topic))


def _ops_of(driver: JavaDriver, cluster: LocalCluster, ends: int) -> list[Received]:
    """The op records once they name so many ends: those that came together share one."""
    ops = driver.dump(cluster.namesrv, OP_HALF_TOPIC)
    return ops if sum(len(op_numbers(one.body)) for one in ops) == ends else []


@pytest.mark.proves("broker:9.1", "broker:9.2", "broker:9.4", "broker:9.5")
def test_javas_transactions(driver: JavaDriver, cluster: LocalCluster, name: str) -> None:
    """First letter: the local branch; second: what the check says (C commit, R roll back, U unknown)."""
    driver.admin(cluster.namesrv).create_topic(cluster.broker_address, name, 4)
    texts = ["C_1", "C_2", "R_1", "UC1", "UC2", "UR1"]
    producer = driver.call(
        "Exchanges.transactions", namesrv=cluster.namesrv, group=f"{name}_p", topic=name, texts=texts
    )
    try:
        until_sync(lambda: bodies(driver, cluster, name) == ["C_1", "C_2", "UC1", "UC2"])
        ops = until_sync(lambda: _ops_of(driver, cluster, 6))
        assert all(one.properties["TAGS"] == "d" for one in ops)
        shown = driver.dump(cluster.namesrv, name)
        assert len(shown) == 4 and {one.sys_flag & 0xC for one in shown} == {8}
        assert not any({"REAL_TOPIC", "REAL_QID"} & set(one.properties) for one in shown)
    finally:
        driver.call("Exchanges.stop", handle=producer)


@pytest.mark.proves("broker:10.6", "client:C-26", "client:C-27")
def test_javas_ordered_consumers_share_queues(driver: JavaDriver, cluster: LocalCluster, name: str) -> None:
    driver.admin(cluster.namesrv).create_topic(cluster.broker_address, name, 4)
    arguments = {"namesrv": cluster.namesrv, "group": f"{name}_c", "topic": name}
    consumers = [driver.call("Exchanges.orderly", **arguments)]
    try:
        with driver.producer(cluster.namesrv, f"{name}_p") as producer:
            numbers = itertools.count()

            def send() -> None:
                for number in itertools.islice(numbers, 40):
                    queue = MessageQueue(name, "broker-a", number % 4)
                    producer.send([Message(name, b"%d" % number)], queue=queue)

            def seen_by(consumer: str) -> list[list[Any]]:
                return driver.call("Exchanges.seen", handle=consumer)

            send()
            until_sync(lambda: len(seen_by(consumers[0])) >= 40)
            consumers.append(driver.call("Exchanges.orderly", **arguments))
            until_sync(lambda: send() or seen_by(consumers[1]))
            sent = next(numbers)
            until_sync(lambda: len({text for one in consumers for _, text in seen_by(one)}) == sent)
            seen = [seen_by(one) for one in consumers]
    finally:
        for one in consumers:
            driver.call("Exchanges.stop", handle=one)
    for rows in seen:
        for queue_id in range(4):
            mine = first_arrivals(int(text) for queue, text in rows if queue == queue_id)
            assert mine == sorted(mine), "in order within a queue"


@pytest.mark.proves("broker:6.7", "client:B-89", "client:B-95", "client:B-96")
def test_java_asks_and_java_answers(driver: JavaDriver, cluster: LocalCluster, name: str) -> None:
    driver.admin(cluster.namesrv).create_topic(cluster.broker_address, name, 2)
    arguments = {"namesrv": cluster.namesrv, "topic": name}
    server = driver.call("Exchanges.serve", group=f"{name}_s", **arguments)
    try:
        replies = driver.call("Exchanges.ask", group=f"{name}_a", texts=["one", "two"], **arguments)
        assert replies == ["re: one", "re: two"]
    finally:
        driver.call("Exchanges.stop", handle=server)
    # At least once: where the asker is slow to take a reply, its sender gets SYSTEM_ERROR, as from Apache's
    # broker, and Java's producer sends the reply again.
    kept = {one.body for one in driver.dump(cluster.namesrv, "DefaultCluster_REPLY_TOPIC")}
    assert kept == {b"re: one", b"re: two"}


@pytest.mark.proves("client:A-89", "client:A-90", "client:A-91", "broker:16.3")
@pytest.mark.parametrize("kind", ["java", "ours"])
def test_tools_look_at_consumers_and_reset_them(
    driver: JavaDriver, our_clients: OurClients, cluster: LocalCluster, name: str, kind: str
) -> None:
    driver.admin(cluster.namesrv).create_topic(cluster.broker_address, name, 2)
    group = f"{name}_c"
    clients = driver if kind == "java" else our_clients
    with driver.producer(cluster.namesrv, f"{name}_p") as producer:
        queues = [MessageQueue(name, "broker-a", number) for number in (0, 1)]
        sent = [producer.send([Message(name, b"x")], queue=queues[n % 2])[0] for n in range(6)]
        with clients.consumer(cluster.namesrv, group, {name: "*"}) as consumer:
            consumer.wait(6)
            progress = driver.admin(cluster.namesrv).group_progress
            until_sync(lambda: sum(consumed for _, consumed in progress(group).values()) == 6)
            arguments = {"namesrv": cluster.namesrv, "group": group, "topic": name}
            found = driver.call(
                "Tools.look",
                message=sent[0].offset_msg_id,
                broker_addr=cluster.broker_address,
                **arguments,
            )
            assert (found["queues"], found["kind"], found["directly"]) == (
                2,
                "CONSUME_PASSIVELY",
                "CR_SUCCESS",
            )
            assert found["status"] == {found["client"]: {"0": 3, "1": 3}}
            assert {row[0] for row in found["spans"]} == {0, 1} and found["subscription"] == "*"
            assert (found["clone"], found["all"]) == (True, True) and found["producers"] >= 1
            consumer.wait(7)  # the one that was consumed directly
            assert driver.call("Tools.reset", timestamp=0, **arguments) == {"0": 0, "1": 0}
            consumer.wait(13, 60.0)


def test_a_reset_of_an_idle_group_is_where_it_begins(
    driver: JavaDriver, our_clients: OurClients, cluster: LocalCluster, name: str
) -> None:
    driver.admin(cluster.namesrv).create_topic(cluster.broker_address, name, 1)
    group = f"{name}_c"
    with driver.producer(cluster.namesrv, f"{name}_p") as producer:
        producer.send([Message(name, b"early")])
        middle = int(time.time() * 1000)
        until_sync(lambda: time.time() * 1000 > middle + 5)
        with our_clients.consumer(cluster.namesrv, group, {name: "*"}) as consumer:
            consumer.wait(1)
        producer.send([Message(name, b"late")])
    arguments = {"namesrv": cluster.namesrv, "group": group, "topic": name}
    assert driver.call("Tools.reset", timestamp=middle + 1, **arguments) == {"0": 1}
    with our_clients.consumer(cluster.namesrv, group, {name: "*"}) as consumer:
        assert [one.body for one in consumer.wait(1)] == [b"late"]
