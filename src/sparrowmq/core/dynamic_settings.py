"""Dynamic settings: what can be changed in a running group, in which range, and who applies it. Pure.

`DYNAMIC_SETTINGS` is the one table. The coordinator stores values for a group and, where applicable, for
single topics or queues; the narrower scope has priority. Members of managed groups apply the consumer's
settings while they run (client/consumer/dynamic_settings.py), brokers hold all pulls of paused queues, and
plans follow the admission rules.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, Final, Self

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import check_topic

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
LIST_MAX: Final = 1000
"""Maximum entries of a list; every member is compared with each of them."""
TEXT_CHARS_MAX: Final = 1000
BROKER_CHARS_MAX: Final = 128
QUEUE_MAX: Final = 65_535
SHOWN_CHARS_MAX: Final = 60

Value = bool | int | float | str | tuple[str, ...]
"""A setting's value: numbers, times in seconds, strings, lists of addresses and networks."""


class Obeyed(Enum):
    """Who applies a dynamic setting."""

    MEMBERS = "managed members"
    """Consumers with `managed=True`, while they run."""
    BROKERS = "brokers"
    """Brokers, for all pulls: Java's members and unmanaged ones pause as well. Managed members stop
    immediately; others finish their pulled messages.
    """
    PLANS = "plans"
    """The coordinator's plans, and the member lists that brokers return to Java's members."""


class SettingKind(Enum):
    """The type of a value."""

    COUNT = "a whole number"
    NUMBER = "a number"
    FLAG = "true"
    TEXT = "a text"
    LIST = "a list of addresses and networks"


class SettingScope(Enum):
    """The scope of a value."""

    GROUP = "group"
    TOPIC = "topic"
    QUEUE = "queue"


@dataclass(frozen=True, slots=True)
class SettingPlace:
    """A part of a group: everything, a topic, or a queue of a topic (at every broker without `broker`)."""

    topic: str = ""
    queue_id: int = -1
    broker: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a scope: `*`, `TOPIC`, `TOPIC/QUEUE` or `TOPIC/BROKER/QUEUE`. Raises `SettingsError` or
        `InvalidNameError`.
        """
        if text in ("", "*"):
            return cls()
        topic, slash, rest = text.partition("/")
        check_topic(topic)
        if not slash:
            return cls(topic)
        broker, _, queue = rest.rpartition("/")
        is_number = queue.isascii() and queue.isdecimal() and len(queue) <= len(str(QUEUE_MAX))
        if not is_number or int(queue) > QUEUE_MAX or len(broker) > BROKER_CHARS_MAX:
            raise SettingsError(
                f"{text[:SHOWN_CHARS_MAX]!r} is not a valid scope: write * for all, TOPIC, TOPIC/QUEUE or "
                f"TOPIC/BROKER/QUEUE, with a queue from 0 to {QUEUE_MAX}",
                "scope",
                text,
            )
        return cls(topic, int(queue), broker)

    def __str__(self) -> str:
        if not self.topic:
            return "*"
        queue = "" if self.queue_id < 0 else str(self.queue_id)
        return "/".join(filter(None, (self.topic, self.broker, queue)))

    @property
    def scope(self) -> SettingScope:
        """The kind of scope."""
        if self.queue_id >= 0:
            return SettingScope.QUEUE
        return SettingScope.TOPIC if self.topic else SettingScope.GROUP


@dataclass(frozen=True, slots=True)
class DynamicSetting:
    """One dynamic setting; both bounds are inclusive. `default` describes the value when it is not set."""

    name: str
    kind: SettingKind
    obeyed: Obeyed
    default: str
    help: str
    pull: str = ""
    """What a pull consumer does with it, if members apply it."""
    unit: str = ""
    low: float = 0
    high: float = 0
    scopes: tuple[SettingScope, ...] = (SettingScope.GROUP,)

    @property
    def range(self) -> str:
        """The allowed values, in words."""
        if self.kind in (SettingKind.COUNT, SettingKind.NUMBER):
            return f"{self.low:.15g} to {self.high:.15g}{self.unit and f' {self.unit}'}"
        if self.kind is SettingKind.LIST:
            return f"up to {LIST_MAX} addresses and networks"
        return "true" if self.kind is SettingKind.FLAG else f"up to {TEXT_CHARS_MAX} characters"

    def check(self, value: object) -> Value:
        """The value to store. Raises `SettingsError` with the range."""
        found = _CHECKS[self.kind](value)
        if found is None or (self.high and not self._fits(found)):
            raise SettingsError(
                f"{self.name}={_shown(value)} is out of range: must be {self.kind.value}, {self.range}",
                self.name,
                value,
                limit=self.range,
            )
        return found

    def _fits(self, value: Value) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high

    def check_place(self, place: SettingPlace) -> None:
        """Raise `SettingsError` for a scope that this setting does not support."""
        if place.scope not in self.scopes:
            scopes = ", ".join(scope.value for scope in self.scopes)
            raise SettingsError(
                f"{self.name} cannot be set for {place}, a {place.scope.value}: it can be set for a {scopes}",
                self.name,
                other=str(place),
            )

    def parse(self, text: str) -> Value:
        """The value of a user's text; list items are separated by commas. Raises `SettingsError`."""
        if self.kind is SettingKind.LIST:
            return self.check([part.strip() for part in text.split(",") if part.strip()])
        if self.kind is SettingKind.TEXT:
            return self.check(text)
        return self.check(_loaded(text))


