"""The most frequent requests of a broker, decoded in one step, and their answers, made from templates.

A general `Command` costs a dictionary and a conversion per field. Sends, pulls and ends of transactions that
are written as Java's clients write them (members sorted, `code` first) are decoded directly into the fields
the broker needs. All other requests take the general path; both paths end in the same handlers.
"""

from __future__ import annotations

import struct
from typing import Annotated, Final

import msgspec

from sparrowmq.protocol.codes import VERSION

SEND_PREFIXES: Final = (b'{"code":310,', b'{"code":320,')
PULL_PREFIXES: Final = (b'{"code":11,', b'{"code":361,')
END_PREFIX: Final = b'{"code":37,'


Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class SendFields(msgspec.Struct, gc=False, rename={"topic": "b"}):
    """The fields of a V2 header that the send path needs (remoting:2.3), with the wire's letters.

    `idempotent` is a SparrowMQ extension: check the send by its producer's numbers.
    """

    topic: str
    e: Int32
    f: Int32
    g: Int64
    h: Int32
    i: str = ""
    j: Int32 = 0
    m: bool = False
    idempotent: bool = False


class SendFrame(msgspec.Struct, gc=False, rename={"fields": "extFields"}):
    """A send: its number, flag and fields."""

    opaque: int
    flag: int
    fields: SendFields


class PullFields(msgspec.Struct, gc=False, rename="camel"):
    """The fields of a pull (remoting:2.4).

    SparrowMQ extensions are `bulk_bytes`, the largest response (0: as Apache's), `generation`, under which a
    member of a managed group has the queue, and `birth` of the topic to which the offsets belong.
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64 = 0
    suspend_timeout_millis: Int64 = 0
    subscription: str | None = None
    sub_version: Int64 = 0
    expression_type: str | None = None
    bulk_bytes: Int32 | None = None
    generation: Int64 | None = None
    birth: Int64 | None = None


class PullFrame(msgspec.Struct, gc=False, rename={"fields": "extFields"}):
    """A pull: its number, flag and fields."""

    opaque: int
    flag: int
    fields: PullFields


class EndFields(msgspec.Struct, gc=False, rename="camel"):
    """The fields needed to end a transaction (broker:9.2)."""

    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    from_transaction_check: bool = False


class EndFrame(msgspec.Struct, gc=False, rename={"fields": "extFields"}):
    """The end of a transaction: its number, flag and fields."""

    opaque: int
    flag: int
    fields: EndFields


_send = msgspec.json.Decoder(SendFrame, strict=False).decode
_pull = msgspec.json.Decoder(PullFrame, strict=False).decode
_end = msgspec.json.Decoder(EndFrame, strict=False).decode


def decode_send(header: bytes) -> SendFrame | None:
    """The send in a JSON header, or None when it needs the general path (missing or odd fields)."""
    try:
        return _send(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def decode_pull(header: bytes) -> PullFrame | None:
    """The pull in a JSON header, or None when it needs the general path."""
    try:
        return _pull(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def decode_end(header: bytes) -> EndFrame | None:
    """The end of a transaction in a JSON header, or None when it needs the general path."""
    try:
        return _end(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


_PREFIX = struct.Struct(">iI")
_TAIL = b'"JSON","version":%d}' % VERSION


class SendAnswers:
    """Answers to stored messages, from a bytes template bound to one broker's region and trace setting."""

    def __init__(self, *, region: str, trace_on: bool) -> None:
        fixed = msgspec.json.encode(region).replace(b"%", b"%%")
        trace = b"true" if trace_on else b"false"
        tail = (
            b'"TRACE_ON":"' + trace + b'","MSG_REGION":' + fixed + b',"queueOffset":"%d"},"flag":1,'
            b'"language":"PYTHON","opaque":%d,"serializeTypeCurrentRPC":' + _TAIL
        )
        head = b'{"code":%d,"extFields":{"queueId":"%d",'
        self._with_id = head + b'"transactionId":"%b","msgId":"%b",' + tail
        self._plain = head + b'"msgId":"%b",' + tail
        self._judged = head + b'"transactionId":"%b","idempotent":"true","msgId":"%b",' + tail
        self._recallable = head + b'"recallHandle":"%b","transactionId":"%b","msgId":"%b",' + tail

    def frame(
        self, code: int, opaque: int, queue_id: int, queue_offset: int, message_id: bytes, unique_key: bytes
    ) -> bytes:
        """A complete frame. `unique_key` is JSON-escaped, or empty."""
        if unique_key:
            header = self._with_id % (code, queue_id, unique_key, message_id, queue_offset, opaque)
        else:
            header = self._plain % (code, queue_id, message_id, queue_offset, opaque)
        size = len(header)
        return _PREFIX.pack(size + 4, size) + header

    def judged(
        self, code: int, opaque: int, queue_id: int, queue_offset: int, message_id: bytes, unique_key: bytes
    ) -> bytes:
        """The same for a send of an idempotent producer that was checked for repeats."""
        header = self._judged % (code, queue_id, unique_key, message_id, queue_offset, opaque)
        size = len(header)
        return _PREFIX.pack(size + 4, size) + header

    def recallable(
        self,
        code: int,
        opaque: int,
        queue_id: int,
        queue_offset: int,
        message_id: bytes,
        unique_key: bytes,
        *,
        handle: bytes,
    ) -> bytes:
        """The same for a timed message, with its recall handle (broker:8.3)."""
        header = self._recallable % (
            code,
            queue_id,
            handle,
            unique_key,
            message_id,
            queue_offset,
            opaque,
        )
        size = len(header)
        return _PREFIX.pack(size + 4, size) + header


_PULL_ANSWER = (
    b'{"code":%d,"extFields":{%b"suggestWhichBrokerId":"%d","nextBeginOffset":"%d","minOffset":"%d",'
    b'"maxOffset":"%d","offsetDelta":"0","topicSysFlag":"0","groupSysFlag":"0"},"flag":1,'
    b'"language":"PYTHON","opaque":%d,"remark":"%b","serializeTypeCurrentRPC":' + _TAIL
)


def pull_answer(
    code: int,
    opaque: int,
    next_offset: int,
    min_offset: int,
    max_offset: int,
    remark: bytes,
    body_bytes: int,
    suggested: int = 0,
    birth: int = 0,
) -> bytes:
    """Prefix and header of a pull's answer; `body_bytes` of records must follow it on the wire.

    `suggested` is the id of the broker the client should pull from next, 0 for the master; `birth` is that of
    the topic, 0 unless the client asked.
    """
    born = b'"birth":"%d",' % birth if birth else b""
    header = _PULL_ANSWER % (code, born, suggested, next_offset, min_offset, max_offset, opaque, remark)
    size = len(header)
    return _PREFIX.pack(size + 4 + body_bytes, size) + header


def json_text(value: bytes) -> bytes:
    """`value` escaped for a JSON string, without quotes; bytes that are not UTF-8 are replaced."""
    return msgspec.json.encode(value.decode("utf-8", "replace"))[1:-1]
