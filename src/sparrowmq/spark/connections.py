"""Clients of a Spark process, kept between tasks; keyed by cluster and group, not by queue (spark:P-09).

They belong to the loop they were started on (`loop.loop_thread`); a forked child starts with none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from sparrowmq import ClientSettings, ProducerSettings, PullSettings
from sparrowmq.aio import Admin, Producer, PullConsumer
from sparrowmq.spark.options import ConnectionOptions, ReadOptions, WriteOptions

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


def client_settings(options: ConnectionOptions) -> dict[str, Any]:
    """What every client's settings take from the options of a read or a write."""
    return {
        "namesrv": options.name_server,
        "access_key": options.access_key,
        "secret_key": options.secret_key,
        "security_token": options.security_token,
        "tls": options.tls,
        "tls_ca": options.tls_ca,
        "tls_cert": options.tls_cert,
        "tls_key": options.tls_key,
        "tls_key_password": options.tls_key_password,
        "tls_verify": options.tls_verify,
    }


async def pull_consumer(options: ReadOptions) -> PullConsumer:
    """A started pull consumer; shared, so never close it. Raises what its start raises."""
    group = options.group_id or READER_GROUP
    given = client_settings(options)
    # Not a member of the group: it may be one that other consumers share queues in.
    return await _client(
        ("pull", group, *given.values()),
        lambda: PullConsumer(group, settings=PullSettings(announce=False, **given)),
    )


async def admin(options: ConnectionOptions) -> Admin:
    """A started admin client; shared, so never close it. Raises what its start raises."""
    given = client_settings(options)
    return await _client(("admin", *given.values()), lambda: Admin(settings=ClientSettings(**given)))


async def producer(options: WriteOptions) -> Producer:
    """A started producer; shared, so never close it. Raises what its start raises."""
    given = client_settings(options)
    settings = ProducerSettings(
        send_timeout=options.send_timeout, retries=options.retries, retry_not_stored_ok=False, **given
    )
    key = ("producer", options.send_timeout, options.retries, *given.values())
    return await _client(key, lambda: Producer(WRITER_GROUP, settings=settings))


async def close_all() -> None:
    """Close every client of this loop. For tests and for a driver that is done."""
    shared = _of_loop.pop(asyncio.get_running_loop(), None)
    if shared is not None:
        await asyncio.gather(*(_close(client) for client in shared.clients.values()))


def _close(client: Any) -> Awaitable[None]:
    closing: Awaitable[None] = client.close()
    return closing
