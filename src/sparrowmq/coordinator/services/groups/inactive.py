"""The inactive sweep: members that stopped reporting, groups without members, members that only some brokers
know, fences of former members, and obsolete rows (pmq:4).

The rebalance service itself notices missing members of managed groups. This service covers all groups,
including Java's, from the brokers' data.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from sqlalchemy import Connection, select

from sparrowmq.aio import GroupMemberInfo
from sparrowmq.coordinator.alarms import table
from sparrowmq.coordinator.alarms.table import AlarmCheck, Condition
from sparrowmq.coordinator.cluster.member_reports import MemberReportsView, Presence
from sparrowmq.coordinator.database.tables import managed_member
from sparrowmq.coordinator.services.base.runner import Work
from sparrowmq.coordinator.services.base.schedule import RunReport, ServiceKind, ServiceOption
from sparrowmq.coordinator.services.base.watch import CALM, WatchService, need, policy_of, report
from sparrowmq.coordinator.services.groups import roster
from sparrowmq.coordinator.services.groups.plans import client_of
from sparrowmq.coordinator.services.groups.roster import RosterEntry
from sparrowmq.protocol.managed import QueueGrant

GONE: Final = "members-gone"
HALF: Final = "half-connected-member"
FENCED: Final = "stale-fence"
DAY_MS: Final = 24 * 3_600_000
BATCH: Final = 500
KIND: Final = ServiceKind(
    "inactive-sweep",
    "Members that stopped reporting, groups without members, stale rows",
    60_000,
    1_000,
    120.0,
    (
        ServiceOption(
            "silent_seconds", 60, 1, 86_400, "after this time without a report a member is removed"
        ),
        ServiceOption("gone_seconds", 300, 0, 86_400, "time until a group without members fires; 0: never"),
        ServiceOption(
            "forget_hours", 24, 1, 8760, "after this time a group without members is no longer reported"
        ),
        ServiceOption(
            "hold_seconds", 300, 0, 86_400, "how long a partial connection or a stale fence may last"
        ),
        ServiceOption("keep_alarm_days", 30, 1, 3650, "days a resolved alarm is kept"),
        CALM,
        ServiceOption("reminder_seconds", 3600, 0, 604_800, "how often a firing alarm is repeated; 0: never"),
    ),
)

Connected = Mapping[str, Sequence[GroupMemberInfo]]


def lost(members: Sequence[RosterEntry], silent_ms: int, now: int) -> tuple[list[RosterEntry], bool]:
    """Members that have disappeared, and whether these are all. Pure."""
    gone = [one for one in members if now - one.last_seen >= silent_ms]
    return gone, bool(gone) and len(gone) == len(members)


def missed(group: str, members: Sequence[RosterEntry], now: int) -> Condition:
    """A group whose members have all disappeared. Pure."""
    last = max(members, key=lambda one: (one.last_seen, one.client_id))
    count = f"all {len(members)} members" if len(members) > 1 else "the only member"
    text = (
        f"{count} of group {group} are gone; the last was {last.client_id} at {last.address}, "
        f"{(now - last.last_seen) // 1000} s ago"
    )
    return Condition(group, text if len(members) > 1 else text.replace(" are gone", " is gone"), group)


def half(group: str, connected: Connected) -> list[Condition]:
    """Members known to only some of the group's brokers: others ignore them when queues are divided. Pure."""
    where: dict[str, set[str]] = {}
    for address, members in connected.items():
        for member in members:
            where.setdefault(member.client_id, set()).add(address)
    found = []
    for client_id, addresses in sorted(where.items()):
        absent = sorted(connected.keys() - addresses)
        if absent:
            text = (
                f"the member {client_id} of group {group} is connected to "
                f"{', '.join(sorted(addresses)[:5])}, but not to {', '.join(absent[:5])}"
            )
            found.append(Condition(f"{group} {client_id}", text, group))
    return found


