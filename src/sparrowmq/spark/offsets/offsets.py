"""Offsets of a stream: values, their JSON for Spark's checkpoint, and how far a micro-batch goes. Pure.

Spark compares offsets as JSON text, so keys are always sorted (spark:S-11). An offset is the next one to read
per topic → broker → queue:

    {"queues": {"orders": {"broker-a": {"0": 17, "1": 4}}}}

There may be two marks beside `queues`. `"init": true` marks a start that was not settled before (spark:S-14).
`"from"` in an end holds where the batch starts in queues whose start the previous offset does not settle: all
queues in batch 0, later those that are new (spark:S-08); it wins over the start, so a replay reads the same.
`"tasks": [1, 2, 0]` in an end says how the batch is laid out over tasks (`TaskLayout`), so a replay has the
same tasks; offsets that were written before there were layouts have none. `"seen": 1700000000000` is when all
queues were last known to reach as far as they were read, epoch ms: older messages were read. `"group":
"spark"` names the consumer group that is the query's own, to commit to. `"marks": {"orders": {"broker-a":
{"0": [1700000000001, 1700000000000, 123, 4096]}}}` identify the last message before each offset
(`MessageMark`); offsets that were written before there were marks have none. `"ends"` has the shape of
`queues` and holds the last known end of each queue, so that a queue that is deleted later is known to have
been read to its end; earlier offsets have none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue

Offsets = Mapping[MessageQueue, int]
Json = dict[str, Any]
T = TypeVar("T")

_QUEUES: Final = "queues"
_FROM: Final = "from"
_INIT: Final = "init"
_TASKS: Final = "tasks"
_SEEN: Final = "seen"
_GROUP: Final = "group"
_MARKS: Final = "marks"
_ENDS: Final = "ends"


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Messages of one queue: offsets from `start` up to, not including, `end`."""

    queue: MessageQueue
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


class TaskLayout(NamedTuple):
    """How a batch is divided into tasks: the minimum and maximum number of tasks, and at most `bound`
    messages in each (0: unlimited).
    """

    least: int
    most: int
    bound: int


class MessageMark(NamedTuple):
    """What identifies a message at its offset: when it was stored and born, epoch ms, and its body's CRC.

    Another message can get the same offset, if the broker lost the first one. `position` is the message's
    offset in the log of its broker: the greater, the later it was stored. It does not identify the message,
    because tiered storage gives it another one.
    """

    stored_ms: int
    born_ms: int
    body_crc: int
    position: int

    def is_of(self, other: MessageMark) -> bool:
        """Whether both are marks of the same message."""
        return self[:3] == other[:3]


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """One offset of a stream; `layout` belongs to the batch that this offset ends.

    `seen_ms` is when all queues were last known to reach this far, 0 if they were not checked. `own_group` is
    the group in which no other client consumed when the query started. `marks` are of the last messages
    before the offsets, as far as they are known; `ends` are the last known ends of queues.
    """

    queues: Offsets
    since: Offsets = field(default_factory=dict)
    initial: bool = False
    layout: TaskLayout | None = None
    seen_ms: int = field(default=0, compare=False)
    own_group: str = field(default="", compare=False)
    marks: Mapping[MessageQueue, MessageMark] = field(default_factory=dict, compare=False)
    ends: Offsets = field(default_factory=dict, compare=False)

    def to_json(self) -> Json:
        """The JSON that Spark stores; keys are sorted."""
        value: Json = {_QUEUES: to_tree(self.queues)}
        if self.since:
            value[_FROM] = to_tree(self.since)
        if self.initial:
            value[_INIT] = True
        if self.layout is not None:
            value[_TASKS] = list(self.layout)
        if self.seen_ms:
            value[_SEEN] = self.seen_ms
        if self.own_group:
            value[_GROUP] = self.own_group
        if self.marks:
            value[_MARKS] = to_tree({queue: list(mark) for queue, mark in self.marks.items()})
        if self.ends:
            value[_ENDS] = to_tree(self.ends)
        return dict(sorted(value.items()))

    @classmethod
    def from_json(cls, value: object) -> StreamOffset:
        """The inverse of `to_json`. Raises `SettingsError` on a checkpoint of another source."""
        if not isinstance(value, dict) or _QUEUES not in value:
            raise _foreign(value)
        unknown = sorted(set(value) - {_QUEUES, _FROM, _INIT, _TASKS, _SEEN, _GROUP, _MARKS, _ENDS})
        if unknown:
            raise SettingsError(
                f"the checkpoint contains {unknown[0]!r}, written by a later release. Continue with that "
                f"release, or start with a new checkpoint",
                "checkpointLocation",
                unknown[0],
            )
        return cls(
            from_tree(value[_QUEUES]),
            from_tree(value.get(_FROM, {})),
            value.get(_INIT) is True,
            _layout(value.get(_TASKS)),
            _millis(value.get(_SEEN, 0)),
            str(value.get(_GROUP, "")),
            _from_tree(value.get(_MARKS, {}), _mark),
            from_tree(value.get(_ENDS, {})),
        )


