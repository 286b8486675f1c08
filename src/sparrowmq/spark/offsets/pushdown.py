"""Limits on queues, offsets and store times, derived from Spark's filters to read less.

Pure. Every filter is returned to Spark, which applies it again: the result here must include all rows that
Spark wants, and may include more (spark:B-09). Times become offsets by the brokers' search, widened by
`TIME_MARGIN_MS`, because a broker's clock may have been set back and 4.9 gives the nearest message, not the
first (broker:3.7).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets.offsets import Span

TIME_MARGIN_MS: Final = 60_000
"""Messages stored up to this much outside the requested time are also read."""
_SEARCH_MS_MAX: Final = 2**53


@dataclass(frozen=True, slots=True)
class Wanted:
    """Limits on the rows that Spark may want; None is unlimited."""

    topics: frozenset[str] | None = None
    topic_prefix: str = ""
    brokers: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    stored_from: int | None = None
    """Epoch milliseconds, inclusive, as `stored_to`."""
    stored_to: int | None = None

    def takes(self, queue: MessageQueue) -> bool:
        """Whether a queue may have matching rows."""
        return (
            (self.topics is None or queue.topic in self.topics)
            and queue.topic.startswith(self.topic_prefix)
            and (self.brokers is None or queue.broker_name in self.brokers)
            and (self.queue_ids is None or queue.queue_id in self.queue_ids)
        )

    def cut(self, span: Span) -> Span | None:
        """The part of a span that may have matching rows, by queue and offset; None if there is none."""
        start = max(span.start, self.first_offset if self.first_offset is not None else 0)
        end = span.end if self.last_offset is None else min(span.end, self.last_offset + 1)
        return Span(span.queue, start, end) if self.takes(span.queue) and start < end else None

    @property
    def search_from(self) -> int | None:
        """The time to search for the first offset; None if no search is needed."""
        return None if self.stored_from is None else _searchable(self.stored_from - TIME_MARGIN_MS)

    @property
    def search_to(self) -> int | None:
        """The time to search for the last offset; the found message is included."""
        return None if self.stored_to is None else _searchable(self.stored_to + TIME_MARGIN_MS)


def wanted(filters: Iterable[Any]) -> Wanted:
    """The limits of all Spark filters; a filter that does not mention queue, offset or time has no effect."""
    found = Wanted()
    for item in filters:
        found = _narrowed(found, item)
    return found


def cut_by_time(
    spans: Iterable[Span], firsts: Mapping[MessageQueue, int], lasts: Mapping[MessageQueue, int]
) -> list[Span]:
    """Limit each queue's span to its first and last offset, both included; queues without them keep their
    span.
    """
    found = []
    for span in spans:
        start = max(span.start, firsts.get(span.queue, span.start))
        end = min(span.end, lasts.get(span.queue, span.end) + 1)
        if start < end:
            found.append(Span(span.queue, start, end))
    return found


_CHOICES: Final[Mapping[str, tuple[str, type]]] = {
    "topic": ("topics", str),
    "broker": ("brokers", str),
    "queue_id": ("queue_ids", int),
}
_RANGES: Final = {
    "queue_offset": ("first_offset", "last_offset"),
    "store_timestamp": ("stored_from", "stored_to"),
}


def _narrowed(found: Wanted, item: Any) -> Wanted:
    """`found` after one more filter. Filters are distinguished by name: Spark before 4.1 has no filter
    classes.
    """
    path: Sequence[str] = getattr(item, "attribute", ())
    value = getattr(item, "value", None)
    if len(path) != 1 or value is None:
        return found
    [column], kind = path, type(item).__name__
    if kind == "StringStartsWith" and column == "topic":
        longer = max(found.topic_prefix, value, key=len)
        return replace(found, topic_prefix=longer)
    if column in _CHOICES:
        values = {"EqualTo": (value,), "EqualNullSafe": (value,), "In": value}.get(kind)
        field, of_type = _CHOICES[column]
        if values is None or not all(isinstance(one, of_type) for one in values):
            return found
        before = getattr(found, field)
        changes: dict[str, Any] = {field: frozenset(values) if before is None else before & frozenset(values)}
        return replace(found, **changes)
    if column in _RANGES:
        low, high = _bounds(kind, value)
        return _ranged(found, column, low, high)
    return found


def _bounds(kind: str, value: Any) -> tuple[int | None, int | None]:
    """Smallest and greatest number that a comparison may accept; a fraction of a millisecond is truncated."""
    values = value if kind == "In" else (value,)
    numbers = [_number(one) for one in values]
    if not numbers or None in numbers:
        return None, None
    low, high = min(n for n in numbers if n is not None), max(n for n in numbers if n is not None)
    whole = not isinstance(values[0], datetime)
    if kind in ("EqualTo", "EqualNullSafe", "In"):
        return low, high
    if kind in ("GreaterThan", "GreaterThanOrEqual"):
        return low + (whole and kind == "GreaterThan"), None
    if kind in ("LessThan", "LessThanOrEqual"):
        return None, high - (whole and kind == "LessThan")
    return None, None


def _number(value: Any) -> int | None:
    if isinstance(value, datetime):
        return None if value.tzinfo is None else int(value.timestamp() * 1000)
    return value if isinstance(value, int) else None


def _ranged(found: Wanted, column: str, low: int | None, high: int | None) -> Wanted:
    least, most = _RANGES[column]
    old_low, old_high = getattr(found, least), getattr(found, most)
    lows = [number for number in (old_low, low) if number is not None]
    highs = [number for number in (old_high, high) if number is not None]
    changes: dict[str, Any] = {least: max(lows, default=None), most: min(highs, default=None)}
    return replace(found, **changes)


def _searchable(millis: int) -> int:
    return max(0, min(millis, _SEARCH_MS_MAX))
