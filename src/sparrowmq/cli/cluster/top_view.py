"""What `sparrow top` shows: three tables that fit the terminal, or what one row consists of. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sparrowmq.cli.base.times import about
from sparrowmq.cli.cluster.cluster_rows import (
    ClusterRows,
    TopBroker,
    TopGroup,
    TopInside,
    TopPlace,
    TopQueue,
    TopTopic,
)
from sparrowmq.core.outside import one_line

if TYPE_CHECKING:
    from sparrowmq.aio import GroupMemberInfo

GAP: Final = 2
"""Characters between two columns."""
NAME_MIN: Final = 12
"""Names are cut to no fewer characters while there are other columns to leave out."""
KEYS: Final = "q quit  l lag  r rate  n name  / filter  space pause  enter open"
OPEN_KEYS: Final = "esc back  q quit  l lag  r rate  n name  / filter  space pause"
FILTER_KEYS: Final = "enter keep  esc show all"
END: Final = "\x04"
"""The end of the input; it ends the screen at any time."""
ESCAPE: Final = "\x1b"
UP: Final = "\x10"
DOWN: Final = "\x0e"
"""Ctrl-P and Ctrl-N, which the arrow keys are read as."""
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
QUEUES: Final[Sequence[TopColumn[TopQueue]]] = (
    TopColumn("topic", 0, lambda row: one_line(row.topic), is_text=True),
    TopColumn("broker", 4, lambda row: one_line(row.broker), is_text=True),
    TopColumn("queue", 0, lambda row: str(row.queue_id)),
    TopColumn("in/s", 3, lambda row: told(row.stored_per_second)),
    TopColumn("group", 1, lambda row: one_line(row.group), is_text=True),
    TopColumn("lag", 1, lambda row: told(row.lag_messages) if row.group else ""),
    TopColumn("out/s", 2, lambda row: told(row.consumed_per_second) if row.group else ""),
)
"""The queues of a broker, topic or group; the column that all rows share is left out."""
MEMBERS: Final[Sequence[TopColumn[GroupMemberInfo]]] = (
    TopColumn("member", 0, lambda row: one_line(row.client_id), is_text=True),
    TopColumn("address", 1, lambda row: one_line(row.address), is_text=True),
    TopColumn("language", 2, lambda row: one_line(row.language), is_text=True),
)
QUEUE_ORDERS: Final[dict[str, Callable[[TopQueue], Any]]] = {
    "l": lambda row: (-(row.lag_messages or 0), _name(row)),
    "r": lambda row: (-(row.consumed_per_second or 0), -(row.stored_per_second or 0), _name(row)),
    "n": lambda row: _name(row),
}
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
    cursor: int = 0
    """The row that Enter opens."""
    opened: TopPlace | None = None

    def press(self, key: str, places: Sequence[TopPlace] = ()) -> None:
        """A key was pressed while these rows were shown; others than those of `KEYS` do nothing."""
        self.cursor = max(0, min(self.cursor, len(places) - 1))
        if key == END:
            self.is_over = True
        elif self.is_typing:
            self._type(key)
        elif self.opened is not None and key == ESCAPE:
            self.opened = None
        elif self.opened is None and key in (UP, DOWN, "\r", "\n"):
            self._go(key, places)
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

    def _go(self, key: str, places: Sequence[TopPlace]) -> None:
        if key == UP:
            self.cursor = max(0, self.cursor - 1)
        elif key == DOWN:
            self.cursor = max(0, min(self.cursor + 1, len(places) - 1))
        elif places:
            self.opened = places[self.cursor]

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


def _name(row: TopQueue) -> tuple[str, str, int, str]:
    return row.topic, row.broker, row.queue_id, row.group


@dataclass(frozen=True, slots=True)
class _Shown:
    """The rows that fit the screen, in order, and how many do not."""

    brokers: Sequence[TopBroker]
    topics: Sequence[TopTopic]
    groups: Sequence[TopGroup]
    failed: Sequence[str]
    hidden: int


def _shown(rows: ClusterRows, choice: TopChoice, height: int | None, note: str | None) -> _Shown:
    topics = [row for row in rows.topics if choice.shows(row.topic)]
    topics.sort(key=lambda row: (-(row.stored_per_second or 0), row.topic))
    groups = sorted((row for row in rows.groups if choice.shows(row.group)), key=ORDERS[choice.order])
    failed = [
        f"{name}: {why}; topics and groups do not include it" for name, why in sorted(rows.failed.items())
    ]
    failed = failed[: None if height is None else FAILED_MAX]
    wanted = [len(rows.brokers), len(topics), len(groups)]
    room = wanted if height is None else shares(height - FRAME_LINES - len(failed) - bool(note), wanted)
    hidden = sum(wanted) - sum(room)
    return _Shown(rows.brokers[: room[0]], topics[: room[1]], groups[: room[2]], failed, hidden)


def places(rows: ClusterRows, choice: TopChoice, height: int, note: str | None = None) -> list[TopPlace]:
    """What the rows on the screen can be opened as, from the first to the last."""
    shown = _shown(rows, choice, height, note)
    return [
        *(TopPlace("broker", row.broker) for row in shown.brokers),
        *(TopPlace("topic", row.topic) for row in shown.topics),
        *(TopPlace("group", row.group) for row in shown.groups),
    ]


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
    shown = _shown(rows, choice, height, note)
    at = None if height is None else choice.cursor
    topics_at, groups_at = len(shown.brokers), len(shown.brokers) + len(shown.topics)
    parts: list[RenderableType] = [
        _table(BROKERS, shown.brokers, width, lambda row: row.error is not None, at),
        Text(),
        _table(TOPICS, shown.topics, width, cursor=None if at is None else at - topics_at),
        Text(),
        _table(GROUPS, shown.groups, width, cursor=None if at is None else at - groups_at),
    ]
    parts += [_line(line, "red") for line in shown.failed]
    return _framed(parts, choice, KEYS, shown.hidden, height, note)


def open_view(
    inside: TopInside, choice: TopChoice, *, width: int, height: int, note: str | None = None
) -> RenderableType:
    """The queues, and members, of what is open."""
    place = choice.opened
    assert place is not None
    queues = [row for row in inside.queues if choice.shows(row.topic) or choice.shows(row.group)]
    queues.sort(key=QUEUE_ORDERS[choice.order])
    wanted = [len(queues), len(inside.members or ())]
    room = shares(height - FRAME_LINES - bool(note), wanted)
    columns = [column for column in QUEUES if column.title != place.kind]
    parts: list[RenderableType] = [
        _line(f"{place.kind} {place.name}", "bold"),
        _table(columns, queues[: room[0]], width),
    ]
    if inside.members is not None:
        parts += [Text(), _table(MEMBERS, inside.members[: room[1]], width)]
    return _framed(parts, choice, OPEN_KEYS, sum(wanted) - sum(room), height, note)


def _line(text: str, style: str) -> Text:
    return Text(one_line(text), style=style, no_wrap=True, overflow="ellipsis")


def _framed(
    parts: list[RenderableType],
    choice: TopChoice,
    keys: str,
    hidden: int,
    height: int | None,
    note: str | None,
) -> RenderableType:
    """With the note, and on a screen with the keys."""
    if note:
        parts.append(_line(note, "red"))
    if height is not None:
        more = f"  ({hidden:,} more rows do not fit)" if hidden else ""
        paused = "paused  " if choice.is_paused else ""
        keys = FILTER_KEYS if choice.is_typing else keys
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
    cursor: int | None = None,
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
    for number, (row, texts) in enumerate(zip(rows, cells, strict=True)):
        style = ("red " if is_bad(row) else "") + ("reverse" if number == cursor else "")
        table.add_row(*(Text(texts[at]) for at, _ in places), style=style.strip() or None)
    return table
