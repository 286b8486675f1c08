"""What a write promises, said once when it starts; and the queues that it is spread over."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Final

from sparrowmq.core.errors import SparrowError
from sparrowmq.spark.connections import admin, producer
from sparrowmq.spark.loop import loop_thread
from sparrowmq.spark.options import WriteOptions
from sparrowmq.spark.queue_choice import FOLDER, Folder, QueueChoice, choose, current_batch

log = logging.getLogger("sparrowmq.spark")

PRODUCER_STATES: Final = "producerStates"
"""What only a broker that judges repeated sends has in its runtime information."""

_told: set[tuple[object, ...]] = set()
_TOLD_MAX = 1000


def told_once(*what: object) -> bool:
    """Whether this is the first time in this process."""
    if what in _told:
        return False
    if len(_told) >= _TOLD_MAX:
        _told.clear()
    _told.add(what)
    return True


def announce(options: WriteOptions, *, stream: bool, later: bool = False) -> None:
    """Say what is promised, as far as the options tell; `later`: rows may be delayed or timed."""
    place = options.job_id or options.checkpoint_location
    if not told_once("delivery", options.topic, place, stream):
        return
    target = options.topic or "the topics of column topic"
    if later:
        log.warning(
            "writing to %s: rows with delay_level or deliver_at at least once, one request each", target
        )
    if not options.idempotent:
        log.warning("writing to %s at least once: option idempotent is false", target)
    elif not stream and not options.job_id:
        log.warning("writing to %s at least once: a batch write needs the option jobId for more", target)
    elif other := broker_without_states(options):
        log.warning(
            "writing to %s at least once: its broker %s knows no idempotent producers, as Apache's do not",
            target,
            other,
        )
    elif options.idempotence_key:
        log.info(
            "writing to %s exactly once on SparrowMQ brokers, rows named by column %s",
            target,
            options.idempotence_key,
        )
    else:
        log.info(
            "writing to %s exactly once on SparrowMQ brokers where a further try has the same rows in the "
            "same order (no shuffle before the write); otherwise at least once, unless option idempotenceKey "
            "names the rows",
            target,
        )


def broker_without_states(options: WriteOptions) -> str:
    """A broker of the option `topic` that stores repeated rows again; empty when none is known to."""
    if not options.topic:
        return ""
    loop = loop_thread()

    async def ask() -> str:
        client = await admin(options)
        brokers = {queue.broker_name for queue in await (await producer(options)).queues(options.topic)}
        for broker in sorted(brokers):
            if PRODUCER_STATES not in await client.broker_info(broker):
                return broker
        return ""

    try:
        return loop.run(ask())
    except SparrowError as error:  # the write itself finds out, and says so
        log.info("the brokers of %s do not tell whether they judge repeated rows: %s", options.topic, error)
        return ""


def delivered(messages: Iterable[Any]) -> str:
    """A note that what was written may be there twice, if so."""
    sure = [message.exactly_once for message in messages if message is not None and message.messages]
    return "" if all(sure) else " (at least once)"


def stream_choice(options: WriteOptions) -> QueueChoice | None:
    """The queues for the micro-batch that is planned; None where they are not written down.

    Raises `SettingsError` for a choice that cannot be read, and what the name server answers at the first
    one.
    """
    if not _is_wanted(options):
        return None
    try:
        batch = current_batch(options.checkpoint_location) if options.checkpoint_location else None
        if batch is None:
            _without_file(options, "option checkpointLocation names no checkpoint that this source can read")
            return None
        folder = options.plan_location or f"{options.checkpoint_location.rstrip('/')}/{FOLDER}"
        return _choose(Folder(folder), batch, options)
    except OSError as error:
        raise SparrowError(
            f"the queues of a batch cannot be written down beside {options.checkpoint_location!r}: {error}; "
            "give option planLocation, a directory that the driver can write to"
        ) from error


def batch_choice(options: WriteOptions) -> QueueChoice | None:
    """The queues for a batch write with a `jobId`; None where they are not written down."""
    if not _is_wanted(options) or not options.job_id:
        return None
    if not options.plan_location:
        _without_file(options, "option planLocation is not given")
        return None
    try:
        folder = Folder(f"{options.plan_location.rstrip('/')}/{options.job_id}")
        return _choose(folder, options.job_batch, options)
    except OSError as error:
        raise SparrowError(
            f"the queues of the write cannot be written down in {options.plan_location!r}: {error}; give a "
            "directory that the driver can write to"
        ) from error


def _is_wanted(options: WriteOptions) -> bool:
    return options.idempotent and bool(options.topic)


def _choose(folder: Folder, batch: int, options: WriteOptions) -> QueueChoice:
    loop = loop_thread()

    async def queues() -> Any:
        return await (await producer(options)).queues(options.topic)

    return choose(folder, batch, options.topic, lambda: loop.run(queues()))


def _without_file(options: WriteOptions, why: str) -> None:
    if told_once("choice", options.topic, options.job_id):
        log.warning(
            "%s: should topic %s get other queues before a further try, its rows are written at least once",
            why,
            options.topic,
        )
