"""`sparrow group …`: names, progress, creation, deletion, offset resets, and members' reports."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from sparrowmq.cli.base import times
from sparrowmq.cli.base.changes import changes_of, changes_text
from sparrowmq.cli.base.common import (
    AsJson,
    Namesrv,
    UsageError,
    print_json,
    print_table,
    say,
    say_lines,
    tell,
    with_admin,
)
from sparrowmq.core.names import RETRY_PREFIX

if TYPE_CHECKING:
    from sparrowmq import aio
    from sparrowmq.aio import MemberStatus
    from sparrowmq.core.message import MessageQueue

app = typer.Typer(help="Consumer groups: progress, members, plans, policies, offsets.", no_args_is_help=True)

Group = Annotated[str, typer.Argument(help="Name of the group.")]
_SKIPPED: Final = "skippedMessages"
"""Property of a member's running info: messages that failed and that no broker could store."""
_NOBODY: Final = (
    "no member of group {group!r} is online; see the names with `sparrow group list`, and the group's "
    "progress with `sparrow group progress {group}`"
)


def skipped(member: MemberStatus) -> int:
    """How many messages a member skipped; 0 if it does not say, as members of other clients."""
    told = member.info.properties.get(_SKIPPED, "") if member.info else ""
    return int(told) if told.isdecimal() else 0


def asked_text(member: MemberStatus) -> str:
    """What a member asks for, without its retry topic; empty if it broadcasts, because it shares nothing."""
    info = member.info
    if info is None or info.properties.get("messageModel") == "BROADCASTING":
        return ""
    return ", ".join(
        f"{one.topic} {' || '.join(sorted(one.tags)) or one.expression}"
        for one in sorted(info.subscriptions, key=lambda one: one.topic)
        if not one.topic.startswith(RETRY_PREFIX)
    )


def unlike(members: list[dict[str, Any]]) -> list[str]:
    """A line for each different set of subscriptions; none if all members have the same."""
    asked: dict[str, list[str]] = {}
    for one in members:
        if one["subscribes"]:
            asked.setdefault(one["subscribes"], []).append(one["client"])
    if len(asked) < 2:
        return []
    return [
        "members subscribe differently, so messages are lost or stay unread:",
        *(f"  {', '.join(sorted(clients))}: {text}" for text, clients in sorted(asked.items())),
    ]


def moment(text: str) -> datetime | Literal["first", "last"]:
    """`first`, `last`, or a time: `2024-05-01T12:30`, in the usual zone if none is given, or epoch
    milliseconds.
    """
    if text == "first":
        return "first"
    if text == "last":
        return "last"
    try:
        if text.isdecimal():
            return datetime.fromtimestamp(int(text) / 1000, UTC)
        return times.moment(text)
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"{text!r} is not a valid target; give first, last, a time like 2024-05-01T12:30 or epoch "
            f"milliseconds",
            value=text,
        ) from None


