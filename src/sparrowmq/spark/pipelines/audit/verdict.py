"""The verdict of an audit: which promises were checked, whether they hold, and what was found. Pure.

`docs/pipelines/audit.md` describes the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any, Final

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.pipelines.audit.comparison import OF_GROUPS, OF_SENDS, Kind

VERSION: Final = 1
NO_LIMIT: Final = -1
DEFAULT_ALLOWED: Final[Mapping[Kind, int]] = {
    Kind.LOST: 0,
    Kind.MISSED: 0,
    Kind.STORED_TWICE: 0,
    Kind.CONSUMED_TWICE: 0,
    Kind.UNKNOWN: NO_LIMIT,
    Kind.FAILED: NO_LIMIT,
    Kind.RETRIED: NO_LIMIT,
    Kind.LATE: NO_LIMIT,
}
_TEXTS: Final = {
    Kind.LOST: "every message that was acknowledged is stored",
    Kind.STORED_TWICE: "no message is stored twice",
    Kind.UNKNOWN: "every stored message has a recorded send",
    Kind.MISSED: "every message reached group {group}",
    Kind.CONSUMED_TWICE: "no message was consumed twice by group {group}",
    Kind.FAILED: "no message failed for good in group {group}",
    Kind.RETRIED: "no message had to be retried in group {group}",
    Kind.LATE: "no message was late in group {group}",
}


class Status(IntEnum):
    """The exit status of the command."""

    WHOLE = 0
    BROKEN = 1
    NOT_JUDGED = 2


@dataclass(frozen=True, slots=True)
class Promise:
    """One promise: whether it could be judged (`doubts` says why not), the number of violations, and the
    number allowed.
    """

    text: str
    kind: str
    group: str | None
    found: int
    allowed: int
    doubts: tuple[str, ...] = ()

    @property
    def holds(self) -> bool | None:
        """None if it could not be judged."""
        if self.allowed == NO_LIMIT:
            return True
        if self.found > self.allowed:
            return False
        return None if self.doubts else True

    def to_json(self) -> dict[str, Any]:
        """As a JSON value."""
        return {**asdict(self), "doubts": list(self.doubts), "holds": self.holds}


@dataclass(frozen=True, slots=True)
class Range:
    """What was judged of one queue: the first and the last offset and how many messages."""

    topic: str
    broker: str
    queue_id: int
    first: int
    last: int
    messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What an audit found. Times are epoch milliseconds."""

    since: int
    until: int
    now: int
    topics: tuple[str, ...]
    sources: Mapping[str, str]
    """The source from which `sent`, `stored` and each group's consumption were read."""
    sent: int | None
    """Messages sent in the window; None if sends are not judged."""
    stored: int
    consumed: Mapping[str, int]
    """How many of the stored ones were consumed, by group."""
    found: Mapping[str, int]
    """How many findings of each kind, undecided ones too."""
    promises: tuple[Promise, ...]
    ranges: tuple[Range, ...] = ()
    shown: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    """The first findings; the Parquet files have all of them."""

    @property
    def status(self) -> Status:
        """Broken if any promise is; else not judged if any promise is not."""
        holds = [promise.holds for promise in self.promises]
        if False in holds:
            return Status.BROKEN
        return Status.NOT_JUDGED if None in holds else Status.WHOLE

    def to_json(self) -> dict[str, Any]:
        """As a JSON value."""
        total = sum(self.found.values())
        return {
            "version": VERSION,
            "status": int(self.status),
            "verdict": self.status.name.lower(),
            "window": {"since": self.since, "until": self.until, "now": self.now},
            "topics": list(self.topics),
            "sources": dict(self.sources),
            "counts": {"sent": self.sent, "stored": self.stored, "consumed": dict(self.consumed)},
            "promises": [promise.to_json() for promise in self.promises],
            "ranges": [asdict(one) for one in self.ranges],
            "findings": {
                "total": total,
                "kinds": dict(sorted(self.found.items())),
                "shown": [dict(one) for one in self.shown],
                "all": "findings",
            },
        }

    def lines(self) -> list[str]:
        """The verdict as text: the counts, then a line for each promise."""
        sent = [] if self.sent is None else [f"{self.sent:,} sent"]
        taken = [f"{count:,} consumed by {group}" for group, count in sorted(self.consumed.items())]
        found = [", ".join([*sent, f"{self.stored:,} stored", *taken])]
        for promise in self.promises:
            if promise.holds is None:
                found.append(f"not checked: {promise.text}: {promise.doubts[0]}")
            elif promise.found or promise.allowed != NO_LIMIT:
                allowed = "allowed" if promise.found else "holds"
                word = allowed if promise.holds else "BROKEN"
                kind = promise.kind.replace("_", " ")
                count = f" ({promise.found:,} {kind})" if promise.found else ""
                found.append(f"{word}: {promise.text}{count}")
        if undecided := self.found.get(Kind.UNDECIDED, 0):
            found.append(f"undecided yet: {undecided:,}")
        return found


@dataclass(frozen=True, slots=True)
class GroupResult:
    """Findings about one group; doubts of `missed`, and whether traces record calls."""

    name: str
    by_trace: bool
    found: Mapping[str, int]
    doubts: tuple[str, ...] = ()


def allowed_of(given: Mapping[str, int]) -> dict[Kind, int]:
    """Allowed number by kind; missing kinds get the default. Raises `SettingsError`."""
    found = dict(DEFAULT_ALLOWED)
    for name, count in given.items():
        if name not in tuple(found):
            text = f"allow {name!r} is not a kind of finding; known are {', '.join(found)}"
            raise SettingsError(text, "allow", name)
        if count < NO_LIMIT:
            text = f"allow {name}={count}: must be 0 or more, or {NO_LIMIT} for no limit"
            raise SettingsError(text, "allow", count)
        found[Kind(name)] = count
    return found


def promises(
    sends: Mapping[str, int],
    groups: Sequence[GroupResult],
    allowed: Mapping[Kind, int],
    *,
    with_sent: bool,
    sent_doubts: Sequence[str] = (),
    stored_doubts: Sequence[str] = (),
) -> tuple[Promise, ...]:
    """The promises that were checked. An uncertain result is not a finding: a loss needs complete stored
    data.

    `sends` counts the findings about sent and stored messages by kind.
    """
    made = []
    for kind in OF_SENDS:
        doubts = tuple(stored_doubts)
        if kind is not Kind.STORED_TWICE:
            if not with_sent:
                continue
            doubts += tuple(sent_doubts)
        blind = bool(stored_doubts if kind is Kind.LOST else sent_doubts if kind is Kind.UNKNOWN else ())
        count = 0 if blind else sends.get(kind, 0)
        made.append(Promise(_TEXTS[kind], kind.value, None, count, allowed[kind], doubts))
    for group in groups:
        for kind in OF_GROUPS if group.by_trace else (Kind.MISSED, Kind.FAILED):
            blind = kind is Kind.MISSED and bool(group.doubts)
            count = 0 if blind else group.found.get(kind, 0)
            text = _TEXTS[kind].format(group=group.name)
            doubts = (*group.doubts, *stored_doubts)
            made.append(Promise(text, kind.value, group.name, count, allowed[kind], doubts))
    return tuple(made)
