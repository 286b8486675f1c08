"""Queries of users about a cluster through the API: brokers, topics, groups with their lag, and a few
changes.

Queries of the whole cluster are shared by all callers, and made only on demand. A caller waits for a limited
time, then gets the previous result. It also works with Apache's brokers.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar

from sparrowmq import aio
from sparrowmq.coordinator.cluster.asking import D, SharedAnswer
from sparrowmq.coordinator.cluster.bodies.body_schemas import BodySchemas
from sparrowmq.coordinator.cluster.offsets import GroupOffsets
from sparrowmq.coordinator.cluster.resends import Resends
from sparrowmq.coordinator.cluster.room import Room
from sparrowmq.coordinator.cluster.survey import SurveyView, disk_of
from sparrowmq.coordinator.cluster.tails import Tails
from sparrowmq.coordinator.cluster.topic_facts import topic_view
from sparrowmq.coordinator.cluster.view import ClusterView, GroupPosition
from sparrowmq.coordinator.upkeep.landscape import Landscape
from sparrowmq.coordinator.upkeep.logs import DiskSurvey
from sparrowmq.core.clock import Clock
from sparrowmq.core.errors import BrokerError, NoRouteError, RefusedError, SparrowError
from sparrowmq.core.settings.servers import split_addresses
from sparrowmq.protocol.bodies import TopicConfig

T = TypeVar("T")
FRESH_SECONDS: Final = 5.0
"""Maximum age of a shared query of all brokers or tables."""
TABLES_FRESH_SECONDS: Final = 15.0
"""Maximum age of tables and disks. Changes by users make the tables outdated at once."""
MISS_SECONDS: Final = 2.0
"""Maximum age of tables that do not have a topic."""
LAG_FRESH_SECONDS: Final = 10.0
"""Maximum age of a shared query of all offsets of groups, which is more expensive."""
HISTORY_SECONDS: Final = 12.0
"""Maximum age of the offsets that it is computed from: those of the service `history`, which leads in this or
another process, are used before brokers are asked again."""
REST: Final = 20.0
"""Share of time for queries that users cause, a twentieth: in very large clusters they are less frequent, but
at least every 30 seconds."""
WAIT_SECONDS: Final = 1.5
"""How long a caller waits for a query of everything."""
PRODUCER_GROUP: Final = "sparrow-coordinator"
"""Producer group for messages that users send."""
LOOKS_MAX: Final = 6
LOOKS_OF_ONE: Final = 3
"""Maximum number of concurrent queries of messages for all users, and for one: each may take 40 MiB."""
LOOK_WAIT_SECONDS: Final = 5.0
EXPORTS_MAX: Final = 2
EXPORTS_OF_ONE: Final = 1
"""Maximum number of concurrent exports of all users, and of one."""
EXPORT_WAIT_SECONDS: Final = 2.0
"""How long another export waits: the one before it may have reached its reader but not ended yet."""
SHARED_MAX: Final = 200
"""Maximum number of kept results of queries about single things."""
SILENT_NAMED: Final = 5
"""Brokers that an error names."""
ASK_SECONDS: Final = 10.0
"""Timeout of a query about one thing."""


@dataclass(frozen=True, slots=True)
class Lagging:
    """The lag of a group: waiting messages, and the store time of the oldest of them.

    None means unknown: `messages` if the group could not be queried (`error` says why) or has no offsets yet,
    `oldest_ms` also if messages wait and not all of their queues report since when. If nothing waits,
    `oldest_ms` is 0.
    """

    group: str
    messages: int | None
    oldest_ms: int | None
    queues: int = 0
    topics: Sequence[str] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class Lags:
    """All groups, from a query that began at `looked_ms`."""

    groups: Sequence[Lagging]
    looked_ms: int
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class BrokerNow:
    """One broker process, from its own report; missing values are None. Rates are messages per second over
    the last ten seconds; sizes are bytes. `error` says why there is no report.
    """

    cluster: str
    broker: str
    broker_id: int
    address: str
    version: str | None = None
    stored_per_second: float | None = None
    delivered_per_second: float | None = None
    disk_total: int | None = None
    disk_free: int | None = None
    log_bytes: int | None = None
    log_end: int | None = None
    behind_bytes: int | None = None
    """Of a slave: how far its log is behind that of its master; None if one of them is not known."""
    error: str = ""


@dataclass(frozen=True, slots=True)
class NameServerNow:
    """One name server of the settings, and how many topics it lists; None when it did not answer."""

    address: str
    topics: int | None


@dataclass(frozen=True, slots=True)
class Servers:
    """All brokers and name servers, from a query that began at `looked_ms`."""

    brokers: Sequence[BrokerNow]
    name_servers: Sequence[NameServerNow]
    looked_ms: int
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Tables:
    """Topics and groups of all brokers; `topics` are configurations by topic and broker.

    `listed` are the topics as lists show them, by name: made once for all callers, who do not change them.
    """

    land: Landscape
    looked_ms: int
    at: float = 0.0
    topics: Mapping[str, Mapping[str, TopicConfig]] = field(default_factory=dict)
    listed: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class Disks:
    """Logs, disks and retention rules of all brokers."""

    sight: DiskSurvey
    looked_ms: int
    at: float = 0.0


class Explorer:
    """The cluster of some name servers, for users.

    Connects on first use. Failed queries raise `RefusedError`: 404 if the object does not exist, 502 with a
    server's error, 503 if there was no answer in time.
    """

    def __init__(
        self,
        offsets: GroupOffsets,
        cluster: ClusterView,
        survey: SurveyView,
        clock: Clock,
        schemas: BodySchemas | None = None,
    ) -> None:
        self.schemas = schemas or BodySchemas({})
        self._offsets = offsets
        self._cluster = cluster
        self._survey = survey
        self._clock = clock
        self._clients = offsets.clients
        monotonic = clock.monotonic
        self._lags = SharedAnswer(self._look_at_lag, monotonic, rest=REST)
        self._servers = SharedAnswer(self._look_at_servers, monotonic, rest=REST)
        self._tables = SharedAnswer(self._look_at_tables, monotonic, rest=REST)
        self._disks = SharedAnswer(self._look_at_disks, monotonic, rest=REST)
        self._shared: dict[tuple[str, str], tuple[float, asyncio.Future[Any]]] = {}
        self.looks = Room("looks at messages", LOOKS_MAX, LOOKS_OF_ONE, LOOK_WAIT_SECONDS, 2)
        self.exports = Room("exports", EXPORTS_MAX, EXPORTS_OF_ONE, EXPORT_WAIT_SECONDS, 10)
        self.tails = Tails(self.admin, self.reader, clock, self.looks)
        self.resends = Resends(self.admin, clock)
        self.firsts = offsets.firsts

    def __repr__(self) -> str:
        return f"<Explorer {self._clients.namesrv}>"

    async def close(self) -> None:
        """Cancel running queries and close the connections. Idempotent."""
        for look in (self._lags, self._servers, self._tables, self._disks):
            await look.close()
        for _, task in list(self._shared.values()):
            task.cancel()
        await asyncio.gather(*(task for _, task in self._shared.values()), return_exceptions=True)
        await self.resends.close()
        await self.tails.close()
        await self._offsets.close()
        await self._clients.close()

    # Everything

    async def lags(self) -> Lags:
        """The lag of every group, in messages and time."""
        return await _recent(self._lags, LAG_FRESH_SECONDS, "the offsets of all groups")

    async def servers(self) -> Servers:
        """Every broker and name server."""
        return await _recent(self._servers, FRESH_SECONDS, "the brokers and name servers")

    async def tables(self) -> Tables:
        """Every topic and group of all brokers."""
        return await _recent(self._tables, TABLES_FRESH_SECONDS, "the topics and groups of all brokers")

    async def topic(self, name: str) -> Mapping[str, TopicConfig] | None:
        """A topic's configuration by broker; None if no broker has it."""
        found = (await self.tables()).topics.get(name)
        if found is None:
            found = (await _recent(self._tables, MISS_SECONDS, "the topics of all brokers")).topics.get(name)
        return found

    async def known_topic(self, name: str) -> Mapping[str, TopicConfig]:
        """A topic's configuration by broker. Raises `RefusedError`: 404 if no broker has it, 503 if a broker
        that may have it did not answer.
        """
        found = await self.topic(name)
        if found is not None:
            return found
        silent = sorted((await self.tables()).land.failed)
        if silent:
            text = (
                f"no broker that answered has the topic {name[:255]!r}, and {len(silent)} did not answer: "
                f"{', '.join(silent[:SILENT_NAMED])}; try again"
            )
            raise RefusedError(text, status=503, what="topic", value=name)
        raise RefusedError(f"no broker has the topic {name[:255]!r}; list all to see them", status=404)

    async def disks(self) -> Disks:
        """Every broker's log, disk and retention rules."""
        return await _recent(self._disks, TABLES_FRESH_SECONDS, "the disks of all brokers")

    def forget(self) -> None:
        """Make the next call query the tables again, because something was changed."""
        self._tables.forget()

    # One thing

    async def one_of(
        self,
        what: str,
        name: str,
        ask: Callable[[], Awaitable[T]],
        fresh_seconds: float = LAG_FRESH_SECONDS,
    ) -> T:
        """The result of `ask()`, a query about one thing, shared by all callers for a while; not shared with
        `fresh_seconds` 0.

        At most `SHARED_MAX` results are kept; the oldest goes. Raises its errors.
        """
        if fresh_seconds <= 0:
            return await ask()
        now = self._clock.monotonic()
        kept = self._shared.get((what, name))
        if kept is not None and now - kept[0] < fresh_seconds:
            return await asyncio.shield(kept[1])
        while len(self._shared) >= SHARED_MAX:
            _, old = self._shared.pop(next(iter(self._shared)))
            old.cancel()
        self._shared.pop((what, name), None)
        task = asyncio.ensure_future(ask())
        task.add_done_callback(lambda done: self._settled((what, name), done))
        self._shared[what, name] = now, task
        return await asyncio.shield(task)

    def _settled(self, key: tuple[str, str], task: asyncio.Future[Any]) -> None:
        """Do not keep an error."""
        kept = self._shared.get(key)
        if (task.cancelled() or task.exception() is not None) and kept is not None and kept[1] is task:
            del self._shared[key]

    async def admin(self) -> aio.Admin:
        """The admin client."""
        return await asked(self._clients.admin())

    async def reader(self) -> aio.PullConsumer:
        """A consumer without group, which reads by offset and commits nothing."""
        return await asked(self._clients.reader())

    async def producer(self) -> aio.Producer:
        """The producer for messages that users write."""
        return await asked(self._clients.producer(PRODUCER_GROUP))

    async def _look_at_lag(self) -> Lags:
        at, now = self._clock.monotonic(), self._clock.now_ms()
        seen = await self._cluster.places(ages=True, fresh_seconds=HISTORY_SECONDS)
        known = [lagging(group, places) for group, places in seen.places.items()]
        failed = [Lagging(group, None, None, error=why) for group, why in seen.failed.items()]
        return Lags(sorted([*known, *failed], key=lambda one: one.group), now, at)

    async def _look_at_servers(self) -> Servers:
        at, now, admin = self._clock.monotonic(), self._clock.now_ms(), await self._clients.admin()
        counts = await self.one_of("name servers", "", partial(_counted, admin))
        reports = await self._offsets.brokers(FRESH_SECONDS)
        brokers = behind_masters([broker_now(status) for status in reports.brokers])
        addresses = sorted({*split_addresses(self._clients.namesrv), *counts})
        return Servers(brokers, [NameServerNow(one, counts.get(one)) for one in addresses], now, at)

    async def _look_at_tables(self) -> Tables:
        at, now = self._clock.monotonic(), self._clock.now_ms()
        land = await self._survey.landscape(ends=False, offsets=False)
        return await asyncio.to_thread(tables_of, land, now, at)

    async def _look_at_disks(self) -> Disks:
        at, now = self._clock.monotonic(), self._clock.now_ms()
        return Disks(await self._survey.disks(), now, at)


