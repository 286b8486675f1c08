"""`sparrow group …`: names and progress, making, deleting, moving, and what members tell."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from sparrowmq.cli.common import (
    AsJson,
    Namesrv,
    UsageError,
    namesrv_or_default,
    print_json,
    print_table,
    run,
)

if TYPE_CHECKING:
    from sparrowmq.core.message import MessageQueue

app = typer.Typer(help="Consumer groups: progress, members, plans, policies, offsets.", no_args_is_help=True)

Group = Annotated[str, typer.Argument(help="Name of the group.")]
_NOBODY: Final = (
    "no member of group {group!r} is online; see the names with `sparrow group list`, and how far it has "
    "come with `sparrow group progress {group}`"
)


def moment(text: str) -> datetime | Literal["first", "last"]:
    """`first`, `last`, or a time: `2024-05-01T12:30` (local), with a zone if given, or epoch milliseconds."""
    if text == "first":
        return "first"
    if text == "last":
        return "last"
    try:
        if text.isdecimal():
            return datetime.fromtimestamp(int(text) / 1000)
        return datetime.fromisoformat(text)
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"{text!r} is no place to go to; give first, last, a time like 2024-05-01T12:30 or epoch "
            "milliseconds"
        ) from None


@app.command("list")
def list_groups(
    system: Annotated[bool, typer.Option("--all", help="RocketMQ's own groups as well.")] = False,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Print the names of all consumer groups."""

    async def work() -> list[str]:
        from sparrowmq import aio

        async with aio.Admin(namesrv=namesrv_or_default(namesrv)) as admin:
            return await admin.group_list(system=system)

    for name in run(work()):
        print_json(name) if as_json else print(name)


