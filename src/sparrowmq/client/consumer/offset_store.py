"""Consumer offsets of a group: in memory, and where they are saved (client:D.13).

With clustering they are saved at the brokers, because another member may get the queue; with broadcasting in
a local file, because every member reads everything. Users may provide their own store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from sparrowmq.client.base.offset_store_protocol import Births, MemoryOffsets, OffsetStore, births_of
from sparrowmq.client.base.settings import ConsumerSettings, PullSettings
from sparrowmq.client.cluster.broker_api import GenerationOf, need_address
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.core.errors import BrokerError, ClientError, JavaJsonError, SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.java_json import dumps_object_keys, loads, queue_of_key

log = logging.getLogger("sparrowmq.client")

__all__ = [
    "BrokerOffsetStore",
    "LocalOffsetStore",
    "OffsetStore",
    "births_of",
    "forget_deleted",
    "local_path",
    "store_of",
]

FILE_NAME: Final = "offsets.json"


def store_of(
    settings: ConsumerSettings | PullSettings,
    instance: ClientInstance,
    group: str,
    generation_of: GenerationOf,
) -> OffsetStore:
    """The user's store, or else by model: a local file for broadcasting, the brokers otherwise
    (client:D.2-7).
    """
    if settings.offset_store is not None:
        return settings.offset_store
    if settings.model == "broadcasting":
        return LocalOffsetStore(local_path(settings.offset_dir, instance.client_id, group))
    return BrokerOffsetStore(instance, group, generation_of)


class BrokerOffsetStore(MemoryOffsets):
    """Offsets of `group`, stored at the brokers. Commits carry a queue's generation in a managed group."""

    def __init__(self, instance: ClientInstance, group: str, generation_of: GenerationOf) -> None:
        super().__init__()
        self._instance = instance
        self._group = group
        self._generation_of = generation_of
        self._started: dict[MessageQueue, int] = {}
        """Start offsets of queues, or confirmed offsets: a refused commit up to these loses nothing."""
        self.refused = 0
        """Number of commits that brokers refused because the queue had moved to another member."""

    def __repr__(self) -> str:
        return f"<BrokerOffsetStore {self._group!r} queues={len(self._offsets)}>"

    async def load(self) -> None:
        """Does nothing: brokers are asked per queue."""

    async def read(self, queue: MessageQueue) -> int | None:
        """The group's stored offset, or None. Also stores it in memory. Raises `SparrowError`."""
        address = await self._address(queue)
        brokers = self._instance.brokers
        offset = await brokers.query_offset(address, self._group, queue, births=self.births)
        if offset is not None:
            self.set(queue, offset)
            self._started[queue] = offset
        return offset

    def forget(self, queue: MessageQueue) -> None:
        """Drop the offset in memory."""
        super().forget(queue)
        self._started.pop(queue, None)

    def begun(self, queue: MessageQueue, offset: int) -> None:
        """Record the start offset of a queue of a managed group: a refused commit up to it is not late."""
        self._started[queue] = offset

    async def persist(self, queues: Iterable[MessageQueue], *, confirmed: bool = False) -> bool:
        """Send the offsets in memory to the brokers, one-way unless `confirmed`. Returns whether all were
        sent.

        Unchanged offsets are sent too, because one-way requests can get lost. Failures are logged and sent
        again next time. A refusal because of another member's generation is only counted.
        """
        known = self._known(queues)
        sent = await asyncio.gather(*(self._send(queue, offset, confirmed) for queue, offset in known))
        return all(sent)

    async def persist_all(self, queues: Collection[MessageQueue]) -> bool:
        """Send the offsets of `queues` and forget all others; does nothing without queues."""
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
                generation=self._generation_of(queue),
                birth=self.births.get(queue),
            )
        except SparrowError as error:
            if isinstance(error, BrokerError) and error.code == ResponseCode.GENERATION_FENCED:
                if offset != self._started.get(queue):
                    self.refused += 1
                    text = "offset %d of group %s in %s was committed too late: %s"
                    log.warning(text, offset, self._group, queue, error)
                return True
            log.warning(
                "offset %d of group %s in %s is not committed yet: %s", offset, self._group, queue, error
            )
            return False
        if confirmed:
            self._started[queue] = offset
        return True

    async def _address(self, queue: MessageQueue) -> str:
        """The master, or else, after a route refresh, any broker of that name (client:D-76)."""
        address = await self._instance.master_of(queue)
        return need_address(address or self._instance.routes.readable(queue.broker_name), queue, "broker")


async def forget_deleted(store: OffsetStore, queue: MessageQueue) -> None:
    """Forget the offset of a queue whose topic was deleted. Brokers have forgotten it with the topic; other
    stores begin at 0 again, like a topic that is created with the same name.
    """
    if not isinstance(store, BrokerOffsetStore):
        births_of(store).pop(queue, None)
        store.freeze(queue, 0)
        await store.persist([queue], confirmed=True)
    store.forget(queue)


