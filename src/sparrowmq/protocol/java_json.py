"""JSON as Java peers write it, which is not always JSON (remoting:4.0).

On top of JSON they write bare integer keys (`{0:"a"}`), objects as keys (`{{"queueId":0}:5}`) and
`{"$ref":"$.path"}` where a value occurs twice. `loads` reads all of it; plain JSON, by far the most common,
takes the fast way through msgspec. Everything written is compact, because Go clients cut some bodies as text;
only configuration files are pretty.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from sparrowmq.core.errors import JavaJsonError
from sparrowmq.core.message import MessageQueue

DEPTH_MAX: Final = 100
"""Objects and arrays may nest this deep in the dialect; real bodies stay below ten."""

_STRING = r'"(?:[^"\\]|\\.)*+"'
_TOKEN = re.compile(
    rf"[ \t\r\n]*+({_STRING}|-?\d++(?:\.\d++)?(?:[eE][+-]?\d++)?|[{{}}\[\]:,]|true|false|null)", re.DOTALL
)
_BARE_KEY = re.compile(
    rb'("(?:[^"\\]|\\.)*+(?:"|\\?\Z))|([{,][ \t\r\n]*+)(-?\d++)(?=[ \t\r\n]*+:)', re.DOTALL
)
_REF: Final = "$ref"
_PUNCTUATION: Final = frozenset("{}[]:,")
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


class WireQueue(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A message queue as JSON bodies hold it; members in Java's order."""

    broker_name: str
    queue_id: int
    topic: str

    def queue(self) -> MessageQueue:
        """The same as a core value."""
        return MessageQueue(self.topic, self.broker_name, self.queue_id)


def wire_queue(queue: MessageQueue) -> WireQueue:
    """`queue` as JSON bodies hold it."""
    return WireQueue(queue.broker_name, queue.queue_id, queue.topic)


def loads(data: bytes) -> Any:
    """The value of JSON text in Java's dialect.

    Bare keys become their text, object keys the canonical JSON text of the object (sorted, compact), and a
    reference becomes an empty object. Raises `JavaJsonError` on anything else, with the place of the fault.
    """
    try:
        if b'"$ref"' not in data:
            return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        quoted = _BARE_KEY.sub(_quote_key, data)
        if quoted is not data and b'"$ref"' not in data:
            return _decode(quoted)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return _Reader(data.decode()).document()
    except UnicodeDecodeError as error:
        raise JavaJsonError(f"{len(data)} bytes of JSON are not UTF-8 at byte {error.start}") from None


def _quote_key(match: re.Match[bytes]) -> bytes:
    string: bytes | None = match[1]
    return string if string is not None else match[2] + b'"' + match[3] + b'"'


class _Reader:
    """Recursive descent over the dialect."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def document(self) -> Any:
        value = self._value(self._token(), 0)
        rest = self._text[self._position :].strip()
        if rest:
            raise JavaJsonError(f"JSON ends at character {self._position}, but {rest[:20]!r} follows")
        return value

    def _token(self) -> str:
        match = _TOKEN.match(self._text, self._position)
        if match is None:
            raise self._refusal(self._text[self._position : self._position + 20])
        self._position = match.end()
        return match[1]

    def _refusal(self, token: str) -> JavaJsonError:
        what = repr(token) if token else "the end"
        return JavaJsonError(f"JSON cannot be read at character {self._position}: unexpected {what}")

    def _value(self, token: str, depth: int) -> Any:
        if depth > DEPTH_MAX:
            raise JavaJsonError(f"JSON nests deeper than {DEPTH_MAX} levels at character {self._position}")
        if token == "{":
            return self._object(depth)
        if token == "[":
            return self._array(depth)
        return self._scalar(token)

    def _scalar(self, token: str) -> Any:
        if token in _PUNCTUATION:
            raise self._refusal(token)
        try:
            return _decode(token)
        except msgspec.DecodeError:
            raise self._refusal(token[:40]) from None

    def _array(self, depth: int) -> list[Any]:
        values: list[Any] = []
        token = self._token()
        if token == "]":
            return values
        while True:  # ends with the text: every round takes a token
            values.append(self._value(token, depth + 1))
            token = self._token()
            if token == "]":
                return values
            if token != ",":
                raise self._refusal(token)
            token = self._token()

    def _object(self, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        token = self._token()
        if token == "}":
            return members
        while True:  # ends with the text: every round takes a token
            key = self._key(token, depth)
            token = self._token()
            if token != ":":
                raise self._refusal(token)
            members[key] = self._value(self._token(), depth + 1)
            token = self._token()
            if token == "}":
                return {} if len(members) == 1 and _REF in members else members
            if token != ",":
                raise self._refusal(token)
            token = self._token()

    def _key(self, token: str, depth: int) -> str:
        if token == "{":
            return _encode_sorted(self._value(token, depth + 1)).decode()
        value = self._scalar(token)
        return value if isinstance(value, str) else token


def queue_of_key(key: str) -> MessageQueue:
    """The queue of a map key that holds one as an object: bare, as `loads` gives it, or as a string."""
    try:
        return msgspec.convert(loads(key.encode()), WireQueue, strict=False).queue()
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise JavaJsonError(f"{key[:80]!r} is not a message queue: {error}") from None


def dumps(value: Any, *, bare_keys: bool = False) -> bytes:
    """Compact JSON. With `bare_keys` integer keys stay bare, as Java writes them for old clients."""
    if not bare_keys:
        return _encode(value)
    return _dialect(value, None)


def dumps_object_keys(table: Mapping[MessageQueue, Any]) -> bytes:
    """A map keyed by queue, each key a bare object: the form all Java versions write and read."""
    members = (_encode(wire_queue(queue)) + b":" + _encode(value) for queue, value in table.items())
    return b"{" + b",".join(members) + b"}"


def dumps_pretty(value: Any) -> bytes:
    """A configuration file's text: indented by tabs, integer keys bare, no final line feed (broker:1.4)."""
    return _dialect(value, "\n")


def _dialect(value: Any, newline: str | None) -> bytes:
    parts: list[str] = []
    _write(msgspec.to_builtins(value), newline, parts.append)
    return "".join(parts).encode()


def _write(value: Any, newline: str | None, put: Any) -> None:
    if not isinstance(value, dict | list) or not value:
        put(_encode(value).decode())
        return
    inner = None if newline is None else newline + "\t"
    comma, first, last = ",", "", ""
    if inner is not None and newline is not None:
        comma, first, last = "," + inner, inner, newline
    if isinstance(value, list):
        put("[")
        for index, item in enumerate(value):
            put(comma if index else first)
            _write(item, inner, put)
        put(last + "]")
        return
    put("{")
    for index, (key, item) in enumerate(value.items()):
        put(comma if index else first)
        put(f"{key}:" if isinstance(key, int) else _encode(key).decode() + ":")
        _write(item, inner, put)
    put(last + "}")
