"""What the commands share: options, errors as one line, tables, running coroutines."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Coroutine, Iterable, Sequence
from typing import Annotated, Any, Final, TypeVar

import typer

from sparrowmq.core.errors import SparrowError

T = TypeVar("T")
DEFAULT_NAMESRV: Final = "127.0.0.1:9876"

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
    print(f"sparrow: {text}", file=sys.stderr)


def print_json(value: object) -> None:
    """One value as one line of JSON."""
    print(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Iterable[str] = ()
) -> None:
    """A plain table; the columns named in `right` are aligned to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    numbers = frozenset(right)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in columns:
        table.add_column(name, justify="right" if name in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(str(value) for value in row))
    # Not a terminal: never cut a value to make it fit.
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, width=10_000)
    console.print(table)