async def asked(answer: Awaitable[T], seconds: float = ASK_SECONDS) -> T:
    """A server's answer, within the timeout. Raises `RefusedError` instead of any `SparrowError`."""
    try:
        async with asyncio.timeout(seconds):
            return await answer
    except RefusedError:
        raise
    except NoRouteError as error:
        raise RefusedError(str(error), status=404) from error
    except BrokerError as error:
        raise RefusedError(str(error), status=502) from error
    except SparrowError as error:
        raise RefusedError(str(error), status=503 if error.retryable else 422) from error
    except TimeoutError:
        raise RefusedError(
            f"nobody answered within {seconds:g} s; try again", status=503, limit=seconds
        ) from None


async def _counted(admin: aio.Admin) -> dict[str, int]:
    """How many topics each name server lists."""
    return {address: len(topics) for address, topics in (await admin.name_servers.topics()).items()}


async def _recent(look: SharedAnswer[D], fresh_seconds: float, what: str) -> D:
    """The result of a query if it ends in time, else the previous result."""
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            return await asked(look.get(fresh_seconds), WAIT_SECONDS + 1)
    except TimeoutError:
        if look.last is not None:
            return look.last
        text = f"{what} are not known yet: they are being read for the first time; try again"
        raise RefusedError(text, status=503, what=what) from None


