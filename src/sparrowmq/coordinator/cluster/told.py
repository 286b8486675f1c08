"""What members of groups tell of themselves (code 307), and what brokers count and grant.

An interface and its implementation on the client's public names: it works with Apache's brokers and clients
as well, as far as they tell.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from sparrowmq import aio
from sparrowmq.aio import GroupMemberInfo, MemberStatus
from sparrowmq.coordinator.cluster.asking import Shared, each
from sparrowmq.core.names import retry_topic
from sparrowmq.protocol.managed import QueueGrant

MEMBERS_SECONDS: Final = 20.0
"""How long the members of one group may take to answer; those that did not are silent."""
MODEL_PROPERTY: Final = "messageModel"
BROADCASTING: Final = "BROADCASTING"
TYPE_PROPERTY: Final = "PROP_CONSUME_TYPE"
ACTIVELY: Final = "CONSUME_ACTIVELY"
"""What pull consumers have there."""


@dataclass(frozen=True, slots=True)
class Told:
    """What members said, by group; groups with nobody online have none. `failed` says why some could not be
    asked, `at` is when this look began, in monotonic seconds.
    """

    groups: Mapping[str, Sequence[MemberStatus]] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    at: float = field(default_factory=time.monotonic)

    @property
    def age_seconds(self) -> int:
        """How long ago it was asked."""
        return int(time.monotonic() - self.at)

    @property
    def silent(self) -> set[str]:
        """Groups of which nobody can say how they are: not all of their members answered."""
        return {group for group, members in self.groups.items() if any(one.error for one in members)}.union(
            self.failed
        )


@dataclass(frozen=True, slots=True)
class Stored:
    """How many messages were ever stored, by name; those that could not be asked for are `failed`."""

    counts: Mapping[str, int] = field(default_factory=dict)
    failed: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Presence:
    """Who of each group is connected where, by group and master's address; `failed` says why some groups
    could not be asked for. Members of `loose` groups, which have no retry topic, need not be everywhere.
    """

    groups: Mapping[str, Mapping[str, Sequence[GroupMemberInfo]]] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    loose: Collection[str] = ()


def is_broadcasting(members: Sequence[MemberStatus]) -> bool:
    """Whether each member reads every queue, by what they say. Pure."""
    told = (one.info.properties.get(MODEL_PROPERTY) for one in members if one.info is not None)
    return BROADCASTING in told


def tells_queues(member: MemberStatus) -> bool:
    """Whether what a member says of its queues can be taken for all of them. Java's pull consumers say none,
    whatever they read (client:D-86). Pure.
    """
    info = member.info
    return info is not None and (bool(info.queues) or info.properties.get(TYPE_PROPERTY) != ACTIVELY)


class TellingView(Protocol):
    """What services ask about. Everything raises `SparrowError`."""

    async def told(self, fresh_seconds: float = 0.0) -> Told:
        """What every group's members say of themselves: one look for all who ask, at most so old."""

    async def presence(self) -> Presence:
        """Who of every group is connected to which broker."""

    async def stored(self, prefix: str) -> Stored:
        """How many messages were ever stored in topics that begin so, by the rest of the name."""

    async def grants(self) -> dict[str, list[QueueGrant]]:
        """Who has which queue of managed groups, as brokers enforce it, by group."""


class Telling(ABC):
    """A cluster's groups, asked with the admin client of whoever derives from it."""

    def __init__(self) -> None:
        self._members_told = Shared(self._all_told)

    @abstractmethod
    async def _asker(self) -> aio.Admin:
        """A started admin client."""

    async def told(self, fresh_seconds: float = 0.0) -> Told:
        """Asks every member of every group, unless somebody did that lately or is doing it."""
        return await self._members_told.get(fresh_seconds)

    async def _all_told(self) -> Told:
        at, admin, failed = time.monotonic(), await self._asker(), dict[str, str]()

        async def ask(group: str) -> Sequence[MemberStatus]:
            return await admin.group_status(group, seconds=MEMBERS_SECONDS)

        return Told(await each(await admin.group_list(), ask, failed), failed, at)

    async def presence(self) -> Presence:
        """Asks every master of every group."""
        admin, failed = await self._asker(), dict[str, str]()
        retries = frozenset(await admin.topic_list(system=True))
        groups = await each(await admin.group_list(), admin.group_members, failed)
        return Presence(groups, failed, frozenset(one for one in groups if retry_topic(one) not in retries))

    async def stored(self, prefix: str) -> Stored:
        """Sums the queues' ends."""
        admin, failed = await self._asker(), dict[str, str]()

        async def ask(topic: str) -> int:
            return sum(one.max_offset for one in await admin.topic_status(topic))

        topics = [one for one in await admin.topic_list(system=True) if one.startswith(prefix)]
        found = await each(topics, ask, failed, vanish=True)
        sums = {topic.removeprefix(prefix): count for topic, count in found.items()}
        return Stored(sums, {topic.removeprefix(prefix) for topic in failed})

    async def grants(self) -> dict[str, list[QueueGrant]]:
        """Each broker's word counts for its own queues."""
        admin = await self._asker()
        found: dict[str, list[QueueGrant]] = {}
        for broker, table in (await admin.group_policies()).items():
            for policy in table.policies:
                mine = [grant for grant in policy.queues if grant.broker_name == broker]
                found.setdefault(policy.group, []).extend(mine)
        return {group: grants for group, grants in found.items() if grants}
