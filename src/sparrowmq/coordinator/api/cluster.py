"""Routes of the current cluster: brokers, name servers, topics, groups, and changes of topics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any, Final, Literal, TypeVar

from fastapi import APIRouter, Query
from pydantic import Field

from sparrowmq import aio
from sparrowmq.coordinator.api.acting import Change, carry_out
from sparrowmq.coordinator.api.shared import Answer, ApiCaller, Reason, Who
from sparrowmq.coordinator.api.told.answering import shown
from sparrowmq.coordinator.cluster.explorer import Explorer, Lagging, asked
from sparrowmq.coordinator.cluster.offsets import unread
from sparrowmq.coordinator.cluster.topic_facts import NORMAL, kind_of, topic_view
from sparrowmq.coordinator.groups.moves import is_moved, named
from sparrowmq.coordinator.groups.resets import UNDO, ResetTarget
from sparrowmq.coordinator.users.roles import RoleRight
from sparrowmq.core.dynamic_settings import SettingPlace, SettingScope
from sparrowmq.core.errors import InvalidNameError, RefusedError, SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.settings.live import check_live, live_settings
from sparrowmq.core.settings.text import without_secrets
from sparrowmq.core.stalls import KEY_COUNT, KEY_LAST, told_stalls
from sparrowmq.protocol.bodies import TopicConfig

router = APIRouter(prefix="/cluster", tags=["cluster"])
T = TypeVar("T")
NAME_CHARS_MAX = 255
QUEUES_MAX = 65_535
SLOW: Final = 3.0
"""What changes seldom or takes many requests may be so many times as old as the rest of an open page."""
TYPES = {"CONSUME_PASSIVELY": "push", "CONSUME_ACTIVELY": "pull", "CONSUME_POP": "pop"}
"""How members of a group get messages, as brokers report it."""
Name = Annotated[str, Field(max_length=NAME_CHARS_MAX)]


class TopicChange(Reason):
    """The settings of a topic: queues at each broker, permissions (2 write, 4 read, 6 both, 0 neither), and
    the cluster (default: all). What is left out stays as it is; a new topic gets 8 queues and 6. `type` is
    that of its messages, which gRPC proxies check; a new topic without one is NORMAL. `exists` is whether the
    caller expects the topic to exist: 409 if it does not match.
    """

    queues: int = Field(default=8, ge=1, le=QUEUES_MAX)
    perm: int = Field(default=6, ge=0, le=7)
    cluster: str | None = Field(default=None, max_length=NAME_CHARS_MAX)
    type: Literal["NORMAL", "FIFO", "DELAY", "TRANSACTION"] | None = None
    exists: bool | None = None


class ServerChange(Reason):
    """New values by setting name, and the values that the caller saw."""

    changes: dict[str, Annotated[str, Field(max_length=200)]] = Field(min_length=1, max_length=50)
    expected: dict[str, str] = Field(default_factory=dict, max_length=50)


@router.get("/servers")
async def list_servers(who: Who) -> Answer:
    """Brokers with rates, disks and errors, and name servers with the topics they list."""
    who.need(RoleRight.READ)
    found = await explorer(who).servers()
    return {
        "looked_ms": found.looked_ms,
        "brokers": [asdict(one) for one in found.brokers],
        "name_servers": [asdict(one) for one in found.name_servers],
    }


@router.get("/servers/{address}/settings")
async def server_settings(address: str, who: Who) -> dict[str, str]:
    """The settings a broker runs with, by name, without passwords; `address` is its name or HOST:PORT."""
    who.need(RoleRight.READ)
    admin, name = await explorer(who).admin(), await known_broker(who, address)
    found = await told(who, "settings", name, lambda: admin.brokers.settings(name), SLOW)
    return dict(sorted(without_secrets(found).items()))


@router.get("/servers/{address}/changeable")
async def changeable_settings(address: str, who: Who) -> list[Answer]:
    """The settings that can change while a broker runs: value, range, default and meaning of each.

    Settings that the broker does not report are left out.
    """
    who.need(RoleRight.READ)
    found = await server_settings(address, who)
    return [
        {
            "name": row.name,
            "value": found[row.name],
            "range": row.range_text,
            "default": str(row.default),
            "help": row.help,
        }
        for row in live_settings()
        if row.name in found
    ]


@router.patch("/servers/{address}/settings")
async def change_server(address: str, body: ServerChange, who: Who) -> dict[str, str]:
    """Change settings of a running broker: all of them or none. SparrowMQ's brokers keep the new values until
    they stop; their files do not change. `expected` are the values that the caller saw: 409 when they differ.
    """
    name = await _name_of(who, address)
    thing = ("broker", name)
    who.need(RoleRight.OPERATE)
    changes = checked_settings(body.changes)
    settings = await server_settings(address, who)
    before = {one: settings.get(one, "") for one in changes}
    if any(before.get(one, value) != value for one, value in body.expected.items()):
        raise RefusedError(f"settings of {name} were changed meanwhile; look again", status=409)
    admin = await explorer(who).admin()
    change = Change("broker.settings", thing, {"address": address} | before, changes, reason=body.reason)
    await carry_out(who, change, lambda: asked(admin.brokers.set_settings(address, changes)))
    return changes


@router.get("/servers/{address}/stalls")
async def server_stalls(address: str, who: Who, longest: bool = False) -> Answer:
    """The stalls of a SparrowMQ broker: times of 50 ms or more in which it served no other client. `known` is
    false for other brokers.
    """
    who.need(RoleRight.READ)
    admin, name = await explorer(who).admin(), await known_broker(who, address)
    info = await told(who, "runtime", name, lambda: admin.brokers.info(name))
    if KEY_LAST not in info:
        return {"known": False, "count": 0, "stalls": []}
    stalls = [stall.to_dict() for stall in told_stalls(info, longest=longest)]
    return {"known": True, "count": int(info.get(KEY_COUNT, "0")), "stalls": stalls}


@router.get("/disks")
async def list_disks(who: Who) -> Answer:
    """Every broker's disk and log, its deletion times, and the errors of those that could not be checked."""
    who.need(RoleRight.READ)
    found = await explorer(who).disks()
    logs = [
        {
            "broker": log.name,
            "host": log.host,
            "total_bytes": log.now.total,
            "free_bytes": log.now.free,
            "log_bytes": log.now.log_max - log.now.log_min,
            "oldest_ms": log.earliest_ms,
            "reserved_hours": log.rules.reserved_hours,
        }
        for log in found.sight.logs
    ]
    return {"looked_ms": found.looked_ms, "disks": logs, "failed": dict(found.sight.failed)}


