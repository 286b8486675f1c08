"""A preview for a group that nobody manages: who would get which queue if the coordinator divided them.

It starts from the division that the members report. It changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from sparrowmq.aio import Admin, GroupConnections, MemberStatus
from sparrowmq.coordinator.groups.plan import AdmissionRules, Candidate, GroupPlan, make_plan, observed
from sparrowmq.coordinator.groups.preview import WhatIf
from sparrowmq.core.errors import RefusedError
from sparrowmq.core.message import MessageQueue

MEMBERS_SECONDS: Final = 5.0
"""How long members have to report their queues."""
BROADCASTING: Final = "BROADCASTING"


async def preview_unmanaged(admin: Admin, group: str, what_if: WhatIf, rules: AdmissionRules) -> GroupPlan:
    """The plan that would follow the members' own division.

    Raises `RefusedError`: 404 if no member is online, 422 for a broadcasting group or unknown members;
    `SettingsError` for invalid rules, and the client's `SparrowError`.
    """
    found = _dividing(group, await admin.groups.connections(group))
    queues: list[MessageQueue] = []
    for topic in sorted(found.subscriptions):
        queues += (await admin.topics.route(topic)).subscribe_queues(topic)
    reports = await admin.groups.status(group, seconds=MEMBERS_SECONDS)
    return divided(group, queues, found, reports, what_if, rules)


def divided(
    group: str,
    queues: Sequence[MessageQueue],
    found: GroupConnections,
    reports: Iterable[MemberStatus],
    what_if: WhatIf,
    rules: AdmissionRules,
) -> GroupPlan:
    """The same, from what the brokers and members told. Members count as joined in the order in which their
    broker lists them. Pure.
    """
    owners = {queue: one.client_id for one in reports if one.info is not None for queue in one.info.queues}
    candidates = [Candidate(one.client_id, one.address, number) for number, one in enumerate(found.members)]
    members = what_if.members(group, candidates)
    before = observed(group, {queue: owners[queue] for queue in queues if queue in owners})
    return make_plan(group, queues, members, rules=what_if.rules(rules), before=before)


def _dividing(group: str, found: GroupConnections | None) -> GroupConnections:
    """The members of a group that divides its queues."""
    if found is None:
        raise RefusedError(
            f"no member of group {group[:255]!r} is online, so there is nothing to plan; see the names with: "
            "sparrow group list",
            status=404,
        )
    if found.message_model == BROADCASTING:
        raise RefusedError(
            f"{group[:255]!r} is broadcasting: every member reads all queues, so there is nothing to divide",
            status=422,
        )
    return found
