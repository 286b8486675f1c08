"""Writes: rows become batch sends, encoded by Arrow's kernels, a bounded number of them in flight.

A task that fails after some sends is run again from its beginning (spark:E-02, W-05). Rows of streams, and of
batches with a `jobId`, are numbered: our broker stores a row that comes again once, so they are written
exactly once as long as a further try has the same rows in the same order, or `idempotenceKey` gives them one.
All else is at least once. Rows of a task with the same `sharding_key`, or for the same queue, keep their
order.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from sparrowmq.columnar.encode import MessageColumns, encode_batches
from sparrowmq.columnar.ids import IDS_MAX, UniqueIdColumns
from sparrowmq.columnar.schema import PROPERTIES
from sparrowmq.core.errors import SparrowError
from sparrowmq.spark.compat import DataSourceStreamArrowWriter
from sparrowmq.spark.connections import producer
from sparrowmq.spark.delivery import delivered
from sparrowmq.spark.identity import RowIdentity, task_place
from sparrowmq.spark.keyed import by_key
from sparrowmq.spark.later import later_rows
from sparrowmq.spark.loop import loop_thread
from sparrowmq.spark.numbered import NumberedSender
from sparrowmq.spark.options import WriteOptions
from sparrowmq.spark.queue_choice import QueueChoice
from sparrowmq.spark.routing import Destination, RouteColumns, Rows, group_rows, numbered_rows
from sparrowmq.spark.schema import SinkColumns, sink_columns
from sparrowmq.spark.send import Sender
from sparrowmq.spark.throttle import throttled

log = logging.getLogger("sparrowmq.spark")


@dataclass
class Sent(WriterCommitMessage):
    """What one task sent: messages by topic."""

    messages: dict[str, int] = field(default_factory=dict)
    exactly_once: bool = False


class RocketMQWriter(DataSourceArrowWriter):
    """Sends the rows of a batch job; `choice` are the queues of its first try."""

    def __init__(self, options: WriteOptions, schema: StructType, choice: QueueChoice | None = None) -> None:
        self._options = options
        self._choice = choice
        self._columns: SinkColumns = sink_columns(schema, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Send all rows of a task. Raises what the first failed send raised; earlier ones stay sent."""
        scope, partition = self._options.job_id, task_place()[2]
        identity = RowIdentity(scope, self._options.job_batch, partition) if scope else None
        return send_rows(iterator, self._columns, self._options, identity, self._choice)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks are done."""
        log.info("wrote %s%s", _total(messages), delivered(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task failed for good; what was sent stays sent."""
        log.warning("a write failed; messages that were sent before stay: %s", _total(messages))


