"""Routes that send messages by hand: a test message, and a stored message once more."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from sparrowmq.coordinator.api.acting import Change, carry_out
from sparrowmq.coordinator.api.cluster import explorer
from sparrowmq.coordinator.api.messages import SECONDS
from sparrowmq.coordinator.api.shared import Answer, ApiCaller, Reason, Who
from sparrowmq.coordinator.api.told.answering import look
from sparrowmq.coordinator.cluster.bodies.unpacking import whole
from sparrowmq.coordinator.cluster.explorer import asked
from sparrowmq.coordinator.cluster.handmade import DELAY_SECONDS_MAX, once_more, written
from sparrowmq.coordinator.cluster.looking import BYTES_MAX, from_offset
from sparrowmq.coordinator.users.roles import RoleRight
from sparrowmq.core.errors import RefusedError
from sparrowmq.core.message import Message, MessageQueue
from sparrowmq.core.results import SendResult

router = APIRouter(prefix="/cluster", tags=["messages"])
BODY_CHARS_MAX = 40_000
KEYS_MAX = 32
PROPERTIES_MAX = 100
NAME_CHARS_MAX = 255
VALUE_CHARS_MAX = 4096
Name = Annotated[str, Field(min_length=1, max_length=NAME_CHARS_MAX)]


class Written(Reason):
    """A message to send: its body as text or in base64, tags, keys and properties. `delay_seconds` delays its
    delivery (brokers from 5.0 on).
    """

    body: str = Field(default="", max_length=BODY_CHARS_MAX)
    body_base64: str = Field(default="", max_length=BODY_CHARS_MAX)
    tags: str = Field(default="", max_length=NAME_CHARS_MAX)
    keys: list[Name] = Field(default=[], max_length=KEYS_MAX)
    properties: dict[Name, Annotated[str, Field(max_length=VALUE_CHARS_MAX)]] = Field(
        default={}, max_length=PROPERTIES_MAX
    )
    delay_seconds: int = Field(default=0, ge=0, le=DELAY_SECONDS_MAX)


class Again(Reason):
    """The place of a stored message."""

    broker: Name
    queue: int = Field(ge=0, le=65_535)
    offset: int = Field(ge=0, le=2**63 - 1)


@router.post("/messages/{topic}")
async def send_message(topic: str, body: Written, who: Who) -> Answer:
    """Send one message to a topic. The audit entry has everything but the body."""
    thing = ("topic", topic)
    who.need(RoleRight.EDIT, thing)
    message = written(
        topic,
        body_of(body),
        tags=body.tags,
        keys=body.keys,
        properties=body.properties,
        delay=body.delay_seconds,
    )
    after = {
        "tags": body.tags,
        "keys": body.keys,
        "properties": sorted(body.properties),
        "delay_seconds": body.delay_seconds,
        "body_bytes": len(message.body),
    }
    return await _send(who, Change("message.send", thing, None, after, reason=body.reason), message)


@router.post("/messages/{topic}/resend")
async def resend_message(topic: str, body: Again, who: Who) -> Answer:
    """Send a stored message to its topic once more, as a new one: every group of the topic gets it."""
    thing = ("topic", topic)
    who.need(RoleRight.EDIT, thing)
    place = MessageQueue(topic, body.broker, body.queue)
    reader = await explorer(who).reader()
    async with look(who, is_short=True):
        found = await whole(await asked(from_offset(reader, place, body.offset, 1), SECONDS), BYTES_MAX)
    if not found or found[0].queue_offset != body.offset:
        raise RefusedError(f"there is no longer a message at {place}, offset {body.offset}", status=404)
    after = {"message_id": found[0].message_id, "place": str(place), "offset": body.offset}
    change = Change("message.resend", thing, None, after, reason=body.reason)
    return await _send(who, change, once_more(found[0]), found[0].key)


def body_of(given: Written) -> bytes:
    """Decode the body. Raises `RefusedError` (422)."""
    if given.body and given.body_base64:
        raise RefusedError("give body or body_base64, not both", status=422)
    try:
        return (
            base64.b64decode(given.body_base64, validate=True) if given.body_base64 else given.body.encode()
        )
    except (binascii.Error, ValueError):
        raise RefusedError("the body is not in base64, or not text that can be sent", status=422) from None


async def _send(who: ApiCaller, change: Change, message: Message, hash_key: str | None = None) -> Answer:
    producer = await explorer(who).producer()
    sent: SendResult = await carry_out(
        who, change, lambda: asked(producer.send(message, hash_key=hash_key), SECONDS)
    )
    return {
        "message_id": sent.message_id,
        "offset_message_id": sent.offset_message_id,
        "broker": sent.queue.broker_name,
        "queue": sent.queue.queue_id,
        "offset": sent.queue_offset,
        "status": sent.status.name.removeprefix("SEND_"),
    }
