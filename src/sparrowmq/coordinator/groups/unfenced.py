"""Groups whose members divide queues by themselves, as Java's: steered by who is on the list (pmq:3.14).

Such a member obeys what a broker says of its group (38, 400, 40) and knows no generations: it is *not
fenced*. So a group is either managed, and these members have no queues in it, or it is theirs, and rules and
pauses that people set of it become a policy without queues: the list of those who may consume, the longest
first.

A group is taken for managed as long as it has members here or brokers have grants of it; deleting its policy
(`sparrow group policy GROUP --delete`) gives it back to those who divide by themselves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from sparrowmq import GroupConnections
from sparrowmq.coordinator.groups.moves import Cluster
from sparrowmq.coordinator.groups.plan import Candidate, Rules, Standing, admit
from sparrowmq.coordinator.groups.takeover import Terms
from sparrowmq.core.errors import SparrowError
from sparrowmq.protocol.managed import GroupPolicies, GroupPolicy, PauseRule
from sparrowmq.transport.occasional import OccasionalLog

log = logging.getLogger("sparrowmq.coordinator")

AT_ONCE: Final = 16
"""Groups that are looked at side by side."""


class Watched(Cluster, Protocol):
    """A cluster whose brokers say who is online."""

    async def group_connections(self, group: str) -> GroupConnections | None:
        """The members of a group by their heartbeats; None when there are none."""


def listed(online: Iterable[Candidate], rules: Rules, before: Iterable[str]) -> list[str] | None:
    """Client ids that may consume, the longest first; None for everybody.

    Heartbeats do not say who came when: those on the list `before` come first, others by their ids.
    """
    if rules == Rules():
        return None
    ranks = {name: rank for rank, name in enumerate(before)}
    found = [Candidate(one.client_id, one.address, ranks.get(one.client_id, len(ranks))) for one in online]
    return [one.client_id for one in admit(found, rules) if one.standing is Standing.ACTIVE]


def is_managed(found: Mapping[str, GroupPolicies]) -> bool:
    """Whether brokers have grants of a group."""
    return any(one.queues for table in found.values() for one in table.policies)


class UnfencedGroups:
    """Lists for groups without managed members, under one leader. `is_led` says whether a group has some."""

    def __init__(self, cluster: Watched, epoch: int, is_led: Callable[[str], bool]) -> None:
        self._cluster = cluster
        self._epoch = epoch
        self._is_led = is_led
        self._steered: set[str] = set()
        self._recalled = False
        self._occasional = OccasionalLog(log)

    async def look(self, terms: Mapping[str, Terms]) -> list[str]:
        """Have brokers go by what is set of groups; the groups that are steered so. What fails for one group
        is told, and tried again with the next look.
        """
        if not self._recalled:
            await self._recall()
        places = asyncio.Semaphore(AT_ONCE)
        wanted = {group for group, one in terms.items() if one.rules != Rules() or _pauses(one)}

        async def one(group: str) -> None:
            async with places:
                try:
                    await self._steer(group, terms.get(group, Terms()))
                except SparrowError as error:
                    text = f"members of group {group} that divide by themselves are not steered: {error}"
                    self._occasional.write(logging.WARNING, f"steer {group}", text)

        await asyncio.gather(*(one(group) for group in sorted(wanted | self._steered)))
        return sorted(self._steered)

    async def _recall(self) -> None:
        """Know which groups leaders before this one steered: what was unset meanwhile has to end."""
        try:
            found = await self._cluster.group_policies()
        except SparrowError as error:
            text = f"which groups are steered is not known yet: {error}"
            self._occasional.write(logging.WARNING, "recall", text)
            return
        policies = [one for table in found.values() for one in table.policies]
        self._steered |= {one.group for one in policies if one.epoch and not one.queues}
        self._recalled = True

    async def _steer(self, group: str, terms: Terms) -> None:
        if self._is_led(group):
            self._steered.discard(group)
            return
        found = await self._cluster.group_policies(group)
        if is_managed(found):
            self._steered.discard(group)
            return
        policies = [one for table in found.values() for one in table.policies]
        last = max(policies, key=lambda one: one.age, default=GroupPolicy(group, 0, 1))
        online = await self._cluster.group_connections(group)
        members = [] if online is None else online.members
        candidates = (Candidate(one.client_id, one.address) for one in members)
        names = listed(candidates, terms.rules, last.members or ())
        revision = max((one.revision for one in policies if one.epoch == self._epoch), default=0) + 1
        for broker, table in found.items():
            known = table.policies[0] if table.policies else None
            pauses = terms.pauses_at(broker)
            if _is_so(known, names, terms.rules.maximum, pauses):
                continue
            policy = GroupPolicy(
                group,
                self._epoch,
                revision,
                members=names,
                maximum=terms.rules.maximum,
                pauses=pauses,
            )
            await self._cluster.set_group_policy(policy, broker=broker)
        if terms.rules == Rules() and not _pauses(terms):
            self._steered.discard(group)
        else:
            self._steered.add(group)


def _pauses(terms: Terms) -> bool:
    return any(one.name == "pause" for one in terms.settings or ())


def _is_so(
    known: GroupPolicy | None, members: list[str] | None, maximum: int, pauses: list[PauseRule]
) -> bool:
    """Whether a broker goes by this already."""
    if known is None:
        return (members, maximum, pauses) == (None, 0, [])
    return (known.members, known.maximum, known.pauses) == (members, maximum, pauses)
