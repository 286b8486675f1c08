"""The part of a page that lists who has a role for one topic or group."""

from __future__ import annotations

from typing import Final

from sparrowmq.console.tables import Column
from sparrowmq.console.visits import PagePart, Values, Visit
from sparrowmq.coordinator.api import people

OWNERS: Final = (
    Column("name"),
    Column("role", "state", filtered=True),
    Column("may_enter", "state"),
)


def part(kind: str) -> PagePart:
    """The part for pages whose path names a topic or a group as `{kind}`."""

    async def owners(visit: Visit) -> Values:
        found = await visit.call(people.list_grants, kind, visit.named(kind), visit.caller)
        rows = [one | {"may_enter": "enabled" if one["enabled"] else "disabled"} for one in found]
        return {"table": await visit.table("owners", OWNERS, rows, sort="name", empty="empty.owners")}

    return PagePart("owners", owners)
