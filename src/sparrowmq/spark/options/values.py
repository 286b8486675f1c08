"""Parsers for the texts of options, and the errors for wrong ones."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar
from zoneinfo import ZoneInfo

from sparrowmq.core.errors import InvalidNameError, SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import check_group, check_topic

T = TypeVar("T")

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
GROUP: Final = "group"
ALWAYS: Final = "always"
NEVER: Final = "never"
UNUSED: Final = "unused"
EXACTLY_ONCE: Final = "exactlyOnce"
AT_LEAST_ONCE: Final = "atLeastOnce"
FAIL: Final = "fail"
SKIP: Final = "skip"
EARLIEST_OFFSET: Final = -2
LATEST_OFFSET: Final = -1

Place = str | dict[MessageQueue, int]
"""`earliest`, `latest`, `group`, or an offset per queue (-2 earliest, -1 latest)."""

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_OFFSET: Final = re.compile(r"[+-]([01]\d|2[0-3]):[0-5]\d")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)")
_ADDRESS = re.compile(r"(?:[^\s:;\[\]]+|\[[0-9a-fA-F:.]+\]):\d{1,5}")


def wrong(name: str, value: object, allowed: str) -> SettingsError:
    """The error for an option: its name, its value and the allowed values."""
    return SettingsError(f"option {name}={value!r}: must be {allowed}", name, value)


def needs(name: str, other: str, value: object = None, *, why: str = "") -> SettingsError:
    """The option `name` has no use without `other`; `why` follows the name of that one."""
    shown = "" if value is None else f"={value!r}"
    return SettingsError(f"option {name}{shown} needs the option {other}{why}", name, value, other=other)


def half(missing: str, given: str) -> SettingsError:
    """Only one of two options that belong together is given."""
    wording = f"option {missing} is missing: {given} and {missing} must be given together"
    return SettingsError(wording, missing, other=given)


def both(name: str, other: str, *, why: str = "") -> SettingsError:
    """Two options are given that exclude each other."""
    return SettingsError(
        f"options {name} and {other} are both given; {why or 'leave one out'}", name, other=other
    )


def other_format(name: str, formats: tuple[str, ...], given: str) -> SettingsError:
    """An option is for other formats of bodies."""
    *others, last = formats
    known = f"{', '.join(others)} or {last}" if others else last
    wording = f"option {name} is for bodyFormat={known}, not {given}"
    return SettingsError(wording, name, other="bodyFormat")


def above(name: str, value: int, other: str, limit: int) -> SettingsError:
    """An option is above the one that limits it."""
    wording = f"option {name}={value}: must be at most {other}={limit}"
    return SettingsError(wording, name, value, limit=limit, other=other)


def of_clusters(name: str, store: str) -> SettingsError:
    """An option chooses a part of a cluster's topics, and a store is read."""
    wording = (
        f"option {name} is for reads of a cluster, but store={store!r} is given; leave one out. To read part "
        "of a store use subscribe, tags, startingTimestamp and endingTimestamp"
    )
    return SettingsError(wording, name, other="store")


def number(low: int, high: int) -> Callable[[str, str], int]:
    """Whole numbers from `low` to `high`."""

    def parse(name: str, text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise wrong(name, text, f"a whole number from {low} to {high}") from None
        if not low <= value <= high:
            raise wrong(name, text, f"a whole number from {low} to {high}")
        return value

    return parse


def time(name: str, text: str) -> int:
    """Epoch milliseconds, or a time of ISO 8601 with its zone, in epoch milliseconds."""
    if text.strip().isdecimal():
        return number(0, 2**53)(name, text)
    from sparrowmq.core.clock import epoch_ms

    try:
        return epoch_ms(name, datetime.fromisoformat(text.strip()))
    except ValueError:  # a SettingsError is one
        allowed = "epoch milliseconds, or a time with its zone such as 2026-05-01T09:00+02:00"
        raise wrong(name, text, allowed) from None


def switch(name: str, text: str) -> bool:
    """`true` or `false`."""
    value = {"true": True, "false": False}.get(text.strip().lower())
    if value is None:
        raise wrong(name, text, "true or false")
    return value


def text(name: str, text: str) -> str:
    """Any non-empty text."""
    if not text.strip():
        raise wrong(name, text, "a string that is not empty")
    return text.strip()


def secret(name: str, text: str) -> str:
    """Like `text`; errors do not show the value."""
    if not text.strip():
        raise SettingsError(f"option {name} is empty", name)
    return text.strip()


def content(name: str, text: str) -> bytes:
    """The name of an existing file; returns its bytes."""
    try:
        return Path(text).read_bytes()
    except OSError as error:
        raise wrong(name, text, f"the name of a file that can be read ({error.strerror})") from None


def one_of(allowed: Collection[str]) -> Callable[[str, str], str]:
    """One of some words, in any case; the value has the case of `allowed`."""
    words = {word.lower(): word for word in allowed}

    def parse(name: str, text: str) -> str:
        value = words.get(text.strip().lower())
        if value is None:
            raise wrong(name, text, " or ".join(allowed))
        return value

    return parse


def zone(name: str, text: str) -> str:
    """A time zone: a region or an offset."""
    value = text.strip()
    if _OFFSET.fullmatch(value) is None:
        try:
            ZoneInfo(value)
        except (KeyError, ValueError, OSError):
            raise wrong(name, text, "a time zone such as Europe/Berlin or +02:00") from None
    return value


def seconds(name: str, text: str) -> float:
    """A duration such as `500ms`, `30s`, `15m` or `1h`, in seconds."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise wrong(name, text, "a number with a unit: ms, s, m, h or d, such as 15m")
    return float(match[1]) * _UNITS[match[2]]


def millis(name: str, text: str) -> float:
    """Milliseconds, in seconds."""
    return number(0, 86_400_000)(name, text) / 1000


def name_servers(name: str, text: str) -> str:
    """`host:port`, several separated by `;`."""
    parts = [part.strip() for part in text.split(";") if part.strip()]
    if not parts or not all(_ADDRESS.fullmatch(part) for part in parts):
        raise wrong(name, text, "host:port, several separated by ';', such as 127.0.0.1:9876")
    return ";".join(parts)


def topic(name: str, text: str) -> str:
    """A topic's name."""
    try:
        check_topic(text.strip())
    except InvalidNameError as error:
        raise wrong(name, text, f"a topic's name ({error})") from None
    return text.strip()


def job_id(name: str, text: str) -> str:
    """A job's id: 1 to 200 letters, digits, `.`, `_` and `-`; it names a directory, too."""
    if re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}", text.strip()) is None:
        raise wrong(name, text, "1 to 200 letters, digits, '.', '_' and '-', not beginning with '.'")
    return text.strip()


