"""Routes of messages: search by id, key, offset or time, and the JSON form of messages."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query

from sparrowmq.coordinator.api.cluster import explorer
from sparrowmq.coordinator.api.shared import Answer, Who
from sparrowmq.coordinator.api.told.answering import look
from sparrowmq.coordinator.cluster.bodies import unpacking
from sparrowmq.coordinator.cluster.bodies.body_schemas import BodySchemas
from sparrowmq.coordinator.cluster.explorer import asked
from sparrowmq.coordinator.cluster.lives import is_place
from sparrowmq.coordinator.cluster.looking import BYTES_MAX, COUNT_MAX, by_time, from_offset
from sparrowmq.coordinator.users.roles import RoleRight
from sparrowmq.core.message import MessageQueue, ReceivedMessage

router = APIRouter(prefix="/cluster", tags=["messages"])
TIME_MAX = 253_402_300_799_000
SECONDS = 15.0
ID_CHARS_MAX = 256
Count = Annotated[int, Query(ge=1, le=COUNT_MAX)]
Time = Annotated[int, Query(ge=0, le=TIME_MAX)]
Heads = Annotated[bool, Query(description="of bodies only the beginning, as `head_base64`")]
Text = Annotated[str, Query(max_length=ID_CHARS_MAX)]


@router.get("/messages/{topic}/by-id")
async def message_by_id(topic: str, who: Who, id: Text, heads: Heads = False) -> list[Answer]:
    """The message of a topic with this unique id or offset id; an empty list if there is none.

    An offset id names an address: only brokers of the cluster are asked.
    """
    who.need(RoleRight.READ)
    explores = explorer(who)
    admin = await explores.admin()
    async with look(who, is_short=heads):
        found = await asked(admin.messages.query(topic, id, unique=True, decompress=False), SECONDS)
        if not found and is_place(id, [one.address for one in (await explores.servers()).brokers]):
            stored = await asked(admin.messages.get_by_offset_id(id, decompress=False), SECONDS)
            found = [stored] if stored is not None and stored.topic == topic else []
        return await views(found[-1:], heads=heads)


@router.get("/messages/{topic}/by-key")
async def messages_by_key(
    topic: str,
    who: Who,
    key: Text,
    count: Count = 32,
    begin_ms: Time = 0,
    end_ms: Time = TIME_MAX,
    heads: Heads = False,
) -> list[Answer]:
    """Messages of a topic with a key, the oldest first; at most `count` of the newest of each broker. Fewer
    if their bodies exceed 8 MiB in total.
    """
    who.need(RoleRight.READ)
    admin = await explorer(who).admin()
    async with look(who, is_short=heads):
        query = admin.messages.query(topic, key, count=count, begin=begin_ms, end=end_ms, decompress=False)
        return await views(await asked(query, SECONDS), heads=heads)


@router.get("/messages/{topic}/at")
async def messages_at(
    topic: str,
    who: Who,
    broker: Text,
    queue: Annotated[int, Query(ge=0, le=65_535)],
    offset: Annotated[int, Query(ge=0, le=2**63 - 1)] = 0,
    count: Count = 32,
    heads: Heads = False,
    decode: Annotated[bool, Query(description="bodies as JSON, as `decoded`")] = False,
) -> list[Answer]:
    """Messages of one queue from an offset on, in order; from the oldest one if that offset has been deleted.
    Fewer if their bodies exceed 8 MiB in total.

    With `decode` and whole bodies, `decoded` is null if the topic has no schema (`bodySchemas`).
    """
    who.need(RoleRight.READ)
    reader = await explorer(who).reader()
    place = MessageQueue(topic, broker, queue)
    async with look(who, is_short=heads):
        found = await views(await asked(from_offset(reader, place, offset, count), SECONDS), heads=heads)
        if decode and not heads:
            schemas = explorer(who).schemas
            await unpacking.on_thread(lambda stopped: add_decoded(schemas, found, stopped))
        return found


@router.get("/messages/{topic}/between")
async def messages_between(
    topic: str,
    who: Who,
    begin_ms: Time = 0,
    end_ms: Time = TIME_MAX,
    count: Count = 32,
    heads: Heads = False,
) -> list[Answer]:
    """Messages of all queues of a topic that were stored between two times, the oldest first. Fewer if their
    bodies exceed 8 MiB in total.
    """
    who.need(RoleRight.READ)
    explores = explorer(who)
    admin, reader = await explores.admin(), await explores.reader()
    async with look(who, is_short=heads):
        found = await asked(by_time(admin, reader, topic, (begin_ms, end_ms), count), SECONDS)
        return await views(found, heads=heads)


async def views(found: Sequence[ReceivedMessage], *, heads: bool) -> list[Answer]:
    """Stored messages as the API shows them: with whole bodies, up to `BYTES_MAX` in total; or all of them,
    with the beginnings of the bodies.
    """
    if heads:
        messages, sizes = await asked(unpacking.heads(found), SECONDS)
        return head_views(messages, sizes)
    kept = await asked(unpacking.whole(found, BYTES_MAX), SECONDS)
    return await unpacking.on_thread(lambda _: [message_view(one) for one in kept])


def add_decoded(schemas: BodySchemas, found: Sequence[Answer], stopped: Callable[[], bool]) -> None:
    """Add the bodies decoded with the schemas of their topics; to be run in a thread."""
    for one in found:
        if stopped():
            return
        own = one["properties"]
        topic = str(own.get("RETRY_TOPIC") or own.get("REAL_TOPIC") or one["topic"])
        made = schemas.decoded(topic, base64.b64decode(one["body_base64"]))
        one["decoded"] = None if made is None else asdict(made)


def head_views(messages: Sequence[ReceivedMessage], sizes: Sequence[int]) -> list[Answer]:
    """Messages with the beginnings of their bodies, in base64, and the sizes of the whole ones."""
    return [
        {**letter_view(one), "body_bytes": size, "head_base64": base64.b64encode(one.body).decode()}
        for one, size in zip(messages, sizes, strict=True)
    ]


def message_view(one: ReceivedMessage) -> Answer:
    """A message with all its data, its body in base64."""
    return {**letter_view(one), "body_base64": base64.b64encode(one.body).decode()}


def letter_view(one: ReceivedMessage) -> Answer:
    """A message without its body."""
    return {
        "topic": one.topic,
        "origin": one.properties.get("RETRY_TOPIC", one.topic),
        "broker": one.queue.broker_name,
        "queue": one.queue.queue_id,
        "offset": one.queue_offset,
        "physical_offset": one.physical_offset,
        "message_id": one.message_id,
        "offset_message_id": one.offset_message_id,
        "tags": one.tags,
        "keys": one.keys,
        "born_ms": one.born_timestamp,
        "born_host": one.born_host,
        "stored_ms": one.store_timestamp,
        "store_host": one.store_host,
        "tries": one.reconsume_times,
        "stored_bytes": one.store_size,
        "body_bytes": len(one.body),
        "properties": dict(one.properties),
    }
