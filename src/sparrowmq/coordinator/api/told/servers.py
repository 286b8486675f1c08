"""Routes of one server: clients and copies of a broker, and the content of a name server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from fastapi import APIRouter

from sparrowmq import aio
from sparrowmq.coordinator.api.cluster import explorer, known_broker, server_settings, told
from sparrowmq.coordinator.api.shared import Answer, ApiCaller, Who
from sparrowmq.coordinator.cluster.explorer import Servers, asked
from sparrowmq.coordinator.users.roles import RoleRight
from sparrowmq.core.errors import RefusedError, SparrowError
from sparrowmq.core.figures.bounds import told_bounds
from sparrowmq.core.settings.text import without_secrets

router = APIRouter(prefix="/cluster", tags=["cluster"])
CLIENTS_SECONDS: Final = 15.0
"""One request for each group of the broker, eight at a time."""
DIFFERENCES_MAX: Final = 200
REPLICATION_UNKNOWN: Final[Mapping[str, Any]] = {
    "is_master": None,
    "end": None,
    "copies_in_sync": None,
    "slaves": (),
    "master": "",
    "heard_ms": 0,
}


@router.get("/servers/{address}/clients")
async def broker_clients(address: str, who: Who) -> Answer:
    """The clients that are connected to a broker, with their groups; `address` is its name or HOST:PORT.

    `producers_known` is false for brokers before 4.9.3; `groups_left` is the number of groups that were not
    requested, because there are too many.
    """
    who.need(RoleRight.READ)
    admin, name = await explorer(who).admin(), await known_broker(who, address)
    found = await explorer(who).one_of("clients", name, lambda: clients_of(admin, name))
    clients = [
        {
            "client_id": one.client_id, "address": one.address, "language": one.language,
            "version": one.version, "consumes": list(one.consumes), "produces": list(one.produces),
        }
        for one in found.clients
    ]  # fmt: skip
    return {
        "clients": clients,
        "producers_known": found.producers_known,
        "groups_left": found.groups_left,
    }


async def clients_of(admin: aio.Admin, broker: str) -> aio.BrokerClients:
    """Raises `RefusedError`."""
    return await asked(admin.brokers.clients(broker), CLIENTS_SECONDS)


@router.get("/servers/{address}/bounds")
async def server_bounds(address: str, who: Who) -> list[Answer]:
    """The bounds of a broker, and how much of each is used: connections and their memory, topics, queues,
    groups, members, pulls that wait. Empty for Apache's brokers, which do not report them.
    """
    who.need(RoleRight.READ)
    admin, name = await explorer(who).admin(), await known_broker(who, address)
    return [
        one._asdict()
        for one in told_bounds(await told(who, "runtime", name, lambda: admin.brokers.info(name)))
    ]


@router.get("/servers/{address}/replication")
async def server_replication(address: str, who: Who) -> Answer:
    """The connected slaves of a master, or the master of a slave, and what sends wait for.

    `known` is false for brokers that do not report it (before 5.0). `copies_in_sync` counts the broker
    itself. `replica` is null of brokers of RocketMQ: its state (SERVING, FENCED, CHANGING, FOLLOWING,
    WAITING), why a slave waits, the epoch of its role, and whether somebody else decides about that.
    """
    who.need(RoleRight.READ)
    admin, name = await explorer(who).admin(), await known_broker(who, address)
    status = await told(who, "replication", name, lambda: admin.brokers.replication(name))
    replica = await told(who, "replica", name, lambda: _replica(who, admin, name))
    known = await server_settings(address, who)
    settings = {key: known.get(key) for key in ("brokerRole", "inSyncReplicas", "minInSyncReplicas")}
    if status is None:
        return {"known": False, **REPLICATION_UNKNOWN, "settings": settings, "replica": replica}
    return {
        "known": True,
        "is_master": status.is_master,
        "end": status.end,
        "copies_in_sync": 1 + sum(one.in_sync for one in status.slaves) if status.is_master else None,
        "slaves": [asdict(one) for one in status.slaves],
        "master": status.master,
        "heard_ms": status.heard_ms,
        "settings": settings,
        "replica": replica,
    }


async def _replica(who: ApiCaller, admin: aio.Admin, name: str) -> Answer | None:
    """The state of a SparrowMQ broker as a replica."""
    servers = (await explorer(who).servers()).brokers
    address = next(one.address for one in servers if name in (one.address, one.broker))
    try:
        found = await admin.replicas.state(address)
    except SparrowError:
        return None
    return {
        "state": found.state,
        "trouble": found.trouble,
        "epoch": found.epoch,
        "is_managed": found.is_managed,
    }


@router.get("/name-servers/{address}")
async def show_name_server(address: str, who: Who) -> Answer:
    """The content of one name server, its settings without passwords, how much of its bounds is used (empty
    for Apache's), and how it differs from the other name servers: topics that it alone lacks or lists, at
    most `DIFFERENCES_MAX` of each.
    """
    who.need(RoleRight.READ)
    known = await explorer(who).servers()
    if all(one.address != address for one in known.name_servers):
        text = f"there is no name server {address[:64]!r}; list all servers to see them"
        raise RefusedError(text, status=404)
    admin = await explorer(who).admin()
    mine = await asked(admin.name_servers.status(address))
    listed = await asked(admin.name_servers.topics())
    others = {topic for at, topics in listed.items() if at != address for topic in topics}
    lacks, alone = sorted(others - mine.topics), sorted(mine.topics - others) if len(listed) > 1 else []
    return {
        "address": address,
        "topics": len(mine.topics),
        "brokers": registered(mine, known),
        "lacks": lacks[:DIFFERENCES_MAX],
        "lacks_count": len(lacks),
        "alone": alone[:DIFFERENCES_MAX],
        "alone_count": len(alone),
        "bounds": [one._asdict() for one in told_bounds(mine.runtime)],
        "settings": None if mine.settings is None else dict(sorted(without_secrets(mine.settings).items())),
    }


def registered(mine: aio.NameServerStatus, known: Servers) -> list[Answer]:
    """The broker processes that a name server lists, and those that only others list. Pure."""
    here: Mapping[str, tuple[str, int]] = {
        address: (name, number) for name, one in mine.brokers.items() for number, address in one.items()
    }
    there = {one.address: (one.broker, one.broker_id) for one in known.brokers}
    return [
        {
            "broker": (here.get(at) or there[at])[0],
            "broker_id": (here.get(at) or there[at])[1],
            "address": at,
            "listed": at in here,
        }
        for at in sorted({*here, *there})
    ]