@app.command("list")
def list_groups(
    system: Annotated[bool, typer.Option("--all", help="Include RocketMQ's own groups.")] = False,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """List all consumer groups."""
    for name in with_admin(namesrv, lambda admin: admin.groups.list(system=system)):
        print_json(name) if as_json else say(name)


@app.command("progress")
def progress(
    group: Group,
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Show a group's offset and lag in each queue. Messages in flight are part of the lag."""

    async def work(admin: aio.Admin) -> list[dict[str, Any]]:
        found = await admin.groups.progress(group, topic)
        if not found and group not in await admin.groups.list(system=True):
            raise UsageError(f"no broker knows group {group!r}; see the names with `sparrow group list`")
        return [
            {
                "topic": place.queue.topic,
                "broker": place.queue.broker_name,
                "queue": place.queue.queue_id,
                "broker_offset": place.broker_offset,
                "consumer_offset": place.consumer_offset,
                "lag": place.lag,
                "in_flight": place.in_flight,
            }
            for place in found
        ]

    rows = with_admin(namesrv, work)
    if as_json:
        print_json(*rows)
        return
    print_table(
        ("topic", "broker", "queue", "broker offset", "consumer offset", "lag", "in flight"),
        [tuple(row.values()) for row in rows],
        right=("queue", "broker offset", "consumer offset", "lag", "in flight"),
    )
    waiting = sum(row["lag"] for row in rows)
    say("1 message waits" if waiting == 1 else f"{waiting} messages wait")


@app.command("config")
def config(group: Group, namesrv: Namesrv = None, as_json: AsJson = False) -> None:
    """Show the settings of a group at each broker."""

    async def work(admin: aio.Admin) -> list[dict[str, Any]]:
        from msgspec import to_builtins

        found = await admin.groups.config(group)
        return [{"broker": name, **to_builtins(one)} for name, one in sorted(found.items())]

    rows = with_admin(namesrv, work)
    if not rows:
        raise UsageError(f"no broker knows group {group!r}; see the names with `sparrow group list`")
    if as_json:
        print_json(*rows)
        return
    names = [name for name in rows[0] if name != "broker"]
    columns = ("setting", *(row["broker"] for row in rows))
    print_table(columns, [(name, *(row.get(name, "-") for row in rows)) for name in names])


@app.command("create")
def create(
    group: Group,
    retries: Annotated[
        int | None,
        typer.Option(min=0, help="Retries before a message becomes a dead letter; 16 for a new group."),
    ] = None,
    enabled: Annotated[
        bool | None, typer.Option("--enabled/--disabled", help="Permit or forbid the group to consume.")
    ] = None,
    broadcast: Annotated[
        bool | None,
        typer.Option("--broadcast/--no-broadcast", help="Permit or forbid broadcasting consumers."),
    ] = None,
    ordered: Annotated[
        bool | None,
        typer.Option("--ordered/--unordered", help="Whether clients of the gRPC API consume in order."),
    ] = None,
    cluster: Annotated[str | None, typer.Option(help="Only the brokers of this cluster.")] = None,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Create a group on every broker, or change an existing one; omitted settings stay as they are."""

    async def work(admin: aio.Admin) -> tuple[dict[str, Any], dict[str, Any]]:
        before = await admin.groups.config(group)
        await admin.groups.create(
            group, retries=retries, enabled=enabled, broadcast=broadcast, ordered=ordered, cluster=cluster
        )
        return before, await admin.groups.config(group)

    before, after = with_admin(namesrv, work)
    config, changes = after[min(after)], changes_of(before, after)
    made = {
        "group": group,
        "retries": config.retry_max_times,
        "enabled": config.consume_enable,
        "broadcast": config.consume_broadcast_enable,
        "changed": changes,
    }
    text = changes_text(changes) if changes else f"{config.retry_max_times} retries"
    tell(made, f"{group}: {text}", as_json)


@app.command("delete")
def delete(
    group: Group,
    keep_offsets: Annotated[
        bool,
        typer.Option(
            "--keep-offsets", help="Keep the offsets: a new group of this name continues from them."
        ),
    ] = False,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Delete a group, its retry and dead letter topics and its offsets."""

    async def work(admin: aio.Admin) -> None:
        if not await admin.groups.config(group) and not await admin.groups.progress(group):
            raise UsageError(f"no broker knows group {group!r}; see the names with `sparrow group list`")
        await admin.groups.delete(group, offsets=not keep_offsets)

    with_admin(namesrv, work)
    tell({"deleted": group, "offsets_kept": keep_offsets}, f"{group} deleted", as_json)


@app.command("reset")
def reset(
    group: Group,
    topic: Annotated[str, typer.Option(help="Topic whose offsets to reset.")],
    to: Annotated[
        str, typer.Option(help="first, last, a time (2024-05-01T12:30) or epoch milliseconds.")
    ] = "last",
    only_back: Annotated[bool, typer.Option("--only-back", help="Move queues only backward.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the offsets to which queues would move; move none.")
    ] = False,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Reset a group's offsets in a topic; online members move at once.

    The brokers carry it out without a coordinator, so it is not in the audit log and cannot be undone.
    `sparrow setting offset` records a reset, and `sparrow setting undo` undoes it.
    """
    place = moment(to)

    moved = with_admin(
        namesrv,
        lambda admin: admin.groups.reset(group, topic, place, force=not only_back, dry_run=dry_run),
    )
    if not moved and not as_json:
        say(f"no queue of {topic} was moved")
        return
    _print_offsets(moved, as_json)


@app.command("clone")
def clone(
    source: Annotated[str, typer.Argument(help="Group to copy offsets from.")],
    target: Annotated[str, typer.Argument(help="Group to copy offsets to; stop its members first.")],
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Copy the offsets of one group to another."""
    _print_offsets(
        with_admin(namesrv, lambda admin: admin.groups.clone_offsets(source, target, topic)), as_json
    )


def _print_offsets(moved: dict[MessageQueue, int], as_json: bool) -> None:
    rows = [
        {"topic": q.topic, "broker": q.broker_name, "queue": q.queue_id, "offset": offset}
        for q, offset in moved.items()
    ]
    if as_json:
        print_json(*rows)
        return
    columns = ("topic", "broker", "queue", "offset")
    print_table(columns, [tuple(row.values()) for row in rows], right=("queue", "offset"))


@app.command("connections")
def connections(group: Group, namesrv: Namesrv = None, as_json: AsJson = False) -> None:
    """List the members of a group and their subscriptions."""

    async def work(admin: aio.Admin) -> dict[str, Any]:
        found = await admin.groups.connections(group)
        if found is None:
            raise UsageError(_NOBODY.format(group=group))
        return {
            "group": group,
            "type": found.consume_type,
            "model": found.message_model,
            "start": found.consume_from,
            "members": [
                {"client": m.client_id, "address": m.address, "language": m.language, "version": m.version}
                for m in found.members
            ],
            "subscriptions": {topic: data.expression for topic, data in found.subscriptions.items()},
        }

    found = with_admin(namesrv, work)
    if as_json:
        print_json(found)
        return
    say(f"{found['type']}, {found['model']}, {found['start']}")
    print_table(
        ("client", "address", "language", "version"), [tuple(row.values()) for row in found["members"]]
    )
    print_table(("topic", "expression"), sorted(found["subscriptions"].items()))


@app.command("status")
def status(
    group: Group,
    stacks: Annotated[
        bool, typer.Option("--stacks", help="Include the stacks of each member's threads.")
    ] = False,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Show what each member of a group is processing, as reported by the members."""

    async def work(admin: aio.Admin) -> list[dict[str, Any]]:
        members = await admin.groups.status(group, stacks=stacks)
        if not members:
            raise UsageError(_NOBODY.format(group=group))
        return [
            {
                "client": member.client_id,
                "error": member.error,
                "subscribes": asked_text(member),
                "skipped": skipped(member),
                "queues": [
                    {
                        "topic": queue.topic,
                        "broker": queue.broker_name,
                        "queue": queue.queue_id,
                        "in_hand": held.cached_msg_count,
                        "committed": held.commit_offset,
                        "locked": held.locked,
                    }
                    for queue, held in sorted(member.info.queues.items() if member.info else ())
                ],
                "stacks": member.info.jstack if member.info else None,
            }
            for member in members
        ]

    found = with_admin(namesrv, work)
    if as_json:
        print_json(*found)
        return
    rows = [(one["client"], *queue.values()) for one in found for queue in one["queues"]]
    columns = ("client", "topic", "broker", "queue", "in hand", "committed", "locked")
    print_table(columns, rows, right=("queue", "in hand", "committed"))
    for text in unlike(found):
        say(text)
    for one in found:
        if one["error"]:
            say(f"{one['client']}: {one['error']}")
        if one["skipped"]:
            say(f"{one['client']}: skipped {one['skipped']} messages that no broker could store; see its log")
        if one["stacks"]:
            say(f"{one['client']}:")
            say_lines(one["stacks"])
