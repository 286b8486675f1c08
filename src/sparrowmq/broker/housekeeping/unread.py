"""Messages that retention deleted before a group had consumed them."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrowmq.core.names import DLQ_PREFIX
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.queues.consume_queue import ConsumeQueue
    from sparrowmq.store.tables.consumer_offsets import ConsumerOffsets

log = logging.getLogger("sparrowmq.broker")
PAIRS_MAX: Final = 10_000
"""Pairs of a topic and a group that are counted separately."""
OTHERS: Final = ("", "")
"""All other pairs."""
STEP_OFFSETS: Final = 100
"""Offsets that are examined in one step."""

Pair = tuple[str, str]


class UnreadSpan(NamedTuple):
    """A number of messages, with the store times of the first and the last, epoch ms; None if unknown."""

    messages: int
    first_ms: int | None = None
    last_ms: int | None = None

    def __add__(self, other: UnreadSpan) -> UnreadSpan:  # type: ignore[override]
        known = [time for time in (*self[1:], *other[1:]) if time is not None]
        return UnreadSpan(self.messages + other.messages, min(known, default=None), max(known, default=None))


class UnreadDeletions:
    """Counts deleted messages that a group had not consumed, since the broker started.

    A group has not consumed what is at or after its committed offset. Queues in which it has committed
    nothing do not count, and dead letters do not, because no group is meant to read them.
    """

    def __init__(self, store: MessageStore, offsets: ConsumerOffsets, *, pairs_max: int = PAIRS_MAX) -> None:
        self._store = store
        self._offsets = offsets
        self._pairs_max = pairs_max
        self._occasional = OccasionalLog(log)
        self.by_pair: dict[Pair, UnreadSpan] = {}
        """What was deleted unread, by topic and group."""

    def finding(self, end: int) -> Generator[None, None, dict[Pair, UnreadSpan]]:
        """Find what groups have not consumed of the log before position `end`, in steps."""
        found: dict[Pair, UnreadSpan] = {}
        examined = 0
        bounds: dict[tuple[str, int], range] = {}
        for topic, group in self._offsets.pairs():
            if topic.startswith(DLQ_PREFIX):
                continue
            for queue_id, offset in list(self._offsets.of_pair(topic, group).items()):
                examined += 1
                if examined % STEP_OFFSETS == 0:
                    yield
                queue = self._store.find_queue(topic, queue_id)
                if queue is None or max(offset, queue.min_offset) >= queue.committed:
                    continue  # nearly all
                doomed = bounds.get((topic, queue_id))
                if doomed is None:
                    doomed = bounds[topic, queue_id] = self._doomed(queue, end)
                    yield
                if offset < doomed.stop and doomed:
                    unread = self._unread(queue, max(offset, doomed.start), doomed.stop)
                    found[topic, group] = found.get((topic, group), UnreadSpan(0)) + unread
        return found

    def _doomed(self, queue: ConsumeQueue, end: int) -> range:
        return range(queue.first_from(self._store.min_position), queue.first_from(end))

    def _unread(self, queue: ConsumeQueue, first: int, stop: int) -> UnreadSpan:
        times = (self._store.store_time(queue, offset) for offset in (first, stop - 1))
        return UnreadSpan(stop - first, *times)

    def adding(self, found: dict[Pair, UnreadSpan]) -> Iterator[None]:
        """Count and log what `finding` found, after it was deleted, in steps."""
        if found and len(self.by_pair) >= self._pairs_max:
            self._remove_deleted()
        for at, (pair, unread) in enumerate(found.items(), 1):
            if at % STEP_OFFSETS == 0:
                yield
            has_room = pair in self.by_pair or len(self.by_pair) < self._pairs_max
            key = pair if has_room else OTHERS
            self.by_pair[key] = self.by_pair.get(key, UnreadSpan(0)) + unread
            topic, group = pair
            text = (
                f"retention deleted {unread.messages} messages of {topic} that group {group} had not "
                f"consumed, stored from {_utc(unread.first_ms)} to {_utc(unread.last_ms)}"
            )
            self._occasional.write(logging.WARNING, f"{topic}@{group}", text)

    def _remove_deleted(self) -> None:
        """Remove pairs whose topic or group was deleted."""
        kept = {OTHERS, *self._offsets.pairs()}
        self.by_pair = {pair: unread for pair, unread in self.by_pair.items() if pair in kept}


def _utc(epoch_ms: int | None) -> str:
    if epoch_ms is None:
        return "an unknown time"
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).isoformat(timespec="milliseconds")