@router.get("/lag")
async def list_lag(who: Who) -> Answer:
    """The lag of every group: waiting messages, and the store time of the oldest.

    `messages` is null for a group that could not be checked (`error` says why), and for one that has no
    offsets yet. `oldest_ms` is null if it is unknown since when messages wait, and 0 if none wait.
    """
    who.need(RoleRight.READ)
    found = await explorer(who).lags()
    return {"looked_ms": found.looked_ms, "groups": await shown(found.groups, lag_view)}


@router.get("/topics")
async def list_topics(who: Who, system: bool = False) -> Answer:
    """All topics of all brokers; retry, dead letter and RocketMQ's own only with `system`."""
    who.need(RoleRight.READ)
    found = await explorer(who).tables()
    topics: Sequence[Mapping[str, Any]] = found.listed
    if not system:
        hidden = found.land.hidden
        topics = [one for one in topics if one["kind"] == NORMAL and one["topic"] not in hidden]
    return {"looked_ms": found.looked_ms, "topics": topics, "failed": dict(found.land.failed)}


@router.get("/topics/{topic}")
async def show_topic(topic: str, who: Who) -> Answer:
    """A topic: its settings at each broker, its queues with their messages, and messages a second
    by broker.
    """
    who.need(RoleRight.READ)
    configs = await explorer(who).known_topic(topic)
    admin = await explorer(who).admin()
    queues = await told(who, "queues", topic, lambda: admin.topics.status(topic))
    return {
        **topic_view(topic, configs),
        "at": {name: config_view(one) for name, one in configs.items()},
        "queues": await shown(queues, queue_view),
        "stored_per_second": await told(who, "rates", topic, lambda: _rates(admin, sorted(configs), topic)),
    }


