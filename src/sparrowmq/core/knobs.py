"""Live knobs: what of a running group can be changed from outside, in which range, and who obeys it. Pure.

`KNOBS` is the one table. The coordinator keeps values for a group, and where that makes sense for one of its
topics or queues; the narrower place counts. Members of managed groups apply those of the consumer while they
run (client/knobs.py), brokers hold pulls of what is paused, whoever pulls, and plans heed who may take part.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final, Self

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import check_topic

LIST_MAX: Final = 1000
"""Entries of a list; every member is compared with each of them."""
TEXT_CHARS_MAX: Final = 1000
BROKER_CHARS_MAX: Final = 128
QUEUE_MAX: Final = 65_535
SHOWN_CHARS_MAX: Final = 60

Value = bool | int | float | str | tuple[str, ...]
"""A knob's value: numbers, times in seconds, texts, lists of addresses and networks."""


class Obeyed(Enum):
    """Who carries a knob out."""

    MEMBERS = "managed members"
    """Consumers with `managed=True`, while they run."""
    BROKERS = "brokers"
    """Brokers, for whoever pulls: Java's members and unmanaged ones rest as well. Managed members stop at
    once; others finish what they have in hand."""
    PLANS = "plans"
    """The coordinator's plans, and the lists that brokers give Java's members."""


class Kind(Enum):
    """What a value looks like."""

    COUNT = "a whole number"
    NUMBER = "a number"
    FLAG = "true"
    TEXT = "a text"
    LIST = "a list of addresses and networks"


class Scope(Enum):
    """What a value can be for."""

    GROUP = "group"
    TOPIC = "topic"
    QUEUE = "queue"


