"""Where settings are written down: Java properties, flat TOML, and `name=value` on the command line.

Texts in, texts out; `core.settings` gives them types. Nothing here reads a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from sparrowmq.core.errors import SettingsError

_WORD_START: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_UNIT: Final = re.compile("[0-9A-Fa-f]{4}")
_LINE_END: Final = re.compile("\r\n|\r|\n")
_HOUR_DIGITS_MAX: Final = 4
PORT_MAX: Final = 65535
_PORT_DIGITS_MAX: Final = 5


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out, i = [], 0
    while i < len(text):
        char = text[i]
        if char != "\\" or i + 1 == len(text):
            out.append(char)
            i += 1
        elif text[i + 1] == "u":
            unit = _UNIT.match(text, i + 2)
            if unit is None:
                raise ValueError(text)
            out.append(chr(int(unit[0], 16)))
            i += 6
        else:
            out.append(_ESCAPES.get(text[i + 1], text[i + 1]))
            i += 2
    # Two escapes may be the halves of one character; a half alone is a UnicodeDecodeError.
    return "".join(out).encode("utf-16-be", "surrogatepass").decode("utf-16-be")


def _logical_lines(text: str) -> Iterable[str]:
    pending = ""
    for line in _LINE_END.split(text):
        stripped = line.lstrip(" \t\f")
        if not pending and (not stripped or stripped[0] in "#!"):
            continue
        joined = pending + stripped
        backslashes = len(joined) - len(joined.rstrip("\\"))
        if backslashes % 2:
            pending = joined[:-1]
        else:
            pending = ""
            yield joined
    if pending:
        yield pending


def parse_properties(text: str) -> dict[str, str]:
    """The pairs of a Java properties file: comments, `=`, `:` or blanks, continued lines, escapes."""
    found = {}
    for line in _logical_lines(text):
        end = 0
        while end < len(line) and line[end] not in "=: \t\f":
            end += 2 if line[end] == "\\" else 1
        rest = line[end:].lstrip(" \t\f")
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(" \t\f")
        try:
            found[_unescape(line[:end])] = _unescape(rest)
        except ValueError:
            raise SettingsError(
                f"{line!r}: \\u must be followed by four hexadecimal digits of a character"
            ) from None
    return found


def parse_toml(text: str) -> dict[str, str]:
    """The pairs of a flat TOML file, values as texts; raises `SettingsError` for tables and lists."""
    import tomllib

    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"this is not TOML: {error}") from error
    found = {}
    for name, value in document.items():
        if isinstance(value, bool):
            found[name] = "true" if value else "false"
        elif isinstance(value, int | str):
            found[name] = str(value)
        else:
            raise SettingsError(f"{name}: must be a text, a whole number or true/false, not {value!r}")
    return found


def parse_assignments(pairs: Iterable[str]) -> dict[str, str]:
    """`name=value` texts (the command line's --set) as pairs."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise SettingsError(f"--set {pair}: write it as name=value")
        found[name.strip()] = value
    return found


def environment_name(name: str, prefix: str = "SPARROW_") -> str:
    """The environment variable of a setting: `brokerIP1` is `SPARROW_BROKER_IP1`; dots become `_`."""
    return prefix + _WORD_START.sub("_", name).replace(".", "_").upper()


def parse_hours(name: str, text: str) -> frozenset[int]:
    """Hours of the day joined with ';', `04;16` for example; raises `SettingsError` naming the setting."""
    hours = [_number(part.strip(), _HOUR_DIGITS_MAX) for part in text.split(";") if part.strip()]
    if not hours or any(hour is None or hour > 23 for hour in hours):
        raise SettingsError(f"{name}={text}: must be hours from 00 to 23, several joined with ';'")
    return frozenset(hour for hour in hours if hour is not None)


def port_number(text: str) -> int | None:
    """The port that `text` writes with at most five digits; None when it is none from 1 to 65,535."""
    port = _number(text, _PORT_DIGITS_MAX)
    return port if port is not None and 0 < port <= PORT_MAX else None


def _number(text: str, digits_max: int) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= digits_max else None
