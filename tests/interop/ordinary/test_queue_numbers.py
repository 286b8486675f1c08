"""A topic or a group gets more or fewer queues under Java's clients: no send fails, no message is lost."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from tests.interop.driver import JavaDriver, JavaProducer
from tests.support import until_sync

import sparrowmq as mq
from sparrowmq.core.message import Message
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.interop
MESSAGES = 20


class Tools:
    """Commands of Apache's `mqadmin` that change our broker."""

    def __init__(self, driver: JavaDriver, cluster: LocalCluster, directory: Path) -> None:
        self._driver = driver
        self._cluster = cluster
        self._exit_file = str(directory / "exit.json")

    def _change(self, code: RequestCode, command: str, *arguments: str) -> str | None:
        """Run a command; what the broker said against it, None if it did as asked."""
        where = ["-b", self._cluster.broker_address, "-n", self._cluster.namesrv]
        found = self._driver.call(
            "MqAdmin.run", arguments=[command, *where, *arguments], within=30, exit_file=self._exit_file
        )
        (answer,) = [one for one in found["answers"] if one["asked"] == code]
        remark: str | None = answer.get("remark")
        return remark if answer["answered"] else None

    def topic(self, name: str, *, read: int, write: int) -> str | None:
        """Set how many queues are read, and how many written to."""
        sizes = ["-t", name, "-r", str(read), "-w", str(write)]
        return self._change(RequestCode.UPDATE_AND_CREATE_TOPIC, "updateTopic", *sizes)

    def retry_queues(self, group: str, count: int) -> str | None:
        """Set how many queues a group's retries use."""
        sizes = ["-g", group, "-q", str(count)]
        return self._change(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, "updateSubGroup", *sizes)


@pytest.fixture
def tools(driver: JavaDriver, ours: LocalCluster, tmp_path: Path) -> Tools:
    """`mqadmin` at our servers."""
    return Tools(driver, ours, tmp_path)


def lag(driver: JavaDriver, namesrv: str, group: str) -> int:
    """The group's messages that are not consumed, its retries included."""
    rows = driver.admin(namesrv).call("group_progress", group=group)
    return sum(row["broker_offset"] - row["consumer_offset"] for row in rows)


def test_every_retry_comes_again_when_a_group_gets_more_retry_queues(
    driver: JavaDriver, ours: LocalCluster, tools: Tools, name: str
) -> None:
    admin, group = driver.admin(ours.namesrv), f"{name}_g"[-60:]
    admin.create_topic(ours.broker_address, name, 1)
    where: dict[str, Any] = {"namesrv": ours.namesrv, "group": group, "topic": name}
    bodies = [b"%d" % number for number in range(2 * MESSAGES)]
    with ThreadPoolExecutor(1) as threads, driver.producer(ours.namesrv, f"{name}_p") as producer:
        count = 2 * len(bodies)
        failing = threads.submit(driver.call, "Exchanges.fail", seconds=90, retries=1, count=count, **where)
        until_sync(lambda: admin.queues(f"%RETRY%{group}") == 1)
        producer.send([Message(name, body) for body in bodies[:MESSAGES]])
        assert tools.retry_queues(group, 4) is None
        producer.send([Message(name, body) for body in bodies[MESSAGES:]])
        tries = failing.result(100)
    assert {(base64.b64decode(one["body"]), one["reconsume_times"]) for one in tries} == {
        (body, times) for body in bodies for times in (0, 1)
    }
    assert len({one["queue_id"] for one in tries if one["reconsume_times"]}) > 1
    assert lag(driver, ours.namesrv, group) == 0
    with mq.Admin(ours.namesrv) as ours_admin:
        letters = ours_admin.dead_letters.list(group, count=len(bodies) + 1)
    assert {letter.body for letter in letters} == set(bodies)


class Stream:
    """Messages sent one by one until it ends; any failure is raised then."""

    def __init__(self, producer: JavaProducer, topic: str, ended: Event) -> None:
        self._producer = producer
        self._topic = topic
        self._ended = ended
        self.sent: list[bytes] = []
        self.queue_ids: list[int] = []

    def run(self) -> None:
        while not self._ended.is_set():
            body = b"%d" % len(self.sent)
            (sent,) = self._producer.send([Message(self._topic, body)])
            self.queue_ids.append(sent.queue.queue_id)
            self.sent.append(body)

    def next_queues(self) -> set[int]:
        """The queues of the next messages."""
        start = len(self.sent)
        until_sync(lambda: len(self.queue_ids) >= start + MESSAGES)
        return set(self.queue_ids[start : start + MESSAGES])


@contextmanager
def stream(producer: JavaProducer, topic: str) -> Iterator[Stream]:
    """A stream in a thread of its own."""
    ended = Event()
    with ThreadPoolExecutor(1) as threads:
        found = Stream(producer, topic, ended)
        running = threads.submit(found.run)
        try:
            yield found
        finally:
            ended.set()
            running.result(60)


def test_a_topic_is_widened_and_shrunk_under_a_producer_and_a_consumer(
    driver: JavaDriver, ours: LocalCluster, tools: Tools, name: str
) -> None:
    """It gets fewer queues in two steps: first to write, then, when the others are read, to read."""
    group = f"{name}_g"[-60:]
    assert tools.topic(name, read=4, write=4) is None
    with (
        driver.producer(ours.namesrv, f"{name}_p") as producer,
        driver.consumer(ours.namesrv, group, {name: "*"}) as consumer,
    ):
        with stream(producer, name) as sending:
            assert sending.next_queues() <= set(range(4))
            assert tools.topic(name, read=8, write=8) is None
            until_sync(lambda: max(sending.next_queues()) >= 4)
            until_sync(lambda: len(consumer.assigned()) == 8)
            consumer.pause()
            until_sync(lambda: max(sending.next_queues()) >= 4)
            assert tools.topic(name, read=8, write=4) is None
            until_sync(lambda: max(sending.next_queues()) < 4)
            refused = tools.topic(name, read=4, write=4)
            assert refused is not None
            assert "has unread messages in the queues 4 to 7" in refused
            assert group in refused
            consumer.resume()
            until_sync(lambda: tools.topic(name, read=4, write=4) is None)
            until_sync(lambda: len(consumer.assigned()) == 4)
            assert sending.next_queues() <= set(range(4))
        until_sync(lambda: {one.body for one in consumer.received()} == set(sending.sent))
        until_sync(lambda: lag(driver, ours.namesrv, group) == 0)
