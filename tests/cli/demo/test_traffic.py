"""Traffic through a real cluster: everything is sent once, at the rate asked for; errors reach the caller."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import about, run, until_sync

from sparrowmq import aio
from sparrowmq.cli.demo import traffic as module
from sparrowmq.cli.demo.flights import data_directory
from sparrowmq.cli.demo.traffic import Traffic, TrafficPlan, delete_topics
from sparrowmq.core.errors import SparrowError
from sparrowmq.core.message import Message
from sparrowmq.testing import LocalCluster


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as running:
        yield running


def plan(namesrv: str, rows: int = 1000, rate: float | None = None, data: Path | None = None) -> TrafficPlan:
    return TrafficPlan(namesrv, "Flights", "Summaries", "demo", data or data_directory(), rows, rate)


def begin(traffic: Traffic) -> None:
    """Start it and let it send."""
    traffic.start()
    until_sync(traffic.topics_ready.is_set)
    traffic.begin()


async def bodies(namesrv: str, topic: str) -> list[bytes]:
    async with aio.PullConsumer(namesrv=namesrv) as consumer:
        found = []
        for queue in await consumer.queues(topic):
            offset, end = 0, await consumer.max_offset(queue)
            while offset < end:
                result = await consumer.pull(queue, offset, max_messages=1000)
                found += [message.body for message in result.messages]
                offset = result.next_offset
        return found


def test_every_flight_is_sent_once(cluster: LocalCluster) -> None:
    traffic = Traffic(plan(cluster.namesrv), lambda _: None)
    begin(traffic)
    until_sync(traffic.all_sent.is_set)
    traffic.stop()
    traffic.check()
    assert (traffic.total, traffic.sent, traffic.stored) == (1000, 1000, 1000)
    found = run(bodies(cluster.namesrv, "Flights"))
    assert len(found) == len(set(found)) == 1000


def test_a_rate_keeps_the_batches_small(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    real = Traffic._send_batch

    async def counted(self: Traffic, producer: Any, batch: list[Message], room: Any) -> None:
        sizes.append(len(batch))
        await real(self, producer, batch, room)

    monkeypatch.setattr(Traffic, "_send_batch", counted)
    traffic = Traffic(plan(cluster.namesrv, rows=50, rate=200.0), lambda _: None)
    begin(traffic)
    until_sync(traffic.all_sent.is_set)
    traffic.stop()
    traffic.check()
    assert sizes == [10] * 5


def test_summaries_are_heard(cluster: LocalCluster) -> None:
    heard: list[str] = []
    traffic = Traffic(plan(cluster.namesrv, rows=1), heard.append)
    begin(traffic)
    assert traffic.topics_ready.wait(20)

    async def send() -> None:
        async with aio.Producer("other", namesrv=cluster.namesrv) as producer:
            await producer.send(Message("Summaries", b"hello"))

    run(send())
    until_sync(lambda: traffic.summaries == 1)
    traffic.stop()
    traffic.check()
    assert heard == ["hello"]


def test_errors_reach_the_caller(tmp_path: Path) -> None:
    traffic = Traffic(plan("127.0.0.1:1"), lambda _: None)
    begin(traffic)
    assert traffic.topics_ready.wait(30)
    until_sync(lambda: traffic.error is not None)
    with pytest.raises(SparrowError, check=about(address="127.0.0.1:1")):
        traffic.check()
    traffic.stop()


def test_an_error_while_sending_is_not_a_group(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(Traffic, "_send_batch", broken)
    traffic = Traffic(plan(cluster.namesrv, rows=10), lambda _: None)
    begin(traffic)
    until_sync(lambda: traffic.error is not None)
    with pytest.raises(ValueError, check=about(args=("broken",))):
        traffic.check()
    traffic.stop()


def test_a_stop_before_the_end(cluster: LocalCluster) -> None:
    traffic = Traffic(plan(cluster.namesrv, rows=1000, rate=20.0), lambda _: None)
    begin(traffic)
    until_sync(lambda: traffic.sent > 0)
    traffic.stop()
    traffic.stop()
    traffic.check()
    assert not traffic.all_sent.is_set()
    assert 0 < traffic.sent < 1000
    assert traffic.stored >= traffic.sent


def test_topics_are_deleted(cluster: LocalCluster) -> None:
    traffic = Traffic(plan(cluster.namesrv, rows=1), lambda _: None)
    begin(traffic)
    until_sync(traffic.all_sent.is_set)
    traffic.stop()
    delete_topics(traffic.plan)

    async def topics() -> list[str]:
        async with aio.Admin(namesrv=cluster.namesrv) as admin:
            return await admin.topics.list()

    assert run(topics()) == []
    assert module.QUEUES == 8
