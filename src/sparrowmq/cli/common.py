"""What the commands share: options, errors as one line, tables, running coroutines."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Coroutine, Iterable, Sequence
from typing import Annotated, Any, Final, TypeVar

import typer

from sparrowmq.core.errors import SparrowError

T = TypeVar("T")
_STEERS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but for tab and line feed, what turns the direction of writing, halves of characters."""
DEFAULT_NAMESRV: Final = "127.0.0.1:9876"
PIECE_CHARS: Final = 12
"""A table whose long words would be broken into shorter pieces than that is no table any more."""
GAP: Final = 2
"""Characters between two columns of a table."""

Namesrv = Annotated[
    str | None,
    typer.Option(
        "--namesrv",
        "-n",
        metavar="HOST:PORT",
        help=f"Name servers, joined with ';'. Default: SPARROW_NAMESRV, NAMESRV_ADDR, {DEFAULT_NAMESRV}.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one value a line.")]


class UsageError(SparrowError):
    """A command cannot do what was asked of it; the text is shown as it is."""


def namesrv_or_default(given: str | None) -> str:
    """The name servers to use: the option, else the environment, else this machine's."""
    return given or os.environ.get("SPARROW_NAMESRV") or os.environ.get("NAMESRV_ADDR") or DEFAULT_NAMESRV


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, on the fastest loop there is."""
    import asyncio

    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def complain(text: str) -> None:
    """One message on standard error."""
    print(f"sparrow: {printable(text)}", file=sys.stderr)


def printable(text: str) -> str:
    """A text without what would steer a terminal: names and reasons were written by other people."""
    return "".join(map(_shown, text)) if _STEERS.search(text) else text


def _shown(char: str) -> str:
    return char.encode("unicode_escape").decode() if _STEERS.match(char) else char


def print_json(value: object) -> None:
    """One value as one line of JSON."""
    print(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Iterable[str] = ()
) -> None:
    """A plain table; the columns named in `right` are aligned to the right.

    In a terminal it is as wide as that: what is too long goes on in the next line, between words where
    there is room for whole ones, and a table without rows says so. A terminal that is too narrow for columns
    gets one line a value. Elsewhere no value is cut.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    numbers = frozenset(right)
    cells = [[printable(str(value)) for value in row] for row in rows]
    console = Console(highlight=False, markup=False)
    widths: list[int | None] = [None] * len(columns)
    if console.is_terminal:
        gaps = GAP * (len(columns) - 1)
        fitted = fitted_widths([columns, *cells], max(console.width - gaps, 0))
        if cells and too_narrow([columns, *cells], fitted):
            _print_records(columns, cells)
            return
        widths = list(fitted)
    else:
        console = Console(highlight=False, markup=False, width=10_000)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for name, width in zip(columns, widths, strict=True):
        table.add_column(name, justify="right" if name in numbers else "left", overflow="fold", width=width)
    for row in cells:
        table.add_row(*row)
    console.print(table)
    if console.is_terminal and not cells:
        console.print("none")


def _print_records(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    margin = max(map(len, columns)) + GAP
    for number, row in enumerate(rows):
        if number:
            print()
        for name, value in zip(columns, row, strict=True):
            print(f"{name:{margin}}{value}")


def too_narrow(rows: Sequence[Sequence[str]], widths: Sequence[int]) -> bool:
    """Whether a column would break words into pieces shorter than `PIECE_CHARS`."""
    return any(
        width < min(PIECE_CHARS, max((len(word) for cell in column for word in cell.split()), default=0))
        for column, width in zip(zip(*rows, strict=True), widths, strict=True)
    )


def fitted_widths(rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """How wide each column is when all together have `room` characters: at least one each.

    Columns with the most text give way first, and none below its longest word, unless there is no room for
    all words either: then the longest are broken.
    """
    from rich.cells import cell_len

    columns = list(zip(*rows, strict=True))
    whole = [max(1, *map(cell_len, column)) for column in columns]
    words = [
        max((cell_len(word) for cell in column for word in cell.split()), default=1) for column in columns
    ]
    if sum(words) >= room:
        return _grown([1] * len(words), words, room, most_lines_first=False)
    return _grown(words, whole, room, most_lines_first=True)


def _grown(least: Sequence[int], most: Sequence[int], room: int, *, most_lines_first: bool) -> list[int]:
    """Widths between `least` and `most` of `room` together, those first that need it most."""
    widths = list(least)
    for _ in range(room - sum(widths)):
        growing = [place for place, width in enumerate(widths) if width < most[place]]
        if not growing:
            break
        lines = [most[place] / widths[place] if most_lines_first else 1 / widths[place] for place in growing]
        widths[growing[lines.index(max(lines))]] += 1
    return widths
