"""Shared by the commands: options, one-line errors, tables, running coroutines."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from sparrowmq.core.errors import SparrowError
from sparrowmq.core.outside import json_line, lines, one_line

if TYPE_CHECKING:
    from sparrowmq import aio

T = TypeVar("T")
DEFAULT_NAMESRV: Final = "127.0.0.1:9876"
PIECE_CHARS: Final = 12
"""A table that would break words into shorter pieces is shown as one line per value instead."""
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
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one value per line.")]


class UsageError(SparrowError):
    """A command failed; the text is shown to the user as it is."""


def namesrv_or_default(given: str | None) -> str:
    """The name servers to use: from the option, or else the environment, or else on this machine."""
    return given or os.environ.get("SPARROW_NAMESRV") or os.environ.get("NAMESRV_ADDR") or DEFAULT_NAMESRV


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, run on the fastest available loop."""
    import asyncio

    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def with_admin(namesrv: str | None, work: Callable[[aio.Admin], Awaitable[T]]) -> T:
    """What `work` returns, with an admin client of the cluster."""

    async def main() -> T:
        from sparrowmq import aio

        async with aio.Admin(namesrv=namesrv_or_default(namesrv)) as admin:
            return await work(admin)

    return run(main())


def complain(text: str) -> None:
    """One message on standard error; further lines are indented."""
    print(lines(f"sparrow: {text}", " " * len("sparrow: ")), file=sys.stderr)  # noqa: T201 - the place


def say(text: object = "", *, err: bool = False, flush: bool = False) -> None:
    """Print one line, made safe: names and reasons in it were written by other people."""
    print(one_line(str(text)), file=sys.stderr if err else sys.stdout, flush=flush)


def say_lines(text: object, indent: str = "") -> None:
    """Print a text of several lines, each indented by `indent`."""
    print(indent + lines(str(text), indent), flush=True)  # noqa: T201 - the place


def print_json(*values: object) -> None:
    """Each value as one line of JSON."""
    for value in values:
        print(json_line(value))  # noqa: T201 - the place


def tell(answer: object, text: str, as_json: bool) -> None:
    """Print the result of a change: `answer` as JSON, or `text`."""
    if as_json:
        print_json(answer)
    else:
        say(text)


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Iterable[str] = ()
) -> None:
    """A plain table; the columns named in `right` are aligned to the right.

    In a terminal it has the terminal's width: long values continue in the next line, broken between words
    where possible, and a table without rows says so. If the terminal is too narrow for columns, each value
    gets its own line. In a pipe or file no value is shortened.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    numbers = frozenset(one_line(name) for name in right)
    columns = [one_line(name) for name in columns]
    cells = [[one_line(str(value)) for value in row] for row in rows]
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
            say()
        for name, value in zip(columns, row, strict=True):
            say(f"{name:{margin}}{value}")


def too_narrow(rows: Sequence[Sequence[str]], widths: Sequence[int]) -> bool:
    """Whether a column would break words into pieces shorter than `PIECE_CHARS`."""
    return any(
        width < min(PIECE_CHARS, max((len(word) for cell in column for word in cell.split()), default=0))
        for column, width in zip(zip(*rows, strict=True), widths, strict=True)
    )


def fitted_widths(rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """The widths of the columns if all together have `room` characters: at least one each.

    Columns with the most text shrink first, and none below its longest word, unless the words do not fit
    either: then the longest are broken.
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
    """Widths between `least` and `most` with the total `room`; space goes first where it is needed most."""
    widths = list(least)
    for _ in range(room - sum(widths)):
        growing = [place for place, width in enumerate(widths) if width < most[place]]
        if not growing:
            break
        lines = [most[place] / widths[place] if most_lines_first else 1 / widths[place] for place in growing]
        widths[growing[lines.index(max(lines))]] += 1
    return widths
