"""What members of groups tell of themselves (code 307), and what brokers count and grant.

An interface and its implementation on the client's public names: it works with Apache's brokers and clients
as well, as far as they tell.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from sparrowmq import aio
from sparrowmq.aio import GroupMemberInfo, MemberStatus
from sparrowmq.core.errors import NoRouteError, SparrowError
from sparrowmq.core.names import retry_topic
from sparrowmq.protocol.managed import QueueGrant

ASKED_AT_ONCE: Final = 8
MODEL_PROPERTY: Final = "messageModel"
BROADCASTING: Final = "BROADCASTING"


@dataclass(frozen=True, slots=True)
class Told:
    """What members said, by group; groups with nobody online have none. `failed` says why some could not be
    asked.
    """

    groups: Mapping[str, Sequence[MemberStatus]] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)


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


class TellingView(Protocol):
    """What services ask about. Everything raises `SparrowError`."""

    async def told(self) -> Told:
        """What every group's members say of themselves."""

    async def presence(self) -> Presence:
        """Who of every group is connected to which broker."""

    async def stored(self, prefix: str) -> Stored:
        """How many messages were ever stored in topics that begin so, by the rest of the name."""

    async def grants(self) -> dict[str, list[QueueGrant]]:
        """Who has which queue of managed groups, as brokers enforce it, by group."""


class Telling(ABC):
    """A cluster's groups, asked with the admin client of whoever derives from it."""

    @abstractmethod
    async def _asker(self) -> aio.Admin:
        """A started admin client."""

    async def told(self) -> Told:
        """Asks every member of every group."""
        admin = await self._asker()
        groups: dict[str, Sequence[MemberStatus]] = {}
        failed: dict[str, str] = {}
        places = asyncio.Semaphore(ASKED_AT_ONCE)

        async def ask(group: str) -> None:
            async with places:
                try:
                    groups[group] = await admin.group_status(group)
                except SparrowError as error:
                    failed[group] = str(error)

        await asyncio.gather(*map(ask, await admin.group_list()))
        return Told(groups, failed)

    async def presence(self) -> Presence:
        """Asks every master of every group."""
        admin = await self._asker()
        groups: dict[str, Mapping[str, Sequence[GroupMemberInfo]]] = {}
        failed: dict[str, str] = {}
        retries = frozenset(await admin.topic_list(system=True))
        places = asyncio.Semaphore(ASKED_AT_ONCE)

        async def ask(group: str) -> None:
            async with places:
                try:
                    groups[group] = await admin.group_members(group)
                except SparrowError as error:
                    failed[group] = str(error)

        await asyncio.gather(*map(ask, await admin.group_list()))
        loose = frozenset(group for group in groups if retry_topic(group) not in retries)
        return Presence(groups, failed, loose)

    async def stored(self, prefix: str) -> Stored:
        """Sums the queues' ends."""
        admin = await self._asker()
        found: dict[str, int] = {}
        failed: set[str] = set()
        places = asyncio.Semaphore(ASKED_AT_ONCE)

        async def ask(topic: str) -> None:
            async with places:
                try:
                    ends = [one.max_offset for one in await admin.topic_status(topic)]
                except NoRouteError:
                    return  # deleted since
                except SparrowError:
                    failed.add(topic.removeprefix(prefix))
                    return
            found[topic.removeprefix(prefix)] = sum(ends)

        topics = await admin.topic_list(system=True)
        await asyncio.gather(*(ask(topic) for topic in topics if topic.startswith(prefix)))
        return Stored(found, failed)

    async def grants(self) -> dict[str, list[QueueGrant]]:
        """Each broker's word counts for its own queues."""
        admin = await self._asker()
        found: dict[str, list[QueueGrant]] = {}
        for broker, table in (await admin.group_policies()).items():
            for policy in table.policies:
                mine = [grant for grant in policy.queues if grant.broker_name == broker]
                found.setdefault(policy.group, []).extend(mine)
        return {group: grants for group, grants in found.items() if grants}
