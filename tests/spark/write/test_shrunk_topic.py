"""A topic loses queues between two tries of a batch, and gets them back, at a real broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType
from tests.spark.support import Topics

from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.bodies.schema import sink_columns
from sparrowmq.spark.options.table import WriteOptions
from sparrowmq.spark.write.guarantees import batch_choice
from sparrowmq.spark.write.identity import RowIdentity
from sparrowmq.spark.write.plan import WritePlan
from sparrowmq.spark.write.writer import Sent, send_rows

ROWS = 4 * 2048
"""So many that a task has rows for each of four queues."""


class Job:
    """A batch write with a task; its driver and its task are this process."""

    def __init__(self, topics: Topics, topic: str, plans: Path, **more: str) -> None:
        self._topics, self._topic = topics, topic
        named = {
            "nameServer": topics.cluster.namesrv,
            "topic": topic,
            "jobId": "j",
            "planLocation": str(plans),
        }
        self.options = WriteOptions.parse({**named, **more}, {})
        self._columns = sink_columns(StructType([StructField("body", StringType())]), self.options)

    def run(self, *, rows: int = ROWS, middle: Callable[[], None] = lambda: None) -> Sent:
        """A try; it ends after so many rows. `middle` is called when half of them are sent."""
        choice = batch_choice(self.options, keyed=bool(self.options.idempotence_key))
        whole = pa.record_batch({"body": [str(number) for number in range(rows)]})

        def parts() -> Iterator[pa.RecordBatch]:
            for start in range(0, rows, 500):
                if start == rows // 1000 * 500:
                    middle()
                yield whole.slice(start, 500)

        return send_rows(parts(), WritePlan(self.options, self._columns, choice), RowIdentity("j", 0, 0))

    def shrink(self, reads: int, writes: int) -> None:
        """Change the numbers of queues."""
        self._topics.admin.topics.create(self._topic, read_queues=reads, write_queues=writes, force=True)

    def stored(self) -> Counter[bytes]:
        """The bodies in all queues that there ever were."""
        broker = self._topics.consumer.queues(self._topic)[0].broker_name
        return Counter(
            body for number in range(4) for body in self._bodies(MessageQueue(self._topic, broker, number))
        )

    def _bodies(self, queue: MessageQueue) -> Iterator[bytes]:
        offset, end = 0, self._topics.consumer.max_offset(queue)
        while offset < end:
            result = self._topics.consumer.pull(queue, offset, max_messages=10_000)
            yield from (message.body for message in result.messages)
            assert result.next_offset > offset
            offset = result.next_offset


EACH: Counter[bytes] = Counter(str(number).encode() for number in range(ROWS))


@pytest.mark.spark
@pytest.mark.parametrize("numbers", [(2, 2), (4, 2)], ids=["both", "writes"])
@pytest.mark.parametrize("more", [{}, {"idempotenceKey": "body"}], ids=["by number", "by key"])
def test_rows_of_a_batch_are_stored_once_whatever_its_topic_loses(
    topics: Topics, topic: str, tmp_path: Path, numbers: tuple[int, int], more: dict[str, str]
) -> None:
    job = Job(topics, topic, tmp_path, **more)
    job.run(rows=ROWS - 1000)  # into the middle of the last queue
    job.shrink(*numbers)
    assert job.run().exactly_once
    assert job.stored() == EACH
    job.shrink(4, 4)
    for _ in range(2):
        assert job.run().exactly_once
        assert job.stored() == EACH


@pytest.mark.spark
@pytest.mark.parametrize("more", [{}, {"idempotenceKey": "body"}], ids=["by number", "by key"])
def test_a_topic_that_is_shrunk_under_a_task_gets_each_row_once(
    topics: Topics, topic: str, tmp_path: Path, more: dict[str, str]
) -> None:
    """The task has the queues of its driver's plan, at every try."""
    job = Job(topics, topic, tmp_path, **more)
    for _ in range(2):
        assert job.run(middle=lambda: job.shrink(2, 2)).exactly_once
        assert job.stored() == EACH
