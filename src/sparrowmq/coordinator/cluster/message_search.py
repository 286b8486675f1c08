"""Messages that match a filter, between two times of all queues, and the newest ones: bounded searches.

Brokers filter. A search ends after a number of pulls of each queue, of bytes and of seconds, and says where
it stopped: so messages that were not read do not count as absent. Nothing is committed: there is no group.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from sparrowmq.aio import Admin, PullConsumer, QueueStatus
from sparrowmq.coordinator.cluster.asking import each
from sparrowmq.coordinator.cluster.bodies.unpacking import cost_of
from sparrowmq.coordinator.cluster.looking import BYTES_MAX, QUEUES_MAX
from sparrowmq.coordinator.cluster.reading import read
from sparrowmq.core.errors import InvalidExpressionError, RefusedError
from sparrowmq.core.message import ReceivedMessage
from sparrowmq.core.subscription import SUBSCRIBE_ALL, Expression, Sql
from sparrowmq.protocol.filter import parse_expression

SECONDS: Final = 10.0
"""How long a search begins pulls; pulls that are in progress then may take a little longer."""
QUEUE_PULLS: Final = 200
"""Pulls of one queue in one search."""
NEWEST_PULLS: Final = 64
"""The same of one stretch of a queue, for the newest messages."""
NEWEST_WINDOW: Final = 2000
"""How far from a queue's end the newest messages that match a filter are searched."""
TIME_MAX: Final = 253_402_300_799_000


@dataclass(frozen=True, slots=True)
class MessageSearch:
    """What to search for: of a topic, up to `count` messages that match, stored between two times (epoch ms,
    both included).
    """

    topic: str
    expression: Expression = SUBSCRIBE_ALL
    begin_ms: int = 0
    end_ms: int = TIME_MAX
    count: int = 50

    @property
    def is_filtered(self) -> bool:
        """Whether there may be messages that do not match."""
        return str(self.expression).strip() not in ("", SUBSCRIBE_ALL)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What was found. `passed` messages were read.

    Everything that matches and was stored before `stopped_ms` is there; None when all of it is. `failed` has
    the reasons why queues could not be searched.
    """

    messages: Sequence[ReceivedMessage]
    passed: int = 0
    stopped_ms: int | None = None
    failed: Mapping[str, str] = field(default_factory=dict)
    at: float = 0.0

    def first(self, count: int) -> SearchResult:
        """The same with its first `count` messages alone: it stops at the next one."""
        if count >= len(self.messages):
            return self
        stops = [one for one in (self.stopped_ms, self.messages[count].store_timestamp) if one is not None]
        return replace(self, messages=self.messages[:count], stopped_ms=min(stops))


@dataclass(slots=True)
class _Bounds:
    """The remaining budget of one search, for all its queues."""

    until: float
    monotonic: Callable[[], float]
    bytes_left: int = BYTES_MAX

    @property
    def is_over(self) -> bool:
        return self.bytes_left <= 0 or self.monotonic() >= self.until


@dataclass(slots=True)
class _Passed:
    """What one queue gave."""

    messages: list[ReceivedMessage] = field(default_factory=list)
    passed: int = 0
    stopped_ms: int | None = None


def expression_of(tags: str, sql: str) -> Expression:
    """A filter by tags (`A || B`), by SQL92, or none. Raises `RefusedError` (422) for both, and for an
    invalid expression; of SQL92 it says where.
    """
    if tags and sql:
        text = "give tags or a SQL92 expression, not both; in SQL92 the tag is the property TAGS"
        raise RefusedError(text, status=422, what="tags", value=tags)
    wanted: Expression = Sql(sql) if sql else tags or SUBSCRIBE_ALL
    try:
        parse_expression("", wanted, 0)
    except InvalidExpressionError as error:
        raise RefusedError(str(error), status=422) from None
    return wanted


async def search(
    admin: Admin,
    reader: PullConsumer,
    wish: MessageSearch,
    *,
    seconds: float = SECONDS,
    bytes_max: int = BYTES_MAX,
    monotonic: Callable[[], float] = time.monotonic,
) -> SearchResult:
    """The first messages that match, by the time they were stored; of about `bytes_max` bytes with their
    properties. Bodies are as they are stored.
    """
    statuses = {str(one.queue): one for one in (await admin.topics.status(wish.topic))[:QUEUES_MAX]}
    bounds = _Bounds(monotonic() + seconds, monotonic, bytes_max)
    failed: dict[str, str] = {}
    found = await each(
        statuses,
        lambda name: _pass_through(admin, reader, statuses[name], wish, bounds),
        failed,
        seconds=seconds + 2,
    )
    if failed and len(failed) == len(statuses):
        raise RefusedError(next(iter(failed.values())), status=502)
    merged = sorted((one for queue in found.values() for one in queue.messages), key=_by_time)
    stops = [one.stopped_ms for one in found.values() if one.stopped_ms is not None]
    if len(merged) > wish.count:
        merged = merged[: wish.count]
        stops.append(merged[-1].store_timestamp)
    return SearchResult(
        merged, sum(one.passed for one in found.values()), min(stops, default=None), failed, monotonic()
    )


async def newest(
    admin: Admin,
    reader: PullConsumer,
    wish: MessageSearch,
    *,
    monotonic: Callable[[], float] = time.monotonic,
) -> SearchResult:
    """The last messages of a topic that match, the newest first; without their times in `wish`. Bodies are as
    they are stored.

    With a filter, each queue's last `NEWEST_WINDOW` messages are searched. Queues with the newest messages
    are searched first, in case the byte limit is reached.
    """
    at = monotonic()
    listed = sorted(await admin.topics.status(wish.topic), key=lambda one: -one.last_update_ms)[:QUEUES_MAX]
    statuses = {str(one.queue): one for one in listed if one.messages}
    bounds = _Bounds(at + SECONDS, monotonic)
    failed: dict[str, str] = {}
    found = await each(
        statuses, lambda name: _last_of(reader, statuses[name], wish, bounds), failed, seconds=SECONDS
    )
    if failed and len(failed) == len(statuses):
        raise RefusedError(next(iter(failed.values())), status=502)
    messages = sorted((one for last in found.values() for one in last), key=_by_time, reverse=True)
    return SearchResult(messages[: wish.count], sum(map(len, found.values())), None, failed, at)


async def _pass_through(
    admin: Admin, reader: PullConsumer, status: QueueStatus, wish: MessageSearch, bounds: _Bounds
) -> _Passed:
    done = _Passed()
    if not status.messages or status.last_update_ms < wish.begin_ms:
        return done
    queue, offset = status.queue, status.min_offset
    if wish.begin_ms:
        offset = await admin.topics.search_offset(queue, wish.begin_ms)
    end = status.max_offset
    if wish.end_ms < status.last_update_ms:
        end = min(end, await admin.topics.search_offset(queue, wish.end_ms) + 1)
    for _ in range(QUEUE_PULLS):
        if offset >= end or len(done.messages) > wish.count:
            return done
        if bounds.is_over:
            break
        result = await read(reader, queue, offset, expression=wish.expression)
        for one in result.messages:
            bounds.bytes_left -= cost_of(one)
            if wish.begin_ms <= one.store_timestamp <= wish.end_ms:
                done.messages.append(one)
        onward = max(offset, result.next_offset)
        if onward == offset:
            return done
        done.passed += min(onward, end) - offset
        offset = onward
    if offset < end:
        done.stopped_ms = await _time_at(reader, status, offset)
    return done


async def _time_at(reader: PullConsumer, status: QueueStatus, offset: int) -> int:
    """When the message at an offset was stored; of one that is gone, when its queue's last one was."""
    result = await read(reader, status.queue, offset, count=1)
    return result.messages[0].store_timestamp if result.messages else status.last_update_ms


