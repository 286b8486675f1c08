"""The services' rows: their state and settings, each change with its audit entry, and their runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, RowMapping, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from sparrowmq.coordinator.database.clock import now_ms
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.database.tables import service, service_run
from sparrowmq.coordinator.leases import table as leases
from sparrowmq.coordinator.records.audit import Actor, record
from sparrowmq.coordinator.services.base.schedule import (
    RunOutcome,
    RunPlan,
    RunReport,
    ServiceKind,
    due_after,
    due_with,
)
from sparrowmq.core.errors import RefusedError

RUNS_KEPT: Final = 200
"""Runs of each service that are kept; the audit clean-up deletes older ones."""
MESSAGE_CHARS: Final = 500


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """A service's row. `options` has every option, set or not."""

    plan: RunPlan
    pause_reason: str
    options: Mapping[str, int]
    now: int
    """The database's time when it was read."""


@dataclass(frozen=True, slots=True)
class ServiceRun:
    """One run; times by the database's clock."""

    id: int
    service: str
    epoch: int
    started_at: int
    ended_at: int
    outcome: str
    counts: Mapping[str, int]
    message: str


def ensure(database: Database, kinds: Iterable[ServiceKind]) -> None:
    """Create missing rows and leases of services; users' settings stay."""
    for kind in kinds:
        with database.write() as connection:
            if connection.execute(select(service.c.name).where(service.c.name == kind.name)).first() is None:
                try:
                    with connection.begin_nested():
                        connection.execute(
                            insert(service).values(name=kind.name, interval_ms=kind.interval_ms, options="{}")
                        )
                except IntegrityError:
                    pass  # another coordinator was faster
        leases.ensure(database, kind.name)


def settings(connection: Connection, kind: ServiceKind, *, lock: bool = False) -> ServiceSettings:
    """The settings of a service. Values that this release does not allow are ignored."""
    query = select(service, now_ms().label("now")).where(service.c.name == kind.name)
    found = connection.execute(query.with_for_update() if lock else query).mappings().first()
    if found is None:
        raise RefusedError(
            f"the service {kind.name} has no row in the database; restart the coordinator",
            status=404,
            what="service",
            value=kind.name,
        )
    return _settings(kind, found)


def all_settings(connection: Connection, kinds: Iterable[ServiceKind]) -> dict[str, ServiceSettings]:
    """The same of several services in one query, by name; those without a row are left out."""
    rows = connection.execute(select(service, now_ms().label("now"))).mappings()
    by_name = {row["name"]: row for row in rows}
    return {kind.name: _settings(kind, by_name[kind.name]) for kind in kinds if kind.name in by_name}


def _settings(kind: ServiceKind, found: RowMapping) -> ServiceSettings:
    bounds = {option.name: option for option in kind.options}
    options = kind.defaults()
    for name, value in json.loads(found["options"]).items():
        if name in bounds and bounds[name].low <= value <= bounds[name].high:
            options[name] = value
    plan = RunPlan(
        max(found["interval_ms"], kind.floor_ms),
        bool(found["paused"]),
        found["next_due_at"],
        found["run_asked_at"],
    )
    return ServiceSettings(plan, found["pause_reason"], options, found["now"])


def set_interval(connection: Connection, kind: ServiceKind, interval_ms: int, actor: Actor) -> None:
    """Change the interval between runs of a service. Raises `RefusedError` with the bounds."""
    kind.check_interval(interval_ms)
    now = settings(connection, kind, lock=True)
    _change(
        connection,
        kind,
        actor,
        "interval",
        ({"interval_ms": now.plan.interval_ms}, {"interval_ms": interval_ms}),
        interval_ms=interval_ms,
        next_due_at=due_with(now.plan, interval_ms, now.now),
    )


def set_options(connection: Connection, kind: ServiceKind, options: dict[str, int], actor: Actor) -> None:
    """Change some options; the others stay. Raises `RefusedError` for unknown options and values out of
    range.
    """
    kind.check_options(options)
    now = settings(connection, kind, lock=True)
    before = {name: now.options[name] for name in options}
    merged = {**now.options, **options}
    _change(connection, kind, actor, "options", (before, options), options=json.dumps(merged, sort_keys=True))


