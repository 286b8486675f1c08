"""One message whole: what it is, its body and properties, and which groups have read it."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final

from sparrowmq.console.pages.bodies import body_of
from sparrowmq.console.pages.messages.lives import life_link
from sparrowmq.console.pages.messages.places import whole
from sparrowmq.console.tables import Column
from sparrowmq.console.visits import Form, Page, PagePart, Values, Visit, at
from sparrowmq.coordinator.api import cluster
from sparrowmq.coordinator.api import messages as api
from sparrowmq.coordinator.api.shared import Answer
from sparrowmq.coordinator.users.roles import RoleRight
from sparrowmq.core.errors import RefusedError

ASKED_MAX: Final = 20
"""Groups whose offsets a page requests; what others have read is unknown."""
PROPERTIES: Final = (Column("name"), Column("value", "long"))


async def message(visit: Visit) -> Values:
    """One message: what it is, where it is, where it came from."""
    one = await _message(visit)
    facts = (
        ("message_id", "text", one["message_id"]),
        ("topic", "text", one["topic"]),
        ("tags", "text", one["tags"] or "–"),
        ("keys", "list", one["keys"] or "–"),
        ("stored_ms", "time", one["stored_ms"]),
        ("born_ms", "time", one["born_ms"]),
        ("born_host", "text", one["born_host"]),
        ("store_host", "text", one["store_host"]),
        ("tries", "number", one["tries"]),
        ("origin", "text", one["origin"]),
        ("stored_bytes", "bytes", one["stored_bytes"]),
        ("physical_offset", "number", one["physical_offset"]),
        ("offset_message_id", "text", one["offset_message_id"]),
    )
    return {"facts": facts, "onward": [("do.life", life_link(_topic_of(one), one["message_id"]))]}


def _topic_of(one: Answer) -> str:
    """The topic that its sender gave it to, which a copy of a broker's own remembers."""
    own = one["properties"]
    return str(own.get("RETRY_TOPIC") or own.get("REAL_TOPIC") or one["topic"])


async def body(visit: Visit) -> Values:
    """Its body. It is read on a thread: it may be megabytes, or JSON with ten thousands of values."""
    one = await _message(visit)
    shown = await visit.call(lambda: body_of(base64.b64decode(one["body_base64"])))
    return {"body": shown, "decoded": one["decoded"]}


async def properties(visit: Visit) -> Values:
    """Its properties, RocketMQ's own among them."""
    one = await _message(visit)
    rows = [{"name": name, "value": value} for name, value in one["properties"].items()]
    return {"table": await visit.table("properties", PROPERTIES, rows, sort="name")}


async def readers(visit: Visit) -> Values:
    """Which groups have read it, by their places in its queue now."""
    topic, broker, queue, offset = _place(visit)
    names = sorted(one["group"] for one in await cluster.topic_groups(topic, visit.caller))
    rows = []
    for number, name in enumerate(names):
        places = await cluster.group_progress(name, visit.caller) if number < ASKED_MAX else ()
        mine = [
            one for one in places if (one["topic"], one["broker"], one["queue"]) == (topic, broker, queue)
        ]
        state = None if not mine else "read" if mine[0]["offset"] > offset else "waits"
        rows.append({"group": name, "state": state})
    columns = (Column("group", link=lambda row: at("groups", row["group"])), Column("state", "state"))
    return {"table": await visit.table("readers", columns, rows, sort="group", empty="empty.readers")}


async def _message(visit: Visit) -> Answer:
    topic, broker, queue, offset = _place(visit)

    async def ask() -> Answer:
        listed = await api.messages_at(topic, visit.caller, broker, queue, offset, 1, decode=True)
        if not listed or listed[0]["offset"] != offset:
            raise RefusedError(visit.words("find.gone"), status=404)
        return listed[0]

    return await visit.once("message", ask)


def _place(visit: Visit) -> tuple[str, str, int, int]:
    queue, offset = (whole(visit.named(name), name) for name in ("queue", "offset"))
    return visit.named("topic"), visit.named("broker"), queue, offset


def _links(visit: Visit) -> Sequence[tuple[str, str]]:
    topic, broker, queue, offset = _place(visit)
    here = at("messages", topic, broker, queue, offset)
    if not visit.may(RoleRight.EDIT, ("topic", topic)):
        return ()
    return [("do.send-again", f"{here}/resend")]


PAGES: Final = (
    Page(
        "/messages/{topic}/{broker}/{queue}/{offset}",
        "page.message",
        "messages",
        (
            PagePart("message", message, template="facts"),
            PagePart("body", body, template="body"),
            PagePart("properties", properties),
            PagePart("consumed", readers),
        ),
        is_live=False,
        links=_links,
    ),
)
FORMS: Final[Sequence[Form]] = ()
