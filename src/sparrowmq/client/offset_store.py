"""Consumer offsets of a group: what was consumed, in memory, and where it is kept (client:D.13).

Clustering keeps them at the brokers, because another member may get the queue; broadcasting in a file of this
machine, because every member reads everything. Users may give a store of their own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final

from sparrowmq.client.instance import ClientInstance
from sparrowmq.client.offsets import MemoryOffsets, OffsetStore
from sparrowmq.client.requests import need_address
from sparrowmq.client.settings import ConsumerSettings, PullSettings
from sparrowmq.core.errors import BrokerError, ClientError, JavaJsonError, SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.java_json import dumps_object_keys, loads, queue_of_key

log = logging.getLogger("sparrowmq.client")

__all__ = ["BrokerOffsetStore", "LocalOffsetStore", "OffsetStore", "local_path", "store_of"]

FILE_NAME: Final = "offsets.json"


def store_of(settings: ConsumerSettings | PullSettings, instance: ClientInstance, group: str) -> OffsetStore:
    """The user's own, else by model: a file of this machine for broadcasting, the brokers (client:D.2-7)."""
    if settings.offset_store is not None:
        return settings.offset_store
    if settings.model == "broadcasting":
        return LocalOffsetStore(local_path(settings.offset_dir, instance.client_id, group))
    return BrokerOffsetStore(instance, group)


class BrokerOffsetStore(MemoryOffsets):
    """Offsets of `group`, kept by the brokers."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        super().__init__()
        self._instance = instance
        self._group = group
        self.generation_of: Callable[[MessageQueue], int | None] = lambda queue: None
        """What commits carry in a managed group."""
        self.started: dict[MessageQueue, int] = {}
        """Where queues were begun, or what brokers confirmed: with no more than that nothing is late."""
        self.refused = 0
        """Commits of results that brokers refused because the queue had gone on to another member."""

    def __repr__(self) -> str:
        return f"<BrokerOffsetStore {self._group!r} queues={len(self._offsets)}>"

    async def load(self) -> None:
        """Nothing: brokers are asked queue by queue."""

    async def read(self, queue: MessageQueue) -> int | None:
        """The group's stored offset, None when there is none. Fills the memory. Raises `SparrowError`."""
        address = await self._address(queue)
        offset = await self._instance.brokers.query_offset(address, self._group, queue)
        if offset is not None:
            self.set(queue, offset)
            self.started[queue] = offset
        return offset

    def forget(self, queue: MessageQueue) -> None:
        """Drop the offset in memory."""
        super().forget(queue)
        self.started.pop(queue, None)

    async def persist(self, queues: Iterable[MessageQueue], *, confirmed: bool = False) -> bool:
        """Send the offsets in memory to the brokers, one-way unless `confirmed`; whether all could be sent.

        Unchanged ones too, because one-way requests can get lost. What failed is logged and sent again next
        time, but for what another member's generation refuses: that is counted, and settled.
        """
        known = self._known(queues)
        sent = await asyncio.gather(*(self._send(queue, offset, confirmed) for queue, offset in known))
        return all(sent)

    async def persist_all(self, queues: Collection[MessageQueue]) -> bool:
        """Send the offsets of `queues` and forget all others; nothing happens when there are none."""
        if not queues:
            return True
        self._forget_others(queues)
        return await self.persist(queues)

    async def _send(self, queue: MessageQueue, offset: int, confirmed: bool) -> bool:
        try:
            address = await self._address(queue)
            await self._instance.brokers.update_offset(
                address,
                self._group,
                queue,
                offset,
                oneway=not confirmed,
                generation=self.generation_of(queue),
            )
        except SparrowError as error:
            if isinstance(error, BrokerError) and error.code == ResponseCode.GENERATION_FENCED:
                if offset != self.started.get(queue):
                    self.refused += 1
                    text = "offset %d of group %s in %s came too late: %s"
                    log.warning(text, offset, self._group, queue, error)
                return True
            log.warning(
                "offset %d of group %s in %s is not committed yet: %s", offset, self._group, queue, error
            )
            return False
        if confirmed:
            self.started[queue] = offset
        return True

    async def _address(self, queue: MessageQueue) -> str:
        """The master, else after a look at the route any broker of that name (client:D-76)."""
        routes = self._instance.routes
        address = routes.master(queue.broker_name)
        if address is None:
            await self._instance.update_route(queue.topic)
            address = routes.readable(queue.broker_name)
        return need_address(address, queue, "broker")