@router.get("/topics/{topic}/groups")
async def topic_groups(topic: str, who: Who) -> list[Answer]:
    """The groups that have offsets in a topic, or members that read it, with the total lag of each."""
    who.need(RoleRight.READ)
    admin = await explorer(who).admin()
    names = await told(who, "groups", topic, lambda: admin.topics.groups(topic))
    known = {one.group: one for one in (await explorer(who).lags()).groups}
    return await shown(names, lambda name: lag_view(known.get(name) or Lagging(name, None, None)))


@router.put("/topics/{topic}")
async def put_topic(topic: str, body: TopicChange, who: Who) -> Answer:
    """Create a topic on all masters, or change it."""
    thing = ("topic", topic)
    who.need(RoleRight.EDIT, thing)
    explores = explorer(who)
    configs = await explores.topic(topic)
    if body.exists is not None and body.exists != (configs is not None):
        word = "exists already" if configs is not None else "no longer exists"
        raise RefusedError(f"the topic {topic[:255]} {word}; reload and try again", status=409)
    before = None if configs is None else {name: config_view(one) for name, one in configs.items()}
    new = configs is None
    given = {name: getattr(body, name) for name in ("queues", "perm") if new or name in body.model_fields_set}
    queues, perm = given.get("queues"), given.get("perm")
    after = {"queues": queues, "perm": perm, "cluster": body.cluster, "type": body.type}
    # `queues` alone takes none away from a topic that there is
    how: dict[str, Any] = dict.fromkeys(("queues",) if new else ("read_queues", "write_queues"), queues)
    how |= {"perm": perm, "cluster": body.cluster}
    if body.type is not None:
        how["attributes"] = {"message.type": body.type}
    admin = await explores.admin()

    async def act() -> None:
        await asked(admin.topics.create(topic, **how))

    action = "topic.create" if configs is None else "topic.change"
    await carry_out(who, Change(action, thing, before, after, reason=body.reason), act)
    explores.forget()
    return {"topic": topic, **after}


@router.get("/topics/{topic}/removal")
async def preview_removal(topic: str, who: Who) -> Answer:
    """What is deleted with a topic: its messages, and the offsets of its groups."""
    who.need(RoleRight.READ)
    return await removal(explorer(who), topic)


@router.delete("/topics/{topic}")
async def delete_topic(topic: str, who: Who, reason: Annotated[str, Query(max_length=500)] = "") -> Answer:
    """Delete a topic with its messages at all brokers and name servers."""
    thing = ("topic", topic)
    who.need(RoleRight.OPERATE, thing)
    explores = explorer(who)
    if is_inner(topic):
        raise RefusedError(f"the topic {topic[:255]} is RocketMQ's own and cannot be deleted", status=422)
    before = await removal(explores, topic)
    admin = await explores.admin()
    change = Change("topic.delete", thing, before, None, reason=reason)
    await carry_out(who, change, lambda: asked(admin.topics.delete(topic)))
    explores.forget()
    return {}


@router.get("/groups/{group}")
async def show_group(group: str, who: Who) -> Answer:
    """A group at the brokers, managed or not: its offset in each queue, and the online members with their
    queues.

    `queues` of a member is null if it does not report them. `online` is false if no member is; `type` (push,
    pull, pop) and `model` are null then. `configs` are the group's settings by broker. Brokers do not list
    clients of a gRPC proxy and SimpleConsumers: `delivered_per_second`, the rate of the last minute when
    nobody is online, tells whether such clients read. Of a group that pops, offsets are those of messages
    handed out.
    """
    who.need(RoleRight.READ)
    admin = await explorer(who).admin()
    progress = await told(who, "progress", group, lambda: admin.groups.progress(group))
    firsts = await asked(explorer(who).firsts.of(admin, progress))
    connections = await told(who, "connections", group, lambda: admin.groups.connections(group))
    reports = await told(who, "members", group, lambda: admin.groups.status(group, seconds=1.5), SLOW)
    known = {one.client_id: one for one in reports}
    members = connections.members if connections is not None else []
    rate = None if connections else await told(who, "rate", group, lambda: admin.groups.rate(group))
    return {
        "group": group,
        "online": connections is not None,
        "type": None
        if connections is None
        else TYPES.get(connections.consume_type, connections.consume_type),
        "model": connections.message_model if connections is not None else None,
        "configs": await _configs(who, group),
        "delivered_per_second": rate,
        "subscriptions": {
            name: one.expression for name, one in (connections.subscriptions if connections else {}).items()
        },
        "queues": await shown(progress, partial(progress_view, firsts=firsts)),
        "members": [member_view(one, known.get(one.client_id)) for one in members],
    }


