"""What `sparrow top` shows: three tables that fit the terminal. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sparrowmq.cli.base.times import about
from sparrowmq.cli.cluster.cluster_rows import ClusterRows, TopBroker, TopGroup, TopTopic
from sparrowmq.core.outside import one_line

GAP: Final = 2
"""Characters between two columns."""
NAME_MIN: Final = 12
"""Names are cut to no fewer characters while there are other columns to leave out."""
KEYS: Final = "q quit  l by lag  r by rate  n by name  / filter  space pause"
FILTER_KEYS: Final = "enter keep  esc show all"
END: Final = "\x04"
"""The end of the input; it ends the screen at any time."""
ESCAPE: Final = "\x1b"
BACKSPACES: Final = "\x7f\b"
FILTER_MAX: Final = 255
"""Most characters of a filter: no name is longer."""
UNKNOWN: Final = "-"
FRAME_LINES: Final = 7
"""Lines of the screen that are not rows: three headings, two empty lines, the keys, the cursor."""
FAILED_MAX: Final = 3
"""Lines about brokers that did not answer."""

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class TopColumn(Generic[Row]):
    """A column of numbers, or of a text. Those of the highest `rank` are left out first on narrow screens."""

    title: str
    rank: int
    text: Callable[[Row], str]
    is_text: bool = False


def told(value: float | None, unit: str = "") -> str:
    """A figure with its unit; a dash when it is unknown."""
    if value is None:
        return UNKNOWN
    return f"{value:,}{unit}" if isinstance(value, int) else f"{value:,.1f}{unit}"


def _since(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else about(seconds)


BROKERS: Final[Sequence[TopColumn[TopBroker]]] = (
    TopColumn("broker", 0, lambda row: one_line(row.broker), is_text=True),
    TopColumn("id", 3, lambda row: str(row.id)),
    TopColumn("address", 7, lambda row: one_line(row.address), is_text=True),
    TopColumn("in/s", 1, lambda row: told(row.stored_per_second)),
    TopColumn("out/s", 2, lambda row: told(row.delivered_per_second)),
    TopColumn("disk", 4, lambda row: told(row.disk_percent, " %")),
    TopColumn("behind", 6, lambda row: "" if row.id == 0 else told(row.behind_bytes, " B")),
    TopColumn("stalls", 5, lambda row: told(row.stalls)),
    TopColumn("longest", 8, lambda row: told(row.longest_stall_ms, " ms")),
)
TOPICS: Final[Sequence[TopColumn[TopTopic]]] = (
    TopColumn("topic", 0, lambda row: one_line(row.topic), is_text=True),
    TopColumn("in/s", 1, lambda row: told(row.stored_per_second)),
    TopColumn("groups", 2, lambda row: str(row.groups)),
)
GROUPS: Final[Sequence[TopColumn[TopGroup]]] = (
    TopColumn("group", 0, lambda row: one_line(row.group), is_text=True),
    TopColumn("lag", 1, lambda row: told(row.lag_messages)),
    TopColumn("oldest", 2, lambda row: _since(row.lag_seconds)),
    TopColumn("out/s", 3, lambda row: told(row.consumed_per_second)),
    TopColumn("unknown queues", 4, lambda row: str(row.unknown_queues or "")),
)
ORDERS: Final[dict[str, Callable[[TopGroup], Any]]] = {
    "l": lambda row: (-(row.lag_messages or 0), row.group),
    "r": lambda row: (-(row.consumed_per_second or 0), row.group),
    "n": lambda row: row.group,
}
"""Orders of groups by key."""


@dataclass(slots=True)
class TopChoice:
    """What keys chose."""

    order: str = "l"
    is_paused: bool = False
    is_over: bool = False
    filter: str = ""
    """Only topics and groups whose names contain this are shown, in any case of letters."""
    is_typing: bool = False
    """Keys are text of the filter."""

    def press(self, key: str) -> None:
        """A key was pressed; others than those of `KEYS` do nothing."""
        if key == END:
            self.is_over = True
        elif self.is_typing:
            self._type(key)
        elif key == "/":
            self.is_typing, self.filter = True, ""
        elif key == ESCAPE:
            self.filter = ""
        elif key in ORDERS:
            self.order = key
        elif key == " ":
            self.is_paused = not self.is_paused
        elif key == "q":
            self.is_over = True

    def shows(self, name: str) -> bool:
        """Whether the filter shows a topic or group of this name."""
        return self.filter.lower() in name.lower()

    def _type(self, key: str) -> None:
        if key in "\r\n":
            self.is_typing = False
        elif key == ESCAPE:
            self.is_typing, self.filter = False, ""
        elif key in BACKSPACES:
            self.filter = self.filter[:-1]
        elif key.isprintable() and len(self.filter) < FILTER_MAX:
            self.filter += key


def view(
    rows: ClusterRows,
    choice: TopChoice,
    *,
    width: int | None = None,
    height: int | None = None,
    note: str | None = None,
) -> RenderableType:
    """The tables, for a screen of this size; without one, everything in full.

    Topics come by rate. `note` is shown last, before the keys.
    """
    topics = [row for row in rows.topics if choice.shows(row.topic)]
    topics.sort(key=lambda row: (-(row.stored_per_second or 0), row.topic))
    groups = sorted((row for row in rows.groups if choice.shows(row.group)), key=ORDERS[choice.order])
    failed = [
        f"{name}: {why}; topics and groups do not include it" for name, why in sorted(rows.failed.items())
    ]
    failed = failed[: None if height is None else FAILED_MAX]
    wanted = [len(rows.brokers), len(topics), len(groups)]
    shown = wanted if height is None else shares(height - FRAME_LINES - len(failed) - bool(note), wanted)
    parts: list[RenderableType] = [
        _table(BROKERS, rows.brokers[: shown[0]], width, lambda row: row.error is not None),
        Text(),
        _table(TOPICS, topics[: shown[1]], width),
        Text(),
        _table(GROUPS, groups[: shown[2]], width),
    ]
    parts += [Text(one_line(line), style="red", no_wrap=True, overflow="ellipsis") for line in failed]
    if note:
        parts.append(Text(one_line(note), style="red", no_wrap=True, overflow="ellipsis"))
    if height is not None:
        hidden = sum(wanted) - sum(shown)
        more = f"  ({hidden:,} more rows do not fit)" if hidden else ""
        paused = "paused  " if choice.is_paused else ""
        keys = FILTER_KEYS if choice.is_typing else KEYS
        if choice.is_typing or choice.filter:
            keys = f"/{one_line(choice.filter)}  {keys}"
        parts.append(Text(f"{paused}{keys}{more}", style="dim", no_wrap=True, overflow="ellipsis"))
    return Group(*parts)


def shares(room: int, wanted: Sequence[int]) -> list[int]:
    """How many rows each table gets when all have `room` lines: those that want little get all of it, at
    least one each.
    """
    found = [0] * len(wanted)
    open_ones = sorted(range(len(wanted)), key=lambda at: wanted[at])
    while open_ones:
        at = open_ones.pop(0)
        found[at] = min(wanted[at], max(1, room // (len(open_ones) + 1)))
        room -= found[at]
    return found


def fitting(
    columns: Sequence[TopColumn[Row]], cells: Sequence[Sequence[str]], width: int | None
) -> list[tuple[int, int]]:
    """The places of the columns that fit, with their widths. The first is always there, and is cut before
    others are left out, but not below `NAME_MIN`.
    """
    widths = [
        max([cell_len(column.title), *(cell_len(row[at]) for row in cells)])
        for at, column in enumerate(columns)
    ]
    places = list(range(len(columns)))
    if width is None:
        return [(at, widths[at]) for at in places]
    while len(places) > 1:
        others = sum(widths[at] + GAP for at in places[1:])
        if others + min(widths[0], NAME_MIN) <= width:
            break
        places.remove(max(places[1:], key=lambda at: columns[at].rank))
    others = sum(widths[at] + GAP for at in places[1:])
    widths[0] = max(1, min(widths[0], width - others))
    return [(at, widths[at]) for at in places]


def _table(
    columns: Sequence[TopColumn[Row]],
    rows: Sequence[Row],
    width: int | None,
    is_bad: Callable[[Row], bool] = lambda row: False,
) -> Table:
    cells = [[column.text(row) for column in columns] for row in rows]
    places = fitting(columns, cells, width)
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, GAP, 0, 0))
    for at, wide in places:
        table.add_column(
            columns[at].title,
            width=wide,
            justify="left" if columns[at].is_text else "right",
            no_wrap=True,
            overflow="ellipsis",
        )
    for row, texts in zip(rows, cells, strict=True):
        table.add_row(*(Text(texts[at]) for at, _ in places), style="red" if is_bad(row) else None)
    return table
