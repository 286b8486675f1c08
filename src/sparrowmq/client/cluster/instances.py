"""The client instances of this process by client id, one table per event loop (client:A.2)."""

from __future__ import annotations

import asyncio
import logging
import weakref
from typing import Final

from sparrowmq.client.base.settings import ClientSettings
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.core.errors import ClientError

log = logging.getLogger("sparrowmq.client")

_tables: Final[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, ClientInstance]]] = (
    weakref.WeakKeyDictionary()
)


def shared_instance(settings: ClientSettings, *, stream: bool = False) -> ClientInstance:
    """The instance for the client id of these settings, newly created if there is none.

    Each client without `instance_name` gets its own. Clients with the same name (and address and unit) share
    connections, routes and heartbeats; the settings and request hooks of the first apply. Every caller must
    close it once. Raises `ClientError` when the existing one uses other name servers: its routes would be
    those of another cluster (client:A-09).
    """
    if settings.instance_name is None:
        return ClientInstance(settings, stream=stream)
    table = _tables.setdefault(asyncio.get_running_loop(), {})
    made = ClientInstance(settings, stream=stream)
    existing = table.get(made.client_id)
    if existing is None:
        table[made.client_id] = made
        made.on_close.append(lambda: _forget(table, made))
        return made
    _check_agrees(existing, made)
    existing.hold()
    return existing


def _forget(table: dict[str, ClientInstance], instance: ClientInstance) -> None:
    table.pop(instance.client_id, None)


def _check_agrees(existing: ClientInstance, asked: ClientInstance) -> None:
    wanted, known = asked.name_servers.origin, existing.name_servers.origin
    if wanted != known:
        raise ClientError(
            f"the client {existing.client_id} uses the name servers {';'.join(sorted(known))} and cannot "
            f"use {';'.join(sorted(wanted))} as well; give the clients of the other cluster another "
            f"instance_name or unit_name",
            what="name_server",
            value=wanted,
            limit=known,
        )
    if asked.hooks.rpc != existing.hooks.rpc:
        log.warning(
            "the client %s exists; it keeps the request hooks that it was created with", existing.client_id
        )
