"""Notices that wait to be sent: written with the change they tell of, so that none is lost or told of
nothing.

Sending is another transaction, and may happen twice when a coordinator dies between sending and noting it:
every notice has a number that receivers can tell them apart by.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from sqlalchemy import Connection, delete, insert, or_, select, update

from sparrowmq.coordinator.database.clock import now_ms
from sparrowmq.coordinator.database.tables import notice, object_role, person

LOG: Final = "log"
WEBHOOK: Final = "webhook"
EMAIL: Final = "email"
ATTEMPTS_MAX: Final = 8
RETRY_MS: Final = 5_000
RETRY_MS_MAX: Final = 600_000
BATCH: Final = 50
PAGE_MAX: Final = 500
RECEIVERS_MAX: Final = 50
ERROR_CHARS: Final = 500


@dataclass(frozen=True, slots=True)
class Channels:
    """Where notices go besides the log: an address for webhooks, receivers of every mail. Empty: not used.

    Owners of an alarm's group or topic get its mails, too, when they have an address.
    """

    webhook: str = ""
    email: bool = False
    email_to: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Notice:
    """One notice for one channel. `attempts` counts the try that it is taken for."""

    id: int
    channel: str
    target: str
    body: Mapping[str, Any]
    attempts: int


def post(
    connection: Connection, channels: Channels, alarm_id: int, kind: str, body: Mapping[str, Any]
) -> None:
    """Put a notice for each channel into the outbox."""
    targets = [(LOG, "")]
    if channels.webhook:
        targets.append((WEBHOOK, channels.webhook))
    if channels.email:
        owners = _owners(connection, str(body["group"]), str(body["topic"]))
        receivers = list(dict.fromkeys((*channels.email_to, *owners)))[:RECEIVERS_MAX]
        targets += [(EMAIL, receiver) for receiver in receivers]
    now = int(connection.execute(select(now_ms())).scalar_one())
    for channel, target in targets:
        connection.execute(
            insert(notice).values(
                alarm_id=alarm_id,
                kind=kind,
                channel=channel,
                target=target,
                body=json.dumps(dict(body), ensure_ascii=False, sort_keys=True),
                created_at=now,
                next_try_at=now,
            )
        )


@dataclass(frozen=True, slots=True)
class Sending:
    """What became of a notice. `sent_at` and `given_up_at` are 0 while it waits for `next_try_at`."""

    id: int
    alarm: int
    kind: str
    channel: str
    target: str
    created_at: int
    attempts: int
    next_try_at: int
    sent_at: int
    given_up_at: int
    error: str


def search(connection: Connection, *, failed: bool, count: int) -> list[Sending]:
    """Notices, the newest first; only those that could not be sent (yet) when asked for them."""
    query = select(notice).order_by(notice.c.id.desc()).limit(max(1, min(count, PAGE_MAX)))
    if failed:
        query = query.where(notice.c.error != "")
    return [_sending(row) for row in connection.execute(query).mappings()]


def _sending(row: Any) -> Sending:
    ended, failed = row["ended_at"], bool(row["error"])
    return Sending(
        row["id"],
        row["alarm_id"],
        row["kind"],
        row["channel"],
        shown(row["channel"], row["target"]),
        row["created_at"],
        row["attempts"],
        0 if ended else row["next_try_at"],
        0 if failed else ended,
        ended if failed else 0,
        row["error"],
    )


def shown(channel: str, target: str) -> str:
    """A target as people may see it: what follows a webhook's host is often a secret. Pure."""
    if channel != WEBHOOK:
        return target
    url = urlsplit(target)
    host = (url.hostname or "") + (f":{url.port}" if url.port else "")
    return f"{url.scheme}://{host}/…"


def take(connection: Connection) -> list[Notice]:
    """Notices to be sent now, the oldest first, at most `BATCH`, each with this try counted already.

    The next try is set before anything is sent: when nobody can note that a notice went out, it is sent again
    later and later, not at every look.
    """
    now = now_ms()
    # A clock that was set back must not hold a notice up for longer than its rest.
    is_due = or_(notice.c.next_try_at <= now, notice.c.next_try_at > now + RETRY_MS_MAX)
    query = (
        select(notice)
        .where(notice.c.ended_at == 0, is_due)
        .order_by(notice.c.next_try_at, notice.c.id)
        .limit(BATCH)
    )
    rows = list(connection.execute(query).mappings())
    for row in rows:
        tried = {"attempts": row["attempts"] + 1, "next_try_at": now_ms() + retry_ms(row["attempts"])}
        connection.execute(update(notice).where(notice.c.id == row["id"]).values(**tried))
    return [
        Notice(row["id"], row["channel"], row["target"], json.loads(row["body"]), row["attempts"] + 1)
        for row in rows
    ]


def settle(connection: Connection, sent: Notice, error: str | None) -> None:
    """Note that a notice that was taken was sent, or why not: after `ATTEMPTS_MAX` tries it is given up."""
    values: dict[str, Any] = {"error": (error or "")[:ERROR_CHARS]}
    if error is None or sent.attempts >= ATTEMPTS_MAX:
        values["ended_at"] = now_ms()
    connection.execute(update(notice).where(notice.c.id == sent.id, notice.c.ended_at == 0).values(**values))


def put_off(connection: Connection, notices: Iterable[Notice]) -> None:
    """Give back notices that were taken and not tried: their receiver just failed with another one."""
    for one in notices:
        connection.execute(
            update(notice)
            .where(notice.c.id == one.id)
            .values(attempts=one.attempts - 1, next_try_at=now_ms() + RETRY_MS)
        )


def retry_ms(attempts: int) -> int:
    """How long to wait after that many failed tries before."""
    return int(min(RETRY_MS * 2**attempts, RETRY_MS_MAX))


def delete_before(connection: Connection, at: int, limit: int) -> int:
    """Delete up to `limit` notices that ended before `at`; gives how many."""
    ids = list(
        connection.execute(
            select(notice.c.id)
            .where(notice.c.ended_at > 0, notice.c.ended_at < at)
            .order_by(notice.c.id)
            .limit(limit)
        ).scalars()
    )
    if ids:
        connection.execute(delete(notice).where(notice.c.id.in_(ids)))
    return len(ids)


def _owners(connection: Connection, group: str, topic: str) -> list[str]:
    theirs = or_(
        (object_role.c.kind == "group") & (object_role.c.object == group),
        (object_role.c.kind == "topic") & (object_role.c.object == topic),
    )
    query = (
        select(person.c.email)
        .join(object_role, object_role.c.person == person.c.name)
        .where(theirs, object_role.c.role == "owner", person.c.enabled, person.c.email != "")
        .order_by(person.c.name)
    )
    return list(connection.execute(query).scalars())