async def _last_of(
    reader: PullConsumer, status: QueueStatus, wish: MessageSearch, bounds: _Bounds
) -> list[ReceivedMessage]:
    """From a queue's end backwards, in windows that grow while too few match: messages may be large."""
    found, end = list[ReceivedMessage](), status.max_offset
    windows: Sequence[int] = (
        (wish.count, 8 * wish.count, NEWEST_WINDOW)
        if wish.is_filtered
        else sorted({1, min(8, wish.count), wish.count})
    )
    for window in windows:
        begin = max(status.min_offset, status.max_offset - window)
        if begin >= end or len(found) >= wish.count or bounds.is_over:
            break
        here = await _between(reader, status, wish, (begin, end), bounds)
        if here is None:
            break  # what it did not reach is newer than what it found
        found, end = [*here, *found][-wish.count :], begin
    return found


async def _between(
    reader: PullConsumer, status: QueueStatus, wish: MessageSearch, span: tuple[int, int], bounds: _Bounds
) -> list[ReceivedMessage] | None:
    """What matches from one offset up to another of a queue; None when the bounds ended it before."""
    offset, end = span
    found: list[ReceivedMessage] = []
    for _ in range(NEWEST_PULLS):
        if offset >= end:
            return found
        if bounds.is_over:
            return None
        result = await read(reader, status.queue, offset, expression=wish.expression)
        here = [one for one in result.messages if one.queue_offset < end]
        bounds.bytes_left -= sum(map(cost_of, here))
        found += here
        if result.next_offset <= offset:
            return found
        offset = result.next_offset
    return found if offset >= end else None


def _by_time(one: ReceivedMessage) -> tuple[int, object, int]:
    return one.store_timestamp, one.queue, one.queue_offset
