"""Shared by the commands on store directories: arguments, exit statuses, the progress bar."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sparrowmq.cli.base.common import UsageError, complain
from sparrowmq.core.errors import NoStoreError

if TYPE_CHECKING:
    from sparrowmq.store.offline.directory import StoreDirectory

DAMAGED: Final = 1
"""Exit status when damage was found."""
WRONG_USE: Final = 2
"""Exit status when there is no store in the directory, or an option is wrong."""

Directory = Annotated[Path, typer.Argument(help="The broker's storePathRootDir, or a copy of it.")]
CommitLog = Annotated[
    Path | None,
    typer.Option("--commit-log", metavar="DIR", help="The broker's storePathCommitLog, if it has one."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress bar.")]


@contextmanager
def wrong_use() -> Iterator[None]:
    """Exit with status 2 on `NoStoreError` and `UsageError`."""
    try:
        yield
    except (NoStoreError, UsageError) as error:
        complain(str(error))
        raise typer.Exit(WRONG_USE) from error


@contextmanager
def opened(root: Path, commit_log: Path | None = None, *, is_read: bool = True) -> Iterator[StoreDirectory]:
    """A directory, opened for reading. With `is_read`, print a warning when a broker has it open."""
    from sparrowmq.store.offline.directory import StoreDirectory

    with wrong_use():
        directory = StoreDirectory.open(root, commit_log=commit_log)
    try:
        if directory.in_use and is_read:
            complain(
                f"{root} is in use by a running broker: it is only read, and may lack what the broker "
                f"writes meanwhile"
            )
        yield directory
    finally:
        directory.close()


@contextmanager
def progress_bar(*, quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar on standard error if that is a terminal. Call the yielded function with the step, the
    amount done, and the total.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description:<8}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
    )
    with Progress(
        *columns, TimeRemainingColumn(), console=Console(stderr=True, markup=False), transient=True
    ) as bar:
        tasks: dict[str, TaskID] = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=max(total, 1))

        yield tell
