"""Display of message bodies: JSON, text, or bytes. Pure.

A body is shown up to a limit, with a note about the rest. Any sender decides what a body contains: so the
time and size of what is shown are bounded.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

SHOWN_BYTES: Final = 64 * 1024
DEPTH_MAX: Final = 32
"""Values of JSON within values; what is nested deeper is shown as it was sent."""
JSON_CHARS_MAX: Final = 256 * 1024
"""Characters of JSON with its indentation, which is most of it when values are nested."""
NODES_MAX: Final = 2000
"""Values of JSON that are shown as a tree; JSON with more of them is shown as indented text."""
OPEN_DEPTH: Final = 2
"""How deep a tree is unfolded at first."""
HEX_BYTES: Final = 4 * 1024
HEX_WIDTH: Final = 16


@dataclass(frozen=True, slots=True)
class JsonNode:
    """A value of JSON: `text` is a plain value as JSON, empty for an object or array, whose `brackets` and
    `children` those are. `name` is its key as JSON, empty in arrays.
    """

    name: str
    text: str = ""
    brackets: str = ""
    children: Sequence[JsonNode] = ()
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class ShownBody:
    """A body: what it is taken for (json, text, bytes, empty), that as text, and its bytes in hex."""

    kind: str
    text: str
    hexed: str
    size: int
    shown: int
    why: str = ""
    """Why JSON is shown as text: "deep", "long", or empty."""
    tree: JsonNode | None = None
    """JSON to unfold, unless it has too many values."""

    @property
    def is_cut(self) -> bool:
        """Whether there is more of it."""
        return self.shown < self.size


def body_of(data: bytes) -> ShownBody:
    """A body to be shown."""
    kind, text, shown, why = _read(data)
    tree = tree_of(json.loads(data[:SHOWN_BYTES])) if kind == "json" else None
    return ShownBody(kind, text, hexed(data[:HEX_BYTES]), len(data), shown, why, tree)


def tree_of(value: Any) -> JsonNode | None:
    """JSON as a tree; None if it has more than `NODES_MAX` values. `value` is at most `DEPTH_MAX` deep."""
    left = NODES_MAX

    def made(name: str, one: Any, depth: int) -> JsonNode:
        nonlocal left
        left -= 1
        if left < 0:
            raise OverflowError
        if isinstance(one, dict):
            inside = tuple(made(_plain(key), value, depth + 1) for key, value in one.items())
            return JsonNode(name, "", "{}", inside, depth < OPEN_DEPTH)
        if isinstance(one, list):
            inside = tuple(made("", value, depth + 1) for value in one)
            return JsonNode(name, "", "[]", inside, depth < OPEN_DEPTH)
        return JsonNode(name, _plain(one))

    try:
        return made("", value, 0)
    except OverflowError:
        return None


def _plain(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _read(data: bytes) -> tuple[str, str, int, str]:
    if not data:
        return "empty", "", 0, ""
    cut = data[:SHOWN_BYTES]
    try:
        text = cut.decode()
    except UnicodeDecodeError as error:
        if len(data) <= SHOWN_BYTES or error.start < len(cut) - 3:
            return "bytes", hexed(data[:HEX_BYTES]), min(len(data), HEX_BYTES), ""
        text = cut[: error.start].decode()  # a character was cut in two
    why = ""
    if len(data) <= SHOWN_BYTES and text.lstrip()[:1] in ("{", "["):
        indented, why = _indented(text)
        if indented:
            return "json", indented, len(data), ""
    return "text", text, len(text.encode()), why


def _indented(text: str) -> tuple[str, str]:
    """A text of JSON with a line for each value; or nothing, and why: it is too deep, or would be too long.
    Bodies that are not JSON have no reason.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        return "", "deep"
    except ValueError:
        return "", ""
    if _is_deep(value):
        return "", "deep"
    pieces, left = [], JSON_CHARS_MAX
    for piece in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(value):
        left -= len(piece)
        if left < 0:
            return "", "long"
        pieces.append(piece)
    return "".join(pieces), ""


def _is_deep(value: Any) -> bool:
    """Whether there are more than `DEPTH_MAX` values within each other; looked at level by level."""
    level = [value]
    for _ in range(DEPTH_MAX):
        inside = (one.values() if isinstance(one, dict) else one for one in level)
        level = [one for some in inside for one in some if isinstance(one, dict | list)]
        if not level:
            return False
    return True


def hexed(data: bytes) -> str:
    """Bytes as offset, hex and what can be seen of them, sixteen a line."""
    lines = []
    for begin in range(0, len(data), HEX_WIDTH):
        part = data[begin : begin + HEX_WIDTH]
        seen = "".join(chr(one) if 32 <= one < 127 else "." for one in part)
        lines.append(f"{begin:08x}  {part.hex(' '):<{HEX_WIDTH * 3}} {seen}")
    return "\n".join(lines)