def _shown(value: object) -> str:
    is_long = isinstance(value, int) and not -(10**30) < value < 10**30  # formatting longer ones takes time
    text = hex(value) if is_long and isinstance(value, int) else repr(value)
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"


def parse_network(value: Any, setting: str = "") -> Network:
    """The network of a text such as `10.0.0.5` or `10.1.0.0/16`.

    Raises `SettingsError`, with the name of the setting if one is given.
    """
    try:
        return ipaddress.ip_network(value.strip(), strict=False)
    except (ValueError, AttributeError):
        named = f"{setting}: " if setting else ""
        raise SettingsError(
            f"{named}{_shown(value)} is neither an IP address nor a network; write 10.0.0.5 or 10.1.0.0/16",
            setting,
            value,
        ) from None


def _count(value: object) -> Value | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: object) -> Value | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _flag(value: object) -> Value | None:
    return True if value is True else None


def _text(value: object) -> Value | None:
    fits = isinstance(value, str) and len(value.strip()) > 0 and len(value) <= TEXT_CHARS_MAX
    return value.strip() if isinstance(value, str) and fits and value.isprintable() else None


def _list(value: object) -> Value | None:
    if not isinstance(value, list | tuple) or not 0 < len(value) <= LIST_MAX:
        return None
    return tuple(dict.fromkeys(str(parse_network(item)) for item in value))


_CHECKS: Final = {
    SettingKind.COUNT: _count,
    SettingKind.NUMBER: _number,
    SettingKind.FLAG: _flag,
    SettingKind.TEXT: _text,
    SettingKind.LIST: _list,
}
_WIDE: Final = (SettingScope.GROUP, SettingScope.TOPIC)
_OWN: Final = "the consumer's own"
_M, _P = Obeyed.MEMBERS, Obeyed.PLANS
_SAME: Final = "the same"

_TABLE: Final = (
    DynamicSetting(
        "threads", SettingKind.COUNT, _M, _OWN, "handlers that run at once",
        "no effect: its application decides", "handlers", 1, 1000,
    ),
    DynamicSetting(
        "batch", SettingKind.COUNT, _M, _OWN,
        "messages per call of a handler, if it takes lists (the consumer's own batch is above 1)",
        "no effect: one pull returns one batch, see pull_batch", "messages", 1, 1024,
    ),
    DynamicSetting(
        "pull_batch", SettingKind.COUNT, _M, _OWN, "messages requested in one pull",
        "the same; also the maximum that one poll returns", "messages", 1, 1024, scopes=_WIDE,
    ),
    DynamicSetting(
        "pull_interval", SettingKind.NUMBER, _M, _OWN, "pause between two pulls of a queue",
        "the same; a pull by offset and the next call of a schedule wait", "seconds", 0, 60,
        scopes=_WIDE,
    ),
    DynamicSetting(
        "delay", SettingKind.NUMBER, _M, "none",
        "minimum age of a message at delivery; retries are not delayed",
        "the same: younger messages are not visible yet", "seconds", 0, 43_200, scopes=_WIDE,
    ),
    DynamicSetting(
        "consume_timeout", SettingKind.NUMBER, _M, _OWN,
        "how long a handler may take; then its message goes to retry",
        "no effect: its application decides when a message is consumed", "seconds", 0.1, 86_400,
    ),
    DynamicSetting(
        "retries", SettingKind.COUNT, _M, _OWN, "retries before a message becomes a dead letter",
        "the same, for messages that its application sends back", "retries", 0, 10_000,
    ),
    DynamicSetting(
        "retry_delay", SettingKind.NUMBER, _M, "the broker's levels",
        "delay before the first retry; rounded up to a delay level, at most 30 s for ordered consumers",
        "the same, for messages sent back without a delay level", "seconds", 0.01, 7200,
    ),
    DynamicSetting(
        "retry_growth", SettingKind.NUMBER, _M, "1", "factor between a retry_delay and the next",
        _SAME, "times", 1, 10,
    ),
    DynamicSetting(
        "tags", SettingKind.TEXT, _M, _OWN, "replaces the subscribed tags: TagA || TagB, or * for all",
        "the same, and also replaces a pull's own expression", scopes=(SettingScope.TOPIC,),
    ),
    DynamicSetting(
        "pause", SettingKind.FLAG, Obeyed.BROKERS, "not paused",
        "delivery stops; running handlers finish, nothing is lost",
        "the same: polls and pulls return nothing",
        scopes=(SettingScope.GROUP, SettingScope.TOPIC, SettingScope.QUEUE),
    ),
    DynamicSetting(
        "lease", SettingKind.NUMBER, _P, "10", "time after its last report until a member is removed",
        unit="seconds", low=2, high=300,
    ),
    DynamicSetting(
        "drain", SettingKind.NUMBER, _P, "30",
        "time that a member has to finish its handlers on a queue that moves",
        unit="seconds", low=0, high=3600,
    ),
    DynamicSetting(
        "maximum", SettingKind.COUNT, _P, "all", "members that get queues; the others stand by",
        unit="members", low=1, high=10_000,
    ),
    DynamicSetting("allow", SettingKind.LIST, _P, "everybody", "members that may get queues"),
    DynamicSetting("deny", SettingKind.LIST, _P, "nobody", "members that may not"),
)  # fmt: skip
DYNAMIC_SETTINGS: Final[Mapping[str, DynamicSetting]] = {setting.name: setting for setting in _TABLE}


