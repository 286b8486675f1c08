"""Trace records: what happened to messages, as clients write it into the trace topic (client:B.22).

A record's fields are joined by 0x01 and it ends with 0x02; the body of a trace message is a sequence of
records. Absent tags and keys are the text `null` on the wire, as Java writes them; here they are empty.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sparrowmq.core.errors import RecordError
from sparrowmq.core.message import is_key, split_keys

CLOUD_TOPIC_PREFIX: Final = "rmq_sys_TRACE_DATA_"
"""Prefix of the trace topic of a cloud, followed by the region (client:B-110)."""
TRACE_GROUP_PREFIX: Final = "_INNER_TRACE_PRODUCER-"
_FIELD_END: Final = "\x01"
_RECORD_END: Final = "\x02"

SUCCESS, TIMEOUT, EXCEPTION, RETURNED_NULL, FAILED = range(5)
"""Context codes of consumption (client:B-114)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PubTrace:
    """A message was sent. Times are epoch ms and ms; `message_type` as `MessageType` of the hooks."""

    time: int
    region: str
    group: str
    topic: str
    message_id: str
    tags: str = ""
    keys: str = ""
    store_host: str = ""
    body_bytes: int = 0
    cost: int = 0
    message_type: int = 0
    offset_message_id: str = ""
    success: bool = True
    client_host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubBeforeTrace:
    """A consumer got a message; the record of the result has the same `request_id`."""

    time: int
    region: str
    group: str
    request_id: str
    message_id: str
    retry_times: int = 0
    keys: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubAfterTrace:
    """A consumer has processed a message; time and group are 0 and empty in old records."""

    request_id: str
    message_id: str
    cost: int = 0
    success: bool = True
    keys: str = ""
    context_code: int = SUCCESS
    time: int = 0
    group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionTrace:
    """A transaction ended; `state` as in RocketMQ: COMMIT_MESSAGE, ROLLBACK_MESSAGE, UNKNOW."""

    time: int
    region: str
    group: str
    topic: str
    message_id: str
    tags: str = ""
    keys: str = ""
    store_host: str = ""
    message_type: int = 2
    transaction_id: str = ""
    state: str = ""
    from_check: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallTrace:
    """A message was recalled."""

    time: int
    region: str
    group: str
    topic: str
    message_id: str
    success: bool = True


Trace = PubTrace | SubBeforeTrace | SubAfterTrace | EndTransactionTrace | RecallTrace


def encode_trace(trace: Trace, *, cloud: bool = False) -> str:
    """One record, its end included; for a `cloud` the end of consumption has no time and group."""
    fields = _fields(trace)
    if cloud and isinstance(trace, SubAfterTrace):
        fields[-2:] = [""]
    return _FIELD_END.join(fields) + _RECORD_END


def trace_keys(trace: Trace) -> set[str]:
    """The keys of the trace message: the message's id and keys (client:B-112).

    A batch has one record with the ids of its messages, joined by commas; each of them is a key. Keys of
    other clients that nobody finds are left out.
    """
    keys = getattr(trace, "keys", "")
    return set(filter(is_key, (*trace.message_id.split(","), *split_keys(keys))))


def _fields(trace: Trace) -> list[str]:
    match trace:
        case PubTrace():
            values: list[object] = [
                "Pub",
                trace.time,
                trace.region,
                trace.group,
                trace.topic,
                trace.message_id,
                trace.tags or "null",
                trace.keys or "null",
                trace.store_host,
                trace.body_bytes,
                trace.cost,
                trace.message_type,
                trace.offset_message_id,
                trace.success,
            ]
        case SubBeforeTrace():
            values = ["SubBefore", trace.time, trace.region, trace.group, trace.request_id]
            values += [trace.message_id, trace.retry_times, trace.keys or "null"]
        case SubAfterTrace():
            values = ["SubAfter", trace.request_id, trace.message_id, trace.cost, trace.success]
            values += [trace.keys or "null", trace.context_code, trace.time, trace.group]
        case EndTransactionTrace():
            values = ["EndTransaction", trace.time, trace.region, trace.group, trace.topic]
            values += [trace.message_id, trace.tags or "null", trace.keys or "null", trace.store_host]
            values += [trace.message_type, trace.transaction_id or "null", trace.state, trace.from_check]
        case RecallTrace():
            values = ["Recall", trace.time, trace.region, trace.group, trace.topic, trace.message_id]
            values.append(trace.success)
    return [_clean(value) for value in values]