async def _configs(who: ApiCaller, group: str) -> dict[str, Answer]:
    """A group's settings by broker; empty if the tables are not known yet."""
    try:
        land = (await explorer(who).tables()).land
    except RefusedError:
        return {}
    return {
        broker.name: {
            "retries": one.retry_max_times,
            "consume": one.consume_enable,
            "orderly": one.consume_message_orderly,
        }
        for broker in land.brokers
        if (one := broker.groups.get(group)) is not None
    }


@router.get("/groups/{group}/progress")
async def group_progress(group: str, who: Who) -> list[Answer]:
    """A group's offset in each queue; its members are not asked."""
    who.need(RoleRight.READ)
    admin = await explorer(who).admin()
    progress = await asked(admin.groups.progress(group))
    firsts = await asked(explorer(who).firsts.of(admin, progress))
    return await shown(progress, partial(progress_view, firsts=firsts))


@router.get("/groups/{group}/reset-preview")
async def preview_reset(
    group: str,
    who: Who,
    place: Annotated[str, Query(max_length=440)],
    to: Annotated[str | None, Query(max_length=8)] = None,
    offset: int | None = None,
    time_ms: int | None = None,
) -> list[Answer]:
    """What a reset would do in each queue: the group's current offset, its new offset, and the number of
    messages that it would receive again or skip. Nothing is changed. Give one of `to` (first, last), `offset`
    and `time_ms`.
    """
    who.need(RoleRight.READ)
    return await reset_steps(who, group, place_of(place), ResetTarget.of(to, offset, time_ms))


async def reset_steps(who: ApiCaller, group: str, place: SettingPlace, target: ResetTarget) -> list[Answer]:
    """The effect of a reset in each queue. Raises `RefusedError` (404) if it moves none."""
    admin, topic = await explorer(who).admin(), place.topic
    queues = [one for one in await asked(admin.topics.status(topic)) if is_moved(place, target, one.queue)]
    if not queues:
        raise RefusedError(f"{place} does not match any queue of the topic {topic}", status=404)
    places = {
        one.queue: one.consumer_offset
        for one in await asked(admin.groups.progress(group))
        if one.queue.topic == topic
    }
    found = []
    for one in queues:
        after = await _aim(admin, one, target)
        found.append(step_view(one, places.get(one.queue), after))
    return found


# Views


def lag_view(one: Lagging) -> Answer:
    """A group's lag, as the API shows it."""
    return {
        "group": one.group,
        "messages": one.messages,
        "oldest_ms": one.oldest_ms,
        "queues": one.queues,
        "topics": list(one.topics),
        "error": one.error,
    }


def config_view(one: TopicConfig) -> Answer:
    """A topic at one broker."""
    return {
        "read_queues": one.read_queue_nums,
        "write_queues": one.write_queue_nums,
        "perm": one.perm,
        "order": one.order,
        "attributes": dict(one.attributes),
    }


def queue_view(one: aio.QueueStatus) -> Answer:
    """A queue and its stored messages."""
    return {
        "broker": one.queue.broker_name,
        "queue": one.queue.queue_id,
        "first": one.min_offset,
        "next": one.max_offset,
        "messages": one.messages,
        "last_ms": one.last_update_ms,
    }


def progress_view(one: aio.QueueProgress, firsts: Mapping[MessageQueue, int]) -> Answer:
    """A group's offset in a queue. Messages that were deleted before it read them are `lost`, not `lag`."""
    return {
        "topic": one.queue.topic,
        "broker": one.queue.broker_name,
        "queue": one.queue.queue_id,
        "offset": one.consumer_offset,
        "next": one.broker_offset,
        "lag": unread(one, firsts),
        "lost": max(0, one.lag) - unread(one, firsts),
        "in_flight": one.in_flight,
        "consumed_ms": one.last_timestamp_ms,
    }


