"""`sparrow store …`: verify, dump, stat, repair, copy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sparrowmq.cli.base.common import AsJson, UsageError, print_json, print_table, say
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
from sparrowmq.core.delay import DELAY_LEVELS, DelayLevels

app = typer.Typer(
    help="Store directories without a broker: verify, dump, stat, repair, copy.",
    no_args_is_help=True,
)


@app.command("verify")
def verify(
    directory: Directory,
    commit_log: CommitLog = None,
    delay_levels: Annotated[
        str, typer.Option("--delay-levels", help="The broker's messageDelayLevel.")
    ] = DELAY_LEVELS,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Check every record, queue entry, index entry, table and timer.

    Exit status 0: no damage, 1: damaged, 2: no store.
    """
    from sparrowmq.store.offline.verify import verify as check

    with wrong_use():
        levels = _levels(delay_levels)
    with opened(directory, commit_log) as store, progress_bar(quiet=quiet) as progress:
        report = check(store, levels=levels, progress=progress)
    values = report.to_json()
    if as_json:
        print_json(values)
    else:
        _show(values)
    if not report.is_whole:
        raise typer.Exit(DAMAGED)


def _levels(text: str) -> DelayLevels:
    try:
        return DelayLevels.parse(text)
    except ValueError as error:
        raise UsageError(f"--delay-levels: {error}") from None


def _show(values: dict[str, Any]) -> None:
    say(
        f"log: {values['records']:,} records from {values['log_start']:,} to {values['log_end']:,}; "
        f"queues: {values['queues']:,} with {values['queue_entries']:,} entries; "
        f"index: {values['index_files']:,} files with {values['index_entries']:,} entries; "
        f"timers: {values['timer_units']:,} units; tables: {len(values['tables'])}"
    )
    if not values["clean"]:
        say("the last broker did not stop cleanly; a broker repairs what the notes describe when it starts")
    show_findings(values)


def show_findings(values: dict[str, Any]) -> None:
    """Print the findings of a check, and its result."""
    for kind in values["findings"]:
        say(f"{'DAMAGE' if kind['damage'] else 'note'}: {kind['part']}: {kind['what']} ({kind['count']:,})")
        for example in kind["examples"][:5]:
            say(f"    {example}")
    for path in values["not_read"]:
        say(f"not read: {path}")
    say("whole" if values["whole"] else "damaged")


@app.command("stat")
def stat(
    directory: Directory, commit_log: CommitLog = None, quiet: Quiet = False, as_json: AsJson = False
) -> None:
    """Show sizes, counts, and the oldest and newest messages of each topic."""
    from sparrowmq.store.offline.stat import stat as figures

    with opened(directory, commit_log) as store, progress_bar(quiet=quiet) as progress:
        found = figures(store, progress)
    if as_json:
        print_json(found.to_json())
        return
    state = "in use" if found.in_use else "closed" if found.is_clean else "not closed cleanly"
    say(f"{found.root}: {state}; log from {found.log_start:,} to {found.log_end:,}")
    say(f"oldest {when(found.oldest_ms)}, newest {when(found.newest_ms)}")
    print_table(
        ("PART", "FILES", "BYTES", "ON DISK"),
        [(name, p.files, f"{p.bytes:,}", f"{p.on_disk:,}") for name, p in sorted(found.parts.items())],
        right=("FILES", "BYTES", "ON DISK"),
    )
    print_table(
        ("TOPIC", "QUEUES", "MESSAGES", "BYTES", "OLDEST", "NEWEST"),
        [
            (t.topic, t.queues, f"{t.messages:,}", f"{t.bytes:,}", when(t.oldest_ms), when(t.newest_ms))
            for t in found.topics
        ],
        right=("QUEUES", "MESSAGES", "BYTES"),
    )
    for path in found.not_read:
        say(f"not read: {path}")