def local_path(directory: Path | str | None, client_id: str, group: str) -> Path:
    """The file of a broadcasting member, as in RocketMQ's Java client (client:D-70).

    `directory` is by default `.rocketmq_offsets` in the user's home.
    """
    base = Path.home() / ".rocketmq_offsets" if directory is None else Path(directory)
    return base / client_id / group / FILE_NAME


class LocalOffsetStore(MemoryOffsets):
    """Offsets in a file in the format of RocketMQ's Java client, with the previous content in `.bak`. Java's
    client ignores their births, which stand beside them.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._writing = asyncio.Lock()
        self._kept: dict[MessageQueue, int] = {}
        self._kept_births: Births = {}

    def __repr__(self) -> str:
        return f"<LocalOffsetStore {str(self._path)!r} queues={len(self._kept)}>"

    async def load(self) -> None:
        """Read the file into memory, or `.bak` when it is missing or broken (client:D-71, D-72).

        Raises `ClientError` when `.bak` is broken as well.
        """
        self._kept, self._kept_births = await asyncio.to_thread(read_offsets, self._path)
        self._offsets.update(self._kept)
        self.births.update(self._kept_births)

    async def read(self, queue: MessageQueue) -> int | None:
        """The offset in the file; also stores it in memory (client:D-73)."""
        offset = self._kept.get(queue)
        if offset is not None:
            self.set(queue, offset)
            if queue in self._kept_births:
                self.births[queue] = self._kept_births[queue]
        return offset

    async def persist(self, queues: Iterable[MessageQueue], *, confirmed: bool = False) -> bool:
        """Write the offsets of `queues` to the file; other offsets in it are kept (client:D-72)."""
        async with self._writing:
            known = dict(self._known(queues))
            table = {**self._kept, **known}
            births = {queue: birth for queue, birth in self._kept_births.items() if queue not in known}
            births |= {queue: self.births[queue] for queue in known if queue in self.births}
            if table == self._kept and births == self._kept_births:
                return True
            try:
                await asyncio.to_thread(write_offsets, self._path, table, births)
            except OSError as error:
                log.warning("offsets could not be written to %s; retrying: %s", self._path, error)
                return False
            self._kept, self._kept_births = table, births
            return True

    async def persist_all(self, queues: Collection[MessageQueue]) -> bool:
        """The same as `persist`: the queues have no other owner."""
        return await self.persist(queues)


def offsets_text(table: dict[MessageQueue, int], births: Births | None = None) -> bytes:
    """The file's content: one object, in which queues are keys as objects (client:D-70)."""
    tables = [_table_text("offsetTable", table)]
    if births:
        tables.append(_table_text("births", births))
    return b"{" + b",".join(tables) + b"\n}"


def _table_text(name: str, table: dict[MessageQueue, int]) -> bytes:
    rows = (dumps_object_keys({queue: table[queue]})[1:-1] for queue in sorted(table))
    return b'\n\t"%b":{' % name.encode() + b",".join(b"\n\t\t" + row for row in rows) + b"\n\t}"


def parse_offsets(data: bytes) -> tuple[dict[MessageQueue, int], Births]:
    """The offsets in a file's content, as written by any version of the Java client, and their births.
    Negative offsets are left out with a warning: there is no such message. Raises `JavaJsonError`.
    """
    value = loads(data)
    table = value.get("offsetTable") if isinstance(value, dict) else None
    if not isinstance(table, dict):
        raise JavaJsonError("it has no object offsetTable")
    found = {}
    for key, offset in table.items():
        if isinstance(offset, bool) or not isinstance(offset, int):
            raise JavaJsonError(f"the offset of {key[:80]} is {offset!r}, not a number")
        if offset < 0:
            log.warning(
                "the offset %d of %s in an offsets file is ignored: offsets begin at 0", offset, key[:80]
            )
            continue
        found[queue_of_key(key)] = offset
    births = value.get("births")
    numbers = births.items() if isinstance(births, dict) else ()
    return found, {queue_of_key(key): birth for key, birth in numbers if isinstance(birth, int)}


def read_offsets(path: Path) -> tuple[dict[MessageQueue, int], Births]:
    """The offsets in the file at `path`, or else in its `.bak`, and their births; empty when both are
    missing.
    """
    from sparrowmq.files import disk  # only for broadcasting

    backup = path.with_name(path.name + ".bak")
    for candidate in (path, backup):
        try:
            data = disk.read(candidate)
            if data.strip():
                return parse_offsets(data)
        except FileNotFoundError:
            continue
        except (OSError, JavaJsonError) as error:
            if candidate == backup:
                raise ClientError(
                    f"the consumer offsets in {path} and {backup} cannot be read: {error}; repair or "
                    f"remove both files (without them the group starts as consume_from says)",
                    what="offsets",
                    value=path,
                ) from error
            log.warning("the consumer offsets in %s cannot be read; using %s: %s", path, backup, error)
    return {}, {}


def write_offsets(path: Path, table: dict[MessageQueue, int], births: Births | None = None) -> None:
    """Replace the file at `path` durably; the previous content is kept as `.bak`. Raises `OSError`."""
    from sparrowmq.files import disk

    disk.make_directory(path.parent)
    disk.replace(path, offsets_text(table, births), path.with_name(path.name + ".bak"))
