"""What a broker's refusal of numbered rows means (`row_states`), and how it is told. Pure."""

from __future__ import annotations

from typing import Final

from sparrowmq.core.errors import BrokerError, ProducerFencedError, SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.write.identity import STEPS_MAX, RowIdentity
from sparrowmq.spark.write.row_states import RowEvent

REUSED: Final = 90003
_EVENTS: Final = {
    90001: RowEvent.LOST,
    90002: RowEvent.FORGOTTEN,
    REUSED: RowEvent.REUSED,
    90005: RowEvent.LOST,
    90006: RowEvent.LIMIT,
}


class WriteRefusedError(SparrowError):
    """A broker accepts no more rows of a task; its text says why, and what to do.

    `value` is the code of the broker's answer; or `what` is the option that forbids to go on.
    """


class QueueLeftError(SparrowError):
    """A queue takes no messages, because its topic has fewer queues at its broker."""


def queue_left(queue: MessageQueue, error: SparrowError) -> QueueLeftError:
    """The error for a queue that a broker, or the route, says is none of its topic's."""
    return QueueLeftError(
        f"queue {queue} takes no messages, because its topic has fewer queues there: {error}. Write to "
        f"others, or give it back its queues: sparrow topic update {queue.topic} --write-queues N"
    )


def event_of(error: BrokerError, identity: RowIdentity, step: int) -> RowEvent | None:
    """What an answer to rows of the step `step` means; None for an error of another kind."""
    if not isinstance(error, ProducerFencedError):
        return _EVENTS.get(error.code)
    return RowEvent.BATCH_BEGUN if next_step(error, identity, step) is None else RowEvent.STEP_BEGUN


def next_step(error: BrokerError, identity: RowIdentity, step: int) -> int | None:
    """The step after `step`; None if a later batch has begun in the queue."""
    if not isinstance(error, ProducerFencedError):
        return step + 1
    if error.current is None or not identity.epoch(0) <= error.current < identity.epoch(STEPS_MAX):
        return None
    return max(step + 1, error.current - identity.epoch(0))


def final(error: BrokerError, queue: MessageQueue, identity: RowIdentity) -> SparrowError:
    """The error that ends a task: `error` itself, or an error that says what to do."""
    where = f"queue {queue}, batch {identity.batch}, partition {identity.partition}"
    if _EVENTS.get(error.code) is RowEvent.LOST:
        text = (
            "the broker no longer has rows that it acknowledged to this task: it lost the end of its log, "
            "or the topic was recreated. The task stops. A retry stores the missing rows (Spark retries up "
            "to spark.task.maxFailures; then restart the query or the job)"
        )
    elif _EVENTS.get(error.code) is RowEvent.LIMIT:
        text = (
            "the broker has reached its limit of producer states and accepts no new producers. Raise "
            "maxProducerStates there, or write with fewer partitions (coalesce); then run again, and "
            "nothing is stored twice. The states of committed jobs are deleted automatically, others after "
            "producerStateExpireHours"
        )
    elif isinstance(error, ProducerFencedError):
        text = (
            "a later batch of the query or job has already begun there, so this one is refused. Check that "
            "the query does not run twice and that jobBatch does not decrease"
        )
    elif error.code == REUSED:
        text = (
            f"the rows differed in each of {STEPS_MAX} attempts. Give option idempotenceKey, or set option "
            f"delivery=atLeastOnce"
        )
    else:
        return error
    return WriteRefusedError(f"{where}: {text}. The broker said: {error}", value=error.code)
