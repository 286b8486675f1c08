"""What the services of upkeep ask clusters: brokers' disks and logs, whole tables, and who is about to lose
messages; and the few changes that repairs make.

An interface and its implementation on the client's public names: it works with Apache's brokers as well.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

from sparrowmq import aio
from sparrowmq.coordinator.cluster.asking import each
from sparrowmq.coordinator.upkeep.landscape import BrokerTables, Ends, Landscape, Loss, Use
from sparrowmq.coordinator.upkeep.logs import FILE_BYTES, BrokerLog, Held, Rules, Sample, Sight
from sparrowmq.core.clock import Clock
from sparrowmq.core.errors import NoRouteError, SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import DLQ_PREFIX
from sparrowmq.core.settings_text import parse_hours
from sparrowmq.protocol.bodies import SubscriptionGroupConfig, TopicConfig

TABLES_SECONDS: Final = 60.0
"""How long one look at all tables or all groups may take."""
HOUR_MS: Final = 3_600_000
BROADCASTING: Final = "BROADCASTING"
DIGITS_MAX: Final = 18
UNITS: Final = {"B": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40, "PiB": 50, "EiB": 60}
_SIZES: Final = re.compile(r"Total : ([\d.]+) (\w+), Free : ([\d.]+) (\w+)")


class SurveyView(Protocol):
    """What the services of upkeep look at, and what repairs do."""

    async def disks(self) -> Sight:
        """Every broker's log, disk and rules."""

    async def losses(self, before_ms: Mapping[str, int]) -> tuple[list[Loss], dict[str, str]]:
        """Unread messages stored before a time, by broker name; and why groups could not be looked at."""

    async def landscape(self, *, ends: bool = True) -> Landscape:
        """All tables of all brokers and name servers; without `ends` those of queues are left out."""

    async def use(self) -> Use:
        """Who sends to and reads from what."""

    async def put_topic(self, broker: str, config: TopicConfig) -> None:
        """Make or change a topic at one broker."""

    async def put_group(self, broker: str, config: SubscriptionGroupConfig) -> None:
        """Make or change a group at one broker."""

    async def set_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Commit an offset."""

    async def clear_topic(self, broker: str, topic: str) -> None:
        """Have one broker forget what it has of a topic."""

    async def unlist_topic(self, topic: str) -> None:
        """Have the name servers forget a topic."""

    async def close(self) -> None:
        """Let go of the connections."""


class Survey:
    """The clusters behind name servers. Connects when first asked; raises the `SparrowError` of whoever lists
    brokers, topics or groups.
    """

    def __init__(self, namesrv: str, clock: Clock) -> None:
        self._namesrv = namesrv
        self._clock = clock
        self._admin: aio.Admin | None = None
        self._starting = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Survey {self._namesrv}>"

    async def close(self) -> None:
        """Let go of the connections. Idempotent."""
        admin, self._admin = self._admin, None
        if admin is not None:
            await admin.close()

    # Disks and logs

    async def disks(self) -> Sight:
        """Every broker's log, disk and rules."""
        admin = await self._started()
        holds = defaultdict(list)
        for hold in await admin.holds():
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
            rules = rules_of(await admin.broker_settings(status.address))
            return replace(log, rules=rules, holds=tuple(holds[name]))

        there = {one.address: one for one in await admin.broker_list()}
        found = await each(there, look, failed)
        return Sight(sorted(found.values(), key=lambda one: one.name), failed)

    async def losses(self, before_ms: Mapping[str, int]) -> tuple[list[Loss], dict[str, str]]:
        """Unread messages stored before a time, by broker name; and why groups could not be looked at."""
        admin = await self._started()
        failed: dict[str, str] = {}

        async def look(group: str) -> list[Loss]:
            found: defaultdict[tuple[str, str], int] = defaultdict(int)
            for place in await admin.group_progress(group):
                queue, before = place.queue, before_ms.get(place.queue.broker_name)
                if before is None or place.lag <= 0 or queue.topic.startswith(DLQ_PREFIX):
                    continue
                gone = min(await admin.offset_at(queue, before), place.broker_offset)
                if gone > place.consumer_offset:
                    first = max(place.consumer_offset, await admin.offset_at(queue, 0))
                    found[queue.topic, queue.broker_name] += max(0, gone - first)
            return [Loss(group, topic, broker, count) for (topic, broker), count in found.items() if count]

        groups = await each(await admin.group_list(), look, failed, seconds=TABLES_SECONDS)
        return [loss for name in sorted(groups) for loss in sorted(groups[name])], failed

    # Tables

    async def landscape(self, *, ends: bool = True) -> Landscape:
        """All tables of all brokers and name servers. A broker that does not answer is in `failed`."""
        admin = await self._started()
        info = await admin.cluster_info()
        masters = {name for name, broker in info.brokers.items() if broker.master is not None}
        failed = {name: f"{name} has no master now" for name in info.brokers if name not in masters}

        async def look(name: str) -> BrokerTables:
            topics = await admin.broker_topics(name)
            groups, offsets = await admin.broker_groups(name), await admin.stored_offsets(name)
            cluster = next((one for one, names in info.clusters.items() if name in names), "")
            return BrokerTables(name, cluster, topics.configs, topics.static, groups, offsets)

        found = await each(masters, look, failed, seconds=TABLES_SECONDS)
        listed = await admin.listed_topics()
        read = {
            queue.topic
            for tables in found.values()
            for offsets in tables.offsets.values()
            for queue in offsets
            if queue.topic in tables.topics
        }
        found_ends, troubles = await self._ends(read if ends else ())
        hidden = frozenset((*info.brokers, *info.clusters, *(f"{one}_REPLY_TOPIC" for one in info.clusters)))
        brokers = tuple(found[name] for name in sorted(found))
        return Landscape(brokers, listed, found_ends, hidden, failed | troubles)

    async def use(self) -> Use:
        """Who sends to and reads from what."""
        admin = await self._started()
        ends, failed = await self._ends(await admin.topic_list())
        progress: Counter[str] = Counter()

        async def add(broker: str) -> None:
            for offsets in (await admin.stored_offsets(broker)).values():
                for queue, offset in offsets.items():
                    progress[queue.topic] += offset

        brokers = (await admin.cluster_info()).brokers
        await each((name for name, one in brokers.items() if one.master), add, failed, seconds=TABLES_SECONDS)
        readers: defaultdict[str, dict[str, int]] = defaultdict(dict)

        async def look(group: str) -> bool:
            connections = await admin.group_connections(group)
            for topic in connections.subscriptions if connections else ():
                assert connections is not None
                readers[topic][group] = (
                    0 if connections.message_model == BROADCASTING else len(connections.members)
                )
            return connections is not None

        groups = await each(await admin.group_list(), look, failed, seconds=TABLES_SECONDS)
        return Use(ends, dict(readers), dict(progress), groups, failed)

    async def _ends(self, topics: Iterable[str]) -> tuple[dict[str, list[Ends]], dict[str, str]]:
        admin = await self._started()
        failed: dict[str, str] = {}

        async def look(topic: str) -> list[Ends]:
            return [
                Ends(one.queue, one.min_offset, one.max_offset, one.last_update_ms)
                for one in await admin.topic_status(topic)
            ]

        return await each(topics, look, failed, seconds=TABLES_SECONDS), failed

    # Repairs

    async def put_topic(self, broker: str, config: TopicConfig) -> None:
        """Make or change a topic at one broker."""
        await (await self._started()).put_topic_config(broker, config)

    async def put_group(self, broker: str, config: SubscriptionGroupConfig) -> None:
        """Make or change a group at one broker."""
        await (await self._started()).put_group_config(broker, config)

    async def set_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Commit an offset."""
        await (await self._started()).commit(group, queue, offset)

    async def clear_topic(self, broker: str, topic: str) -> None:
        """Have one broker forget what it has of a topic."""
        await (await self._started()).clear_topic(broker, topic)

    async def unlist_topic(self, topic: str) -> None:
        """Have the name servers forget a topic."""
        await (await self._started()).unlist_topic(topic)

    # Inside

    async def _started(self) -> aio.Admin:
        async with self._starting:
            if self._admin is None:
                admin = aio.Admin(namesrv=self._namesrv)
                await admin.start()
                self._admin = admin
            return self._admin


def log_of(name: str, address: str, runtime: Mapping[str, str], now_ms: int) -> BrokerLog:
    """A broker's log by what it tells about itself (code 28); a disk of 0 bytes where it does not say."""
    total, free = disk_of(runtime)
    log_min, log_max = (_number(runtime, f"commitLog{end}Offset", 0) for end in ("Min", "Max"))
    earliest = _number(runtime, "earliestMessageTimeStamp", 0)
    return BrokerLog(
        name,
        address.rpartition(":")[0],
        Rules(),
        Sample(now_ms, log_min, max(log_min, log_max), total, free),
        earliest,
    )


def disk_of(runtime: Mapping[str, str]) -> tuple[int, int]:
    """Bytes of a broker's disk, in all and free, to a tenth of their units; zeros when it does not tell."""
    match = _SIZES.search(runtime.get("commitLogDirCapacity", ""))
    if match is None or match[2] not in UNITS or match[4] not in UNITS:
        return 0, 0
    total, free = (round(float(match[n]) * (1 << UNITS[match[n + 1]])) for n in (1, 3))
    return total, min(free, total)


def rules_of(settings: Mapping[str, str]) -> Rules:
    """A broker's rules by its settings (code 26); RocketMQ's defaults for what it does not tell."""
    number, default = partial(_number, settings), Rules()
    try:
        hours = parse_hours("deleteWhen", settings.get("deleteWhen", "04"))
    except SettingsError:
        hours = default.delete_hours
    return Rules(
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
