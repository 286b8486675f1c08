"""Notices that wait to be sent: written in the transaction of the change, so that none is lost or sent
without a change.

Sending is another transaction, and may happen twice if a coordinator dies between sending and recording it:
every notice has a number, so receivers can detect duplicates.
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
    """Where notices are sent besides the log: a webhook address, and receivers of all mails. Empty: not used.

    Owners of an alarm's group or topic get its mails, too, when they have an address.
    """

    webhook: str = ""
    email: bool = False
    email_to: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Notice:
    """One notice for one channel. `attempts` includes the current attempt."""

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
    """The outcome of a notice. `sent_at` and `given_up_at` are 0 while it waits for `next_try_at`."""

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
    """Notices, the newest first; optionally only those that have not been sent."""
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
    """A target for display: the part after a webhook's host is often secret. Pure."""
    if channel != WEBHOOK:
        return target
    try:
        url = urlsplit(target)
        host = (url.hostname or "") + (f":{url.port}" if url.port else "")
    except ValueError:
        return "…"
    return f"{url.scheme}://{host}/…"


def take(connection: Connection) -> list[Notice]:
    """Notices to send now, the oldest first, at most `BATCH`; this attempt is already counted.

    The next attempt is scheduled before anything is sent: if the result cannot be recorded, the notice is
    sent again at growing intervals, not at every poll.
    """
    now = now_ms()
    # A clock that was set back must not delay a notice by more than its interval.
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
    """Record that a notice was sent, or the error: after `ATTEMPTS_MAX` attempts it is given up."""
    values: dict[str, Any] = {"error": (error or "")[:ERROR_CHARS]}
    if error is None or sent.attempts >= ATTEMPTS_MAX:
        values["ended_at"] = now_ms()
    connection.execute(update(notice).where(notice.c.id == sent.id, notice.c.ended_at == 0).values(**values))


def put_off(connection: Connection, notices: Iterable[Notice]) -> None:
    """Return notices that were taken but not tried, because their receiver just failed with another
    notice.
    """
    for one in notices:
        connection.execute(
            update(notice)
            .where(notice.c.id == one.id)
            .values(attempts=one.attempts - 1, next_try_at=now_ms() + RETRY_MS)
        )


def retry_ms(attempts: int) -> int:
    """Delay after this many failed attempts."""
    return int(min(RETRY_MS * 2**attempts, RETRY_MS_MAX))


def delete_before(connection: Connection, at: int, limit: int) -> int:
    """Delete up to `limit` notices that ended before `at`; returns how many."""
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
