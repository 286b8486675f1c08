"""Writes: rows become batch sends, encoded by Arrow's kernels, a bounded number of them in flight.

A task that fails after some sends is run again from its beginning (spark:E-02, W-05). Rows of streams, and of
batches with a `jobId`, are numbered: our broker stores a row that comes again once, so they are written
exactly once as long as a further try has the same rows in the same order, or `idempotenceKey` gives them one.
All else is at least once. Rows of a task with the same `key` (or `sharding_key`), or for the same queue, keep
their order.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from sparrowmq.columnar.encode import MessageColumns, encode_batches
from sparrowmq.columnar.ids import IDS_MAX, UniqueIdColumns
from sparrowmq.columnar.joining import sizes_of
from sparrowmq.columnar.schema import PROPERTIES
from sparrowmq.core.errors import InvalidMessageError, SettingsError, SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.loops.event_loop import loop_thread
from sparrowmq.spark.bodies.schema import SinkColumns
from sparrowmq.spark.cluster.clients import admin, producer, reader
from sparrowmq.spark.cluster.garbage import task_begins
from sparrowmq.spark.options.table import WriteOptions
from sparrowmq.spark.options.versions import DataSourceStreamArrowWriter
from sparrowmq.spark.write import finished_jobs
from sparrowmq.spark.write.finished_jobs import Counted, Tally
from sparrowmq.spark.write.guarantees import report
from sparrowmq.spark.write.idempotent_send import LookupClients, NumberedSender
from sparrowmq.spark.write.identity import RowIdentity, task_place
from sparrowmq.spark.write.plan import WritePlan, micro_batch_plan
from sparrowmq.spark.write.queue_choice import KeyedRun
from sparrowmq.spark.write.read_back import QueueRead, stored_keys
from sparrowmq.spark.write.routing import Destination, RouteColumns, Rows, group_rows, numbered_rows
from sparrowmq.spark.write.send import TaskSender

if TYPE_CHECKING:
    from sparrowmq.aio import ProducerState

log = logging.getLogger("sparrowmq.spark")


@dataclass
class Sent(WriterCommitMessage):
    """Result of one task: messages by topic."""

    messages: dict[str, int] = field(default_factory=dict)
    exactly_once: bool = False
    rows: Tally = field(default_factory=Tally)
    """All rows the task had, of batch writes with a `jobId`."""


class RocketMQWriter(DataSourceArrowWriter):
    """Sends the rows of a batch job."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Send all rows of a task. Raises the error of the first failed send; rows sent earlier stay sent."""
        plan, partition = self._plan, task_place()[2]
        scope = plan.options.job_id
        if not scope:
            return send_rows(iterator, plan)
        rows = Counted(iterator, plan.columns.body)
        if plan.done is not None:
            return Sent({}, True, rows.all())
        identity = RowIdentity(scope, plan.options.job_batch, partition)
        sent = send_rows(iter(rows), plan, identity)
        return replace(sent, rows=rows.tally)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks are done. Raises `SparrowError` when a job that was done before has other rows now."""
        rows = finished_jobs.total(message.rows for message in messages if isinstance(message, Sent))
        options, done = self._plan.options, self._plan.done
        if done is not None:
            finished_jobs.check(options, done, rows)
            return
        finished_jobs.keep(options, rows)
        report(options, f"wrote {_total(messages)}", messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task has failed permanently; sent rows stay sent."""
        log.warning("a write failed; messages that were already sent stay stored: %s", _total(messages))


