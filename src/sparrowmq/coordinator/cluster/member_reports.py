"""Reports of group members (code 307), and counters and grants of brokers.

An interface and its implementation on the client's public names: it also works with Apache's brokers and
clients, as far as they report.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from msgspec import structs

from sparrowmq import aio
from sparrowmq.aio import GroupMemberInfo, MemberStatus
from sparrowmq.coordinator.cluster.asking import SharedAnswer, each
from sparrowmq.core.names import retry_topic
from sparrowmq.protocol.failing import FAILING_PROPERTY
from sparrowmq.protocol.managed import GENERATIONS_PROPERTY, QueueGrant

MEMBERS_SECONDS: Final = 20.0
"""Time limit for the members of one group; members without an answer are silent."""
MODEL_PROPERTY: Final = "messageModel"
BROADCASTING: Final = "BROADCASTING"
TYPE_PROPERTY: Final = "PROP_CONSUME_TYPE"
ACTIVELY: Final = "CONSUME_ACTIVELY"
"""Value that pull consumers report there."""
READ_PROPERTIES: Final = (MODEL_PROPERTY, TYPE_PROPERTY, FAILING_PROPERTY, GENERATIONS_PROPERTY)
"""What services read of the settings in a member's report."""


@dataclass(frozen=True, slots=True)
class MemberAnswers:
    """Reports of members, by group; groups without online members have none. `failed` says why some could not
    be queried, `at` is the start of the query in monotonic seconds.
    """

    groups: Mapping[str, Sequence[MemberStatus]] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    at: float = field(default_factory=time.monotonic)

    @property
    def age_seconds(self) -> int:
        """Age of the result."""
        return int(time.monotonic() - self.at)

    @property
    def silent(self) -> set[str]:
        """Groups whose state is unknown: not all of their members answered."""
        return {group for group, members in self.groups.items() if any(one.error for one in members)}.union(
            self.failed
        )


@dataclass(frozen=True, slots=True)
class StoredCounts:
    """Number of messages ever stored, by name; `failed` are those that could not be queried."""

    counts: Mapping[str, int] = field(default_factory=dict)
    failed: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Presence:
    """Connected members by group and address of the master; `failed` says why some groups could not be
    queried. Members of `loose` groups, which have no retry topic, need not be connected to every master.
    """

    groups: Mapping[str, Mapping[str, Sequence[GroupMemberInfo]]] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    loose: Collection[str] = ()


def is_broadcasting(members: Sequence[MemberStatus]) -> bool:
    """Whether each member reads every queue, according to the reports. Pure."""
    told = (one.info.properties.get(MODEL_PROPERTY) for one in members if one.info is not None)
    return BROADCASTING in told


def tells_queues(member: MemberStatus) -> bool:
    """Whether a member's report lists all of its queues. Java's pull consumers report none, whatever they
    read (client:D-86). Pure.
    """
    info = member.info
    return info is not None and (bool(info.queues) or info.properties.get(TYPE_PROPERTY) != ACTIVELY)


def lean(member: MemberStatus) -> MemberStatus:
    """A member's report without the settings that no service reads: they are most of it, and the reports of
    all members are kept. Pure.
    """
    if member.info is None:
        return member
    own = member.info.properties
    read = {name: own[name] for name in READ_PROPERTIES if name in own}
    return replace(member, info=structs.replace(member.info, properties=read))


class MemberReportsView(Protocol):
    """Queries of the services. Everything raises `SparrowError`."""

    async def told(self, fresh_seconds: float = 0.0) -> MemberAnswers:
        """Reports of every group's members, each made `lean`: one query for all callers, at most this old."""

    async def presence(self) -> Presence:
        """Members of every group connected to each broker."""

    async def stored(self, prefix: str) -> StoredCounts:
        """Number of messages ever stored in topics with this prefix, by the rest of the name."""

    async def grants(self) -> dict[str, list[QueueGrant]]:
        """Owner of each queue of managed groups, as enforced by brokers, by group."""


class MemberReports(ABC):
    """A cluster's groups, queried with the admin client of the subclass."""

    def __init__(self) -> None:
        self._members_told = SharedAnswer(self._all_told)

    @abstractmethod
    async def _asker(self) -> aio.Admin:
        """A started admin client."""

    async def told(self, fresh_seconds: float = 0.0) -> MemberAnswers:
        """Queries every member of every group, unless another query is recent or running."""
        return await self._members_told.get(fresh_seconds)

    async def _all_told(self) -> MemberAnswers:
        at, admin, failed = time.monotonic(), await self._asker(), dict[str, str]()

        async def ask(group: str) -> Sequence[MemberStatus]:
            return list(map(lean, await admin.groups.status(group, seconds=MEMBERS_SECONDS)))

        return MemberAnswers(await each(await admin.groups.list(), ask, failed), failed, at)

    async def presence(self) -> Presence:
        """Queries every master for every group."""
        admin, failed = await self._asker(), dict[str, str]()
        retries = frozenset(await admin.topics.list(system=True))
        groups = await each(await admin.groups.list(), admin.groups.members, failed)
        return Presence(groups, failed, frozenset(one for one in groups if retry_topic(one) not in retries))

    async def stored(self, prefix: str) -> StoredCounts:
        """Sums the queues' ends."""
        admin, failed = await self._asker(), dict[str, str]()

        async def ask(topic: str) -> int:
            return sum(one.max_offset for one in await admin.topics.status(topic))

        topics = [one for one in await admin.topics.list(system=True) if one.startswith(prefix)]
        found = await each(topics, ask, failed, vanish=True)
        sums = {topic.removeprefix(prefix): count for topic, count in found.items()}
        return StoredCounts(sums, {topic.removeprefix(prefix) for topic in failed})

    async def grants(self) -> dict[str, list[QueueGrant]]:
        """Each broker is authoritative for its own queues."""
        admin = await self._asker()
        found: dict[str, list[QueueGrant]] = {}
        for broker, table in (await admin.policies.list()).items():
            for policy in table.policies:
                mine = [grant for grant in policy.queues if grant.broker_name == broker]
                found.setdefault(policy.group, []).extend(mine)
        return {group: grants for group, grants in found.items() if grants}
