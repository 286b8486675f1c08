"""Queries of the housekeeping services: brokers' disks and logs, whole tables, groups that are about to lose
messages, and the changes that repairs make.

An interface and its implementation on the client's public names: it also works with Apache's brokers.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

from sparrowmq.coordinator.cluster.asking import each
from sparrowmq.coordinator.cluster.clients import ClusterClients
from sparrowmq.coordinator.upkeep.landscape import BrokerTables, Ends, Landscape, Loss, Use
from sparrowmq.coordinator.upkeep.logs import (
    FILE_BYTES,
    BrokerLog,
    CleaningRules,
    DiskSurvey,
    Held,
    LogSample,
)
from sparrowmq.core.clock import Clock
from sparrowmq.core.errors import NoRouteError, SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import DLQ_PREFIX
from sparrowmq.core.settings.text import parse_hours
from sparrowmq.protocol.bodies import SubscriptionGroupConfig, TopicConfig

TABLES_SECONDS: Final = 60.0
"""Time limit of one query of all tables or all groups."""
HOUR_MS: Final = 3_600_000
BROADCASTING: Final = "BROADCASTING"
DIGITS_MAX: Final = 18
UNITS: Final = {"B": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40, "PiB": 50, "EiB": 60}
_SIZES: Final = re.compile(r"Total : ([\d.]+) (\w+), Free : ([\d.]+) (\w+)")


class SurveyView(Protocol):
    """The queries of the upkeep services, and the changes of repairs."""

    async def disks(self) -> DiskSurvey:
        """Every broker's log, disk and retention rules."""

    async def losses(self, before_ms: Mapping[str, int]) -> tuple[list[Loss], dict[str, str]]:
        """Unread messages stored before a time, by broker name; and why groups could not be queried."""

    async def landscape(self, *, ends: bool = True, offsets: bool = True) -> Landscape:
        """All tables of all brokers and name servers, with `offsets` those of groups; with `ends` also those
        of queues.
        """

    async def use(self) -> Use:
        """Producers and consumers of each topic."""

    async def put_topic(self, broker: str, config: TopicConfig) -> None:
        """Create or change a topic at one broker."""

    async def put_group(self, broker: str, config: SubscriptionGroupConfig) -> None:
        """Create or change a group at one broker."""

    async def set_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Commit an offset."""

    async def clear_topic(self, broker: str, topic: str) -> None:
        """Delete a topic's data at one broker."""

    async def unlist_topic(self, topic: str) -> None:
        """Delete a topic at the name servers."""

    async def close(self) -> None:
        """Close the connections."""


