"""What clients note down about their messages, in the order of time: a history. Pure.

Times are seconds of the machine's monotonic clock, so that histories of several processes of one machine can
be put together. A send is noted before it is invoked and after its result is known, a commit before it is
sent; so what the notes say about "before" is true of the servers, too. Queues are texts,
`topic/broker/number`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="event"):
    """One note. `client` is the name of who made it."""

    at: float
    client: str


class SendInvoked(Event, frozen=True, kw_only=True, tag="send"):
    """A client begins to send the message `id`.

    `once`: it may be stored once at most, because the client sends it once, or numbers its messages.
    `in_order`: the client sends such messages one after the other, and in each queue they must have this
    order.
    """

    id: str
    once: bool = False
    in_order: bool = False


class SendAcknowledged(Event, frozen=True, kw_only=True, tag="acknowledged"):
    """The message is stored there, the client was told."""

    id: str
    queue: str
    offset: int


class SendUnknown(Event, frozen=True, kw_only=True, tag="unknown"):
    """The send ended without an answer that says whether the message is stored."""

    id: str
    reason: str = ""


class SendFailed(Event, frozen=True, kw_only=True, tag="failed"):
    """The message was never written to a connection, so it cannot be stored."""

    id: str
    reason: str = ""


class MessageReceived(Event, frozen=True, kw_only=True, tag="received"):
    """A member of `group` got a message. `in_order`: the group reads each queue without gaps, in order."""

    group: str
    id: str
    queue: str
    offset: int
    in_order: bool = False


class OffsetCommitted(Event, frozen=True, kw_only=True, tag="committed"):
    """The group says that it is done with all messages below `offset`; or its offset was found to be this."""

    group: str
    queue: str
    offset: int


class MessageStored(Event, frozen=True, kw_only=True, tag="stored"):
    """A reader of all queues found this message after the faults."""

    id: str
    queue: str
    offset: int


class QueueExtent(Event, frozen=True, kw_only=True, tag="queue"):
    """That reader read the whole queue, from the offset `first` up to the one before `end`."""

    queue: str
    first: int
    end: int


class FaultNote(Event, frozen=True, kw_only=True, tag="fault"):
    """A fault began or ended; for the people who read the history."""

    text: str


AnyEvent = (
    SendInvoked
    | SendAcknowledged
    | SendUnknown
    | SendFailed
    | MessageReceived
    | OffsetCommitted
    | MessageStored
    | QueueExtent
    | FaultNote
)

_decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)
_encoder = msgspec.json.Encoder()


def encode_line(event: AnyEvent) -> bytes:
    """The event as one line of JSON, with its line end."""
    return _encoder.encode(event) + b"\n"


def decode_line(line: bytes | str) -> AnyEvent:
    """The event of one line. Raises `ValueError` that says what is wrong with it."""
    return _decoder.decode(line)


def decode_lines(lines: Iterable[bytes | str]) -> Iterator[AnyEvent]:
    """The events of the lines, without empty ones. Raises `ValueError` with the number of a bad line."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield decode_line(line)
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from error
