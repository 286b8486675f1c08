"""Offsets of a stream: values, their JSON for Spark's checkpoint, and how far a micro-batch goes. Pure.

Spark compares offsets as JSON text, so keys are always sorted (spark:S-11). An offset is the next one to read
per topic → broker → queue:

    {"queues": {"orders": {"broker-a": {"0": 17, "1": 4}}}}

Two marks may stand beside `queues`. `"init": true` marks a start that was not settled before (spark:S-14).
`"from"` in an end holds where the batch starts in queues whose start the previous offset does not settle: all
queues in batch 0, later those that are new (spark:S-08); it wins over the start, so a replay reads the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue

Offsets = Mapping[MessageQueue, int]
Json = dict[str, Any]

_QUEUES: Final = "queues"
_FROM: Final = "from"
_INIT: Final = "init"


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Messages of one queue: offsets from `start` up to, not including, `end`."""

    queue: MessageQueue
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """One offset of a stream."""

    queues: Offsets
    since: Offsets = field(default_factory=dict)
    initial: bool = False

    def to_json(self) -> Json:
        """As Spark stores it; keys sorted."""
        value: Json = {_QUEUES: to_tree(self.queues)}
        if self.since:
            value[_FROM] = to_tree(self.since)
        if self.initial:
            value[_INIT] = True
        return dict(sorted(value.items()))

    @classmethod
    def from_json(cls, value: object) -> StreamOffset:
        """The inverse of `to_json`. Raises `SettingsError` on a checkpoint that is not this source's."""
        if not isinstance(value, dict) or _QUEUES not in value:
            raise _foreign(value)
        unknown = sorted(set(value) - {_QUEUES, _FROM, _INIT})
        if unknown:
            raise SettingsError(
                f"the checkpoint holds {unknown[0]!r}, which this release does not know: a later one wrote "
                "it. Go on with that release, or start anew with another checkpoint"
            )
        return cls(from_tree(value[_QUEUES]), from_tree(value.get(_FROM, {})), value.get(_INIT) is True)


def to_tree(offsets: Offsets) -> Json:
    """Topic → broker → queue id → offset; keys sorted as JSON sorts them."""
    tree: Json = {}
    for queue in sorted(offsets, key=lambda q: (q.topic, q.broker_name, str(q.queue_id))):
        brokers = tree.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return tree


def from_tree(tree: Any) -> dict[MessageQueue, int]:
    """The inverse of `to_tree`. Raises `SettingsError` on another shape."""
    try:
        return {
            MessageQueue(topic, broker, int(queue_id)): int(offset)
            for topic, brokers in tree.items()
            for broker, queues in brokers.items()
            for queue_id, offset in queues.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise _foreign(tree) from None


def _foreign(value: object) -> SettingsError:
    return SettingsError(
        f"{str(value)[:200]} in the checkpoint is no offset of the rocketmq source; use another checkpoint"
    )


def lag(start: Offsets, end: Offsets) -> int:
    """Messages between two offsets; queues that `start` lacks count from 0, losses do not count."""
    return sum(max(0, offset - start.get(queue, 0)) for queue, offset in end.items())


def spans(start: StreamOffset, end: StreamOffset) -> list[Span]:
    """What a micro-batch reads, sorted: `end.since` says from where, else `start`.

    Nothing when both are the same: Spark before 4.2 asks that after a restart.
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

    While the limit allows, every lagging queue gets at least one, so none starves; with less than one each,
    the longest lags go first.
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
    """Queues that end before their start: their broker lost messages (spark:S-54)."""
    return sorted(queue for queue, offset in start.items() if ends.get(queue, offset) < offset)


def describe(queues: Iterable[MessageQueue]) -> str:
    """Some queue names for a message."""
    names = [str(queue) for queue in queues]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
