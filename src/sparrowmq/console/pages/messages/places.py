"""What pages of messages share: where a message's page is, numbers and times of the address. Pure."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final

from sparrowmq.console.tables import Column, Row
from sparrowmq.console.visits import Visit, at
from sparrowmq.coordinator.api.shared import Answer
from sparrowmq.coordinator.users.roles import RoleRight
from sparrowmq.core.errors import RefusedError

BEGIN_CHARS: Final = 80
PICK: Final = Column("pick", "pick")
MESSAGES: Final = (
    Column("stored_ms", "time"),
    Column("message_id", link=lambda row: place_of(row)),
    Column("tags"),
    Column("keys", "list"),
    Column("broker"),
    Column("queue", "number"),
    Column("offset", "number"),
    Column("body_bytes", "bytes"),
    Column("tries", "number"),
    Column("begins"),
)


def place_of(row: Row) -> str:
    """The page of a message."""
    return at("messages", row["topic"], row["broker"], row["queue"], row["offset"])


def rows_of(listed: Sequence[Answer]) -> list[Answer]:
    """Messages with the beginnings of their bodies, for lists; what is ticked is their place."""
    return [
        one
        | {
            "begins": _begins(one),
            "tags": one["tags"] or "–",
            "pick": f"{one['broker']}/{one['queue']}/{one['offset']}",
        }
        for one in listed
    ]


def whole(text: str, name: str) -> int:
    """A number of the address. Raises `RefusedError` (422)."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise RefusedError(f"{name} must be a whole number, not {text[:40]!r}", status=422)
    return int(text)


def send_link(visit: Visit, topic: str) -> list[tuple[str, str]]:
    """The form that sends a test message to a topic, for those who may."""
    if not topic or not visit.may(RoleRight.EDIT, ("topic", topic)):
        return []
    return [("do.send", at("topics", topic, "send"))]


def _begins(one: Answer) -> str:
    head = one.get("head_base64") or one.get("body_base64", "")
    return base64.b64decode(head[: BEGIN_CHARS * 8]).decode("utf-8", "replace")[:BEGIN_CHARS]
