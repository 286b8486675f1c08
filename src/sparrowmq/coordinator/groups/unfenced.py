"""Unmanaged groups, whose members divide the queues themselves, such as Java's: controlled by the list of
members (pmq:3.14).

Such a member follows the broker's list of its group's members (38, 400, 40) and has no generations: it is
*not fenced*. So a group is either managed, and unmanaged members have no queues in it, or it is unmanaged,
and its rules and pauses become a policy without queues: the list of members that may consume, the oldest
first.

A group counts as managed as long as it has members here or brokers have grants of it; deleting its policy
(`sparrow group policy GROUP --delete`) makes it unmanaged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from sparrowmq import GroupConnections
from sparrowmq.coordinator.groups.initial_state import Terms
from sparrowmq.coordinator.groups.moves import ManagedCluster
from sparrowmq.coordinator.groups.plan import AdmissionRules, AdmissionStatus, Candidate, admit
from sparrowmq.core.errors import BrokerError, SparrowError
from sparrowmq.protocol.managed import GroupPolicies, GroupPolicy, PauseRule
from sparrowmq.transport.occasional import OccasionalLog

log = logging.getLogger("sparrowmq.coordinator")

AT_ONCE: Final = 16
"""Number of groups queried concurrently."""


class Watched(ManagedCluster, Protocol):
    """A cluster whose brokers say who is online."""

    async def group_connections(self, group: str) -> GroupConnections | None:
        """The members of a group according to their heartbeats; None if there are none."""


def listed(online: Iterable[Candidate], rules: AdmissionRules, before: Iterable[str]) -> list[str] | None:
    """Client ids that may consume, the most senior first; None for everybody.

    Heartbeats have no join times: members on the list `before` come first, others are ordered by id.
    """
    if rules == AdmissionRules():
        return None
    ranks = {name: rank for rank, name in enumerate(before)}
    found = [Candidate(one.client_id, one.address, ranks.get(one.client_id, len(ranks))) for one in online]
    return [one.client_id for one in admit(found, rules) if one.standing is AdmissionStatus.ACTIVE]


def is_managed(found: Mapping[str, GroupPolicies]) -> bool:
    """Whether brokers have grants of a group."""
    return any(one.queues for table in found.values() for one in table.policies)


class UnfencedGroups:
    """Client lists for groups without managed members, under one leader. `is_led` says whether a group has
    managed members.
    """

    def __init__(self, cluster: Watched, epoch: int, is_led: Callable[[str], bool]) -> None:
        self._cluster = cluster
        self._epoch = epoch
        self._is_led = is_led
        self._steered: set[str] = set()
        self._recalled = False
        self._occasional = OccasionalLog(log)

    async def look(self, terms: Mapping[str, Terms]) -> list[str]:
        """Send the settings of groups to brokers; returns the groups controlled this way. An error of one
        group is logged, and retried in the next step.
        """
        if not self._recalled:
            await self._recall()
        places = asyncio.Semaphore(AT_ONCE)
        wanted = {group for group, one in terms.items() if one.rules != AdmissionRules() or _pauses(one)}

        async def one(group: str) -> None:
            async with places:
                try:
                    await self._steer(group, terms.get(group, Terms()))
                except SparrowError as error:
                    text = f"settings could not be applied to the unmanaged members of group {group}: {error}"
                    self._occasional.write(logging.WARNING, f"steer {group}", text)

        await asyncio.gather(*(one(group) for group in sorted(wanted | self._steered)))
        return sorted(self._steered)

    async def _recall(self) -> None:
        """Record which groups earlier leaders controlled: settings that were removed since must be undone."""
        try:
            found = await self._cluster.group_policies()
        except SparrowError as error:
            text = f"the brokers' group policies cannot be read yet: {error}"
            if isinstance(error, BrokerError):
                text += "; if the brokers require an account, set SPARROW_ACCESS_KEY and SPARROW_SECRET_KEY"
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
        if terms.rules == AdmissionRules() and not _pauses(terms):
            self._steered.discard(group)
        else:
            self._steered.add(group)


def _pauses(terms: Terms) -> bool:
    return any(one.name == "pause" for one in terms.settings or ())


def _is_so(
    known: GroupPolicy | None, members: list[str] | None, maximum: int, pauses: list[PauseRule]
) -> bool:
    """Whether a broker already has this policy."""
    if known is None:
        return (members, maximum, pauses) == (None, 0, [])
    return (known.members, known.maximum, known.pauses) == (members, maximum, pauses)
