"""The formats of settings: Java properties, flat TOML, and `name=value` on the command line.

Input and output are strings; `core.settings.servers` converts them to types. This module reads no files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from sparrowmq.core.errors import SettingsError

_WORD_START: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_UNIT: Final = re.compile("[0-9A-Fa-f]{4}")
_LINE_END: Final = re.compile("\r\n|\r|\n")
_HOUR_DIGITS_MAX: Final = 4
REQUEST_BYTES_MAX: Final = 64 * 1024
"""The longest text of settings that a server accepts in a request."""
PORT_MAX: Final = 65535
_PORT_DIGITS_MAX: Final = 5
_LABEL: Final = re.compile("[a-zA-Z][a-zA-Z0-9_]*")
_HEADER: Final = re.compile(r"[A-Za-z0-9_.-]+")
LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")
_LOGGER: Final = re.compile("[a-z_.]{0,100}")
SECRETS: Final = ("credential", "password", "secret", "accesskey", "authenticationuser", "exporterheader")
"""Parts of the names of settings that must not be shown, in lower case."""
OWN_LABELS: Final = frozenset(
    {"cluster", "node_type", "node_id", "topic", "consumer_group", "message_type", "is_system", "is_retry"}
    | {"language", "version", "consume_mode", "protocol_type", "processor", "bound", "level", "metric", "le"}
    | {"storage_type", "storage_medium", "timer_bound_s", "request_code", "response_code", "result"}
    | {"is_long_polling", "queue_id", "slave", "proxy_mode", "method", "code", "service", "outcome", "end"}
    | {"instance", "job", "put_status"}
)
"""Labels that metrics of any server have of their own, or Prometheus adds: a series has each label once."""


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
    # Two escapes may be surrogates of one character; a lone surrogate is a UnicodeDecodeError.
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
                f"{line[:end]!r}: \\u must be followed by four hexadecimal digits of a character", line[:end]
            ) from None
    return found


def request_text(body: bytes) -> str:
    """The text of a request that changes settings. Raises `SettingsError` when it is too long or not text."""
    if len(body) > REQUEST_BYTES_MAX:
        raise SettingsError(
            f"the settings have {len(body)} bytes, the limit is {REQUEST_BYTES_MAX}; send those that change",
            limit=REQUEST_BYTES_MAX,
        )
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise SettingsError("the settings are not UTF-8 text; send name=value lines") from None


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
            kind = type(value).__name__
            raise SettingsError(
                f"{name}: must be a string, a whole number or true/false, not a {kind}", name, value
            )
    return found


def parse_assignments(pairs: Iterable[str]) -> dict[str, str]:
    """`name=value` texts (the command line's --set) as pairs."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise SettingsError(f"--set {name.strip() or '…'}: write it as name=value", "--set")
        found[name.strip()] = value
    return found


def environment_name(name: str, prefix: str = "SPARROW_") -> str:
    """The environment variable of a setting: `brokerIP1` is `SPARROW_BROKER_IP1`; dots become `_`."""
    return prefix + _WORD_START.sub("_", name).replace(".", "_").upper()


def parse_hours(name: str, text: str) -> frozenset[int]:
    """Hours of the day joined with ';', `04;16` for example; raises `SettingsError` naming the setting."""
    hours = [_number(part.strip(), _HOUR_DIGITS_MAX) for part in text.split(";") if part.strip()]
    if not hours or any(hour is None or hour > 23 for hour in hours):
        raise SettingsError(
            f"{name}={text}: must be hours from 00 to 23, several joined with ';'", name, text
        )
    return frozenset(hour for hour in hours if hour is not None)


def parse_labels(text: str) -> dict[str, str]:
    """The labels of `metricsLabel`, such as `zone:a,rack:7`. Raises `SettingsError`."""
    found = {}
    for part in text.split(","):
        name, colon, value = (piece.strip() for piece in part.partition(":"))
        if not part.strip():
            continue
        if not colon or not value or not _LABEL.fullmatch(name) or name in OWN_LABELS:
            raise SettingsError(
                f"metricsLabel={text}: {part.strip()!r} is not a label; write name:value, several joined "
                "with ',', such as zone:a,rack:7; a name has letters, digits and _ and is none of "
                + ", ".join(sorted(OWN_LABELS)),
                "metricsLabel",
                part.strip(),
            )
        found[name] = value
    return found


def parse_headers(text: str) -> dict[str, str]:
    """The headers of `metricsGrpcExporterHeader`, such as `api-key:secret,tenant:a`. Raises `SettingsError`,
    which does not repeat their values.
    """
    found: dict[str, str] = {}
    for part in filter(str.strip, text.split(",")):
        name, _, value = (piece.strip() for piece in part.partition(":"))
        if not _HEADER.fullmatch(name) or not value.isascii() or not value.isprintable() or not value:
            raise SettingsError(
                f"metricsGrpcExporterHeader: header {len(found) + 1} is not name:value; write several joined "
                "with ',', such as api-key:secret,tenant:a",
                "metricsGrpcExporterHeader",
            )
        found[name.lower()] = value
    return found


def parse_levels(text: str) -> dict[str, str]:
    """Levels by logger, of `logLevel`: one for all, and others for loggers below `sparrowmq`, such as
    `WARNING,store=DEBUG`. Raises `SettingsError`."""
    found: dict[str, str] = {}
    for part in text.split(","):
        name, equals, level = (piece.strip() for piece in part.rpartition("="))
        if level.upper() not in LEVELS or bool(name) != bool(equals) or not _LOGGER.fullmatch(name):
            raise SettingsError(
                f"logLevel={text}: {part.strip()!r} is not a level; write one of {', '.join(LEVELS)}, and "
                "others for some loggers joined with ',', such as WARNING,store=DEBUG",
                "logLevel",
                part.strip(),
            )
        name = name.removeprefix("sparrowmq").removeprefix(".")
        found[f"sparrowmq.{name}" if name else "sparrowmq"] = level.upper()
    return found


def without_secrets(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings of a server that may be shown: RocketMQ's brokers return passwords, too."""
    return {
        name: value for name, value in settings.items() if not any(part in name.lower() for part in SECRETS)
    }


def port_number(text: str) -> int | None:
    """The port that `text` writes with at most five digits; None unless it is from 1 to 65,535."""
    port = _number(text, _PORT_DIGITS_MAX)
    return port if port is not None and 0 < port <= PORT_MAX else None


def _number(text: str, digits_max: int) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= digits_max else None