def _clean(value: object) -> str:
    """A field as text; separators in users' tags and keys would break the record."""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    if _FIELD_END in text or _RECORD_END in text:
        text = text.replace(_FIELD_END, " ").replace(_RECORD_END, " ")
    return text


def decode_traces(text: str) -> list[Trace]:
    """The records in the body of a trace message.

    Older and newer forms with fewer or more fields are accepted (client:B-115), unknown kinds are skipped.
    Raises `RecordError` on an invalid record of a known kind.
    """
    found = []
    for piece in text.split(_RECORD_END):
        fields = piece.split(_FIELD_END)
        if fields[-1] == "" and len(fields) > 1:
            fields.pop()  # Java's trace for a cloud ends fields, not records
        reader = _READERS.get(fields[0])
        if reader is None:
            continue
        try:
            found.append(reader(fields))
        except (IndexError, ValueError) as error:
            raise RecordError(
                f"a trace record {fields[0]} of {len(fields)} fields cannot be read: {error}",
                what=fields[0],
                value=len(fields),
            ) from None
    return found


def decode_trace_bodies(bodies: Iterable[bytes]) -> list[Trace]:
    """The records of several trace messages, in order."""
    return [trace for body in bodies for trace in decode_traces(body.decode("utf-8", "replace"))]


def _text(value: str) -> str:
    return "" if value == "null" else value


def _pub(f: list[str]) -> Trace:
    has_offset = len(f) >= 14
    return PubTrace(
        time=int(f[1]),
        region=f[2],
        group=f[3],
        topic=f[4],
        message_id=f[5],
        tags=_text(f[6]),
        keys=_text(f[7]),
        store_host=f[8],
        body_bytes=int(f[9]),
        cost=int(f[10]),
        message_type=int(f[11]),
        offset_message_id=f[12] if has_offset else "",
        success=f[13 if has_offset else 12] == "true",
        client_host=f[14] if len(f) >= 15 else "",
    )


def _sub_before(f: list[str]) -> Trace:
    return SubBeforeTrace(
        time=int(f[1]),
        region=f[2],
        group=f[3],
        request_id=f[4],
        message_id=f[5],
        retry_times=int(f[6]),
        keys=_text(f[7]),
    )


def _sub_after(f: list[str]) -> Trace:
    return SubAfterTrace(
        request_id=f[1],
        message_id=f[2],
        cost=int(f[3]),
        success=f[4] == "true",
        keys=_text(f[5]),
        context_code=int(f[6]) if len(f) > 6 else SUCCESS,
        time=int(f[7]) if len(f) > 8 else 0,
        group=f[8] if len(f) > 8 else "",
    )


def _end_transaction(f: list[str]) -> Trace:
    return EndTransactionTrace(
        time=int(f[1]),
        region=f[2],
        group=f[3],
        topic=f[4],
        message_id=f[5],
        tags=_text(f[6]),
        keys=_text(f[7]),
        store_host=f[8],
        message_type=int(f[9]),
        transaction_id=_text(f[10]),
        state=f[11],
        from_check=f[12] == "true",
    )


def _recall(f: list[str]) -> Trace:
    return RecallTrace(
        time=int(f[1]), region=f[2], group=f[3], topic=f[4], message_id=f[5], success=f[6] == "true"
    )


_READERS: Final = {
    "Pub": _pub,
    "SubBefore": _sub_before,
    "SubAfter": _sub_after,
    "EndTransaction": _end_transaction,
    "Recall": _recall,
}