def member_view(one: aio.GroupMemberInfo, told: aio.MemberStatus | None) -> Answer:
    """An online member, and its report about itself."""
    info = told.info if told is not None else None
    return {
        "client_id": one.client_id,
        "address": one.address,
        "language": one.language,
        "version": one.version,
        "queues": None if info is None else [str(queue) for queue in sorted(info.queues)],
        "error": told.error if told is not None else None,
    }


def step_view(one: aio.QueueStatus, before: int | None, after: int) -> Answer:
    """The effect of a reset on one queue. If the group has no offset, the number of repeated messages is
    unknown.
    """
    return {
        "broker": one.queue.broker_name,
        "queue": one.queue.queue_id,
        "first": one.min_offset,
        "next": one.max_offset,
        "before": before,
        "after": after,
        "again": None if before is None else max(0, before - after),
        "never": None if before is None else max(0, after - max(before, one.min_offset)),
    }


def is_inner(topic: str) -> bool:
    """Whether RocketMQ creates the topic, not users. Pure."""
    return kind_of(topic) != NORMAL


def place_of(text: str) -> SettingPlace:
    """A topic or queue. Raises `RefusedError` (422)."""
    try:
        place = SettingPlace.parse(text)
    except (SettingsError, InvalidNameError) as error:
        raise RefusedError(str(error), status=422) from None
    if place.scope is SettingScope.GROUP:
        raise RefusedError("name a topic or queue: TOPIC, TOPIC/QUEUE or TOPIC/BROKER/QUEUE", status=422)
    return place


# Inside


def explorer(who: ApiCaller) -> Explorer:
    """The explorer that queries the cluster."""
    return who.context.explorer


async def told(
    who: ApiCaller, what: str, name: str, ask: Callable[[], Awaitable[T]], patience: float = 1.0
) -> T:
    """The answer of brokers about one thing, as old as the caller takes it: `patience` times that.

    Raises `RefusedError`.
    """
    return await asked(explorer(who).one_of(what, name, ask, patience * who.patience_seconds))


async def removal(explores: Explorer, topic: str) -> dict[str, Any]:
    """Related values of a topic."""
    admin = await explores.admin()
    queues = await asked(admin.topics.status(topic))
    groups = await asked(admin.topics.groups(topic))
    return {"messages": sum(one.messages for one in queues), "queues": len(queues), "groups": groups}


async def known_broker(who: ApiCaller, address: str) -> str:
    """An address or name that a broker has. Raises `RefusedError` (404): requests are only sent to
    brokers.
    """
    for one in (await explorer(who).servers()).brokers:
        if address == one.address or (address == one.broker and one.broker_id == 0):
            return address
    raise RefusedError(f"there is no broker {address[:64]!r}; list all to see them", status=404)


async def _name_of(who: ApiCaller, address: str) -> str:
    """The name of the broker at an address. Raises `RefusedError` (404)."""
    known = await known_broker(who, address)
    servers = (await explorer(who).servers()).brokers
    return next(one.broker for one in servers if known in (one.address, one.broker))


def checked_settings(changes: Mapping[str, str]) -> dict[str, str]:
    """Settings that can be changed. Raises `RefusedError` (422) with the range."""
    try:
        return {name: check_live(name, text) for name, text in changes.items()}
    except SettingsError as error:
        raise RefusedError(str(error), status=422) from None


async def _rates(admin: aio.Admin, brokers: list[str], topic: str) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for name in brokers:
        try:
            rates = await asked(admin.brokers.stats(name, "TOPIC_PUT_NUMS", topic), 2.0)
        except RefusedError:
            found[name] = None
        else:
            found[name] = 0.0 if rates is None else rates.minute.per_second
    return found


async def _aim(admin: aio.Admin, one: aio.QueueStatus, target: ResetTarget) -> int:
    """Where a queue would resume."""
    if target.kind == "first":
        return one.min_offset
    if target.kind == "last":
        return one.max_offset
    if target.kind in ("offset", UNDO):
        return min(max(target.offset(named(one.queue)), one.min_offset), one.max_offset)
    return await asked(admin.topics.search_offset(one.queue, target.number))