class Unable(StrEnum):
    """Why a member cannot apply a dynamic setting: a code for reports, and a sentence for users."""

    SINGLE = "single"
    ITERATED = "iterated"
    ORDERED = "ordered"
    PULLS = "pulls"
    UNKNOWN = "unknown"

    @property
    def text(self) -> str:
        """The reason as a sentence's end: "it cannot, because …"."""
        return _WHY_UNABLE[self]


_WHY_UNABLE: Final = {
    Unable.SINGLE: "its handlers take single messages (its own batch is 1)",
    Unable.ITERATED: "it has no handlers: the program iterates over it",
    Unable.ORDERED: "ordered handlers have no time limit",
    Unable.PULLS: "it pulls: its application decides",
    Unable.UNKNOWN: "its release does not know this setting",
}


def find(name: str) -> DynamicSetting:
    """The dynamic setting of a name. Raises `SettingsError` with the known names."""
    found = DYNAMIC_SETTINGS.get(name)
    if found is None:
        raise SettingsError(
            f"there is no dynamic setting {_shown(name)}; there are {', '.join(DYNAMIC_SETTINGS)}", name
        )
    return found


@dataclass(frozen=True, slots=True)
class SettingValue:
    """A dynamic setting's value in a scope. `until` is epoch milliseconds, 0 for no end."""

    name: str
    place: SettingPlace
    value: Value
    until: int = 0
    reason: str = ""

    @property
    def text(self) -> str:
        """The value as JSON."""
        return dump(self.value)


def dump(value: Value) -> str:
    """A value as JSON."""
    return json.dumps(value, ensure_ascii=False)


def load(name: str, text: str) -> Value:
    """The value of JSON. Raises `SettingsError` for a setting or value that this release does not know."""
    return find(name).check(_loaded(text))


def _loaded(text: str) -> Any:
    """The value of JSON, or the text itself if it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def for_members(settings: Iterable[SettingValue]) -> list[SettingValue]:
    """The settings sent to members, in a fixed order: those that members apply, and pauses."""
    chosen = [one for one in settings if DYNAMIC_SETTINGS[one.name].obeyed is not Obeyed.PLANS]
    return sorted(chosen, key=lambda one: (one.name, str(one.place)))


def fingerprint(settings: Iterable[SettingValue]) -> int:
    """A fingerprint of the settings sent to members, the same on every machine; 0 for none.

    It includes the end of a pause, because members apply that themselves; other values end when members are
    notified.
    """
    told = [
        (one.name, str(one.place), one.text, one.until if one.name == "pause" else 0)
        for one in for_members(settings)
    ]
    if not told:
        return 0
    digest = hashlib.blake2b(json.dumps(told).encode(), digest_size=8).digest()
    return max(1, int.from_bytes(digest) >> 1)


def is_paused(settings: Iterable[SettingValue], queue: MessageQueue, now_ms: int) -> bool:
    """Whether a queue is paused."""
    return any(
        one.name == "pause"
        and one.place.topic in ("", queue.topic)
        and one.place.queue_id in (-1, queue.queue_id)
        and one.place.broker in ("", queue.broker_name)
        and (not one.until or one.until > now_ms)
        for one in settings
    )


def value_for(settings: Iterable[SettingValue], name: str, topic: str = "") -> Value | None:
    """The value for a topic: its own, or else the group's; None when neither is set."""
    found = {one.place.topic: one.value for one in settings if one.name == name and one.place.queue_id < 0}
    return found.get(topic, found.get(""))


def retry_seconds(first: float, growth: float, tries: int) -> float:
    """The delay before the next retry of a message that was retried `tries` times, at most 2 hours."""
    longest = DYNAMIC_SETTINGS["retry_delay"].high
    return min(longest, first * growth ** min(tries, 64))
