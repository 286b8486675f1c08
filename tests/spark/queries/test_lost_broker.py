"""Streams over two brokers, one of which is lost for good: a write in the middle of a batch, and a read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tests.spark.support import QUERY_SECONDS, Collected, numbered, run_available
from tests.support import free_port, until_sync

import sparrowmq as mq
from sparrowmq.runtime.child import ChildServers
from sparrowmq.spark.write.queue_choice import FOLDER, ArrowFolder, note_lost

COUNT = 9000


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[tuple[str, ChildServers]]:
    """A name server with `broker-a`, and `broker-b`, which may be killed."""
    with ExitStack() as stack:

        def start(name: str, **more: str) -> ChildServers:
            settings = {"brokerName": name, "storePathRootDir": str(tmp_path / name)}
            given = {**settings, "listenPort": str(free_port()), **more}
            alone = None if more else {"listenPort": str(free_port())}
            child = ChildServers(broker=given, nameserver=alone)
            child.start()
            stack.callback(child.kill)
            return child

        first = start("broker-a")
        namesrv = first.nameserver_address
        second = start("broker-b", namesrvAddr=namesrv)
        with mq.Admin(namesrv) as admin:
            until_sync(lambda: len(admin.brokers.cluster_info().brokers) == 2, QUERY_SECONDS)
            admin.topics.create("Copy", queues=2)
            admin.topics.create("Here", queues=2)
        with mq.Producer("here", namesrv=namesrv) as producer:
            here = [queue for queue in producer.queues("Here") if queue.broker_name == "broker-a"]
            producer.send_batch(
                [mq.Message("Here", text.encode()) for text in numbered(0, COUNT)], queue=here[0]
            )
        yield namesrv, second


@pytest.mark.parametrize("noted", [True, False])
def test_it_goes_on_without_it_and_what_the_other_has_is_not_doubled(
    spark: SparkSession, brokers: tuple[str, ChildServers], tmp_path: Path, noted: bool
) -> None:
    namesrv, second = brokers
    checkpoint = tmp_path / "checkpoint"

    def copy(**options: str) -> None:
        frame = (
            spark.readStream.format("rocketmq")
            .schema("body binary")
            .options(nameServer=namesrv, assign='{"Here": {"broker-a": [0]}}', startingOffsets="earliest")
            .load()
        )
        writer = frame.writeStream.format("rocketmq").options(nameServer=namesrv, topic="Copy", **options)
        run_available(writer, str(checkpoint))

    def stored(broker: str) -> Counter[str]:
        found: Counter[str] = Counter()
        with mq.PullConsumer("look", namesrv=namesrv) as consumer:
            for queue in consumer.queues("Copy"):
                offset, end = 0, consumer.max_offset(queue) if queue.broker_name == broker else 0
                while offset < end:
                    result = consumer.pull(queue, offset)
                    found.update(message.body.decode() for message in result.messages)
                    offset = result.next_offset
        return found

    copy()
    there, lost = stored("broker-a"), stored("broker-b")
    assert there and lost and there + lost == Counter(numbered(0, COUNT))
    for path in (checkpoint / "commits").iterdir():
        path.unlink()  # the driver died before it could say that the batch is done
    second.kill()
    with pytest.raises(StreamingQueryException, match="brokerTimeoutMs is 300"):
        copy(brokerTimeoutMs="300")
    assert stored("broker-a") == there
    if noted:
        note_lost(ArrowFolder(str(checkpoint / FOLDER)), "broker-b")
    copy(brokerTimeoutMs="5000", **({} if noted else {"lostBrokers": "broker-b"}))
    assert stored("broker-a") == Counter(numbered(0, COUNT))


def test_a_read_goes_on_without_it(
    spark: SparkSession, brokers: tuple[str, ChildServers], tmp_path: Path
) -> None:
    namesrv, second = brokers
    checkpoint = str(tmp_path / "checkpoint")

    def send(first: int, broker: str) -> None:
        with mq.Producer("there", namesrv=namesrv) as producer:
            there = next(queue for queue in producer.queues("Copy") if queue.broker_name == broker)
            texts = numbered(first, first + 20)
            producer.send_batch([mq.Message("Copy", text.encode()) for text in texts], queue=there)

    def read(**options: str) -> list[str]:
        source = spark.readStream.format("rocketmq").schema("body binary")
        given = {"nameServer": namesrv, "subscribe": "Copy", "startingOffsets": "earliest", **options}
        collected = Collected()
        run_available(source.options(**given).load().writeStream.foreachBatch(collected), checkpoint)
        return collected.texts

    send(0, "broker-a")
    send(20, "broker-b")
    assert read() == numbered(0, 40)
    send(40, "broker-b")  # nobody will read these
    send(60, "broker-a")
    second.kill()
    patience = {"brokerTimeoutMs": "300", "fetchOffset.numRetries": "1"}
    with pytest.raises(StreamingQueryException, match="option lostBrokers=broker-b reads the others"):
        read(**patience)
    assert read(**patience, lostBrokers="broker-b") == numbered(60, 80)
