"""The guarantees of a write, logged once when it starts; and the queues over which it is spread."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from sparrowmq.core.errors import NoRouteError, SettingsError, SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.loops.event_loop import loop_thread
from sparrowmq.spark.cluster.clients import admin, producer, reader
from sparrowmq.spark.offsets.offsets import describe
from sparrowmq.spark.options.table import WriteOptions
from sparrowmq.spark.write import batch_runs
from sparrowmq.spark.write.log_once import first_time
from sparrowmq.spark.write.queue_choice import (
    FOLDER,
    QueueChoice,
    choose,
    current_batch,
    folder_at,
    is_local,
    query_id,
)
from sparrowmq.spark.write.send import retried

log = logging.getLogger("sparrowmq.spark")

PRODUCER_STATES: Final = "producerStates"
"""An entry in the runtime information of brokers that check sequence numbers, and of no others."""


class _Checkpoints:
    """Whether checkpoints are accessible, as this process found; it does not try again with each batch."""

    def __init__(self) -> None:
        self.reached: set[str] = set()
        self.out_of_reach: set[str] = set()


def _checkpoints() -> _Checkpoints:
    return loop_thread().kept(_Checkpoints)


def announce(options: WriteOptions, *, stream: bool, delayed: bool = False, keyed: bool = True) -> None:
    """Log the guarantees, as far as the options determine them, once per application.

    Possible duplicates are a warning; `delayed`: rows may be delayed or timed. Without `keyed`, rows bring
    ids along that stand in the way of `idempotenceKey`.
    """
    place, target = _place(options), options.topic or "the topics of column topic"
    if not first_time("delivery", options.topic, place, stream):
        return
    if delayed:
        log.warning(
            "writing to %s: rows with delay_level or deliver_at at least once, one request each", target
        )
    why = never_once(options, stream)
    if why:
        first_time("at least once", options.topic, place)  # results need not repeat it
        log.warning("writing to %s at least once: %s", target, why)
    elif options.idempotence_key and (why := _key_is_useless(options, stream, keyed)):
        log.warning(
            "writing to %s exactly once on SparrowMQ brokers only as long as a retry has the same rows in "
            "the same partitions, although option idempotenceKey is given: %s",
            target,
            why,
        )
    elif options.idempotence_key:
        log.info(
            "writing to %s exactly once on SparrowMQ brokers, rows identified by column %s",
            target,
            options.idempotence_key,
        )
    else:
        log.warning(
            "writing to %s exactly once on SparrowMQ brokers as long as a retry has the same rows in the "
            "same partitions and order. After a shuffle, or from a source that divides rows by cores, it "
            "may not; then rows are written at least once unless option idempotenceKey identifies them",
            target,
        )


def _place(options: WriteOptions) -> str:
    """The identity of writes to one topic."""
    return options.job_id or options.checkpoint_location


def _key_is_useless(options: WriteOptions, stream: bool, keyed: bool) -> str:
    """Why a repeated run does not look for the rows that earlier ones stored; empty when it does."""
    if not keyed:
        return "column msg_id identifies the rows, not the key; leave that column out"
    if not options.topic:
        return "rows with a column topic cannot be planned; give option topic"
    if stream and not options.checkpoint_location:
        return "the writer's option checkpointLocation is missing"
    if not stream and not options.plan_location:
        return "option planLocation is missing, a directory for the plan of the write"
    return ""


def never_once(options: WriteOptions, stream: bool) -> str:
    """Why another attempt stores rows again in any case; empty when it need not."""
    if not options.idempotent:
        return "option delivery is atLeastOnce"
    if not stream and not options.job_id:
        return "a batch write needs the option jobId for a stronger guarantee"
    other = broker_without_states(options)
    return f"its broker {other} does not support idempotent producers, like Apache's brokers" if other else ""


def broker_without_states(options: WriteOptions) -> str:
    """A broker of the option `topic` that stores repeated rows again; empty when none is known."""
    if not options.topic:
        return ""
    loop = loop_thread()

    async def ask() -> str:
        client = await admin(options)
        brokers = {queue.broker_name for queue in await (await producer(options)).queues(options.topic)}
        for broker in sorted(brokers):
            if PRODUCER_STATES not in await client.brokers.info(broker):
                return broker
        return ""

    try:
        return loop.run(ask())
    except SparrowError as error:  # the write itself will find out and log it
        log.info("the brokers of %s do not state whether they detect repeated rows: %s", options.topic, error)
        return ""


def report(options: WriteOptions, what: str, messages: Iterable[Any]) -> None:
    """Log what was written; a warning, the first time that there may be duplicates."""
    sure = all(message.exactly_once for message in messages if message is not None and message.messages)
    if sure:
        log.info("%s", what)
    elif first_time("at least once", options.topic, _place(options)):
        log.warning("%s (at least once: some rows may be stored twice; see the tasks' logs)", what)
    else:
        log.info("%s (at least once)", what)


def stream_choice(options: WriteOptions, *, keyed: bool = False) -> QueueChoice | None:
    """The queues for the planned micro-batch; None if they are not stored.

    Runs of `keyed` batches are counted. A checkpoint that Spark can access but this process cannot does not
    end the query; it is logged once. Raises `SettingsError` for a choice that cannot be read, and the name
    server's errors at the first one.
    """
    if not _is_wanted(options):
        return None
    checkpoint = options.checkpoint_location
    try:
        batch = _current_batch(options) if checkpoint else None
        if batch is None:
            if checkpoint not in _checkpoints().out_of_reach:
                _without_file(options, "option checkpointLocation is not a checkpoint with offsets")
            return None
        folder = options.plan_location or f"{checkpoint.rstrip('/')}/{FOLDER}"
        return _choose(folder, batch, options, query_id(checkpoint, options.hadoop) if keyed else "")
    except OSError as error:
        raise SparrowError(
            f"the queues of a batch cannot be saved beside {checkpoint!r}: {error}; give option "
            f"planLocation, a directory that the driver can write to",
            what="checkpointLocation",
            value=checkpoint,
        ) from error


def _current_batch(options: WriteOptions) -> int | None:
    """The planned batch; None if the checkpoint is not accessible."""
    checkpoint, known = options.checkpoint_location, _checkpoints()
    if checkpoint in known.out_of_reach:
        return None
    try:
        batch = current_batch(checkpoint, options.hadoop)
    except (OSError, SettingsError) as error:
        if is_local(checkpoint) or checkpoint in known.reached:
            raise
        known.out_of_reach.add(checkpoint)
        _without_file(
            options,
            f"{error}. Spark may access this checkpoint through settings of its session, which this "
            f"process does not have: give them as options fs.… of the writer, or in core-site.xml or "
            f"spark-defaults.conf, and its jars with spark.jars.packages. Until then",
        )
        return None
    known.reached.add(checkpoint)
    return batch


def batch_choice(options: WriteOptions, *, keyed: bool = False) -> QueueChoice | None:
    """The queues for a batch write with a `jobId`; None if they are not stored.

    Runs of `keyed` writes are counted.
    """
    if not _is_wanted(options) or not options.job_id:
        return None
    if not options.plan_location:
        _without_file(options, "option planLocation is not given")
        return None
    try:
        folder = f"{options.plan_location.rstrip('/')}/{options.job_id}"
        return _choose(folder, options.job_batch, options, options.job_id if keyed else "")
    except OSError as error:
        raise SparrowError(
            f"the queues of the write cannot be saved in {options.plan_location!r}: {error}; give a "
            f"directory that the driver can write to",
            what="planLocation",
            value=options.plan_location,
        ) from error


def _is_wanted(options: WriteOptions) -> bool:
    return options.idempotent and bool(options.topic)


def _choose(folder: str, batch: int, options: WriteOptions, scope: str) -> QueueChoice:
    """The choice, with a run of `scope` if runs are counted."""
    loop = loop_thread()

    async def queues() -> Sequence[MessageQueue]:
        what = f"asking for the queues of {options.topic}"
        fresh = await reader(options)  # a producer may know a topic as it was half a minute ago
        with contextlib.suppress(NoRouteError):
            if found := await retried(options, what, lambda: fresh.publish_queues(options.topic)):
                return found
        client = await producer(options)  # it knows where a topic is created, and tells why there is none
        return await retried(options, what, lambda: client.queues(options.topic))

    choice = choose(
        folder_at(folder, options.hadoop),
        batch,
        options.topic,
        lambda: loop.run(queues()),
        options.lost_brokers,
    )
    if choice.lost:
        _say_lost(choice)
    if choice.left:
        _say_left(choice)
    if not scope:
        return choice
    place = folder_at(f"{folder}/{batch_runs.FOLDER}", options.hadoop)
    without = replace(options, lost_brokers=options.lost_brokers | choice.lost)
    return replace(choice, run=batch_runs.begin(place, batch, scope, without))


def _say_lost(choice: QueueChoice) -> None:
    if first_time("lost", choice.topic, choice.batch, choice.lost):
        log.warning(
            "batch %d of %s continues without %s: rows that were meant for its queues go to the others. "
            "Rows of this batch that it had stored are stored again, so they are duplicated if the broker "
            "returns or if they were already consumed; rows of earlier batches are not sent again",
            choice.batch,
            choice.topic,
            ", ".join(sorted(choice.lost)),
        )


def _say_left(choice: QueueChoice) -> None:
    if first_time("left", choice.topic, choice.batch, choice.left):
        log.warning(
            "batch %d of %s began with queues that the topic no longer has (%s): it was shrunk. Rows that "
            "they have stored are not sent again, the others go to other queues",
            choice.batch,
            choice.topic,
            describe(sorted(choice.left)),
        )


def _without_file(options: WriteOptions, why: str) -> None:
    if first_time("choice", options.topic, options.job_id):
        log.warning(
            "%s: if the queues of topic %s change before a retry, its rows are written at least once",
            why,
            options.topic,
        )
