"""What was traced of a message, drawn: a line for each send and each try of a group, over time.

Pure. The table beside the picture says the same in words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sparrowmq.console import shown

LINES_MAX: Final = 40
"""Lines that are drawn; the table has all."""
STEP: Final = 26
TOP: Final = 34
LEFT: Final = 250
WIDTH: Final = 900
RIGHT: Final = 830
TICKS: Final = 5
NAME_CHARS: Final = 32
SIGNS: Final[Mapping[str, str]] = {"success": "✓", "failed": "✕", "begun": "…"}
"""How an outcome is drawn, for those who do not see its colour."""


@dataclass(frozen=True, slots=True)
class TimelineSpan:
    """Something that took from one time to another; `outcome` is success, failed, or begun."""

    what: str
    who: str
    begin_ms: int
    end_ms: int
    outcome: str
    tries: int = 0


@dataclass(frozen=True, slots=True)
class TimelineBar:
    """A span and where it is drawn."""

    span: TimelineSpan
    name: str
    x: int
    y: int
    width: int
    sign: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark of the axis: where, and how long after the beginning."""

    x: int
    text: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """The shapes to draw. `left_out` spans are not."""

    bars: Sequence[TimelineBar] = ()
    ticks: Sequence[Tick] = ()
    height: int = 0
    width: int = WIDTH
    begin_ms: int = 0
    left_out: int = 0
    spans: Sequence[TimelineSpan] = field(default=())


def spans_of(records: Sequence[Mapping[str, Any]]) -> list[TimelineSpan]:
    """Sends and tries by the records of the API, in the order of time."""
    ends = {one["request_id"]: one for one in records if one["record"] == "SubAfter"}
    spans: list[TimelineSpan] = []
    for one in records:
        kind = one["record"]
        begin = one["time"]
        if kind == "Pub":
            outcome = "success" if one["success"] else "failed"
            spans.append(TimelineSpan("sent", one["group"], begin, begin + one["cost"], outcome))
        elif kind == "SubBefore":
            end = ends.pop(one["request_id"], None)
            spans.append(_try(one, end))
        elif kind == "EndTransaction":
            spans.append(TimelineSpan("transaction", one["group"], begin, begin, _ended(one["state"])))
        elif kind == "Recall":
            spans.append(
                TimelineSpan("recall", one["group"], begin, begin, "success" if one["success"] else "failed")
            )
    for end in ends.values():  # whose beginning is not there
        if end["time"]:
            spans.append(
                TimelineSpan("consumed", end["group"], end["time"] - end["cost"], end["time"], _outcome(end))
            )
    return sorted(spans, key=lambda one: (one.begin_ms, one.what != "sent"))


def timeline(spans: Sequence[TimelineSpan]) -> Timeline:
    """The picture of spans."""
    drawn = spans[:LINES_MAX]
    if not drawn:
        return Timeline()
    begin, end = min(one.begin_ms for one in drawn), max(one.end_ms for one in drawn)
    scale = (RIGHT - LEFT) / max(1, end - begin)
    bars = [
        TimelineBar(
            one,
            _short(f"{one.who}"),
            LEFT + round((one.begin_ms - begin) * scale),
            TOP + STEP * index,
            max(4, round((one.end_ms - one.begin_ms) * scale)),
            SIGNS[one.outcome],
        )
        for index, one in enumerate(drawn)
    ]
    ticks = [
        Tick(LEFT + (RIGHT - LEFT) * number // TICKS, shown.span((end - begin) * number / TICKS))
        for number in range(TICKS + 1)
    ]
    height = TOP + STEP * len(drawn) + 8
    return Timeline(bars, ticks, height, WIDTH, begin, len(spans) - len(drawn), spans)


def _try(one: Mapping[str, Any], end: Mapping[str, Any] | None) -> TimelineSpan:
    begin = one["time"]
    if end is None:
        return TimelineSpan("consumed", one["group"], begin, begin, "begun", one["retry_times"])
    return TimelineSpan(
        "consumed", one["group"], begin, begin + end["cost"], _outcome(end), one["retry_times"]
    )


def _outcome(end: Mapping[str, Any]) -> str:
    return "success" if end["success"] else "failed"


def _ended(state: str) -> str:
    return {"COMMIT_MESSAGE": "success", "ROLLBACK_MESSAGE": "failed"}.get(state, "begun")


def _short(name: str) -> str:
    return name if len(name) <= NAME_CHARS else f"{name[: NAME_CHARS - 1]}…"
