"""The two clusters of a mirror, for queries of its driver. Coroutines run on
`loops.event_loop.loop_thread`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from sparrowmq.columnar.decode import decode
from sparrowmq.columnar.schema import arrow_schema
from sparrowmq.core.errors import NoRouteError, SettingsError, SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.results import PullStatus
from sparrowmq.spark.cluster import clients
from sparrowmq.spark.options.table import BULK_BYTES_MAX, ConnectionOptions, ReadOptions
from sparrowmq.spark.pipelines.mirror.group_offsets import OriginPage
from sparrowmq.spark.pipelines.mirror.queue_map import per_broker
from sparrowmq.spark.pipelines.mirror.rows import ORIGIN, Origin, parse_origin

if TYPE_CHECKING:
    from sparrowmq.aio import Admin, PullConsumer

T = TypeVar("T")
CALLS_MAX: Final = 256
"""Maximum concurrent requests to one cluster."""
NAME_SPACE: Final = "SPARROW_MIRROR"
NAME_KEY: Final = "CLUSTER"
"""The key with which a cluster's name servers store its name for mirrors."""
SEEN_SECONDS: Final = 2.0
"""Seconds until a broker must show acknowledged messages at a queue's end."""
_SEEN_PAUSE: Final = 0.02
_ORIGINS: Final = arrow_schema(("queue_offset", "properties"))
_TIMES: Final = arrow_schema(("store_timestamp",))