def lagging(group: str, places: Sequence[GroupPosition]) -> Lagging:
    """The lag of a group, from its offsets in queues; unknown without offsets, since its first member decides
    where it begins. Pure.
    """
    if not places:
        return Lagging(group, None, None)
    behind = [one for one in places if one.lag > 0]
    oldest: int | None = min((one.oldest_ms for one in behind), default=0)
    if behind and not oldest:
        oldest = None
    topics = tuple(sorted({one.queue.topic for one in places}))
    return Lagging(group, sum(one.lag for one in behind), oldest, len(places), topics)


def broker_now(status: aio.BrokerStatus) -> BrokerNow:
    """A broker, from its own report (code 28). Pure."""
    told = status.runtime
    total, free = disk_of(told)
    first, end = _number(told, "commitLogMinOffset"), _number(told, "commitLogMaxOffset")
    return BrokerNow(
        cluster=status.cluster,
        broker=status.broker_name,
        broker_id=status.broker_id,
        address=status.address,
        version=told.get("brokerVersionDesc"),
        stored_per_second=rate_of(told, "putTps"),
        delivered_per_second=rate_of(told, "getTransferredTps"),
        disk_total=total or None,
        disk_free=free if total else None,
        log_bytes=None if first is None or end is None else max(0, end - first),
        log_end=end,
        error=status.error or "",
    )


