"""Forms that send one message: a test message to a topic, or a stored message again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sparrowmq.console import shown
from sparrowmq.console.pages.messages.places import whole
from sparrowmq.console.visits import Field, Form, Page, Preview, Visit, at
from sparrowmq.coordinator.api import cluster
from sparrowmq.coordinator.api import messages as api
from sparrowmq.coordinator.api.sending import Again, Written, resend_message, send_message
from sparrowmq.core.errors import RefusedError


async def _fields(visit: Visit) -> Sequence[Field]:
    return [
        Field("body", "form.body", "lines", needed=False),
        Field("tags", "column.tags", needed=False),
        Field("keys", "column.keys", needed=False, help=visit.words("form.keys-help")),
        Field(
            "properties", "form.properties", "lines", needed=False, help=visit.words("form.properties-help")
        ),
        Field("delay", "form.delay", "number", "0", help=visit.words("form.delay-help")),
    ]


def _written(given: Mapping[str, str], reason: str = "") -> Written:
    """The message from the fields of the form. Raises `RefusedError` (422) and `ValidationError`, which
    name the wrong field."""
    properties = {}
    for line in given.get("properties", "").splitlines():
        name, separator, value = line.partition("=")
        if line.strip():
            if not separator or not name.strip():
                raise RefusedError(f"{line[:60]!r} is not a property; write NAME=VALUE", status=422)
            properties[name.strip()] = value
    return Written(
        body=given.get("body", "").replace("\r\n", "\n"),
        tags=given.get("tags", "").strip(),
        keys=given.get("keys", "").split(),
        properties=properties,
        delay_seconds=whole(given.get("delay", "").strip() or "0", "delay"),
        reason=reason,
    )


async def _preview(visit: Visit, given: Mapping[str, str]) -> Preview:
    topic, message = visit.named("topic"), _written(given)
    groups = [one["group"] for one in await cluster.topic_groups(topic, visit.caller)]
    size = shown.size(len(message.body.encode("utf-8", "replace")))
    says = [visit.words("form.send", topic=topic, size=size)]
    if message.delay_seconds:
        says.append(visit.words("form.send-delayed", time=shown.span(1000 * message.delay_seconds)))
    says.append(_who_gets_it(visit, groups))
    return Preview(says)


def _who_gets_it(visit: Visit, groups: Sequence[str]) -> str:
    if not groups:
        return visit.words("form.send-nobody")
    return visit.words("form.send-groups", groups=shown.listed(groups))


async def _send(visit: Visit, given: Mapping[str, str], reason: str) -> str:
    await send_message(visit.named("topic"), _written(given, reason), visit.caller)
    return "sent"


def _place(visit: Visit) -> tuple[str, str, int, int]:
    queue, offset = (whole(visit.named(name), name) for name in ("queue", "offset"))
    return visit.named("topic"), visit.named("broker"), queue, offset


async def _nothing(visit: Visit) -> Sequence[Field]:
    return ()


async def _preview_again(visit: Visit, given: Mapping[str, str]) -> Preview:
    topic, broker, queue, offset = _place(visit)
    found = await api.messages_at(topic, visit.caller, broker, queue, offset, 1)
    if not found or found[0]["offset"] != offset:
        raise RefusedError(visit.words("find.gone"), status=404)
    groups = [one["group"] for one in await cluster.topic_groups(topic, visit.caller)]
    says = [
        visit.words("form.send-again", id=found[0]["message_id"], topic=topic),
        _who_gets_it(visit, groups),
    ]
    return Preview(says, stamp=found[0]["message_id"])


async def _again(visit: Visit, given: Mapping[str, str], reason: str) -> str:
    topic, broker, queue, offset = _place(visit)
    await resend_message(topic, Again(broker=broker, queue=queue, offset=offset, reason=reason), visit.caller)
    return "sent"


PAGES: Final[Sequence[Page]] = ()
FORMS: Final[Sequence[Form]] = (
    Form("/topics/{topic}/send", "do.send", "messages", _fields, _preview, _send,
         lambda visit: at("tail", visit.named("topic")), looks_first=True),
    Form("/messages/{topic}/{broker}/{queue}/{offset}/resend", "do.send-again", "messages", _nothing,
         _preview_again, _again, lambda visit: at("tail", visit.named("topic"))),
)  # fmt: skip