@dataclass(frozen=True, slots=True)
class Side:
    """One cluster: its name for mirrors, and its connection."""

    name: str
    connection: ReadOptions

    @classmethod
    def of(cls, name: str, options: ConnectionOptions) -> Side:
        """The side of a read's or a write's options."""
        return cls(
            name, ReadOptions(**{one.name: getattr(options, one.name) for one in fields(ConnectionOptions)})
        )

    async def admin(self) -> Admin:
        """A shared client; never close it."""
        return await clients.admin(self.connection)

    async def consumer(self) -> PullConsumer:
        """A shared client; never close it."""
        return await clients.pull_consumer(self.connection)

    async def brokers(self) -> dict[str, str]:
        """The address of every master, by broker."""
        found = (await (await self.admin()).brokers.cluster_info()).brokers
        return {name: broker.master for name, broker in found.items() if broker.master is not None}

    async def ends(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """The next offset of each queue. Raises the broker's errors."""
        return await _each(queues, (await self.consumer()).max_offset)

    async def ends_past(self, least: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Like `ends`; if a queue's end is below `least`, waits briefly for acknowledged messages
        to appear.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SEEN_SECONDS
        found = await self.ends(least)
        while loop.time() < deadline:
            short = [queue for queue, end in found.items() if end < least[queue]]
            if not short:
                break
            await asyncio.sleep(_SEEN_PAUSE)
            found |= await self.ends(short)
        return found

    async def page(self, queue: MessageQueue, start: int, end: int) -> OriginPage:
        """The result of a pull; a `group_offsets.Log`."""
        raw = await (await self.consumer()).fetch_raw(
            queue, start, max_bytes=BULK_BYTES_MAX, max_messages=max(1, end - start)
        )
        if raw.status is PullStatus.FOUND:
            rows = decode(raw.buffer, _ORIGINS, offsets=range(start, max(start, raw.next_offset)))
            texts = pc.map_lookup(rows["properties"], pa.scalar(ORIGIN), "first").to_pylist()
            offsets = rows["queue_offset"].to_pylist()
            return OriginPage(list(zip(offsets, map(parse_origin, texts), strict=True)), raw.next_offset)
        if raw.status is PullStatus.OFFSET_ILLEGAL and start < raw.min_offset:
            return OriginPage((), raw.min_offset)
        return OriginPage((), start)

    async def last_origins(self, ends: Mapping[MessageQueue, int]) -> dict[MessageQueue, Origin | None]:
        """For each queue the origin of the last message before an offset; None if it has none."""

        async def last(queue: MessageQueue) -> Origin | None:
            rows = (await self.page(queue, ends[queue] - 1, ends[queue])).rows
            return rows[0][1] if rows else None

        return await _each(ends, last)

    async def stored_at(self, queue: MessageQueue, offset: int) -> float | None:
        """Epoch seconds at which the message at an offset was stored; None if unknown."""
        try:
            raw = await (await self.consumer()).fetch_raw(queue, offset, max_messages=1)
        except SparrowError:
            return None
        if raw.status is not PullStatus.FOUND:
            return None
        micros = decode(raw.buffer, _TIMES)["store_timestamp"][0].value
        return None if micros is None else float(micros) / 1e6

    async def writable(self, topic: str) -> Sequence[MessageQueue]:
        """The writable queues of a topic; empty if it does not exist."""
        try:
            return await (await self.consumer()).publish_queues(topic)
        except NoRouteError:
            return ()

    async def with_queues(
        self, topic: str, wanted: int, *, create: bool, cluster: str = ""
    ) -> Sequence[MessageQueue]:
        """The topic's writable queues, after it was created or extended to `wanted` queues if `create` is
        set.

        Raises `SettingsError` for a missing topic that must not be created.
        """
        there = await self.writable(topic)
        missing = per_broker(wanted, there, len(await self._masters(cluster)))
        if missing is None or (there and not create):
            return there
        if not create:
            raise SettingsError(
                f"topic {topic!r} does not exist at the target {self.name!r}: create it there, or let the "
                f"mirror do so (create_topics)",
                "create_topics",
                topic,
            )
        await (await self.admin()).topics.create(topic, queues=missing, cluster=cluster or None)
        return await self.writable(topic)

    async def _masters(self, cluster: str) -> list[str]:
        masters = await self.brokers()
        if not cluster:
            return list(masters)
        known = (await (await self.admin()).brokers.cluster_info()).clusters
        if cluster not in known:
            raise SettingsError(
                f"there is no cluster {cluster!r} at the target; the name server knows: "
                f"{', '.join(sorted(known)) or 'none'}",
                "cluster",
                cluster,
            )
        return [name for name in known[cluster] if name in masters]

    async def known_name(self) -> str | None:
        """The name that an earlier mirror stored on the name servers."""
        return await (await self.admin()).name_servers.value(NAME_SPACE, NAME_KEY)

    async def leave_name(self) -> None:
        """Store this side's name on the name servers."""
        await (await self.admin()).name_servers.set_value(NAME_SPACE, NAME_KEY, self.name)


async def _each(
    queues: Iterable[MessageQueue], ask: Callable[[MessageQueue], Awaitable[T]]
) -> dict[MessageQueue, T]:
    gate = asyncio.Semaphore(CALLS_MAX)

    async def one(queue: MessageQueue) -> T:
        async with gate:
            return await ask(queue)

    asked = list(queues)
    return dict(zip(asked, await asyncio.gather(*map(one, asked)), strict=True))


def check_sides(
    sides: Sequence[Side], addresses: Sequence[Mapping[str, str]], names: Sequence[str | None]
) -> None:
    """Raises `SettingsError` if other mirrors use another name for a cluster, or if both sides are the same
    cluster.
    """
    both = set(addresses[0].values()) & set(addresses[1].values())
    if both:
        raise SettingsError(
            f"source and target are the same cluster: both have the broker at {sorted(both)[0]}",
            "target",
            sorted(both)[0],
            other="source",
        )
    for side, name in zip(sides, names, strict=True):
        if name is not None and name != side.name:
            raise SettingsError(
                f"the cluster at {side.connection.name_server} is called {name!r} by other mirrors and "
                f"{side.name!r} here: use one name, or messages would be mirrored in a loop",
                "target" if side is sides[-1] else "source",
                side.name,
                other=name,
            )
