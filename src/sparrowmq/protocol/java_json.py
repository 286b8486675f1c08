"""JSON as Java peers write it, which is not always JSON (remoting:4.0).

On top of JSON they write bare integer keys (`{0:"a"}`), objects as keys (`{{"queueId":0}:5}`) and
`{"$ref":"$.path"}` where a value occurs twice. `loads` reads all of it; plain JSON, by far the most common,
takes the fast path through msgspec. All output is compact, because Go clients split some bodies as text; only
configuration files are indented.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from sparrowmq.core.errors import JavaJsonError
from sparrowmq.core.message import MessageQueue

DEPTH_MAX: Final = 100
"""Maximum nesting of objects and arrays in the dialect; real bodies stay below ten."""

PARTS_MAX: Final = 4096
"""Parts of a text that are joined in one step."""

_STRING = r'"(?:[^"\\]|\\.)*+"'
_TOKEN = re.compile(
    rf"[ \t\r\n]*+({_STRING}|-?\d++(?:\.\d++)?(?:[eE][+-]?\d++)?|[{{}}\[\]:,]|true|false|null)", re.DOTALL
)
_BARE_KEY = re.compile(
    rb'("(?:[^"\\]|\\.)*+(?:"|\\?\Z))|([{,][ \t\r\n]*+)(-?\d++)(?=[ \t\r\n]*+:)', re.DOTALL
)
_REFERENCE: Final = re.compile(
    rb'\{[ \t\r\n]*+"\$ref"[ \t\r\n]*+:[ \t\r\n]*+"(?:[^"\\\x00-\x1f]|\\["\\/bfnrtu])*+"[ \t\r\n]*+\}'
)
"""An object that is only a reference. In JSON this text cannot be anything else: a string would end at the
quote before `$ref`, and `$` cannot follow a string.
"""
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


def loads(data: bytes, *, dialect_max: int | None = None) -> Any:
    """The value of JSON text in Java's dialect.

    Bare keys become their text, object keys the canonical JSON text of the object (sorted, compact), and a
    reference becomes an empty object. Raises `JavaJsonError` on anything else, with the position of the
    error. Text that is not plain JSON with references is read about a hundred times more slowly; above
    `dialect_max` bytes it is refused.
    """
    try:
        if b'"$ref"' not in data:
            return _decode(data)
        data.decode()  # the removed parts must be valid text, too
        return _decode(_REFERENCE.sub(b"{}", data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if dialect_max is not None and len(data) > dialect_max:
            raise JavaJsonError(
                f"{len(data)} bytes are not plain JSON ({error}), and Java's dialect is read here up to "
                f"{dialect_max} bytes only; send plain JSON, with quoted keys",
                value=len(data),
                limit=dialect_max,
            ) from None
    try:
        quoted = quote_bare_keys(data)
        if quoted is not data and b'"$ref"' not in data:
            return _decode(quoted)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return _Reader(data.decode()).document()
    except UnicodeDecodeError as error:
        text = f"{len(data)} bytes of JSON are not UTF-8 at byte {error.start}"
        raise JavaJsonError(text, what="UTF-8", value=error.start) from None


def quote_bare_keys(data: bytes) -> bytes:
    """The text with its bare integer keys in quotes. In a thread it lets other threads run."""
    return _BARE_KEY.sub(_quote_key, data)


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
            text = f"JSON nests deeper than {DEPTH_MAX} levels at character {self._position}"
            raise JavaJsonError(text, what="depth", value=self._position, limit=DEPTH_MAX)
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
    """The queue in a map key that is an object: bare, as `loads` returns it, or as a string."""
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
    text = _Text()
    text.write(value, newline)
    return text.done()


class _Text:
    """Writes text in the dialect. A thread that writes a large table lets other threads run regularly.

    It writes object by object and joins `PARTS_MAX` parts at a time: a single C call over millions of parts
    would block the interpreter.
    """

    __slots__ = ("_parts", "_pieces")

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._pieces: list[bytes] = []

    def done(self) -> bytes:
        """The complete text."""
        self._join()
        return b"".join(self._pieces)

    def _join(self) -> None:
        self._pieces.append("".join(self._parts).encode())
        self._parts.clear()

    def write(self, value: Any, newline: str | None) -> None:
        """Add a value; `newline` begins its last line, None without lines."""
        if isinstance(value, msgspec.Struct):
            value = msgspec.to_builtins(value)
        if not isinstance(value, dict | list) or not value:
            self._parts.append(_encode(value).decode())
            return
        inner = None if newline is None else newline + "\t"
        comma, opened, last = ",", "", ""
        if inner is not None and newline is not None:
            comma, opened, last = "," + inner, inner, newline
        if isinstance(value, list):
            self._parts.append("[" + opened)
            for index, item in enumerate(value):
                if index:
                    self._parts.append(comma)
                self.write(item, inner)
            self._parts.append(last + "]")
            return
        separator = "{" + opened
        for key, item in value.items():
            name = key if isinstance(key, int) else _encode(key).decode()
            if isinstance(item, int | str | None):
                self._parts.append(f"{separator}{name}:{_encode(item).decode()}")
            else:
                self._parts.append(f"{separator}{name}:")
                self.write(item, inner)
            separator = comma
            if len(self._parts) >= PARTS_MAX:
                self._join()
        self._parts.append(last + "}")