class RocketMQStreamWriter(DataSourceStreamArrowWriter):
    """Sends the rows of micro-batches.

    Spark makes two writers for each batch, in two processes: one is pickled for the tasks, the other commits.
    So the batch is planned when a writer is pickled. What that raises is raised by the tasks, as Spark would
    not show it as it is.
    """

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan
        self._is_planned = False
        self._fault: SparrowError | None = None

    def __getstate__(self) -> dict[str, object]:
        """What tasks need."""
        if not self._is_planned:
            self._is_planned = True
            try:
                self._plan = micro_batch_plan(self._plan)
            except SettingsError as error:
                self._fault = error
            except SparrowError as error:
                self._fault = SparrowError(str(error))  # others may not be pickled
        return self.__dict__ | {"_plan": self._plan.without_hadoop()}

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """As `RocketMQWriter.write`. Raises `SparrowError` when the choice of queues is another batch's."""
        if self._fault is not None:
            raise self._fault
        query, batch, partition = task_place()
        identity = None if query is None else RowIdentity(query, batch, partition)
        choice = self._plan.choice
        if choice is not None and choice.batch != batch:
            place = self._plan.options.checkpoint_location
            raise SparrowError(
                f"batch {batch} runs with the queues of batch {choice.batch}: option "
                f"checkpointLocation={place!r} may be another query's checkpoint"
            )
        return send_rows(iterator, self._plan, identity)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """All tasks of a micro-batch are done."""
        report(self._plan.options, f"batch {batchId} wrote {_total(messages)}", messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """A task has failed permanently; sent rows stay sent."""
        log.warning(
            "batch %d failed; messages that were already sent stay stored: %s", batchId, _total(messages)
        )


def send_rows(
    batches: Iterator[pa.RecordBatch], plan: WritePlan, identity: RowIdentity | None = None
) -> Sent:
    """Send all rows of a task and wait until they are stored; `identity` names them, if anything does."""
    task_begins()
    key, options, choice = plan.columns.idempotence_key, plan.options, plan.choice
    if key is None or identity is None:
        return _send_all(batches, plan, identity)
    from sparrowmq.spark.write.keyed import sorted_rows  # only with a key

    with sorted_rows(batches, key) as rows:
        left: Iterable[pa.RecordBatch] = rows
        if choice is not None and choice.run is not None:
            identity = replace(identity, run=choice.run.number)
            without = replace(options, lost_brokers=options.lost_brokers | choice.lost)
            left = _left(rows, key, identity, choice.run, without)
        return _send_all(left, plan, identity)


def _send_all(batches: Iterable[pa.RecordBatch], plan: WritePlan, identity: RowIdentity | None) -> Sent:
    columns, options = plan.columns, plan.options
    loop = loop_thread()
    client = loop.run(producer(options))
    if options.rate_limit is not None:
        from sparrowmq.spark.write.throttle import throttled

        batches = throttled(batches, options.rate_limit)
    if identity is None or not options.idempotent:
        sender = TaskSender(loop, client, options)
    else:

        async def state(queue: MessageQueue, name: str) -> ProducerState | None:
            return await (await admin(options)).producers.state(queue, name)

        clients = LookupClients(lambda: reader(options), state)
        sender = NumberedSender(loop, client, options, identity, plan.choice, clients)
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


def _left(
    batches: Iterable[pa.RecordBatch],
    key: str,
    identity: RowIdentity,
    run: KeyedRun,
    options: WriteOptions,
) -> Iterable[pa.RecordBatch]:
    """The rows that no earlier run of the batch stored."""
    if run.is_first:
        return batches
    from sparrowmq.spark.write.keyed import KeyedRows

    rows = KeyedRows(batches, key)
    lost = options.lost_brokers

    async def look() -> None:
        client = await reader(options)
        queues = [
            queue
            for queue in sorted({*run.begins, *await client.queues(options.topic)})
            if queue.broker_name not in lost
        ]
        reads = [
            QueueRead(lambda: reader(options), queue, run.begins.get(queue, 0), options) for queue in queues
        ]
        await stored_keys(reads, identity, options.topic, rows.found)

    if len(rows):
        loop_thread().run(look())
    log.info(
        "run %d of batch %d: %d of %d rows are stored", run.number, identity.batch, rows.stored, len(rows)
    )
    return rows.missing()


def _ids(
    columns: SinkColumns, identity: RowIdentity | None, host: str
) -> Callable[[pa.RecordBatch, int], pa.Array]:
    """Creates the ids of a batch from the number of its first row in the task; given ids are kept."""
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
    sender: TaskSender,
    first: int,
) -> None:
    messages = _messages(batch, columns, ids)
    route = RouteColumns(
        topic=options.topic if columns.topic is None else _text(batch, columns.topic),
        sharding_keys=messages.sharding_keys,
        brokers=None if columns.broker is None else _text(batch, columns.broker),
        queue_ids=None if columns.queue_id is None else batch[columns.queue_id],
    )
    delayed = None
    if columns.has_delays:
        from sparrowmq.spark.write.delayed_rows import delayed_rows  # only with such columns

        delayed = delayed_rows(
            None if columns.delay_level is None else batch[columns.delay_level],
            None if columns.deliver_at is None else batch[columns.deliver_at],
            first,
        )

    sizes = sizes_of(messages.body)
    checked_above = options.batch_bytes if options.max_message_size is None else options.max_message_size

    def now(destination: Destination, rows: Rows) -> Rows:
        """The rows to send now, after the delayed ones have been started."""
        if sizes[rows].max() > checked_above:
            from sparrowmq.spark.write.body_limit import check_bodies  # rarely needed

            limit = sender.body_limit(destination.topic)
            check_bodies(destination, messages, sizes, rows, first, limit)
        if delayed is None:
            return rows
        rows, others = delayed.split(rows)
        for message in delayed.messages(destination.topic, messages, others):
            sender.submit_delayed(destination, message)
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


def _messages(batch: pa.RecordBatch, columns: SinkColumns, ids: pa.Array) -> MessageColumns:
    def text(name: str | None) -> pa.Array | None:
        return None if name is None else _text(batch, name)

    maps = columns.properties
    return MessageColumns(
        body=batch[columns.body].cast(pa.binary()),
        ids=ids,
        tags=text(columns.tags),
        keys=text(columns.keys),
        sharding_keys=text(columns.sharding_key),
        properties=None if maps is None else batch[maps].cast(PROPERTIES),
    )


def _text(batch: pa.RecordBatch, name: str) -> pa.Array:
    try:
        return batch[name].cast(pa.string())
    except pa.ArrowInvalid:
        raise InvalidMessageError(
            f"column {name!r} has bytes that are not UTF-8; RocketMQ's are text", part=name
        ) from None


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