def some_text(name: str, text: str) -> str:
    """Any non-blank text."""
    if not text.strip():
        raise wrong(name, text, "a string that is not blank")
    return text.strip()


def group(name: str, text: str) -> str:
    """A consumer group's name."""
    try:
        check_group(text.strip())
    except InvalidNameError as error:
        raise wrong(name, text, f"a consumer group's name ({error})") from None
    return text.strip()


def topics(name: str, text: str) -> tuple[str, ...]:
    """Topic names, separated by commas."""
    found = tuple(dict.fromkeys(topic(name, part) for part in text.split(",") if part.strip()))
    if not found:
        raise wrong(name, text, "topic names, separated by commas")
    return found


def names(name: str, text: str) -> frozenset[str]:
    """Names, separated by commas."""
    found = frozenset(part.strip() for part in text.split(",") if part.strip())
    if not found:
        raise wrong(name, text, "names, separated by commas")
    return found


def loss_tokens(name: str, text: str) -> frozenset[str]:
    """Tokens of losses, separated by commas, as errors give them."""
    found = names(name, text)
    if not all(re.fullmatch(r"[0-9a-f]{12}-(\d{1,18}|all)", token) for token in found):
        raise wrong(name, text, "what the error said, such as 3f0c9a1b2d4e-20")
    return found


def word(name: str, text: str) -> str:
    """Any non-empty text, with blanks around it removed."""
    if not text.strip():
        raise wrong(name, text, "a string that is not empty")
    return text.strip()


def pattern(name: str, text: str) -> str:
    """A regular expression that a whole topic name has to match."""
    try:
        re.compile(text)
    except re.error as error:
        raise wrong(name, text, f"a regular expression ({error})") from None
    return text


def tags(name: str, text: str) -> frozenset[str]:
    """Tags separated by `||`; `*` or nothing means all, an empty set."""
    parts = [part.strip() for part in text.split("||")]
    if text.strip() in ("", "*"):
        return frozenset()
    if not all(parts):
        raise wrong(name, text, "tags separated by '||', such as TagA || TagB, or *")
    return frozenset(parts)


def _json_object(name: str, text: str, allowed: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        raise wrong(name, text, allowed) from None
    if not isinstance(value, dict) or not value:
        raise wrong(name, text, allowed)
    return value


def assignment(name: str, text: str) -> tuple[MessageQueue, ...]:
    """`{"topic": {"broker": [0, 1]}}` as queues, sorted."""
    allowed = 'JSON such as {"orders": {"broker-a": [0, 1]}}'
    found = []
    for topic_name, brokers in _json_object(name, text, allowed).items():
        if not isinstance(brokers, dict):
            raise wrong(name, text, allowed)
        for broker, ids in brokers.items():
            if not isinstance(ids, list) or not all(
                type(queue_id) is int and queue_id >= 0 for queue_id in ids
            ):
                raise wrong(name, text, allowed)
            found += [MessageQueue(topic(name, topic_name), broker, queue_id) for queue_id in ids]
    if not found:
        raise wrong(name, text, allowed)
    return tuple(sorted(set(found)))


def place(*words: str) -> Callable[[str, str], Place]:
    """One of `words`, or `{"topic": {"broker": {"0": 23}}}`; -2 is the earliest offset, -1 the latest."""
    allowed = f'{", ".join(words)} or JSON such as {{"orders": {{"broker-a": {{"0": 23, "1": -2}}}}}}'

    def parse(name: str, text: str) -> Place:
        word = text.strip().lower()
        return word if word in words else _per_queue(name, text, EARLIEST_OFFSET, allowed)

    return parse


def times(name: str, text: str) -> dict[MessageQueue, int]:
    """`{"topic": {"broker": {"0": 1700000000000}}}`: epoch milliseconds per queue."""
    return _per_queue(name, text, 0, 'JSON such as {"orders": {"broker-a": {"0": 1700000000000}}}')


def _per_queue(name: str, text: str, least: int, allowed: str) -> dict[MessageQueue, int]:
    found: dict[MessageQueue, int] = {}
    for topic_name, brokers in _json_object(name, text, allowed).items():
        if not isinstance(brokers, dict):
            raise wrong(name, text, allowed)
        for broker, queues in brokers.items():
            if not isinstance(queues, dict):
                raise wrong(name, text, allowed)
            for queue_id, value in queues.items():
                if not queue_id.isdecimal() or type(value) is not int or value < least:
                    raise wrong(name, text, allowed)
                found[MessageQueue(topic(name, topic_name), broker, int(queue_id))] = value
    return found