def behind_masters(brokers: Sequence[BrokerNow]) -> list[BrokerNow]:
    """Brokers with how far slaves are behind, by the ends of the logs that both reported. Pure."""
    ends = {(one.cluster, one.broker): one.log_end for one in brokers if one.broker_id == 0}
    found = []
    for one in brokers:
        end = ends.get((one.cluster, one.broker))
        if one.broker_id and end is not None and one.log_end is not None:
            one = replace(one, behind_bytes=max(0, end - one.log_end))
        found.append(one)
    return found


def rate_of(told: Mapping[str, str], name: str) -> float | None:
    """The first of the three rates of a key, over ten seconds; None if missing. Pure."""
    try:
        found = float(told.get(name, "").split(" ")[0])
    except ValueError:
        return None
    return found if 0.0 <= found < 1e12 else None


def _number(told: Mapping[str, str], name: str) -> int | None:
    text = told.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else None


def tables_of(land: Landscape, looked_ms: int, at: float) -> Tables:
    """The tables of all brokers by topic, and as a list. Pure; for 100,000 topics it takes a second."""
    topics = by_topic(land)
    listed = [topic_view(name, topics[name]) for name in sorted(topics)]
    return Tables(land, looked_ms, at, topics, listed)


def by_topic(land: Landscape) -> dict[str, dict[str, TopicConfig]]:
    """Configurations by topic and broker. Pure."""
    found: defaultdict[str, dict[str, TopicConfig]] = defaultdict(dict)
    for broker in land.brokers:
        for name, config in broker.topics.items():
            found[name][broker.name] = config
    return dict(found)
