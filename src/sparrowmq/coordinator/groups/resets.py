"""Offset resets: requested in the database, carried out by the leader, with both offsets in the audit log.

A request is a row that waits until the leader of managed groups has carried it out, in whichever process it
runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, Self

from sqlalchemy import Connection, delete, insert, select, update

from sparrowmq.coordinator.database.clock import now_ms
from sparrowmq.coordinator.database.tables import group_reset
from sparrowmq.coordinator.groups.dynamic_settings import next_revision
from sparrowmq.coordinator.records.audit import Actor, record
from sparrowmq.core.dynamic_settings import SettingPlace, SettingScope
from sparrowmq.core.errors import RefusedError
from sparrowmq.core.names import check_group

OFFSET_MAX: Final = 2**63 - 1
TIME_MS_MAX: Final = 253_402_300_799_000
"""The end of the year 9999."""
WAITING_MAX: Final = 100
PAGE_MAX: Final = 100
UNDO: Final = "undo"
KEPT_MS: Final = 30 * 86_400_000


class ResetState(StrEnum):
    """State of a request."""

    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """The new position: the first or the last message, an offset, or a time in epoch milliseconds.

    An undo has the id of the reset that it undoes, and the offsets from before it by `TOPIC/BROKER/QUEUE`.
    """

    kind: str
    number: int = 0
    offsets: Mapping[str, int] = field(default_factory=dict, hash=False)

    @classmethod
    def of(cls, to: str | None, offset: int | None, time_ms: int | None) -> Self:
        """The target of a request, which must name exactly one. Raises `RefusedError` (422)."""
        if [to, offset, time_ms].count(None) != 2 or to not in (None, "first", "last"):
            text = "give exactly one of: to (first or last), offset, time_ms"
            raise RefusedError(text, status=422, what="target")
        for name, value, high in (("offset", offset, OFFSET_MAX), ("time_ms", time_ms, TIME_MS_MAX)):
            if value is not None and not 0 <= value <= high:
                text = f"{name} must be from 0 to {high}, not {value}"
                raise RefusedError(text, status=422, what=name, value=value, limit=high)
        if to is not None:
            return cls(to)
        return cls("time", time_ms) if offset is None and time_ms is not None else cls("offset", offset or 0)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The target of a row."""
        kind, _, number = text.partition(":")
        return cls(kind, int(number or 0))

    def covers(self, queue: str) -> bool:
        """Whether it has a position for a queue: an undo only for those that had an offset before."""
        return self.kind != UNDO or queue in self.offsets

    def offset(self, queue: str) -> int:
        """The offset of a queue, if the target is one."""
        return self.offsets.get(queue, self.number)

    def __str__(self) -> str:
        return self.kind if self.kind in ("first", "last") else f"{self.kind}:{self.number}"


@dataclass(frozen=True, slots=True)
class ResetRow:
    """One row. `before` and `after` are offsets by `TOPIC/BROKER/QUEUE`, once it is done. While an undo
    waits, `after` are the offsets that it restores.
    """

    id: int
    group: str
    place: SettingPlace
    target: ResetTarget
    state: ResetState
    asked_by: str
    reason: str
    asked_at: int
    ended_at: int
    before: Mapping[str, int]
    after: Mapping[str, int]
    message: str


def ask(connection: Connection, group: str, place: SettingPlace, target: ResetTarget, actor: Actor) -> int:
    """Request an offset reset of a topic or queue; returns the id of the request. Raises `RefusedError`: 422
    for a whole group, 409 if too many requests of the group are waiting.
    """
    check_group(group)
    if place.scope is SettingScope.GROUP:
        text = "name the topic or queue to reset: TOPIC, TOPIC/QUEUE, TOPIC/BROKER/QUEUE"
        raise RefusedError(text, status=422, what="place")
    number = next_revision(connection, group, None)
    open_ones = select(group_reset.c.id).where(
        group_reset.c.group_name == group, group_reset.c.state == ResetState.WAITING
    )
    if len(connection.execute(open_ones.limit(WAITING_MAX)).all()) >= WAITING_MAX:
        text = f"{WAITING_MAX} resets of group {group} are already waiting"
        raise RefusedError(text, status=409, limit=WAITING_MAX)
    made = connection.execute(
        insert(group_reset).values(
            group_name=group,
            place=str(place),
            target=str(target),
            state=ResetState.WAITING,
            asked_by=actor.name[:100],
            reason=actor.reason[:500],
            asked_at=now_ms(),
            after=json.dumps(dict(target.offsets)),
        )
    )
    key = made.inserted_primary_key
    assert key is not None, "every row has an id"
    by = Actor(actor.name, actor.reason, number)
    after = {"reset": int(key[0]), "place": str(place), "to": str(target)}
    record(connection, by, "group.reset", ("group", group), after=after)
    return int(key[0])


