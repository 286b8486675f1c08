"""What the Spark tests share: a cluster with messages in it, and frames over it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from tests.support import until_sync

import sparrowmq as mq
from sparrowmq.spark.cluster import clients
from sparrowmq.testing import LocalCluster

QUERY_SECONDS = 60


class Topics:
    """Clients of the test cluster."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.producer = mq.Producer("spark_tests", namesrv=cluster.namesrv)
        self.admin = mq.Admin(cluster.namesrv)
        self.consumer = mq.PullConsumer("spark_tests_reader", namesrv=cluster.namesrv)

    def __enter__(self) -> Topics:
        for client in (self.producer, self.admin, self.consumer):
            client.start()
        return self

    def __exit__(self, *_: object) -> None:
        for client in (self.producer, self.admin, self.consumer):
            client.close()

    def send(self, topic: str, count: int, *, first: int = 0, tags: str = "TagA") -> None:
        """Messages `m0`, `m1`, …, in turn over the topic's queues."""
        queues = self.producer.queues(topic)
        for index, queue in enumerate(queues):
            messages = [
                mq.Message(
                    topic, b"m%d" % number, tags=tags, keys=[f"k{number}"], properties={"n": str(number)}
                )
                for number in range(first, first + count)
                if number % len(queues) == index
            ]
            if messages:
                self.producer.send_batch(messages, queue=queue)

    def read(self, topic: str) -> list[mq.ReceivedMessage]:
        """All messages of a topic, queue by queue."""
        found: list[mq.ReceivedMessage] = []
        for queue in self.consumer.queues(topic):
            position, end = self.consumer.min_offset(queue), self.consumer.max_offset(queue)
            while position < end:
                result = self.consumer.pull(queue, position)
                found += result.messages
                position = result.next_offset
        return found

    def options(self, topic: str, **more: str) -> dict[str, str]:
        """Options of a read of one topic."""
        return {"nameServer": self.cluster.namesrv, "subscribe": topic, **more}


def load(spark: SparkSession, options: dict[str, str], schema: str | None = None) -> DataFrame:
    """A batch read."""
    reader = spark.read.format("rocketmq").options(**options)
    return (reader.schema(schema) if schema else reader).load()


def stream(spark: SparkSession, options: dict[str, str], schema: str | None = None) -> DataFrame:
    """A streaming read."""
    reader = spark.readStream.format("rocketmq").options(**options)
    return (reader.schema(schema) if schema else reader).load()


def bodies(frame: DataFrame) -> list[str]:
    """The bodies as text, sorted by their number."""
    rows = frame.selectExpr("cast(body as string) as text").collect()
    return sorted((row["text"] for row in rows), key=lambda text: int(text[1:]))


def numbered(first: int, end: int) -> list[str]:
    """What `Topics.send` sent."""
    return [f"m{number}" for number in range(first, end)]


def run_available(writer: DataStreamWriter, checkpoint: str) -> StreamingQuery:
    """Run a query over what is there and wait for its end. Raises what ended it."""
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(QUERY_SECONDS), f"still running after {QUERY_SECONDS} s: {query.status}"
    finally:
        query.stop()
    return query


def to_table(frame: DataFrame, name: str) -> DataStreamWriter:
    """A writer into a table in memory, appended to by every query of that name."""
    return frame.writeStream.format("memory").queryName(name)


class Collected:
    """A `foreachBatch` function that keeps what it saw, as (batch, body); it may fail on purpose."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, str]] = []
        self.fail = False

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        found = bodies(frame)
        if self.fail:
            raise RuntimeError("failing on purpose")
        self.rows += [(batch_id, text) for text in found]

    @property
    def texts(self) -> list[str]:
        """All bodies, sorted by number."""
        return sorted((text for _, text in self.rows), key=lambda text: int(text[1:]))

    @property
    def sizes(self) -> list[int]:
        """Rows per batch that had any."""
        ids = sorted({batch_id for batch_id, _ in self.rows})
        return [sum(found == batch_id for found, _ in self.rows) for batch_id in ids]


def wait_for_rows(collected: Collected, count: int, query: StreamingQuery) -> None:
    """Wait until a running query has handed over so many rows."""

    def enough() -> bool:
        error = query.exception()
        assert error is None, error
        return len(collected.rows) >= count

    until_sync(enough, QUERY_SECONDS)


def stored_offsets(checkpoint: str) -> list[dict[str, Any]]:
    """The source's offsets in a checkpoint, by batch."""
    import json

    files = sorted((Path(checkpoint) / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    return [json.loads(path.read_text().splitlines()[2]) for path in files]


async def close_clients() -> None:
    """Close every client of Spark's that this loop has."""
    shared = clients._of_loop.pop(asyncio.get_running_loop(), None)
    if shared is not None:
        await asyncio.gather(*(client.close() for client in shared.clients.values()))
