"""`sparrow group plan`: how a group's queues would be divided by one plan, and why."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sparrowmq.cli.common import (
    AsJson,
    Namesrv,
    UsageError,
    complain,
    namesrv_or_default,
    print_json,
    print_table,
    run,
)
from sparrowmq.cli.remote import Url, call, part
from sparrowmq.core.errors import RefusedError

if TYPE_CHECKING:
    from sparrowmq import aio
    from sparrowmq.coordinator.groups.plan import Candidate, Plan, Rules
    from sparrowmq.coordinator.groups.preview import WhatIf
    from sparrowmq.core.message import MessageQueue

_RULES: Final = ("allow", "deny", "maximum")
_NOT_LET_IN: Final = (401, 403)
_NOT_MANAGED: Final = 404


def plan(
    group: Annotated[str, typer.Argument(help="Name of the group.")],
    maximum: Annotated[
        int | None,
        typer.Option(min=0, help="Members that may have queues, the longest first; 0: all. Default: as set."),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(help="Address or network whose members may have queues; repeatable. Default: as set."),
    ] = None,
    deny: Annotated[
        list[str] | None,
        typer.Option(help="Address or network whose members may not; repeatable. Default: as set."),
    ] = None,
    join: Annotated[int, typer.Option(min=0, max=1000, help="As if so many members more were there.")] = 0,
    without: Annotated[
        list[str] | None, typer.Option(help="As if the member with this client id were gone; repeatable.")
    ] = None,
    namesrv: Namesrv = None,
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Preview a plan: who would have which queue, what would move, and why. Changes nothing.

    It starts from the division there is: of a managed group its coordinator's, with the rules that knobs set;
    else the one that the members have among themselves. --namesrv alone asks no coordinator.
    """
    from sparrowmq.coordinator.groups.plan import Rules
    from sparrowmq.coordinator.groups.preview import WhatIf, plan_values

    what_if = WhatIf.of(maximum, allow, deny, join, without)
    what_if.rules(Rules())  # refused before anybody is asked
    found, set_rules = None, Rules()
    if coordinator is not None or namesrv is None:
        found, set_rules = _asked(coordinator, group, what_if)
    if found is None:
        found = plan_values(run(_preview(group, what_if, set_rules, namesrv)))
    if as_json:
        print_json(found)
    else:
        _print_tables(found)


def _asked(url: str | None, group: str, what_if: WhatIf) -> tuple[dict[str, Any] | None, Rules]:
    """The coordinator's preview; None, and the rules it has for the group, when it does not plan it."""
    from sparrowmq.coordinator.groups.plan import Rules

    path = f"/groups/{part(group)}"
    query = {name: getattr(what_if, name) for name in ("maximum", "allow", "deny", "join", "without")}
    try:
        try:
            found: dict[str, Any] = call(url, "GET", f"{path}/preview", query=query)
            return found, Rules()
        except RefusedError as error:
            if error.status != _NOT_MANAGED:
                raise
        knobs = call(url, "GET", f"{path}/knobs")["knobs"]
    except (UsageError, RefusedError) as error:
        if url is not None or getattr(error, "status", _NOT_LET_IN[0]) not in _NOT_LET_IN:
            raise
        return None, Rules()
    known = {one["knob"]: one["value"] for one in knobs if one["place"] == "*" and one["knob"] in _RULES}
    return None, Rules.parse(**known)


async def _preview(group: str, what_if: WhatIf, rules: Rules, namesrv: str | None) -> Plan:
    from sparrowmq import aio
    from sparrowmq.coordinator.groups.plan import make_plan, observed
    from sparrowmq.coordinator.groups.unfenced import is_managed

    async with aio.Admin(namesrv=namesrv_or_default(namesrv)) as admin:
        candidates, topics = await _candidates(admin, group)
        if is_managed(await admin.group_policies(group)):
            complain(
                f"{group} is managed, and its coordinator was not asked: rules that were set count as none; "
                "type: sparrow login"
            )
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
    members = what_if.members(group, candidates)
    return make_plan(group, queues, members, rules=what_if.rules(rules), before=observed(group, owners))


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


def _print_tables(found: dict[str, Any]) -> None:
    queues = found["queues"]
    count = Counter(one["owner"] for one in queues)
    members = [
        (one["client"], one["standing"], count[one["client"]], one["reason"] or "-")
        for one in found["members"]
    ]
    print_table(("client", "standing", "queues", "why"), members, right=("queues",))
    rows = [
        (row["topic"], row["broker"], row["queue"], row["owner"] or "-", row["before"] or "-", row["reason"])
        for row in queues
    ]
    print_table(("topic", "broker", "queue", "owner", "before", "why"), rows, right=("queue",))
    given = f", {found['given']} of nobody would get an owner" if found["given"] else ""
    print(f"{found['moves']} of {len(queues)} queues would move{given}")