def set_paused(connection: Connection, kind: ServiceKind, paused: bool, actor: Actor) -> None:
    """Pause or resume a service. Raises `RefusedError` (409) if it is already in that state."""
    now = settings(connection, kind, lock=True)
    if now.plan.paused == paused:
        raise RefusedError(
            f"the service {kind.name} is already {'paused' if paused else 'running'}", status=409
        )
    action = "pause" if paused else "resume"
    change = ({"paused": not paused}, {"paused": paused})
    reason = actor.reason[:MESSAGE_CHARS] if paused else ""
    _change(connection, kind, actor, action, change, paused=paused, pause_reason=reason)


def ask_run(connection: Connection, kind: ServiceKind, actor: Actor) -> None:
    """Make the leader run the service now, even if it is paused."""
    settings(connection, kind, lock=True)
    _change(connection, kind, actor, "run", (None, None), run_asked_at=now_ms())


def hasten(connection: Connection, name: str) -> None:
    """Make a service run soon, because of a request that has its own audit entry."""
    connection.execute(update(service).where(service.c.name == name).values(run_asked_at=now_ms()))


def hand_over(connection: Connection, kind: ServiceKind, block_ms: int, actor: Actor) -> None:
    """Take a service from its leader and block that leader for `block_ms`. Raises `RefusedError` without a
    leader.
    """
    before = leases.hand_over(connection, kind.name, block_ms)
    if before is None:
        text = f"the service {kind.name} has no leader now"
        raise RefusedError(text, status=409, what="leader", value=kind.name)
    was = {"leader": before.owner_label, "epoch": before.epoch}
    record(
        connection,
        actor,
        "service.hand-over",
        ("service", kind.name),
        before=was,
        after={"blocked_ms": block_ms},
    )


def add_run(
    connection: Connection,
    kind: ServiceKind,
    seen: ServiceSettings,
    epoch: int,
    started_at: int,
    ended: tuple[RunOutcome, RunReport],
) -> None:
    """Save the result of a run and schedule the next one with the current interval."""
    outcome, report = ended
    now = settings(connection, kind, lock=True)
    connection.execute(
        insert(service_run).values(
            service=kind.name,
            epoch=epoch,
            started_at=started_at,
            ended_at=now.now,
            outcome=outcome.value,
            counts=json.dumps(report.counts, sort_keys=True),
            message=report.message[:MESSAGE_CHARS],
        )
    )
    # A request made during this run stays: the run may not have seen its subject.
    asked = 0 if now.plan.run_asked_at == seen.plan.run_asked_at else now.plan.run_asked_at
    connection.execute(
        update(service)
        .where(service.c.name == kind.name)
        .values(next_due_at=due_after(now.plan, now.now), run_asked_at=asked)
    )


def runs(connection: Connection, name: str, count: int = 20) -> list[ServiceRun]:
    """Runs of a service, the newest first."""
    query = (
        select(service_run)
        .where(service_run.c.service == name)
        .order_by(service_run.c.id.desc())
        .limit(max(1, min(count, RUNS_KEPT)))
    )
    return [_run(row) for row in connection.execute(query).mappings()]


def last_runs(connection: Connection) -> dict[str, ServiceRun]:
    """The newest run of each service, by name."""
    newest = select(func.max(service_run.c.id)).group_by(service_run.c.service)
    rows = connection.execute(select(service_run).where(service_run.c.id.in_(newest))).mappings()
    return {row["service"]: _run(row) for row in rows}


def delete_old_runs(connection: Connection, name: str) -> int:
    """Delete all but the newest `RUNS_KEPT` runs of a service; returns how many."""
    newest = (
        select(service_run.c.id)
        .where(service_run.c.service == name)
        .order_by(service_run.c.id.desc())
        .offset(RUNS_KEPT)
        .limit(1)
    )
    last = connection.execute(newest).scalar()
    if last is None:
        return 0
    mine = service_run.c.service == name
    count = connection.execute(
        select(func.count()).select_from(service_run).where(mine, service_run.c.id <= last)
    ).scalar_one()
    connection.execute(delete(service_run).where(mine, service_run.c.id <= last))
    return int(count)


def _change(
    connection: Connection,
    kind: ServiceKind,
    actor: Actor,
    action: str,
    change: tuple[Mapping[str, Any] | None, Mapping[str, Any] | None],
    **values: Any,
) -> None:
    connection.execute(
        update(service).where(service.c.name == kind.name).values(revision=service.c.revision + 1, **values)
    )
    before, after = change
    record(connection, actor, f"service.{action}", ("service", kind.name), before=before, after=after)


def _run(row: Any) -> ServiceRun:
    return ServiceRun(**{**row, "counts": json.loads(row["counts"])})