@app.command("progress")
def progress(
    group: Group,
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Print how far a group has come in each queue, and what waits for it."""

    async def work() -> list[dict[str, Any]]:
        from sparrowmq import aio

        async with aio.Admin(namesrv=namesrv_or_default(namesrv)) as admin:
            found = await admin.group_progress(group, topic)
            if not found and group not in await admin.group_list(system=True):
                raise UsageError(f"no broker knows group {group!r}; see the names with `sparrow group list`")
            return [
                {
                    "topic": place.queue.topic,
                    "broker": place.queue.broker_name,
                    "queue": place.queue.queue_id,
                    "broker_offset": place.broker_offset,
                    "consumer_offset": place.consumer_offset,
                    "lag": place.lag,
                }
                for place in found
            ]

    rows = run(work())
    if as_json:
        for row in rows:
            print_json(row)
        return
    print_table(
        ("topic", "broker", "queue", "broker offset", "consumer offset", "lag"),
        [tuple(row.values()) for row in rows],
        right=("queue", "broker offset", "consumer offset", "lag"),
    )
    waiting = sum(row["lag"] for row in rows)
    print("1 message waits" if waiting == 1 else f"{waiting} messages wait")


@app.command("create")
def create(
    group: Group,
    retries: Annotated[int, typer.Option(min=0, help="Retries before the dead letters.")] = 16,
    disabled: Annotated[bool, typer.Option("--disabled", help="The group may not consume.")] = False,
    no_broadcast: Annotated[bool, typer.Option("--no-broadcast", help="No broadcasting consumers.")] = False,
    cluster: Annotated[str | None, typer.Option(help="Only the brokers of this cluster.")] = None,
    namesrv: Namesrv = None,
) -> None:
    """Make a group on every broker, or change the one that is there."""

    async def work() -> None:
        from sparrowmq import aio

        async with aio.Admin(namesrv=namesrv_or_default(namesrv)) as admin:
            await admin.create_group(
                group,
                retries=retries,
                enabled=not disabled,
                broadcast=not no_broadcast,
                cluster=cluster,
            )

    run(work())
    print(f"{group}: {retries} retries")


@app.command("delete")
def delete(
    group: Group,
    keep_offsets: Annotated[
        bool, typer.Option("--keep-offsets", help="A group of this name goes on where it was.")
    ] = False,
    namesrv: Namesrv = None,
) -> None:
    """Delete a group, its retry and dead letter topics and its offsets."""

    async def work() -> None:
        from sparrowmq import aio

        async with aio.Admin(namesrv=namesrv_or_default(namesrv)) as admin:
            if not await admin.group_config(group) and not await admin.group_progress(group):
                raise UsageError(f"no broker knows group {group!r}; see the names with `sparrow group list`")
            await admin.delete_group(group, offsets=not keep_offsets)

    run(work())
    print(f"{group} deleted")


@app.command("reset")
def reset(
    group: Group,
    topic: Annotated[str, typer.Option(help="Topic to go elsewhere in.")],
    to: Annotated[
        str, typer.Option(help="first, last, a time (2024-05-01T12:30) or epoch milliseconds.")
    ] = "last",
    only_back: Annotated[bool, typer.Option("--only-back", help="Move no queue forward.")] = False,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Have a group go on with a topic elsewhere; members that are online are told."""
    place = moment(to)

    async def work() -> dict[MessageQueue, int]:
        from sparrowmq import aio

        async with aio.Admin(namesrv=namesrv_or_default(namesrv)) as admin:
            return await admin.reset_offsets(group, topic, place, force=not only_back)

    moved = run(work())
    if not moved and not as_json:
        print(f"no queue of {topic} was moved")
        return
    _print_offsets(moved, as_json)


@app.command("clone")
def clone(
    source: Annotated[str, typer.Argument(help="Group whose offsets are taken.")],
    target: Annotated[str, typer.Argument(help="Group that gets them; stop its members before.")],
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Give one group the offsets of another."""

    async def work() -> dict[MessageQueue, int]:
        from sparrowmq import aio

        async with aio.Admin(namesrv=namesrv_or_default(namesrv)) as admin:
            return await admin.clone_offsets(source, target, topic)

    _print_offsets(run(work()), as_json)


def _print_offsets(moved: dict[MessageQueue, int], as_json: bool) -> None:
    rows = [
        {"topic": q.topic, "broker": q.broker_name, "queue": q.queue_id, "offset": offset}
        for q, offset in moved.items()
    ]
    if as_json:
        for row in rows:
            print_json(row)
        return
    columns = ("topic", "broker", "queue", "offset")
    print_table(columns, [tuple(row.values()) for row in rows], right=("queue", "offset"))


@app.command("connections")
def connections(group: Group, namesrv: Namesrv = None, as_json: AsJson = False) -> None:
    """Print who is in a group and what they subscribe to."""

    async def work() -> dict[str, Any]:
        from sparrowmq import aio

        async with aio.Admin(namesrv=namesrv_or_default(namesrv)) as admin:
            found = await admin.group_connections(group)
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

    found = run(work())
    if as_json:
        print_json(found)
        return
    print(f"{found['type']}, {found['model']}, {found['start']}")
    print_table(
        ("client", "address", "language", "version"), [tuple(row.values()) for row in found["members"]]
    )
    print_table(("topic", "expression"), sorted(found["subscriptions"].items()))


@app.command("status")
def status(
    group: Group,
    stacks: Annotated[bool, typer.Option("--stacks", help="What each member's threads do.")] = False,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Print what each member of a group has in hand, as the members tell it."""

    async def work() -> list[dict[str, Any]]:
        from sparrowmq import aio

        async with aio.Admin(namesrv=namesrv_or_default(namesrv)) as admin:
            members = await admin.group_status(group, stacks=stacks)
        if not members:
            raise UsageError(_NOBODY.format(group=group))
        return [
            {
                "client": member.client_id,
                "error": member.error,
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

    found = run(work())
    if as_json:
        for one in found:
            print_json(one)
        return
    rows = [(one["client"], *queue.values()) for one in found for queue in one["queues"]]
    columns = ("client", "topic", "broker", "queue", "in hand", "committed", "locked")
    print_table(columns, rows, right=("queue", "in hand", "committed"))
    for one in found:
        if one["error"]:
            print(f"{one['client']}: {one['error']}")
        if one["stacks"]:
            print(f"{one['client']}:\n{one['stacks']}")
