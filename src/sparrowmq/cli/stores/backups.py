"""`sparrow backup` and `sparrow restore`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sparrowmq.cli.base.common import AsJson, print_json, say
from sparrowmq.cli.base.times import millis, when
from sparrowmq.cli.stores.common import (
    DAMAGED,
    CommitLog,
    Directory,
    Quiet,
    opened,
    progress_bar,
    wrong_use,
)
from sparrowmq.cli.stores.store import show_findings

Target = Annotated[Path, typer.Argument(help="Directory of the backups.")]


def backup(
    directory: Directory,
    target: Target,
    keep: Annotated[int, typer.Option("--keep", min=1, help="Backups to keep in the target.")] = 7,
    commit_log: CommitLog = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Back up a store, even while its broker runs. Only what changed since the last backup is copied.

    To continue an interrupted backup, run the command again.
    """
    from sparrowmq.core.clock import SystemClock
    from sparrowmq.store.offline.backup import Backup

    with opened(directory, commit_log, is_read=False) as store, progress_bar(quiet=quiet) as progress:
        run = Backup(store, target, SystemClock())
        with wrong_use():
            made = run.run(keep=keep, progress=progress)
    if as_json:
        print_json(
            {
                "number": made.number,
                "target": str(target),
                "log_start": made.start,
                "log_end": made.end,
                "oldest_ms": made.oldest_ms,
                "newest_ms": made.newest_ms,
                "files": len(made.files),
                "copied": run.copied,
                "reused": run.reused,
            }
        )
        return
    say(
        f"backup {made.number}: log from {made.start:,} to {made.end:,}, newest message "
        f"{when(made.newest_ms)}; {run.copied:,} bytes copied, {run.reused:,} were there"
    )


def restore(
    target: Target,
    directory: Annotated[Path, typer.Argument(help="Directory to make; it must not exist, or be empty.")],
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Leave out messages stored after this time.")
    ] = None,
    number: Annotated[
        int | None, typer.Option("--number", min=1, help="Restore this backup instead of the newest.")
    ] = None,
    redeliver: Annotated[
        int,
        typer.Option(
            "--redeliver",
            min=0,
            metavar="SECONDS",
            help="With --until: deliver delayed messages again that became due so shortly before the end.",
        ),
    ] = 60,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Restore a backup, whole or up to a time, and check the result. Exit status 1 if it is damaged."""
    from sparrowmq.core.clock import SystemClock
    from sparrowmq.store.offline.restore import restore as put_back

    with wrong_use(), progress_bar(quiet=quiet) as progress:
        found = put_back(
            target,
            directory,
            SystemClock(),
            number=number,
            until_ms=millis(until),
            redeliver_ms=redeliver * 1000,
            progress=progress,
        )
    report = found.report
    if as_json:
        values = {"number": found.number, "log_end": found.end, "newest_ms": found.newest_ms}
        print_json({**values, "check": report.to_json()})
    else:
        say(
            f"backup {found.number} restored to {directory}: {report.records:,} records up to {found.end:,}, "
            f"the newest of {when(found.newest_ms)}"
        )
        show_findings(report.to_json())
    if not report.is_whole:
        raise typer.Exit(DAMAGED)
