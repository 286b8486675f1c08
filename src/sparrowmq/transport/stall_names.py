"""Describes what ran during a stall: the requests of a chunk, their ids, the calls on a thread's stack."""

from __future__ import annotations

import gc
import re
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePath
from types import FrameType
from typing import Final

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import JSON_HEADER, Command, RawFrame

REQUESTS_MAX: Final = 1000
"""Maximum number of counted requests of a chunk."""
KINDS_MAX: Final = 4
CALLS_MAX: Final = 24
"""Calls that are kept: the innermost ones, and the outermost one of the turn."""
_CODE: Final = re.compile(rb'"code"\s*:\s*(\d{1,9})')
ID_CHARS_MAX: Final = 64
_OPAQUE: Final = re.compile(rb'"opaque"\s*:\s*(-?\d{1,10})')
_ID: Final = re.compile(rb"[\w.:-]{1,%d}" % ID_CHARS_MAX)
_MESSAGE: Final = re.compile(rb"UNIQ_KEY(?:\x01|\\u0001)(%b)" % _ID.pattern)
_TRACE: Final = re.compile(rb"traceparent(?:\x01|\\u0001)[0-9a-f]{2}-([0-9a-f]{32})-")
"""Properties of a message, in a header of either form. Others than usual characters end an id."""
_BATCH: Final = RequestCode.SEND_BATCH_MESSAGE.name
MESSAGES_MAX: Final = 8
"""Message ids that are named."""
_HEAD_BYTES: Final = 4096
_NAMES: Final = {code.value: code.name for code in RequestCode}
_LOOP: Final = ("asyncio/base_events.py", "asyncio/events.py", "asyncio/runners.py", "threading.py")
"""The frame at which a stack belongs to the loop itself, not to a turn."""
_LOOKING: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class RequestIds:
    """By what a request is found elsewhere: clients have `number` and `messages` in their errors and results,
    and `messages` and `trace` in their spans. Of several requests, `number` is that of the first.
    """

    number: int = 0
    messages: tuple[str, ...] = ()
    trace: str = ""

    def __str__(self) -> str:
        parts = [f"number {self.number}"]
        if self.messages:
            parts.append(f"message {' '.join(self.messages)}")
        if self.trace:
            parts.append(f"trace {self.trace}")
        return ", ".join(parts)

    def fields(self) -> dict[str, object]:
        """The same for logs in JSON; without what is unknown."""
        found: dict[str, object] = {"number": self.number}
        if self.messages:
            found["message_ids"] = self.messages
        if self.trace:
            found["trace_id"] = self.trace
        return found


def ids_of(frames: Sequence[RawFrame]) -> RequestIds:
    """The ids of a chunk's requests: their first number, their first messages, their first trace."""
    if not frames:
        return RequestIds()
    kind, header, _ = frames[0]
    if kind == JSON_HEADER:
        found = _OPAQUE.search(header)
        number = int(found[1]) if found else 0
    else:
        number = int.from_bytes(header[5:9], "big", signed=True)
    return _ids(number, (_properties(frame) for frame in frames[:REQUESTS_MAX]))


def ids_of_request(request: Command) -> RequestIds:
    """The ids of one request."""
    ext = request.ext
    text = ext.get("i") or ext.get("properties") or f"UNIQ_KEY\x01{ext.get('msgId', '')}"
    return _ids(request.opaque, [text.encode(errors="replace")])


def ids_of_sends(number: int, keys: Iterable[bytes]) -> RequestIds:
    """The ids of stored sends: the number of the first, and their unique keys, as `ids_of` cuts them."""
    found = filter(None, map(_ID.match, keys))
    return RequestIds(number, tuple(one[0].decode() for one in islice(found, MESSAGES_MAX)))


def _properties(frame: RawFrame) -> bytes:
    """The bytes of a request that may have properties of messages."""
    kind, header, body = frame
    return header + body[:_HEAD_BYTES] if _name(kind, header) == _BATCH else header


def _ids(number: int, texts: Iterable[bytes]) -> RequestIds:
    messages: dict[str, None] = {}
    trace = ""
    for text in texts:
        found = islice(_MESSAGE.finditer(text), MESSAGES_MAX)
        messages |= dict.fromkeys(one[1].decode() for one in found)
        if not trace and (parent := _TRACE.search(text)):
            trace = parent[1].decode()
        if len(messages) >= MESSAGES_MAX:
            break
    return RequestIds(number, tuple(messages)[:MESSAGES_MAX], trace)


def requests_of(frames: Sequence[RawFrame]) -> str:
    """The names of a chunk's requests, the most frequent first: `SEND_MESSAGE_V2 x12, HEART_BEAT`."""
    if not frames:
        return "reading frames"
    counted = Counter(_name(kind, header) for kind, header, _ in frames[:REQUESTS_MAX]).most_common()
    named = [times(name, count) for name, count in counted[:KINDS_MAX]]
    more = len(counted) - KINDS_MAX
    return ", ".join(named) + (f" and {more} other kinds" if more > 0 else "")


def times(name: str, count: int) -> str:
    """A name and its count: `HEART_BEAT x3`."""
    return f"{name} x{count}" if count > 1 else name


def _name(kind: int, header: bytes) -> str:
    """The name of a request, from the first bytes of its header."""
    if kind == JSON_HEADER:
        found = _CODE.search(header, 0, _HEAD_BYTES)
        code = int(found[1]) if found else -1
    else:
        code = int.from_bytes(header[:2], "big", signed=True)
    return _NAMES.get(code, "an unknown request")


def thread_frames() -> dict[int, FrameType]:
    """What each thread runs now, by its identifier.

    In Python 3.11, a garbage collection in `sys._current_frames` that frees a `threading.local` waits for a
    lock of the interpreter that its own thread holds, and the process hangs (gh-106883). So none runs.
    """
    with _LOOKING:
        collects = gc.isenabled()
        gc.disable()
        try:
            return sys._current_frames()
        finally:
            if collects:
                gc.enable()


def calls_of(frame: FrameType | None) -> tuple[str, ...]:
    """The calls of a thread that runs a loop, innermost first; empty when the loop itself runs."""
    calls: list[str] = []
    while frame is not None:
        code = frame.f_code
        path = PurePath(code.co_filename).as_posix()
        if path.endswith(_LOOP):
            break
        calls.append(f"{_short(path)}:{frame.f_lineno} {code.co_name}")
        frame = frame.f_back
    if calls and calls[0].endswith((" select", " run_forever", " run_until_complete")):
        return ()
    if len(calls) > CALLS_MAX:
        calls[CALLS_MAX - 1 : -1] = ["…"]
    return tuple(calls)


def _short(path: str) -> str:
    """A short file name: from the package on, or the last three parts."""
    _, found, rest = path.rpartition("/sparrowmq/")
    return f"sparrowmq/{rest}" if found else "/".join(path.split("/")[-3:])