def last(connection: Connection, group: str) -> ResetRow:
    """The last reset that was carried out: the one that can be undone. Raises `RefusedError`: 404 if there is
    none, 409 while a later one waits, or if the group had no offsets before.
    """
    found = next((one for one in of(connection, group, PAGE_MAX) if one.state is not ResetState.FAILED), None)
    if found is None:
        text = f"no reset of group {group} was carried out in the last {KEPT_MS // 86_400_000} days"
        raise RefusedError(text, status=404)
    if found.state is ResetState.WAITING:
        raise RefusedError(f"reset {found.id} of group {group} still waits; look again", status=409)
    if not _restored(found):
        text = f"group {group} had no offsets before reset {found.id}: there is nothing to restore"
        raise RefusedError(text, status=409)
    return found


def undo_target(undone: ResetRow) -> ResetTarget:
    """The offsets from before a reset."""
    return ResetTarget(UNDO, undone.id, _restored(undone))


def undo(connection: Connection, group: str, number: int, actor: Actor) -> int:
    """Request the offsets from before the last reset; returns the id of the request. Raises `RefusedError`:
    as `last` and `ask`, and 409 if `number` is not its id.
    """
    undone = last(connection, group)
    if undone.id != number:
        text = f"the last reset of group {group} is {undone.id}, not {number}; look again"
        raise RefusedError(text, status=409)
    return ask(connection, group, undone.place, undo_target(undone), actor)


def end(
    connection: Connection,
    wish: ResetRow,
    *,
    before: Mapping[str, int] | None = None,
    after: Mapping[str, int] | None = None,
    problem: str = "",
    generation: int | None = None,
) -> None:
    """Record that a request was carried out, or its error, with an audit entry in the name of the
    requester.
    """
    state = ResetState.FAILED if problem else ResetState.DONE
    mine = (group_reset.c.id == wish.id) & (group_reset.c.state == ResetState.WAITING)
    changed = connection.execute(
        update(group_reset)
        .where(mine)
        .values(
            state=state,
            ended_at=now_ms(),
            before=json.dumps(dict(before or {})),
            after=json.dumps(dict(after or {})),
            message=problem[:500],
        )
    )
    if not changed.rowcount:
        return  # already recorded by another process
    what: dict[str, Any] = {"reset": wish.id, "place": str(wish.place)}
    record(
        connection,
        Actor(wish.asked_by, wish.reason, generation),
        f"group.reset.{state}",
        ("group", wish.group),
        before=what | dict(before or {}),
        after=what | ({"problem": problem[:500]} if problem else dict(after or {})),
    )


def waiting(connection: Connection) -> list[ResetRow]:
    """Waiting requests, in the order in which they were made."""
    query = select(group_reset).where(group_reset.c.state == ResetState.WAITING)
    found = connection.execute(query.order_by(group_reset.c.id).limit(WAITING_MAX)).mappings()
    return [_wish(row) for row in found]


def of(connection: Connection, group: str, count: int = 20) -> list[ResetRow]:
    """Requests of a group, the newest first."""
    query = select(group_reset).where(group_reset.c.group_name == group).order_by(group_reset.c.id.desc())
    found = connection.execute(query.limit(max(1, min(count, PAGE_MAX)))).mappings()
    return [_wish(row) for row in found]


def delete_old(connection: Connection) -> int:
    """Delete requests that ended long ago; the audit log keeps them according to its own retention."""
    old = (group_reset.c.ended_at > 0) & (group_reset.c.ended_at < now_ms() - KEPT_MS)
    return int(connection.execute(delete(group_reset).where(old)).rowcount)


def _restored(undone: ResetRow) -> dict[str, int]:
    """Offsets from before a reset; brokers report -1 for a queue without."""
    return {queue: offset for queue, offset in undone.before.items() if offset >= 0}


def _wish(row: Any) -> ResetRow:
    target, after = ResetTarget.parse(row["target"]), json.loads(row["after"] or "{}")
    return ResetRow(
        row["id"],
        row["group_name"],
        SettingPlace.parse(row["place"]),
        replace(target, offsets=after) if target.kind == UNDO else target,
        ResetState(row["state"]),
        row["asked_by"],
        row["reason"],
        row["asked_at"],
        row["ended_at"],
        json.loads(row["before"] or "{}"),
        after,
        row["message"],
    )