def stale(
    group: str, grants: Sequence[QueueGrant], online: Collection[str], planned: Collection[str]
) -> list[Condition]:
    """The group if its queues are granted to members that are neither online nor in a plan. Pure."""
    owners: dict[str, int] = {}
    for grant in grants:
        owner = grant.owner
        if grant.fenced and owner and owner not in planned and client_of(owner, fenced=True) not in online:
            owners[owner] = owners.get(owner, 0) + 1
    if not owners:
        return []
    named = ", ".join(f"{owner} ({count})" for owner, count in sorted(owners.items())[:5])
    text = (
        f"queues of group {group} are fenced for members that no longer exist: {named}; a managed member "
        f"can take them over. Other members can read them after: sparrow group policy {group} --delete"
    )
    return [Condition(group, text, group)]


class InactiveSweep(WatchService[MemberReportsView]):
    """Checks which members are connected to which broker, and removes those that have disappeared."""

    kind = KIND

    async def step(self, work: Work) -> RunReport:
        """One check of every group. Raises `CoordinatorError` when no group could be queried."""
        presence = await self._view.presence()
        need("group", presence.groups, presence.failed)
        grants = await self._view.grants()
        counts = await work.write(lambda connection: self._write(connection, work, presence, grants))
        counts["alarms deleted"] = await self._delete_old(work)
        return report("groups", presence.groups, presence.failed, counts)

    async def _delete_old(self, work: Work) -> int:
        before = await work.read(roster.time) - work.options["keep_alarm_days"] * DAY_MS
        total = 0
        while True:
            count = await work.write(lambda connection: table.delete_resolved(connection, before, BATCH))
            total += count
            if count < BATCH:
                return total

    def _write(
        self,
        connection: Connection,
        work: Work,
        presence: Presence,
        grants: Mapping[str, Sequence[QueueGrant]],
    ) -> dict[str, int]:
        now, options = roster.time(connection), work.options
        everybody = {
            group: list({one.client_id: one for members in found.values() for one in members}.values())
            for group, found in presence.groups.items()
        }
        seen = roster.note(connection, everybody, now)
        counts, alone = self._sweep(connection, work, presence, seen, now)
        planned = set(connection.execute(select(managed_member.c.member)).scalars())
        halves = [
            one
            for group, found in presence.groups.items()
            if group not in presence.loose
            for one in half(group, found)
        ]
        stales = []
        for group, of_group in grants.items():
            online = {one.client_id for one in everybody.get(group, ())}
            stales += stale(group, of_group, online, planned)
        hold = policy_of(options)
        checks = (
            AlarmCheck(rule, policy, tuple(conditions), presence.failed.keys())
            for rule, policy, conditions in (
                (GONE, replace(hold, hold_ms=0), alone),
                (HALF, hold, halves),
                (FENCED, hold, stales),
            )
        )
        return counts | self._observe(connection, work, checks)

    def _sweep(
        self,
        connection: Connection,
        work: Work,
        presence: Presence,
        seen: Mapping[str, Sequence[RosterEntry]],
        now: int,
    ) -> tuple[dict[str, int], list[Condition]]:
        """Remove members that have disappeared; rows of a group without members stay until its alarm ends."""
        options, alone = work.options, []
        counts = {"online": 0, "gone": 0}
        forget_ms, gone_ms = options["forget_hours"] * 3_600_000, options["gone_seconds"] * 1000
        for group, members in sorted(seen.items()):
            if group in presence.failed:
                continue
            gone, everybody = lost(members, options["silent_seconds"] * 1000, now)
            counts["online"] += len(members) - len(gone)
            silent_ms = now - max(one.last_seen for one in members)
            there = group in presence.groups  # a deleted group needs no alarm
            if everybody and there and gone_ms and silent_ms < max(forget_ms, gone_ms):
                if silent_ms >= gone_ms:
                    alone.append(missed(group, members, now))
                continue
            if gone:
                roster.sweep(connection, group, gone, work.actor)
                counts["gone"] += len(gone)
        return counts, alone
