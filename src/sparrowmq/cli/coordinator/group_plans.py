"""`sparrow group plan`: how a group's queues would be divided by one plan, and why."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sparrowmq.cli.base.common import (
    AsJson,
    Namesrv,
    UsageError,
    complain,
    namesrv_or_default,
    print_json,
    print_table,
    run,
    say,
)
from sparrowmq.cli.base.remote import Url, call, part
from sparrowmq.core.errors import RefusedError

if TYPE_CHECKING:
    from sparrowmq.coordinator.groups.plan import AdmissionRules, GroupPlan
    from sparrowmq.coordinator.groups.preview import WhatIf

_RULES: Final = ("allow", "deny", "maximum")
_NOT_LET_IN: Final = (401, 403)
_NOT_MANAGED: Final = 404


def plan(
    group: Annotated[str, typer.Argument(help="Name of the group.")],
    maximum: Annotated[
        int | None,
        typer.Option(
            min=0, help="Maximum of members with queues, oldest members first; 0: all. Default: as set."
        ),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(help="Address or network whose members may get queues; repeatable. Default: as set."),
    ] = None,
    deny: Annotated[
        list[str] | None,
        typer.Option(
            help="Address or network whose members may not get queues; repeatable. Default: as set."
        ),
    ] = None,
    join: Annotated[
        int, typer.Option(min=0, max=1000, help="Preview with this number of additional members.")
    ] = 0,
    without: Annotated[
        list[str] | None, typer.Option(help="Preview without the member with this client id; repeatable.")
    ] = None,
    namesrv: Namesrv = None,
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Preview a plan: which member would get which queue, what would move, and why. Changes nothing.

    It starts from the current division: for a managed group the coordinator's, with the rules of its
    dynamic settings; else the division of its members. With --namesrv only, it asks no coordinator.
    """
    from sparrowmq.coordinator.groups.plan import AdmissionRules
    from sparrowmq.coordinator.groups.preview import WhatIf, plan_values

    what_if = WhatIf.of(maximum, allow, deny, join, without)
    what_if.rules(AdmissionRules())  # refused before the coordinator is asked
    found, set_rules = None, AdmissionRules()
    if coordinator is not None or namesrv is None:
        found, set_rules = _asked(coordinator, group, what_if)
    if found is None:
        found = plan_values(run(_preview(group, what_if, set_rules, namesrv)))
    if as_json:
        print_json(found)
    else:
        _print_tables(found)


def _asked(url: str | None, group: str, what_if: WhatIf) -> tuple[dict[str, Any] | None, AdmissionRules]:
    """The coordinator's preview; or None, and the coordinator's rules for the group, if it does not manage
    the group.
    """
    from sparrowmq.coordinator.groups.plan import AdmissionRules

    path = f"/groups/{part(group)}"
    query = {name: getattr(what_if, name) for name in ("maximum", "allow", "deny", "join", "without")}
    try:
        try:
            found: dict[str, Any] = call(url, "GET", f"{path}/preview", query=query)
            return found, AdmissionRules()
        except RefusedError as error:
            if error.status != _NOT_MANAGED:
                raise
        settings = call(url, "GET", f"{path}/settings")["settings"]
    except (UsageError, RefusedError) as error:
        if url is not None or getattr(error, "status", _NOT_LET_IN[0]) not in _NOT_LET_IN:
            raise
        return None, AdmissionRules()
    known = {
        one["setting"]: one["value"] for one in settings if one["place"] == "*" and one["setting"] in _RULES
    }
    return None, AdmissionRules.parse(**known)


async def _preview(group: str, what_if: WhatIf, rules: AdmissionRules, namesrv: str | None) -> GroupPlan:
    from sparrowmq import aio
    from sparrowmq.coordinator.groups.unfenced import is_managed
    from sparrowmq.coordinator.groups.unmanaged import preview_unmanaged

    async with aio.Admin(namesrv=namesrv_or_default(namesrv)) as admin:
        if is_managed(await admin.policies.list(group)):
            complain(
                f"{group} is managed, but its coordinator could not be asked, so its rules are ignored "
                f"here; type: sparrow login"
            )
        return await preview_unmanaged(admin, group, what_if, rules)


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
    given = f", {found['given']} unassigned ones would get an owner" if found["given"] else ""
    say(f"{found['moves']} of {len(queues)} queues would move{given}")