def to_tree(values: Mapping[MessageQueue, object]) -> Json:
    """Topic → broker → queue id → value; keys sorted as JSON sorts them."""
    tree: Json = {}
    for queue in sorted(values, key=lambda q: (q.topic, q.broker_name, str(q.queue_id))):
        brokers = tree.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = values[queue]
    return tree


def from_tree(tree: Any) -> dict[MessageQueue, int]:
    """The inverse of `to_tree` for offsets. Raises `SettingsError` if the shape is different."""
    return _from_tree(tree, int)


def _from_tree(tree: Any, convert: Callable[[Any], T]) -> dict[MessageQueue, T]:
    try:
        return {
            MessageQueue(topic, broker, int(queue_id)): convert(value)
            for topic, brokers in tree.items()
            for broker, queues in brokers.items()
            for queue_id, value in queues.items()
        }
    except SettingsError:
        raise
    except (AttributeError, TypeError, ValueError):
        raise _foreign(tree) from None


def _mark(value: Any) -> MessageMark:
    return MessageMark(*map(int, value))


def _layout(value: Any) -> TaskLayout | None:
    if value is None:
        return None
    try:
        return TaskLayout(*map(int, value))
    except (TypeError, ValueError):
        raise _foreign(value) from None


def _millis(value: Any) -> int:
    if type(value) is not int:
        raise _foreign(value)
    return value


def _foreign(value: object) -> SettingsError:
    return SettingsError(
        f"{str(value)[:200]} in the checkpoint is not an offset of the rocketmq source; use another "
        f"checkpoint",
        "checkpointLocation",
    )


def lag(start: Offsets, end: Offsets) -> int:
    """Messages between two offsets; queues missing from `start` count from 0, truncated queues are
    ignored.
    """
    return sum(max(0, offset - start.get(queue, 0)) for queue, offset in end.items())


def spans(start: StreamOffset, end: StreamOffset) -> list[Span]:
    """The spans that a micro-batch reads, sorted; they start at `end.since`, or else at `start`.

    Empty when both are equal: Spark before 4.2 asks for such a batch after a restart.
    """
    found: list[Span] = []
    if start == end:
        return found
    for queue in sorted(end.queues):
        first = end.since.get(queue, start.queues.get(queue))
        if first is not None and first < end.queues[queue]:
            found.append(Span(queue, first, end.queues[queue]))
    return found


def split(lags: Mapping[MessageQueue, int], limit: int) -> dict[MessageQueue, int]:
    """Shares of `limit` in proportion to the lags: min(limit, sum of lags) in total, no share above its lag.

    While the limit allows, every lagging queue gets at least one, so none starves; if there is not one for
    each, the longest lags come first.
    """
    waiting = {queue: count for queue, count in lags.items() if count > 0}
    total = sum(waiting.values())
    if total <= limit:
        return waiting
    by_lag = sorted(waiting, key=lambda queue: (-waiting[queue], queue))
    if limit <= len(waiting):
        return dict.fromkeys(by_lag[:limit], 1)
    spare, rest = limit - len(waiting), total - len(waiting)
    shares, remainders = {}, {}
    for queue in by_lag:
        share, remainders[queue] = divmod((waiting[queue] - 1) * spare, rest)
        shares[queue] = 1 + share
    left = limit - sum(shares.values())
    for queue in sorted(by_lag, key=lambda queue: (-remainders[queue], queue))[:left]:
        shares[queue] += 1
    return shares


def advance(start: StreamOffset, ends: Offsets, firsts: Offsets, limit: int | None) -> StreamOffset:
    """The end of the next micro-batch, at most `limit` messages (None: no limit) after `start`.

    `ends` are the queues' ends; queues that are not in it stay where they are, and none goes back. `firsts`
    are the minimum offsets of queues that `start` lacks; a new queue without one is left for later. Equals
    `start` (marks aside) when nothing is new.
    """
    begin = dict(start.queues)
    fresh = {queue: first for queue, first in firsts.items() if queue not in begin and queue in ends}
    begin.update(fresh)
    lags = {queue: ends[queue] - begin[queue] for queue in ends if queue in begin}
    shares = split(lags, sum(max(0, count) for count in lags.values()) if limit is None else limit)
    queues = {queue: offset + shares.get(queue, 0) for queue, offset in begin.items()}
    return StreamOffset(queues, dict(start.queues) | fresh if start.initial else fresh)


def lost(start: Offsets, ends: Offsets) -> list[MessageQueue]:
    """Queues whose end is before their start: their broker lost messages (spark:S-54)."""
    return sorted(queue for queue, offset in start.items() if ends.get(queue, offset) < offset)


def describe(queues: Iterable[MessageQueue]) -> str:
    """Names of some queues, for a message."""
    names = [str(queue) for queue in queues]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
