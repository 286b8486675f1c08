"""Sends of idempotent producers: messages that are already stored are not stored again.

Such a send has the header field `idempotent`, so plain sends have no extra cost. The store's state of the
producer decides. New messages are stored. For repeated messages, the broker checks that they are the same and
answers with their original offsets. Anything else is refused with its own code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrowmq.core.clock import CautiousClock
from sparrowmq.core.errors import RecordError
from sparrowmq.core.names import RETRY_PREFIX
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.producer_mark import HEADER_FIELD, Mark, binding, first_of_run, too_old
from sparrowmq.protocol.properties import decode
from sparrowmq.protocol.record import decode_record
from sparrowmq.protocol.refusals import Refused
from sparrowmq.store.tables.producer_state import ProducerStates, SequenceFinding

if TYPE_CHECKING:
    from sparrowmq.core.clock import Clock
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.queues.consume_queue import ConsumeQueue
    from sparrowmq.store.writer import ChunkItem

CODES: Final = {
    SequenceFinding.GAP: ResponseCode.SEQUENCE_GAP,
    SequenceFinding.TOO_OLD: ResponseCode.SEQUENCE_TOO_OLD,
    SequenceFinding.FENCED: ResponseCode.PRODUCER_FENCED,
    SequenceFinding.UNKNOWN: ResponseCode.PRODUCER_UNKNOWN,
    SequenceFinding.LIMIT: ResponseCode.PRODUCER_LIMIT,
}
ELSEWHERE: Final = frozenset(("DELAY", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "TRAN_MSG"))
"""Properties of messages that would first be stored in another queue."""


class JudgedSend(NamedTuple):
    """An accepted send: the mark of its first message, and the positions of messages already stored."""

    mark: Mark
    offsets: Sequence[int]
    physical: list[int]


def asks_for_judgement(ext: Mapping[str, str]) -> bool:
    """Whether a send comes from an idempotent producer."""
    return ext.get(HEADER_FIELD) == "true"


class IdempotentSends:
    """Judges sends by the store's table of producers."""

    def __init__(self, store: MessageStore, clock: Clock) -> None:
        self._store = store
        self._clock = CautiousClock(clock, patience_ms=store.producers.expire_ms)

    def judge(self, queue: ConsumeQueue, items: Sequence[ChunkItem], *, single: bool) -> JudgedSend:
        """Decide about the messages of one send to `queue`. Raises `Refused`.

        `single`: the message may ask to be stored elsewhere first; messages of a batch are already checked
        for this.
        """
        mark = self._mark(queue, items)
        if single and (elsewhere := ELSEWHERE & decode(items[0][2]).keys()):
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message is illegal: an idempotent producer cannot use {', '.join(sorted(elsewhere))}",
            )
        table: ProducerStates = self._store.producers
        now_ms = self._clock.now_ms()
        table.sweep(now_ms)
        verdict = table.judge(queue.topic, queue.queue_id, mark, len(items), now_ms)
        if verdict.finding is not SequenceFinding.TAKE:
            raise Refused(
                CODES[verdict.finding],
                f"producer {mark.producer} in queue {queue.topic}/{queue.queue_id}: {verdict.text}",
            )
        physical = [
            self._place(queue, mark, number, verdict.repeated, items[number])
            for number in range(len(verdict.repeated))
        ]
        return JudgedSend(mark, verdict.repeated, physical)

    def committing(self) -> AbstractContextManager[None]:
        """Context manager around the commit of a judged send and its `learn`: no snapshot may miss the
        send."""
        return self._store.producers.committing(self._store.position)

    def learn(self, queue: ConsumeQueue, judged: JudgedSend, count: int, offset: int, now_ms: int) -> None:
        """Record that the last `count` messages of a judged send were stored from queue offset `offset`."""
        first = judged.mark._replace(sequence=judged.mark.sequence + len(judged.offsets))
        self._store.producers.note(queue.topic, queue.queue_id, first, count, offset, now_ms)

    def _mark(self, queue: ConsumeQueue, items: Sequence[ChunkItem]) -> Mark:
        try:
            mark, _ = first_of_run(own for _, _, own, _ in items)
        except RecordError as error:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal: {error}") from None
        if mark is None:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                "the message is illegal: its header says idempotent, but it has no SPARROW_PRODUCER",
            )
        if mark.bound_to != binding(queue.topic, queue.queue_id):
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message is illegal: the mark of producer {mark.producer} belongs to another queue than "
                f"{queue.topic}/{queue.queue_id}",
            )
        if queue.topic.startswith(RETRY_PREFIX):
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message is illegal: {queue.topic} does not accept messages of idempotent producers",
            )
        return mark

    def _place(
        self, queue: ConsumeQueue, mark: Mark, number: int, offsets: Sequence[int], item: ChunkItem
    ) -> int:
        """Log position of a repeated message, after checking that it is the same message."""
        sequence, offset = mark.sequence + number, offsets[number]
        entry = queue.entry(offset)
        data = None if entry is None else self._store.read_record(entry.physical_offset)
        if entry is None or data is None:
            gone = next(
                (n for n in range(number + 1, len(offsets)) if self._is_there(queue, offsets[n])), None
            )
            known = mark.sequence + (len(offsets) if gone is None else gone)
            raise Refused(
                ResponseCode.SEQUENCE_TOO_OLD,
                f"producer {mark.producer} in queue {queue.topic}/{queue.queue_id}: "
                f"{too_old(sequence, known, None)}: the message at offset {offset} was deleted",
            )
        record = decode_record(data)
        _, body, own, _ = item
        if record.body != body or not record.properties.startswith(own):
            raise Refused(
                ResponseCode.SEQUENCE_REUSED,
                f"producer {mark.producer} in queue {queue.topic}/{queue.queue_id}: sequence {sequence} is "
                f"the number of another message, stored at offset {offset}; a sequence number "
                "identifies one message permanently",
            )
        return entry.physical_offset

    def _is_there(self, queue: ConsumeQueue, offset: int) -> bool:
        entry = queue.entry(offset)
        return entry is not None and self._store.read_record(entry.physical_offset) is not None