class RocketMQStreamWriter(DataSourceStreamArrowWriter):
    """Sends the rows of micro-batches; `choice` are the queues of the batch's first try."""

    def __init__(self, options: WriteOptions, schema: StructType, choice: QueueChoice | None = None) -> None:
        self._options = options
        self._choice = choice
        self._columns: SinkColumns = sink_columns(schema, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """As `RocketMQWriter.write`. Raises `SparrowError` when the choice of queues is another batch's."""
        query, batch, partition = task_place()
        identity = None if query is None else RowIdentity(query, batch, partition)
        if self._choice is not None and self._choice.batch != batch:
            raise SparrowError(
                f"batch {batch} runs with the queues of batch {self._choice.batch}: does the option "
                f"checkpointLocation={self._options.checkpoint_location!r} name another query's checkpoint?"
            )
        return send_rows(iterator, self._columns, self._options, identity, self._choice)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """All tasks of a micro-batch are done."""
        log.debug("batch %d wrote %s%s", batchId, _total(messages), delivered(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """A task failed for good; what was sent stays sent."""
        log.warning("batch %d failed; messages that were sent before stay: %s", batchId, _total(messages))


def send_rows(
    batches: Iterator[pa.RecordBatch],
    columns: SinkColumns,
    options: WriteOptions,
    identity: RowIdentity | None = None,
    choice: QueueChoice | None = None,
) -> Sent:
    """Send all rows of a task and wait until they are stored; `identity` names them, if anything does."""
    loop = loop_thread()
    client = loop.run(producer(options))
    if columns.idempotence_key is not None and identity is not None:
        batches = by_key(batches, columns.idempotence_key)
    if options.rate_limit is not None:
        batches = throttled(batches, options.rate_limit)
    if identity is None or not options.idempotent:
        sender = Sender(loop, client, options)
    else:
        sender = NumberedSender(loop, client, options, identity, choice)
    make_ids = _ids(columns, identity, client.client_id.partition("@")[0])
    first = 0
    try:
        for batch in batches:
            for start in range(0, batch.num_rows, IDS_MAX):
                part = batch.slice(start, IDS_MAX)
                _send_batch(part, columns, options, make_ids(part, first), sender, first)
                first += part.num_rows
        sender.finish()
    except BaseException:
        sender.cancel()
        raise
    exactly_once = isinstance(sender, NumberedSender) and sender.exactly_once
    return Sent(dict(sender.sent), exactly_once)


def _ids(
    columns: SinkColumns, identity: RowIdentity | None, host: str
) -> Callable[[pa.RecordBatch, int], pa.Array]:
    """What makes the ids of a batch whose first row has some number in its task; those given are kept."""
    made, given = _made_ids(columns, identity, host), columns.msg_id
    if given is None:
        return made
    return lambda batch, first: _kept_ids(batch[given], made(batch, first))


def _kept_ids(given: pa.Array, made: pa.Array) -> pa.Array:
    """The ids that rows bring along; rows without one get theirs."""
    given = given.cast(pa.string())
    missing = pc.fill_null(pc.equal(given, ""), True)
    return pc.if_else(missing, made, given)


def _made_ids(
    columns: SinkColumns, identity: RowIdentity | None, host: str
) -> Callable[[pa.RecordBatch, int], pa.Array]:
    if identity is None:
        unique = UniqueIdColumns(host)
        return lambda batch, first: unique.next(batch.num_rows)
    key = columns.idempotence_key
    if key is None:
        return lambda batch, first: identity.ids(batch[columns.body].cast(pa.binary()), first)
    return lambda batch, first: identity.key_ids(batch[key])


def _send_batch(
    batch: pa.RecordBatch,
    columns: SinkColumns,
    options: WriteOptions,
    ids: pa.Array,
    sender: Sender,
    first: int,
) -> None:
    def text(name: str | None) -> pa.Array | None:
        return None if name is None else batch[name].cast(pa.string())

    maps = columns.properties
    messages = MessageColumns(
        body=batch[columns.body].cast(pa.binary()),
        ids=ids,
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
    later = later_rows(
        None if columns.delay_level is None else batch[columns.delay_level],
        None if columns.deliver_at is None else batch[columns.deliver_at],
        first,
    )

    def now(destination: Destination, rows: Rows) -> Rows:
        """The rows for now, after those for later are on their way."""
        if later is None:
            return rows
        rows, others = later.split(rows)
        for message in later.messages(destination.topic, messages, others):
            sender.submit_later(destination, message)
        return rows

    if isinstance(sender, NumberedSender):
        partition = sender.partition
        for queue, rows in numbered_rows(
            route, batch.num_rows, sender.queues, first=first, partition=partition
        ):
            rows = now(Destination(queue.topic, queue), rows)
            if len(rows):
                sender.submit_rows(queue, _rows_of(messages, rows))
        return
    for destination, rows in group_rows(route, batch.num_rows, sender.queues):
        rows = now(destination, rows)
        if len(rows):
            for encoded in encode_batches(_rows_of(messages, rows), bytes_max=options.batch_bytes):
                sender.submit(destination, encoded.body, encoded.count)


def _rows_of(messages: MessageColumns, rows: Rows) -> MessageColumns:
    """Those rows; neighbours are not copied."""
    if len(rows) == len(messages):
        return messages
    if int(rows[-1]) - int(rows[0]) == len(rows) - 1:
        return messages.slice(int(rows[0]), len(rows))
    return messages.take(rows)


def _total(messages: list[WriterCommitMessage | None]) -> str:
    total: Counter[str] = Counter()
    for message in messages:
        if isinstance(message, Sent):
            total.update(message.messages)
    return (
        ", ".join(f"{count} messages to {topic}" for topic, count in sorted(total.items())) or "no messages"
    )
