"""How a backfill is cut: windows of offsets that cover every message once. Pure.

By rows, a window takes its share of every queue, so that windows follow one another in time. By time, the
brokers look up the offset of each boundary in each queue, and adjacent windows share that offset: even if
clocks jumped, every message is in exactly one window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets.offsets import Span, split

WINDOWS_MAX: Final = 10_000
"""Maximum number of windows in one backfill: each is a directory and a note."""
SPANS_MAX: Final = 500_000
"""Maximum of windows times queues: the plan is one file that is read as a whole."""


@dataclass(frozen=True, slots=True)
class Window:
    """Messages that are processed together; each queue at most once."""

    number: int
    """Number of the window, counted from 0 in order."""
    spans: tuple[Span, ...]
    """Sorted."""
    since: int | None = None
    """Windows by time: stored at or after, epoch milliseconds."""
    until: int | None = None
    """Windows by time: stored before, epoch milliseconds."""
    backfill: str = ""
    """The id of the backfill; set when the plan is stored."""

    @property
    def key(self) -> str:
        """A unique name of this window, the same at every attempt: for sinks that recognize repeated writes.

        Delta's `txnAppId`, the `jobId` of a write to a topic, the name of a staging table.
        """
        return f"backfill-{self.backfill}-{self.number}"

    def __len__(self) -> int:
        return sum(map(len, self.spans))


def by_rows(spans: Sequence[Span], rows: int) -> list[Window]:
    """Windows of at most `rows` messages. Raises `SettingsError` when there would be too many of them."""
    check_count(-(-sum(map(len, spans)) // rows), f"rows={rows}")
    place = {span.queue: span.start for span in spans}
    left = {span.queue: len(span) for span in spans}
    found: list[Window] = []
    while shares := split(left, rows):  # each window has at least one message
        taken = [Span(queue, place[queue], place[queue] + count) for queue, count in shares.items() if count]
        for span in taken:
            place[span.queue] = span.end
            left[span.queue] -= len(span)
        found.append(Window(len(found), tuple(sorted(taken))))
    _check_spans(found, f"rows={rows}")
    return found


def boundaries(since: int, until: int, length: int) -> list[int]:
    """The moments between windows of `length` ms, after `since` and before `until`: multiples of `length`.

    So hourly windows begin at full hours and daily ones at midnight, UTC, regardless of the start. Raises
    `SettingsError` when there would be too many.
    """
    first = (since // length + 1) * length
    check_count(max(0, -(-(until - first) // length)) + 1, f"window={length} ms")
    return list(range(first, until, length))


def by_time(
    spans: Sequence[Span], moments: Sequence[int], offsets: Sequence[Mapping[MessageQueue, int]]
) -> list[Window]:
    """Windows between `moments`; `offsets` has for each the first offset stored at or after it, by queue.

    A queue without an offset at a moment has no earlier messages. Windows without messages are left out.
    Raises `SettingsError` when there would be too many.
    """
    place = {span.queue: span.start for span in spans}
    ends = {span.queue: span.end for span in spans}
    edges: list[int | None] = [None, *moments, None]
    found: list[Window] = []
    for index, at in enumerate([*offsets, ends]):
        taken = []
        for queue, start in place.items():
            end = min(at.get(queue, start), ends[queue])
            if end > start:  # if a clock went back, a boundary is earlier than the one before it
                taken.append(Span(queue, start, end))
        place |= {span.queue: span.end for span in taken}
        if taken:
            found.append(Window(len(found), tuple(sorted(taken)), edges[index], edges[index + 1]))
    _check_spans(found, "window")
    return found


def check_count(count: int, asked: str) -> None:
    """Raise `SettingsError` if a backfill may not have this many windows."""
    if count > WINDOWS_MAX:
        raise SettingsError(
            f"{asked} makes {count:,} windows, but a backfill may have at most {WINDOWS_MAX:,}: use larger "
            f"windows, or a shorter time",
            value=count,
            limit=WINDOWS_MAX,
        )


def _check_spans(windows: Sequence[Window], asked: str) -> None:
    count = sum(len(window.spans) for window in windows)
    if count > SPANS_MAX:
        raise SettingsError(
            f"{asked} makes {len(windows):,} windows of {count:,} parts of queues, but a backfill may have "
            f"at most {SPANS_MAX:,}: use larger windows, or fewer topics",
            value=count,
            limit=SPANS_MAX,
        )


def to_json(windows: Sequence[Window]) -> dict[str, Any]:
    """As a JSON value that names each queue once."""
    queues = sorted({span.queue for window in windows for span in window.spans})
    places = {queue: index for index, queue in enumerate(queues)}
    return {
        "queues": [[queue.topic, queue.broker_name, queue.queue_id] for queue in queues],
        "windows": [
            {
                "since": window.since,
                "until": window.until,
                "spans": [[places[span.queue], span.start, span.end] for span in window.spans],
            }
            for window in windows
        ],
    }


def from_json(value: Any, backfill: str) -> Iterator[Window]:
    """The inverse of `to_json`, of the backfill with this id.

    Raises KeyError, TypeError, ValueError, IndexError for malformed input.
    """
    queues = [MessageQueue(str(topic), str(broker), int(number)) for topic, broker, number in value["queues"]]
    for number, window in enumerate(value["windows"]):
        spans = tuple(Span(queues[index], int(start), int(end)) for index, start, end in window["spans"])
        yield Window(number, spans, window["since"], window["until"], backfill)