@dataclass(frozen=True, slots=True)
class Place:
    """What of a group is meant: everything, a topic, or a queue of it (at every broker without `broker`)."""

    topic: str = ""
    queue_id: int = -1
    broker: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """The place of a text: `*`, `TOPIC`, `TOPIC/QUEUE` or `TOPIC/BROKER/QUEUE`. Raises `SettingsError`
        or `InvalidNameError`.
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
                f"{text[:SHOWN_CHARS_MAX]!r} is no place of a group: write * for all, TOPIC, TOPIC/QUEUE or "
                f"TOPIC/BROKER/QUEUE, with a queue from 0 to {QUEUE_MAX}"
            )
        return cls(topic, int(queue), broker)

    def __str__(self) -> str:
        if not self.topic:
            return "*"
        queue = "" if self.queue_id < 0 else str(self.queue_id)
        return "/".join(filter(None, (self.topic, self.broker, queue)))

    @property
    def scope(self) -> Scope:
        """How wide it is."""
        if self.queue_id >= 0:
            return Scope.QUEUE
        return Scope.TOPIC if self.topic else Scope.GROUP


@dataclass(frozen=True, slots=True)
class Knob:
    """One knob; both bounds are allowed. `default` says what counts while it is not set."""

    name: str
    kind: Kind
    obeyed: Obeyed
    default: str
    help: str
    pull: str = ""
    """What a pull consumer does with it, if members obey it."""
    unit: str = ""
    low: float = 0
    high: float = 0
    scopes: tuple[Scope, ...] = (Scope.GROUP,)

    @property
    def range(self) -> str:
        """What values it takes, in words."""
        if self.kind in (Kind.COUNT, Kind.NUMBER):
            return f"{self.low:.15g} to {self.high:.15g}{self.unit and f' {self.unit}'}"
        if self.kind is Kind.LIST:
            return f"up to {LIST_MAX} addresses and networks"
        return "true" if self.kind is Kind.FLAG else f"up to {TEXT_CHARS_MAX} characters"

    def check(self, value: object) -> Value:
        """The value as it is kept. Raises `SettingsError` with the range."""
        found = _CHECKS[self.kind](value)
        if found is None or (self.high and not self._fits(found)):
            raise SettingsError(
                f"{self.name}={_shown(value)} is out of range: it takes {self.kind.value}, {self.range}"
            )
        return found

    def _fits(self, value: Value) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high

    def check_place(self, place: Place) -> None:
        """Raise `SettingsError` for a place that this knob does not have."""
        if place.scope not in self.scopes:
            scopes = ", ".join(scope.value for scope in self.scopes)
            raise SettingsError(
                f"{self.name} cannot be set for {place}, a {place.scope.value}: it is a knob of a {scopes}"
            )

    def parse(self, text: str) -> Value:
        """The value of what somebody typed; lists are separated by commas. Raises `SettingsError`."""
        if self.kind is Kind.LIST:
            return self.check([part.strip() for part in text.split(",") if part.strip()])
        if self.kind is Kind.TEXT:
            return self.check(text)
        try:
            return self.check(json.loads(text))
        except ValueError:
            return self.check(text)


def _shown(value: object) -> str:
    is_long = isinstance(value, int) and not -(10**30) < value < 10**30  # longer ones cost time to write
    text = hex(value) if is_long and isinstance(value, int) else repr(value)
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"


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
    found = []
    for item in value:
        try:
            found.append(str(ipaddress.ip_network(item.strip(), strict=False)))
        except (ValueError, AttributeError):
            raise SettingsError(
                f"{_shown(item)} is neither an address nor a network; write 10.0.0.5 or 10.1.0.0/16"
            ) from None
    return tuple(dict.fromkeys(found))


_CHECKS: Final = {
    Kind.COUNT: _count,
    Kind.NUMBER: _number,
    Kind.FLAG: _flag,
    Kind.TEXT: _text,
    Kind.LIST: _list,
}
_WIDE: Final = (Scope.GROUP, Scope.TOPIC)
_OWN: Final = "the consumer's own"
_M, _P = Obeyed.MEMBERS, Obeyed.PLANS
_SAME: Final = "the same"

_TABLE: Final = (
    Knob(
        "threads", Kind.COUNT, _M, _OWN, "handlers at work at once",
        "nothing: its application decides", "handlers", 1, 1000,
    ),
    Knob(
        "batch", Kind.COUNT, _M, _OWN,
        "messages a handler gets at once, when it takes lists (the consumer's own batch is above 1)",
        "nothing: it gets what one pull gave, see pull_batch", "messages", 1, 1024,
    ),
    Knob(
        "pull_batch", Kind.COUNT, _M, _OWN, "messages asked for in one pull",
        "the same; a poll gives no more at once", "messages", 1, 1024, scopes=_WIDE,
    ),
    Knob(
        "pull_interval", Kind.NUMBER, _M, _OWN, "rest between two pulls of a queue",
        "the same; a pull by offset waits, and so does the next call of a schedule", "seconds", 0, 60,
        scopes=_WIDE,
    ),
    Knob(
        "delay", Kind.NUMBER, _M, "none",
        "no message is handed out before it is so old; retries are not held up",
        "the same: younger ones are as if they were not there yet", "seconds", 0, 43_200, scopes=_WIDE,
    ),
    Knob(
        "consume_timeout", Kind.NUMBER, _M, _OWN,
        "how long a handler may take: later its message goes to retry",
        "nothing: what it got is done when its application says so", "seconds", 0.1, 86_400,
    ),
    Knob(
        "retries", Kind.COUNT, _M, _OWN, "tries again before a message is a dead letter",
        "the same, for what its application sends back", "tries", 0, 10_000,
    ),
    Knob(
        "retry_delay", Kind.NUMBER, _M, "the broker's levels",
        "until the first try again; rounded up to a delay level, in order up to 30 s",
        "the same, for what is sent back without a delay level", "seconds", 0.01, 7200,
    ),
    Knob(
        "retry_growth", Kind.NUMBER, _M, "1", "each further retry_delay is so many times the one before",
        _SAME, "times", 1, 10,
    ),
    Knob(
        "tags", Kind.TEXT, _M, _OWN, "tags in place of those subscribed: TagA || TagB, or * for all",
        "the same, also in place of a pull's own expression", scopes=(Scope.TOPIC,),
    ),
    Knob(
        "pause", Kind.FLAG, Obeyed.BROKERS, "not paused",
        "nothing more is delivered; handlers at work end, nothing is lost",
        "the same: polls and pulls give nothing", scopes=(Scope.GROUP, Scope.TOPIC, Scope.QUEUE),
    ),
    Knob(
        "lease", Kind.NUMBER, _P, "10", "how long after its last report a member counts as gone",
        unit="seconds", low=2, high=300,
    ),
    Knob(
        "drain", Kind.NUMBER, _P, "30", "time a member has to end its handlers on a queue that moves",
        unit="seconds", low=0, high=3600,
    ),
    Knob(
        "maximum", Kind.COUNT, _P, "all", "members with queues; others stand by",
        unit="members", low=1, high=10_000,
    ),
    Knob("allow", Kind.LIST, _P, "everybody", "who may have queues"),
    Knob("deny", Kind.LIST, _P, "nobody", "who may not"),
)  # fmt: skip
KNOBS: Final[Mapping[str, Knob]] = {knob.name: knob for knob in _TABLE}


class Unable(StrEnum):
    """Why a member cannot go by a knob that is set: a word for reports, and words for people."""

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
    Unable.ITERATED: "it has no handlers: it is iterated over",
    Unable.ORDERED: "handlers in order have no time limit",
    Unable.PULLS: "it pulls: its application decides",
    Unable.UNKNOWN: "its release does not know the knob",
}


def find(name: str) -> Knob:
    """The knob of a name. Raises `SettingsError` naming those there are."""
    found = KNOBS.get(name)
    if found is None:
        raise SettingsError(f"there is no knob {_shown(name)}; there are {', '.join(KNOBS)}")
    return found


@dataclass(frozen=True, slots=True)
class Setting:
    """A knob that is set at a place. `until` is epoch milliseconds, 0 for no end."""

    name: str
    place: Place
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
    """The value of JSON. Raises `SettingsError` for a knob or value that this release does not know."""
    knob = find(name)
    try:
        return knob.check(json.loads(text))
    except ValueError:
        return knob.check(text)


def for_members(settings: Iterable[Setting]) -> list[Setting]:
    """What members are told, in one order: their own, and pauses, for what they have in hand."""
    chosen = [one for one in settings if KNOBS[one.name].obeyed is not Obeyed.PLANS]
    return sorted(chosen, key=lambda one: (one.name, str(one.place)))


def fingerprint(settings: Iterable[Setting]) -> int:
    """A number for what members are told: the same for the same, whoever computes it; 0 for nothing.

    The end of a pause counts, because members heed it; other values end when members are told so.
    """
    told = [
        (one.name, str(one.place), one.text, one.until if one.name == "pause" else 0)
        for one in for_members(settings)
    ]
    if not told:
        return 0
    digest = hashlib.blake2b(json.dumps(told).encode(), digest_size=8).digest()
    return max(1, int.from_bytes(digest) >> 1)


def is_paused(settings: Iterable[Setting], queue: MessageQueue, now_ms: int) -> bool:
    """Whether a queue rests."""
    return any(
        one.name == "pause"
        and one.place.topic in ("", queue.topic)
        and one.place.queue_id in (-1, queue.queue_id)
        and one.place.broker in ("", queue.broker_name)
        and (not one.until or one.until > now_ms)
        for one in settings
    )


def value_for(settings: Iterable[Setting], name: str, topic: str = "") -> Value | None:
    """What counts for a topic: its own value, else the group's; None when neither is set."""
    found = {one.place.topic: one.value for one in settings if one.name == name and one.place.queue_id < 0}
    return found.get(topic, found.get(""))


def retry_seconds(first: float, growth: float, tries: int) -> float:
    """The delay before a message is tried again that was tried `tries` times before, at most 2 hours."""
    longest = KNOBS["retry_delay"].high
    return min(longest, first * growth ** min(tries, 64))
