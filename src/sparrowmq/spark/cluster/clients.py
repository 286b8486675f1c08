"""Clients of a Spark process, kept between tasks; keyed by cluster and group, not by queue (spark:P-09).

They belong to the loop they were started on (`loops.event_loop.loop_thread`); a forked child starts with
none. Imports are slow in each new interpreter, so a process imports only the kind of client that it uses. The
import happens where a client is requested, on the caller's thread, before anything is submitted to the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakKeyDictionary

from sparrowmq import aio
from sparrowmq.spark.options.table import MESSAGE_BYTES_MAX, ConnectionOptions, ReadOptions, WriteOptions


class _Client(Protocol):
    """What all clients have in common."""

    async def start(self) -> None:
        """Start the client."""


ClientT = TypeVar("ClientT", bound=_Client)

READER_GROUP: Final = "SPARROW_SPARK"
"""Group name in pulls when there is no `groupId`; no offset is ever committed for it."""
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
    """The settings of every client that come from the options of a read or a write."""
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


def pull_consumer(options: ReadOptions) -> Coroutine[Any, Any, aio.PullConsumer]:
    """A started pull consumer; it is shared, so never close it. Raises whatever starting it raises."""
    return reader(options, options.group_id or READER_GROUP)


def reader(options: ConnectionOptions, group: str = READER_GROUP) -> Coroutine[Any, Any, aio.PullConsumer]:
    """A started pull consumer of a group, for reads and writes; otherwise like `pull_consumer`."""
    given = client_settings(options)
    # It does not join the group: other consumers may share the queues of this group.
    settings = aio.PullSettings(announce=False, **given)
    kind = aio.PullConsumer
    return _client(("pull", group, *given.values()), lambda: kind(group, settings=settings))


def admin(options: ConnectionOptions) -> Coroutine[Any, Any, aio.Admin]:
    """A started admin client; it is shared, so never close it. Raises whatever starting it raises."""
    given = client_settings(options)
    kind, settings = aio.Admin, aio.ClientSettings(**given)
    return _client(("admin", *given.values()), lambda: kind(settings=settings))


def producer(options: WriteOptions) -> Coroutine[Any, Any, aio.Producer]:
    """A started producer; it is shared, so never close it. Raises whatever starting it raises."""
    given = client_settings(options)
    settings = aio.ProducerSettings(
        send_timeout=options.send_timeout,
        retries=options.retries,
        retry_not_stored_ok=False,
        message_bytes_max=MESSAGE_BYTES_MAX,  # the write checks its bodies itself
        **given,
    )
    key, kind = ("producer", options.send_timeout, options.retries, *given.values()), aio.Producer
    return _client(key, lambda: kind(WRITER_GROUP, settings=settings))
