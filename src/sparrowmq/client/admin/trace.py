"""Reading traces: records about the sending and consumption of a message (client:B.22)."""

from __future__ import annotations

import contextlib
from typing import Final

from sparrowmq.core.errors import RecordError
from sparrowmq.core.message import BODY_BYTES_MAX, ReceivedMessage
from sparrowmq.protocol.compression import decompress
from sparrowmq.protocol.trace import SubAfterTrace, Trace, decode_trace_bodies, trace_keys

MESSAGES_MAX: Final = 64
_BYTES_MAX: Final = 8 * 1024 * 1024


def traces_of(message_id: str, messages: list[ReceivedMessage]) -> list[Trace]:
    """The records about a message, by its unique id or a key, in the bodies of these messages."""
    mine = [one for one in _records(messages) if message_id in trace_keys(one)]
    return sort_traces(list(dict.fromkeys(mine)))


def _records(messages: list[ReceivedMessage]) -> list[Trace]:
    """The records in the messages' bodies, up to `_BYTES_MAX` in total. Bodies that cannot be decompressed,
    or become larger than a message may be, are skipped.
    """
    found, size = list[Trace](), 0
    for one in messages:
        with contextlib.suppress(RecordError):
            body = decompress(one.body, one.sys_flag, bytes_max=BODY_BYTES_MAX)
            size += len(body)
            found += decode_trace_bodies([body])
        if size > _BYTES_MAX:
            break
    return found


def sort_traces(records: list[Trace]) -> list[Trace]:
    """Sort by time. Ends of consumption may have no time; each follows its beginning."""
    begun = {
        getattr(one, "request_id", ""): one.time for one in records if not isinstance(one, SubAfterTrace)
    }

    def place(one: Trace) -> tuple[int, int]:
        if isinstance(one, SubAfterTrace):
            return begun.get(one.request_id, one.time), 1
        return one.time, 0

    return sorted(records, key=place)
