"""Ends of idempotent producers (90301): the state of a finished job is deleted, and late sends are refused.

A family is all producers of one owner in a topic: `<family>-<anything>`. The owner declares that all epochs
before a given one have ended. The broker deletes their state and refuses their marks (90004). It remembers
this as long as the state of an idle producer, with a note of the owner. The end is a record of the log, as
safe as a message: it survives a `kill -9`, and slaves have it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.base.internal_store import NOT_FLUSHED, InnerMessage
from sparrowmq.broker.base.offsets import answer, refusal
from sparrowmq.core.names import PRODUCER_ENDS_TOPIC
from sparrowmq.protocol.bodies import ProducerNumbers, ProducersEnd
from sparrowmq.protocol.call_headers import EndProducersRequest
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers import from_ext
from sparrowmq.protocol.producer_mark import NUMBER_MAX, ProducerEnd, end_properties

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from sparrowmq.broker.base.internal_store import InnerStore
    from sparrowmq.broker.tables.topics import TopicTable
    from sparrowmq.core.clock import Clock
    from sparrowmq.protocol.frame import Command
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.transport.connection import Connection

NOTE_CHARS_MAX: Final = 200
_FAMILY: Final = re.compile(r"[A-Za-z0-9_-]{1,60}")


class ProducerEnds:
    """The handler; the table belongs to the store. `inner` writes the records."""

    def __init__(self, store: MessageStore, inner: InnerStore, topics: TopicTable, clock: Clock) -> None:
        self._store = store
        self._inner = inner
        self._topics = topics
        self._clock = clock

    def end(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """90301: end epochs of a family, or with epoch 0 only report which have ended."""
        request = from_ext(EndProducersRequest, command.ext)
        if request.topic not in self._topics.configs:
            return refusal(
                command, ResponseCode.TOPIC_NOT_EXIST, f"topic {request.topic!r} does not exist; create it"
            )
        problem = _problem(request)
        if problem:
            return refusal(command, ResponseCode.INVALID_PARAMETER, problem)
        table, now_ms = self._store.producers, self._clock.now_ms()
        end = ProducerEnd(request.topic, request.family, request.epoch, request.note)
        if end.epoch and table.is_news(end.family, end.topic, end.epoch, end.note):
            with table.committing(self._store.position):
                self._write(end, now_ms)
                table.end(end.family, end.topic, end.epoch, end.note, now_ms)
        found = table.end_of(end.family, end.topic)
        state = self._state(request) if request.producer else None
        told = answer(command, body=ProducersEnd(found.epoch, found.note, state).encode())
        if not end.epoch:
            return told
        return self._inner.answer_flushed(told, refusal(command, ResponseCode.SYSTEM_BUSY, NOT_FLUSHED))

    def _state(self, request: EndProducersRequest) -> ProducerNumbers | None:
        """What a queue has of a producer, also a queue that the topic no longer has because it was shrunk."""
        held = self._store.producers.find(request.producer, request.topic, request.queue_id)
        return None if held is None else ProducerNumbers(held.epoch, held.last, held.begins_at or 0)

    def forget_topic(self, topic: str) -> None:
        """A topic is being deleted and takes no more messages: forget its producers and their ends. Raises
        `StoreError`."""
        table = self._store.producers
        if table.knows(topic):
            with table.committing(self._store.position):
                self._write(ProducerEnd(topic), self._clock.now_ms())
                table.drop_topic(topic)

    def _write(self, end: ProducerEnd, now_ms: int) -> None:
        body = f"{end.topic} {end.family} {end.epoch}".encode()
        message = InnerMessage(
            PRODUCER_ENDS_TOPIC, 0, body, end_properties(end), 0, 0, now_ms, self._store.store_host
        )
        self._inner.put([message])


def _problem(request: EndProducersRequest) -> str:
    if _FAMILY.fullmatch(request.family) is None:
        return f"family {request.family[:80]!r}: must be 1 to 60 letters, digits, '_' and '-'"
    if not 0 <= request.epoch <= NUMBER_MAX:
        return f"epoch {request.epoch}: must be from 0 to {NUMBER_MAX}"
    if len(request.note) > NOTE_CHARS_MAX:
        return f"note of {len(request.note)} characters: must have at most {NOTE_CHARS_MAX}"
    return ""
