"""Sends of idempotent producers: what was stored before is not stored again.

Such a send says so in its header (`idempotent`), so plain sends pay nothing. What the store knows of the
producer decides: new messages are stored; the places of repeated ones are answered once more, after a look
that they are the same messages; anything else is refused with a code of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrowmq.core.errors import RecordError
from sparrowmq.core.names import RETRY_PREFIX
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.producer_mark import HEADER_FIELD, Mark, binding, first_of_run, too_old
from sparrowmq.protocol.properties import decode
from sparrowmq.protocol.record import decode_record
from sparrowmq.store.producer_state import Finding, ProducerTable

if TYPE_CHECKING:
    from sparrowmq.store.consume_queue import ConsumeQueue
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.writer import ChunkItem

CODES: Final = {
    Finding.GAP: ResponseCode.SEQUENCE_GAP,
    Finding.TOO_OLD: ResponseCode.SEQUENCE_TOO_OLD,
    Finding.FENCED: ResponseCode.PRODUCER_FENCED,
    Finding.UNKNOWN: ResponseCode.PRODUCER_UNKNOWN,
    Finding.LIMIT: ResponseCode.PRODUCER_LIMIT,
}
ELSEWHERE: Final = frozenset(("DELAY", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "TRAN_MSG"))
"""Properties of messages that would be stored in another queue first."""


class SequenceRefused(Exception):
    """A send of an idempotent producer is answered with an error."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


class Judged(NamedTuple):
    """A send that is taken: the mark of its first message, and where its first messages lie already."""

    mark: Mark
    offsets: Sequence[int]
    physical: list[int]


def asks_for_judgement(ext: Mapping[str, str]) -> bool:
    """Whether a send says that it comes from an idempotent producer."""
    return ext.get(HEADER_FIELD) == "true"


class IdempotentSends:
    """Judges sends by the store's table of producers."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def judge(self, queue: ConsumeQueue, items: Sequence[ChunkItem], now_ms: int, *, single: bool) -> Judged:
        """What becomes of the messages of one send to `queue`. Raises `SequenceRefused`.

        `single`: the message may ask to be stored elsewhere first; those of a batch were looked at.
        """
        mark = self._mark(queue, items)
        if single and (elsewhere := ELSEWHERE & decode(items[0][2]).keys()):
            raise SequenceRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message is illegal: an idempotent producer cannot use {', '.join(sorted(elsewhere))}",
            )
        table: ProducerTable = self._store.producers
        table.sweep(now_ms)
        verdict = table.judge(queue.topic, queue.queue_id, mark, len(items), now_ms)
        if verdict.finding is not Finding.TAKE:
            raise SequenceRefused(
                CODES[verdict.finding],
                f"producer {mark.producer} in queue {queue.topic}/{queue.queue_id}: {verdict.text}",
            )
        physical = [
            self._place(queue, mark, number, offset, items[number])
            for number, offset in enumerate(verdict.repeated)
        ]
        return Judged(mark, verdict.repeated, physical)

    @contextmanager
    def committing(self) -> Iterator[None]:
        """Around the commit of a judged send up to its `learn`: a snapshot in between must not miss it."""
        self._store.producers.behind = self._store.position
        try:
            yield
        finally:
            self._store.producers.behind = None

    def learn(self, queue: ConsumeQueue, judged: Judged, count: int, offset: int, now_ms: int) -> None:
        """The last `count` messages of a judged send are stored from queue offset `offset` on."""
        first = judged.mark._replace(sequence=judged.mark.sequence + len(judged.offsets))
        self._store.producers.note(queue.topic, queue.queue_id, first, count, offset, now_ms)

    def _mark(self, queue: ConsumeQueue, items: Sequence[ChunkItem]) -> Mark:
        try:
            mark, _ = first_of_run(own for _, _, own, _ in items)
        except RecordError as error:
            raise SequenceRefused(ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal: {error}") from None
        if mark is None:
            raise SequenceRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                "the message is illegal: its header says idempotent, but it has no SPARROW_PRODUCER",
            )
        if mark.bound_to != binding(queue.topic, queue.queue_id):
            raise SequenceRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message is illegal: the mark of producer {mark.producer} belongs to another queue than "
                f"{queue.topic}/{queue.queue_id}",
            )
        if queue.topic.startswith(RETRY_PREFIX):
            raise SequenceRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message is illegal: {queue.topic} takes no messages of idempotent producers",
            )
        return mark

    def _place(self, queue: ConsumeQueue, mark: Mark, number: int, offset: int, item: ChunkItem) -> int:
        """Where a repeated message lies in the log, after a look that it is this message."""
        sequence = mark.sequence + number
        entry = queue.entry(offset)
        data = None if entry is None else self._store.read_record(entry.physical_offset)
        if entry is None or data is None:
            raise SequenceRefused(
                ResponseCode.SEQUENCE_TOO_OLD,
                f"producer {mark.producer} in queue {queue.topic}/{queue.queue_id}: "
                f"{too_old(sequence, sequence + 1)}: the message at offset {offset} is gone",
            )
        record = decode_record(data)
        _, body, own, _ = item
        if record.body != body or not record.properties.startswith(own):
            raise SequenceRefused(
                ResponseCode.SEQUENCE_REUSED,
                f"producer {mark.producer} in queue {queue.topic}/{queue.queue_id}: sequence {sequence} is "
                f"the number of another message, stored at offset {offset}; it names one message for ever",
            )
        return entry.physical_offset