@app.command("dump")
def dump(
    directory: Directory,
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="Only this topic.")] = None,
    queue: Annotated[
        int | None, typer.Option("--queue", min=0, help="Only this queue; needs --topic.")
    ] = None,
    offset: Annotated[int | None, typer.Option("--offset", min=0, help="First offset in the queue.")] = None,
    end_offset: Annotated[
        int | None, typer.Option("--end-offset", min=0, help="Offset after the last one.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Only records stored at or after this time.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Only records stored before this time.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="Only records with this key or unique key.")
    ] = None,
    body: Annotated[
        str, typer.Option("--body", help="auto (text if it is UTF-8, else base64), text, base64 or none.")
    ] = "auto",
    as_stored: Annotated[
        bool, typer.Option("--as-stored", help="Leave compressed bodies compressed.")
    ] = False,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Most records to print.")] = None,
    commit_log: CommitLog = None,
) -> None:
    """Print records as JSON, one per line. Report damage on standard error; then the exit status is 1."""
    from sparrowmq.store.offline import dump as records

    problems: list[str] = []

    def damaged(text: str) -> None:
        problems.append(text)
        say(f"sparrow: {text}", err=True)

    with wrong_use():
        if queue is not None and topic is None:
            raise UsageError("--queue needs --topic: queue numbers belong to a topic")
        if body not in list(records.BodyForm):
            raise UsageError(f"--body {body}: give auto, text, base64 or none")
        wanted = records.DumpSelection(
            topic=topic,
            queue_id=queue,
            offset=offset,
            end_offset=end_offset,
            since=millis(since),
            until=millis(until),
            key=key,
        )
    form = records.BodyForm(body)
    with opened(directory, commit_log) as store:
        for number, record in enumerate(records.dump(store, wanted, damaged)):
            if number == limit:
                break
            print_json(records.to_json(record, form, as_stored=as_stored))
    if problems:
        raise typer.Exit(DAMAGED)


@app.command("repair")
def repair(
    directory: Directory,
    write: Annotated[
        bool, typer.Option("--write", help="Repair. Default: only show what would be done.")
    ] = False,
    commit_log: CommitLog = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Rebuild damaged queues and a damaged index from the log. The old files are kept in the directory.

    Exit status 0: no damage remains, 1: some remains.
    """
    from sparrowmq.core.clock import SystemClock
    from sparrowmq.store.offline import repair as repairs
    from sparrowmq.store.offline.verify import verify as check

    with opened(directory, commit_log) as store, progress_bar(quiet=quiet) as progress:
        report = check(store, progress=progress)
        todo = repairs.plan(store, report)
        if not as_json:
            _tell(todo, is_done=write)
        if not write or todo.is_empty:
            if as_json:
                print_json({"plan": todo.to_json(), "done": False, "whole": report.is_whole})
            if not report.is_whole:
                raise typer.Exit(DAMAGED)
            return
        aside, after = repairs.repair(store, report, SystemClock(), progress=progress)
    if as_json:
        print_json({"plan": todo.to_json(), "done": True, "old_files": str(aside), "whole": after.is_whole})
    else:
        say(f"the old files are in {aside}")
        show_findings(after.to_json())
    if not after.is_whole:
        raise typer.Exit(DAMAGED)


def _tell(todo: Any, *, is_done: bool) -> None:
    """Print what a repair does."""
    for topic, queue_id in todo.queues:
        say(f"rebuild: queue {topic}/{queue_id}")
    if todo.index:
        say("rebuild: the index")
    if todo.stray_at is not None:
        say(f"overwrite with zeros: the bytes after the end of the log, from {todo.stray_at:,}")
    for text in todo.lost:
        say(f"lost: {text} of the log; restore them from a backup")
    if todo.is_empty:
        say("nothing to repair")
    elif not is_done:
        say("nothing was changed; use --write to repair")


@app.command("copy")
def copy(
    directory: Directory,
    target: Annotated[Path, typer.Argument(help="Directory to make; it must not exist, or be empty.")],
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", help="Only this topic; repeatable.")
    ] = None,
    commit_log: CommitLog = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Copy a directory, or some of its topics, to a new one, and check the copy.

    Exit status 1 if it is damaged.
    """
    from sparrowmq.core.clock import SystemClock
    from sparrowmq.store.offline.copy import copy as copy_store

    with opened(directory, commit_log) as store, progress_bar(quiet=quiet) as progress, wrong_use():
        report = copy_store(store, target, SystemClock(), topics=topic or (), progress=progress)
    if as_json:
        print_json(report.to_json())
    else:
        say(f"{report.records:,} records copied to {target}")
        show_findings(report.to_json())
    if not report.is_whole:
        raise typer.Exit(DAMAGED)
