"""Clients of a Spark process, kept between tasks; keyed by cluster and group, not by queue (spark:P-09).

They belong to the loop they were started on (`loop.loop_thread`); a forked child starts with none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from sparrowmq import ProducerSettings, PullSettings
from sparrowmq.aio import Admin, Producer, PullConsumer
from sparrowmq.spark.options import ReadOptions, WriteOptions

ClientT = TypeVar("ClientT", Admin, Producer, PullConsumer)

READER_GROUP: Final = "SPARROW_SPARK"
"""Group named in pulls when there is no `groupId`; nothing is ever committed for it."""
WRITER_GROUP: Final = "SPARROW_SPARK_WRITER"


class _Shared:
    """The started clients of one loop."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.clients: dict[tuple[object, ...], Any] = {}


_of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _Shared] = WeakKeyDictionary()


async def _client(key: tuple[object, ...], make: Callable[[], ClientT]) -> ClientT:
    shared = _of_loop.setdefault(asyncio.get_running_loop(), _Shared())
    async with shared.lock:
        found: ClientT | None = shared.clients.get(key)
        if found is None:
            found = make()
            await found.start()
            shared.clients[key] = found
        return found


async def pull_consumer(options: ReadOptions) -> PullConsumer:
    """A started pull consumer; shared, so never close it. Raises what its start raises."""
    group = options.group_id or READER_GROUP
    # Not a member of the group: it may be one that other consumers share queues in.
    settings = PullSettings(namesrv=options.name_server, announce=False)
    return await _client(("pull", options.name_server, group), lambda: PullConsumer(group, settings=settings))


async def admin(options: ReadOptions) -> Admin:
    """A started admin client; shared, so never close it. Raises what its start raises."""
    return await _client(("admin", options.name_server), lambda: Admin(options.name_server))


async def producer(options: WriteOptions) -> Producer:
    """A started producer; shared, so never close it. Raises what its start raises."""
    settings = ProducerSettings(
        namesrv=options.name_server,
        send_timeout=options.send_timeout,
        retries=options.retries,
        retry_not_stored_ok=False,
    )
    key = ("producer", options.name_server, options.send_timeout, options.retries)
    return await _client(key, lambda: Producer(WRITER_GROUP, settings=settings))


async def close_all() -> None:
    """Close every client of this loop. For tests and for a driver that is done."""
    shared = _of_loop.pop(asyncio.get_running_loop(), None)
    if shared is not None:
        await asyncio.gather(*(_close(client) for client in shared.clients.values()))


def _close(client: Any) -> Awaitable[None]:
    closing: Awaitable[None] = client.close()
    return closing
