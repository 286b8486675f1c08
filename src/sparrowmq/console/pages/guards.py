"""Parts about what brokers guard: holds of topics, and the policies and fences of groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sparrowmq.console import shown
from sparrowmq.console.tables import Column
from sparrowmq.console.visits import PagePart, Values, Visit, at
from sparrowmq.coordinator.api.told import guards

HOLDS: Final = (
    Column("topic", link=lambda row: at("topics", row["topic"])),
    Column("broker", filtered=True),
    Column("group", link=lambda row: at("groups", row["group"])),
    Column("state", "state", filtered=True),
    Column("messages", "number"),
    Column("oldest_ms", "time"),
    Column("hold_hours", "number"),
    Column("size_max", "bytes"),
    Column("why"),
)
FENCES: Final = (
    Column("topic", filtered=True, link=lambda row: at("topics", row["topic"])),
    Column("broker", filtered=True),
    Column("queue", "number"),
    Column("client_id"),
    Column("generation", "number"),
    Column("state", "state", filtered=True),
)
NAMES_MAX: Final = 20
"""Members and pauses that a sentence names."""


async def holds(visit: Visit) -> Values:
    """All holds, or those of the topic of the path."""
    found = await guards.list_holds(visit.caller)
    topic = visit.request.path_params.get("topic")
    rows = [
        one
        | {
            "state": "gave-way" if one["overrun"] else "keeps",
            "hold_hours": one["hours"],
            "size_max": one["size_max"] or "–",
            "oldest_ms": one["oldest_ms"] or 0,
            "why": one["overrun"] or "–",
        }
        for one in found
        if topic in (None, one["topic"])
    ]
    empty = "empty.holds" if topic is None else "empty.not-held"
    return {"table": await visit.table("holds", HOLDS, rows, sort="topic", empty=empty)}


async def fences(visit: Visit) -> Values:
    """What each broker enforces for the group of the path: its queues, and in a sentence all else."""
    found = (await guards.group_policies(visit.named("group"), visit.caller))["brokers"]
    rows = [
        one
        | {
            "broker": policy["broker"],
            "client_id": one["owner"] or "–",
            "state": "fenced" if one["fenced"] else "unfenced",
        }
        for policy in found
        for one in policy["queues"]
    ]
    table = await visit.table("fences", FENCES, rows, sort="topic", empty="empty.fences")
    return {"table": table, "notes": [says for one in found for says in _says(visit, one)]}


def _says(visit: Visit, policy: Mapping[str, Any]) -> list[str]:
    """Who may consume at one broker, and what is paused there."""
    broker, members = policy["broker"], policy["members"]
    who = visit.words("guard.everybody") if members is None else _listed(members)
    number = f"{policy['epoch']}.{policy['revision']}"
    says = [visit.words("guard.policy", broker=broker, revision=number, members=who)]
    if policy["maximum"]:
        says.append(visit.words("guard.maximum", broker=broker, count=policy["maximum"]))
    for one in policy["pauses"][:NAMES_MAX]:
        place = "/".join(str(part) for part in (one["topic"], one["queue"]) if part is not None)
        until = shown.moment(one["until_ms"]) if one["until_ms"] else visit.words("guard.resumed")
        given = {"place": place or visit.words("guard.everything"), "reason": one["reason"] or "–"}
        says.append(visit.words("guard.paused", broker=broker, until=until, **given))
    return says


def _listed(names: list[str]) -> str:
    more = f", … (+{len(names) - NAMES_MAX})" if len(names) > NAMES_MAX else ""
    return (", ".join(names[:NAMES_MAX]) or "–") + more


HOLDS_PART: Final = PagePart("holds", holds)
FENCES_PART: Final = PagePart("fences", fences)