class Survey:
    """The clusters of some name servers. Connects on first use; raises `SparrowError` if brokers, topics or
    groups cannot be listed.
    """

    def __init__(self, clients: ClusterClients, clock: Clock) -> None:
        self._clients = clients
        self._clock = clock

    def __repr__(self) -> str:
        return f"<Survey {self._clients.namesrv}>"

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        await self._clients.close()

    # Disks and logs

    async def disks(self) -> DiskSurvey:
        """Every broker's log, disk and retention rules."""
        admin = await self._clients.admin()
        holds = defaultdict(list)
        for hold in await admin.holds.list():
            if hold.oldest_ms is not None and not hold.overrun:
                ends = hold.oldest_ms + hold.hours * HOUR_MS
                holds[hold.broker_name].append(Held(hold.topic, hold.group, hold.oldest_ms, ends))
        failed: dict[str, str] = {}

        async def look(address: str) -> BrokerLog:
            status = there[address]
            name = status.broker_name + (f"#{status.broker_id}" if status.broker_id else "")
            if status.error is not None:
                raise NoRouteError(status.error)
            log = log_of(name, status.address, status.runtime, self._clock.now_ms())
            rules = rules_of(await admin.brokers.settings(status.address))
            return replace(log, rules=rules, holds=tuple(holds[name]))

        there = {one.address: one for one in await admin.brokers.list()}
        found = await each(there, look, failed)
        return DiskSurvey(sorted(found.values(), key=lambda one: one.name), failed)

    async def losses(self, before_ms: Mapping[str, int]) -> tuple[list[Loss], dict[str, str]]:
        """Unread messages stored before a time, by broker name; and why groups could not be queried."""
        admin = await self._clients.admin()
        failed: dict[str, str] = {}

        async def look(group: str) -> list[Loss]:
            found: defaultdict[tuple[str, str], int] = defaultdict(int)
            for place in await admin.groups.progress(group):
                queue, before = place.queue, before_ms.get(place.queue.broker_name)
                if before is None or place.lag <= 0 or queue.topic.startswith(DLQ_PREFIX):
                    continue
                gone = min(await admin.topics.search_offset(queue, before), place.broker_offset)
                if gone > place.consumer_offset:
                    first = max(place.consumer_offset, await admin.topics.search_offset(queue, 0))
                    found[queue.topic, queue.broker_name] += max(0, gone - first)
            return [Loss(group, topic, broker, count) for (topic, broker), count in found.items() if count]

        groups = await each(await admin.groups.list(), look, failed, seconds=TABLES_SECONDS)
        return [loss for name in sorted(groups) for loss in sorted(groups[name])], failed

    # Tables

    async def landscape(self, *, ends: bool = True, offsets: bool = True) -> Landscape:
        """All tables of all brokers and name servers. A broker that does not answer is in `failed`."""
        admin = await self._clients.admin()
        calls = await self._clients.calls()
        info = await admin.brokers.cluster_info()
        masters = {name for name, broker in info.brokers.items() if broker.master is not None}
        failed = {name: f"{name} has no master at the moment" for name in info.brokers if name not in masters}

        async def look(name: str) -> BrokerTables:
            topics = await admin.brokers.topics(name)
            groups = await admin.brokers.groups(name)
            stored = await calls.stored_offsets(name) if offsets else {}
            cluster = next((one for one, names in info.clusters.items() if name in names), "")
            return BrokerTables(name, cluster, topics.configs, topics.static, groups, stored)

        found = await each(masters, look, failed, seconds=TABLES_SECONDS)
        listed = await admin.name_servers.topics()
        read = {
            queue.topic
            for tables in found.values()
            for places in tables.offsets.values()
            for queue in places
            if queue.topic in tables.topics
        }
        found_ends, troubles = await self._ends(read if ends else ())
        hidden = frozenset((*info.brokers, *info.clusters, *(f"{one}_REPLY_TOPIC" for one in info.clusters)))
        brokers = tuple(found[name] for name in sorted(found))
        return Landscape(brokers, listed, found_ends, hidden, failed | troubles)

    async def use(self) -> Use:
        """Producers and consumers of each topic."""
        admin = await self._clients.admin()
        ends, failed = await self._ends(await admin.topics.list())
        calls = await self._clients.calls()
        progress: Counter[str] = Counter()

        async def add(broker: str) -> None:
            for offsets in (await calls.stored_offsets(broker)).values():
                for queue, offset in offsets.items():
                    progress[queue.topic] += offset

        brokers = (await admin.brokers.cluster_info()).brokers
        await each((name for name, one in brokers.items() if one.master), add, failed, seconds=TABLES_SECONDS)
        readers: defaultdict[str, dict[str, int]] = defaultdict(dict)

        async def look(group: str) -> bool:
            connections = await admin.groups.connections(group)
            for topic in connections.subscriptions if connections else ():
                assert connections is not None
                readers[topic][group] = (
                    0 if connections.message_model == BROADCASTING else len(connections.members)
                )
            return connections is not None

        groups = await each(await admin.groups.list(), look, failed, seconds=TABLES_SECONDS)
        return Use(ends, dict(readers), dict(progress), groups, failed)

    async def _ends(self, topics: Iterable[str]) -> tuple[dict[str, list[Ends]], dict[str, str]]:
        admin = await self._clients.admin()
        failed: dict[str, str] = {}

        async def look(topic: str) -> list[Ends]:
            return [
                Ends(one.queue, one.min_offset, one.max_offset, one.last_update_ms)
                for one in await admin.topics.status(topic)
            ]

        return await each(topics, look, failed, seconds=TABLES_SECONDS), failed

    # Repairs

    async def put_topic(self, broker: str, config: TopicConfig) -> None:
        """Create or change a topic at one broker."""
        await (await self._clients.admin()).topics.set_config(broker, config)

    async def put_group(self, broker: str, config: SubscriptionGroupConfig) -> None:
        """Create or change a group at one broker."""
        await (await self._clients.calls()).put_group_config(broker, config)

    async def set_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Commit an offset."""
        await (await self._clients.admin()).groups.commit(group, queue, offset)

    async def clear_topic(self, broker: str, topic: str) -> None:
        """Delete a topic's data at one broker."""
        await (await self._clients.calls()).clear_topic(broker, topic)

    async def unlist_topic(self, topic: str) -> None:
        """Delete a topic at the name servers."""
        await (await self._clients.calls()).unlist_topic(topic)


def log_of(name: str, address: str, runtime: Mapping[str, str], now_ms: int) -> BrokerLog:
    """A broker's log, from its own report (code 28); a disk of 0 bytes if the size is missing."""
    total, free = disk_of(runtime)
    log_min, log_max = (_number(runtime, f"commitLog{end}Offset", 0) for end in ("Min", "Max"))
    earliest = _number(runtime, "earliestMessageTimeStamp", 0)
    return BrokerLog(
        name,
        address.rpartition(":")[0],
        CleaningRules(),
        LogSample(now_ms, log_min, max(log_min, log_max), total, free),
        earliest,
    )


def disk_of(runtime: Mapping[str, str]) -> tuple[int, int]:
    """Bytes of a broker's disk, total and free, to a tenth of their units; zeros if missing."""
    match = _SIZES.search(runtime.get("commitLogDirCapacity", ""))
    if match is None or match[2] not in UNITS or match[4] not in UNITS:
        return 0, 0
    total, free = (round(float(match[n]) * (1 << UNITS[match[n + 1]])) for n in (1, 3))
    return total, min(free, total)


def rules_of(settings: Mapping[str, str]) -> CleaningRules:
    """A broker's retention rules from its settings (code 26); RocketMQ's defaults for missing ones."""
    number, default = partial(_number, settings), CleaningRules()
    try:
        hours = parse_hours("deleteWhen", settings.get("deleteWhen", "04"))
    except SettingsError:
        hours = default.delete_hours
    return CleaningRules(
        number("fileReservedTime", default.reserved_hours),
        hours,
        number("diskMaxUsedSpaceRatio", default.used_max),
        settings.get("cleanFileForciblyEnable", "true") == "true",
        number("diskSpaceCleanForciblyRatio", default.forcibly_above),
        number("diskSpaceWarningLevelRatio", default.refuse_above),
        number("mappedFileSizeCommitLog", FILE_BYTES) or FILE_BYTES,
    )


def _number(table: Mapping[str, str], name: str, default: int) -> int:
    text = table.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX else default
