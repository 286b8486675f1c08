"""How a sink handles a broker's refusal of numbered rows. Pure; the table is in `idempotent_send`."""

from __future__ import annotations

from enum import Enum
from typing import Final

from sparrowmq.core.errors import BrokerError, ProducerFencedError, SequenceTooOldError, SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.write.identity import STEPS_MAX, RowIdentity

_GAP: Final = 90001
REUSED: Final = 90003
"""The number belongs to another message."""
_UNKNOWN: Final = 90005
_LIMIT: Final = 90006


class Reaction(Enum):
    """The next step for the rows of a refused send."""

    READ_BACK = "compare them with what the queue holds"
    BEGIN_ANEW = "send them with new numbers"
    STOP = "end the task"


class WriteRefusedError(SparrowError):
    """A broker accepts no more rows of a task; its text says why, and what to do."""


def reaction(error: BrokerError, identity: RowIdentity, step: int) -> Reaction:
    """The next step after `error` was the answer to rows of the step `step`."""
    if isinstance(error, SequenceTooOldError):
        return Reaction.READ_BACK
    if isinstance(error, ProducerFencedError) and next_step(error, identity, step) is None:
        return Reaction.STOP
    if error.code == REUSED or isinstance(error, ProducerFencedError):
        return Reaction.BEGIN_ANEW if step + 1 < STEPS_MAX else Reaction.STOP
    return Reaction.STOP


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
    if error.code in (_GAP, _UNKNOWN):
        text = (
            "the broker no longer has rows that it acknowledged to this task: it lost the end of its log, "
            "or the topic was recreated. The task stops. A retry stores the missing rows (Spark retries up "
            "to spark.task.maxFailures; then restart the query or the job)"
        )
    elif error.code == _LIMIT:
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
            f"idempotent=false for at least once"
        )
    else:
        return error
    return WriteRefusedError(f"{where}: {text}. The broker said: {error}")