def local_path(directory: Path | str | None, client_id: str, group: str) -> Path:
    """The file of a broadcasting member, as RocketMQ's Java client has it (client:D-70).

    `directory` is by default `.rocketmq_offsets` in the user's home.
    """
    base = Path.home() / ".rocketmq_offsets" if directory is None else Path(directory)
    return base / client_id / group / FILE_NAME


class LocalOffsetStore(MemoryOffsets):
    """Offsets in a file in the format of RocketMQ's Java client, with the content before in `.bak`."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._writing = asyncio.Lock()
        self._kept: dict[MessageQueue, int] = {}

    def __repr__(self) -> str:
        return f"<LocalOffsetStore {str(self._path)!r} queues={len(self._kept)}>"

    async def load(self) -> None:
        """Read the file into memory, or `.bak` when it is missing or broken (client:D-71, D-72).

        Raises `ClientError` when that is broken as well.
        """
        self._kept = await asyncio.to_thread(read_offsets, self._path)
        self._offsets.update(self._kept)

    async def read(self, queue: MessageQueue) -> int | None:
        """What the file has; fills the memory (client:D-73)."""
        offset = self._kept.get(queue)
        if offset is not None:
            self.set(queue, offset)
        return offset

    async def persist(self, queues: Iterable[MessageQueue], *, confirmed: bool = False) -> bool:
        """Put the offsets of `queues` into the file; what it has of others stays (client:D-72)."""
        async with self._writing:
            table = {**self._kept, **dict(self._known(queues))}
            if table == self._kept:
                return True
            try:
                await asyncio.to_thread(write_offsets, self._path, table)
            except OSError as error:
                log.warning("offsets could not be written to %s, which is tried again: %s", self._path, error)
                return False
            self._kept = table
            return True

    async def persist_all(self, queues: Collection[MessageQueue]) -> bool:
        """The same as `persist`: nobody else has the queues."""
        return await self.persist(queues)


def offsets_text(table: dict[MessageQueue, int]) -> bytes:
    """The file's content: one object, in which queues are keys as objects (client:D-70)."""
    rows = (dumps_object_keys({queue: table[queue]})[1:-1] for queue in sorted(table))
    return b'{\n\t"offsetTable":{' + b",".join(b"\n\t\t" + row for row in rows) + b"\n\t}\n}"


def parse_offsets(data: bytes) -> dict[MessageQueue, int]:
    """The offsets in a file's content, whichever of Java's versions wrote it. Raises `JavaJsonError`."""
    value = loads(data)
    table = value.get("offsetTable") if isinstance(value, dict) else None
    if not isinstance(table, dict):
        raise JavaJsonError("there is no object offsetTable")
    found = {}
    for key, offset in table.items():
        if isinstance(offset, bool) or not isinstance(offset, int):
            raise JavaJsonError(f"the offset of {key[:80]} is {offset!r}, not a number")
        found[queue_of_key(key)] = offset
    return found


def read_offsets(path: Path) -> dict[MessageQueue, int]:
    """The offsets in the file at `path`, else in its `.bak`; none when there is neither."""
    backup = path.with_name(path.name + ".bak")
    for candidate in (path, backup):
        try:
            data = candidate.read_bytes()
            if data.strip():
                return parse_offsets(data)
        except FileNotFoundError:
            continue
        except (OSError, JavaJsonError) as error:
            if candidate == backup:
                raise ClientError(
                    f"the consumer offsets in {path} and {backup} cannot be read: {error}; mend or remove "
                    "both files (without them the group starts where consume_from says)"
                ) from error
            log.warning("the consumer offsets in %s cannot be read, taking %s: %s", path, backup, error)
    return {}


def write_offsets(path: Path, table: dict[MessageQueue, int]) -> None:
    """Replace the file at `path`, keeping what it had as `.bak`. Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    backup = path.with_name(path.name + ".bak")
    if path.exists():
        _replace(backup, path.read_bytes())
    _replace(path, offsets_text(table))


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(data)
    temporary.replace(path)
