"""`sparrow group plan`: how a group's queues would be divided by one plan, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

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
    from sparrowmq import aio
    from sparrowmq.coordinator.groups.plan import Candidate, Plan, Rules
    from sparrowmq.core.message import MessageQueue


def plan(
    group: Annotated[str, typer.Argument(help="Name of the group.")],
    maximum: Annotated[
        int, typer.Option(help="Members that may have queues, the longest first; 0: all.")
    ] = 0,
    allow: Annotated[
        list[str] | None, typer.Option(help="Address or network whose members may have queues; repeatable.")
    ] = None,
    deny: Annotated[
        list[str] | None, typer.Option(help="Address or network whose members may not; repeatable.")
    ] = None,
    join: Annotated[int, typer.Option(min=0, max=1000, help="As if so many members more were there.")] = 0,
    without: Annotated[
        list[str] | None, typer.Option(help="As if the member with this client id were gone; repeatable.")
    ] = None,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Preview a plan: who would have which queue, what would move, and why. Changes nothing.

    It starts from the division the members have now: balanced for each topic, with the fewest moves.
    """
    from sparrowmq.coordinator.groups.plan import Rules

    rules = Rules.parse(allow=allow or (), deny=deny or (), maximum=maximum)
    found = run(_preview(group, rules, join, without or [], namesrv))
    if as_json:
        _print_values(found)
    else:
        _print_tables(found)


async def _preview(group: str, rules: Rules, join: int, without: list[str], namesrv: str | None) -> Plan:
    from sparrowmq import aio
    from sparrowmq.coordinator.groups.plan import Candidate, make_plan, observed

    async with aio.Admin(namesrv=namesrv_or_default(namesrv)) as admin:
        candidates, topics = await _candidates(admin, group)
        queues: list[MessageQueue] = []
        for topic in topics:
            queues += (await admin.topic_route(topic)).subscribe_queues(topic)
        owners = {
            queue: member.client_id
            for member in await admin.group_status(group)
            if member.info is not None
            for queue in member.info.queues
            if queue.topic in topics
        }
    unknown = set(without) - {one.client_id for one in candidates}
    if unknown:
        raise UsageError(f"{min(unknown)!r} is no member of {group}; see `sparrow group connections {group}`")
    staying = [one for one in candidates if one.client_id not in without]
    staying += [Candidate(f"new-{number}", joined=len(candidates) + number) for number in range(1, join + 1)]
    return make_plan(group, queues, staying, rules=rules, before=observed(group, owners))


async def _candidates(admin: aio.Admin, group: str) -> tuple[list[Candidate], list[str]]:
    """The members that are online, in the order they came to their broker, and what they subscribe to."""
    from sparrowmq.coordinator.groups.plan import Candidate

    found = await admin.group_connections(group)
    if found is None:
        raise UsageError(
            f"no member of group {group!r} is online, so there is nothing to plan; see the names with "
            "`sparrow group list`"
        )
    if found.message_model == "BROADCASTING":
        raise UsageError(f"every member of {group!r} has all queues: it is broadcasting, nothing is divided")
    candidates = [Candidate(one.client_id, one.address, number) for number, one in enumerate(found.members)]
    return candidates, sorted(found.subscriptions)


def _rows(found: Plan) -> list[dict[str, Any]]:
    from sparrowmq.coordinator.groups.plan import explain

    reasons = explain(found)
    return [
        {
            "topic": one.queue.topic,
            "broker": one.queue.broker_name,
            "queue": one.queue.queue_id,
            "owner": one.owner,
            "before": one.previous,
            "moves": one.previous is not None and one.previous != one.owner,
            "reason": reasons[one.queue],
        }
        for one in found.queues
    ]


def _print_values(found: Plan) -> None:
    members = [
        {"client": one.client_id, "standing": one.standing.value, "reason": one.reason}
        for one in found.members
    ]
    print_json({"group": found.group, "moves": len(found.moved), "members": members, "queues": _rows(found)})


def _print_tables(found: Plan) -> None:
    members = [
        (one.client_id, one.standing.value, len(found.of(one.client_id)), one.reason or "-")
        for one in found.members
    ]
    print_table(("client", "standing", "queues", "why"), members, right=("queues",))
    rows = [
        (row["topic"], row["broker"], row["queue"], row["owner"] or "-", row["before"] or "-", row["reason"])
        for row in _rows(found)
    ]
    print_table(("topic", "broker", "queue", "owner", "before", "why"), rows, right=("queue",))
    print(f"{len(found.moved)} of {len(found.queues)} queues would move")
