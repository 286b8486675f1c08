"""Writes: rows become batch sends, encoded by Arrow's kernels, a bounded number of them in flight.

At least once: a task that fails after some sends is run again from its beginning, and a send whose answer was
lost is repeated (spark:E-02, W-05). Rows of a task with the same `sharding_key`, or for the same queue, keep
their order.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from sparrowmq.columnar.encode import MessageColumns, encode_batches
from sparrowmq.columnar.ids import IDS_MAX, UniqueIdColumns
from sparrowmq.columnar.schema import PROPERTIES
from sparrowmq.spark.compat import DataSourceStreamArrowWriter
from sparrowmq.spark.connections import producer
from sparrowmq.spark.loop import loop_thread
from sparrowmq.spark.options import WriteOptions
from sparrowmq.spark.routing import RouteColumns, group_rows
from sparrowmq.spark.schema import SinkColumns, sink_columns
from sparrowmq.spark.send import Sender

log = logging.getLogger("sparrowmq.spark")


@dataclass
class Sent(WriterCommitMessage):
    """What one task sent: messages by topic."""

    messages: dict[str, int] = field(default_factory=dict)


class RocketMQWriter(DataSourceArrowWriter):
    """Sends the rows of a batch job."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._columns: SinkColumns = sink_columns(schema, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Send all rows of a task. Raises what the first failed send raised; earlier ones stay sent."""
        return send_rows(iterator, self._columns, self._options)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks are done."""
        log.info("wrote %s", _total(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task failed for good; what was sent stays sent."""
        log.warning("a write failed; messages that were sent before stay: %s", _total(messages))


class RocketMQStreamWriter(DataSourceStreamArrowWriter):
    """Sends the rows of micro-batches."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._columns: SinkColumns = sink_columns(schema, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """As `RocketMQWriter.write`."""
        return send_rows(iterator, self._columns, self._options)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """All tasks of a micro-batch are done."""
        log.debug("batch %d wrote %s", batchId, _total(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """A task failed for good; what was sent stays sent."""
        log.warning("batch %d failed; messages that were sent before stay: %s", batchId, _total(messages))


def send_rows(batches: Iterator[pa.RecordBatch], columns: SinkColumns, options: WriteOptions) -> Sent:
    """Send all rows and wait until they are stored."""
    loop = loop_thread()
    client = loop.run(producer(options))
    ids = UniqueIdColumns(client.client_id.partition("@")[0])
    sender = Sender(loop, client, options)
    try:
        for batch in batches:
            for start in range(0, batch.num_rows, IDS_MAX):
                _send_batch(batch.slice(start, IDS_MAX), columns, options, ids, sender)
        sender.finish()
    except BaseException:
        sender.cancel()
        raise
    return Sent(dict(sender.sent))


def _send_batch(
    batch: pa.RecordBatch,
    columns: SinkColumns,
    options: WriteOptions,
    ids: UniqueIdColumns,
    sender: Sender,
) -> None:
    def text(name: str | None) -> pa.Array | None:
        return None if name is None else batch[name].cast(pa.string())

    maps = columns.properties
    messages = MessageColumns(
        body=batch[columns.body].cast(pa.binary()),
        ids=ids.next(batch.num_rows),
        tags=text(columns.tags),
        keys=text(columns.keys),
        sharding_keys=text(columns.sharding_key),
        properties=None if maps is None else batch[maps].cast(PROPERTIES),
    )
    route = RouteColumns(
        topic=options.topic if columns.topic is None else text(columns.topic),
        sharding_keys=messages.sharding_keys,
        brokers=text(columns.broker),
        queue_ids=None if columns.queue_id is None else batch[columns.queue_id],
    )
    for destination, rows in group_rows(route, batch.num_rows, sender.queues):
        chosen = messages if len(rows) == batch.num_rows else messages.take(rows)
        for encoded in encode_batches(chosen, bytes_max=options.batch_bytes):
            sender.submit(destination, encoded.body, encoded.count)


def _total(messages: list[WriterCommitMessage | None]) -> str:
    total: Counter[str] = Counter()
    for message in messages:
        if isinstance(message, Sent):
            total.update(message.messages)
    return (
        ", ".join(f"{count} messages to {topic}" for topic, count in sorted(total.items())) or "no messages"
    )
