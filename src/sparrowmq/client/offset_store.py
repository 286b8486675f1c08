"""Consumer offsets of a group: what was consumed, in memory, and its way to the brokers (client:D.13)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from sparrowmq.client.instance import ClientInstance
from sparrowmq.client.requests import need_address
from sparrowmq.core.errors import SparrowError
from sparrowmq.core.message import MessageQueue

log = logging.getLogger("sparrowmq.client")


class BrokerOffsetStore:
    """Offsets of `group` by queue: the next one to consume. Kept by the brokers, cached here."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._offsets: dict[MessageQueue, int] = {}

    def __repr__(self) -> str:
        return f"<BrokerOffsetStore {self._group!r} queues={len(self._offsets)}>"

    def get(self, queue: MessageQueue) -> int | None:
        """The offset in memory."""
        return self._offsets.get(queue)

    def advance(self, queue: MessageQueue, offset: int) -> None:
        """Raise the offset in memory; it is never lowered by this."""
        if offset > self._offsets.get(queue, -1):
            self._offsets[queue] = offset

    def set(self, queue: MessageQueue, offset: int) -> None:
        """Set the offset in memory, wherever it was."""
        self._offsets[queue] = offset

    def forget(self, queue: MessageQueue) -> None:
        """Drop the offset in memory."""
        self._offsets.pop(queue, None)

    async def read(self, queue: MessageQueue) -> int | None:
        """The group's stored offset, None when there is none. Fills the memory. Raises `SparrowError`."""
        address = await self._address(queue)
        offset = await self._instance.brokers.query_offset(address, self._group, queue)
        if offset is not None:
            self._offsets[queue] = offset
        return offset

    async def persist(self, queues: Iterable[MessageQueue], *, confirmed: bool = False) -> bool:
        """Send the offsets in memory to the brokers, one-way unless `confirmed`; whether all could be sent.

        Unchanged ones too, because one-way requests can get lost. What failed is logged and sent again next
        time.
        """
        known = [(queue, offset) for queue in queues if (offset := self._offsets.get(queue)) is not None]
        sent = await asyncio.gather(*(self._send(queue, offset, confirmed) for queue, offset in known))
        return all(sent)

    async def _send(self, queue: MessageQueue, offset: int, confirmed: bool) -> bool:
        try:
            address = await self._address(queue)
            await self._instance.brokers.update_offset(
                address, self._group, queue, offset, oneway=not confirmed
            )
        except SparrowError as error:
            log.warning(
                "offset %d of group %s in %s is not committed yet: %s", offset, self._group, queue, error
            )
            return False
        return True

    async def _address(self, queue: MessageQueue) -> str:
        """The master, else after a look at the route any broker of that name (client:D-76)."""
        routes = self._instance.routes
        address = routes.master(queue.broker_name)
        if address is None:
            await self._instance.update_route(queue.topic)
            address = routes.readable(queue.broker_name)
        return need_address(address, queue, "broker")
