"""Pipelines on Spark, as they report themselves: the last progress of each, by name.

A name belongs to the user who reported it first. Pipelines that stopped reporting are deleted after a month,
or earlier when there is no place for a new one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, delete, func, insert, select, true, update
from sqlalchemy.exc import IntegrityError

from sparrowmq.coordinator.database.clock import now_ms
from sparrowmq.coordinator.database.tables import pipeline
from sparrowmq.coordinator.records.audit import Actor, record
from sparrowmq.core.errors import RefusedError

PIPELINES_MAX: Final = 200
PIPELINES_OF_ONE_MAX: Final = 50
SILENT_MS: Final = 60_000
"""A run that reported nothing for so long is called silent: it reports every few seconds."""
DAY_MS: Final = 86_400_000
KEPT_MS: Final = 30 * DAY_MS
"""For how long the last report of a pipeline is kept."""
RUNNING: Final = "running"
SILENT: Final = "silent"


@dataclass(frozen=True, slots=True)
class PipelineRow:
    """The last report of a pipeline. `state` is `silent` of a run that stopped reporting."""

    name: str
    state: str
    reported_by: str
    began_at: int
    reported_at: int
    progress: Mapping[str, Any]


def put(
    connection: Connection, actor: Actor, name: str, run: str, progress: Mapping[str, Any], *, for_any: bool
) -> PipelineRow:
    """Keep a report. `for_any`: the actor may report for pipelines of other users.

    Only a new name makes an audit entry. Raises `RefusedError`: 403 if the name belongs to another user, 409
    if there are too many pipelines.
    """
    now = _now(connection)
    mine = pipeline.c.name == name
    found = connection.execute(select(pipeline).where(mine).with_for_update()).mappings().first()
    values = {"run": run, "reported_at": now, "body": json.dumps(dict(progress), ensure_ascii=False)}
    if found is None:
        _make_room(connection, actor.name, now)
        values |= {"name": name, "reported_by": actor.name, "began_at": now}
        try:
            connection.execute(insert(pipeline).values(**values))
        except IntegrityError:
            raise RefusedError(f"the pipeline {name} was just reported by another run", status=409) from None
        record(connection, actor, "pipeline.add", ("pipeline", name), after={"kind": progress.get("kind")})
    else:
        if found["reported_by"] != actor.name and not for_any:
            text = f"the pipeline {name} is reported by {found['reported_by']}; use another name"
            raise RefusedError(text, status=403, what=name, value=found["reported_by"])
        if found["run"] != run:
            values["began_at"] = now
        connection.execute(update(pipeline).where(mine).values(**values))
    return one(connection, name)


def every(connection: Connection) -> list[PipelineRow]:
    """All pipelines, by name."""
    now = _now(connection)
    rows = connection.execute(select(pipeline).order_by(pipeline.c.name).limit(PIPELINES_MAX)).mappings()
    return [_row(found, now) for found in rows]


def one(connection: Connection, name: str) -> PipelineRow:
    """A pipeline. Raises `RefusedError` (404)."""
    found = connection.execute(select(pipeline).where(pipeline.c.name == name)).mappings().first()
    if found is None:
        text = f"no pipeline {name[:100]!r} has reported here; list all to see them"
        raise RefusedError(text, status=404, what="pipeline", value=name)
    return _row(found, _now(connection))


def forget(connection: Connection, actor: Actor, name: str, *, for_any: bool) -> None:
    """Delete what a pipeline reported. Raises `RefusedError`: 404, and 403 if it belongs to another user."""
    row = one(connection, name)
    if row.reported_by != actor.name and not for_any:
        text = f"the pipeline {name} is reported by {row.reported_by}"
        raise RefusedError(text, status=403, what=name, value=row.reported_by)
    connection.execute(delete(pipeline).where(pipeline.c.name == name))
    before = {"kind": row.progress.get("kind"), "state": row.state}
    record(connection, actor, "pipeline.forget", ("pipeline", name), before=before)


def _make_room(connection: Connection, person: str, now: int) -> None:
    """Delete pipelines that are kept for long enough; one that reported nothing for a day if all places are
    taken. Raises `RefusedError` (409).
    """
    connection.execute(delete(pipeline).where(pipeline.c.reported_at < now - KEPT_MS))
    for most, which in (
        (PIPELINES_OF_ONE_MAX, pipeline.c.reported_by == person),
        (PIPELINES_MAX, true()),
    ):
        count = connection.execute(select(func.count()).select_from(pipeline).where(which)).scalar_one()
        if count < most:
            continue
        old = connection.execute(
            select(pipeline.c.name)
            .where(which, pipeline.c.reported_at < now - DAY_MS)
            .order_by(pipeline.c.reported_at)
            .limit(1)
        ).scalar()
        if old is None:
            text = f"there are {count} pipelines, the limit is {most}; delete some: sparrow pipe forget NAME"
            raise RefusedError(text, status=409, value=count, limit=most)
        connection.execute(delete(pipeline).where(pipeline.c.name == old))


def _row(found: Any, now: int) -> PipelineRow:
    progress = json.loads(found["body"])
    state = str(progress.get("state", RUNNING))
    if state == RUNNING and now - found["reported_at"] > SILENT_MS:
        state = SILENT
    return PipelineRow(
        found["name"], state, found["reported_by"], found["began_at"], found["reported_at"], progress
    )


def _now(connection: Connection) -> int:
    return int(connection.execute(select(now_ms())).scalar_one())
