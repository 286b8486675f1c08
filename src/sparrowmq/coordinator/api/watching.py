"""Routes of services, alarms, limits and the audit log."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field
from sqlalchemy import Connection

from sparrowmq.coordinator.alarms import outbox
from sparrowmq.coordinator.alarms import table as alarms
from sparrowmq.coordinator.alarms.machine import AlarmState
from sparrowmq.coordinator.alarms.table import AlarmRow
from sparrowmq.coordinator.api.shared import Answer, ApiCaller, Reason, Who
from sparrowmq.coordinator.leases import table as leases
from sparrowmq.coordinator.leases.table import LeaseRow
from sparrowmq.coordinator.records import audit
from sparrowmq.coordinator.records.audit import Actor
from sparrowmq.coordinator.services.base import board
from sparrowmq.coordinator.services.base.board import ServiceRun, ServiceSettings
from sparrowmq.coordinator.services.base.schedule import INTERVAL_MS_MAX, ServiceKind
from sparrowmq.coordinator.services.groups import limits
from sparrowmq.coordinator.services.groups.limits import ALL_TOPICS, Limit
from sparrowmq.coordinator.services.housekeeping import cleanup
from sparrowmq.coordinator.users.roles import RoleRight

router = APIRouter(tags=["watching"])


class ServiceChange(Reason):
    """The changes of a service; omitted values stay."""

    interval_ms: int | None = Field(default=None, ge=1, le=INTERVAL_MS_MAX)
    options: dict[str, int] = Field(default_factory=dict)


class Silence(Reason):
    """How long an alarm is silenced."""

    minutes: int


class LimitChange(Reason):
    """A limit; 0 means none."""

    topic: str = ALL_TOPICS
    messages: int
    age_ms: int
    enabled: bool = True


@router.get("/services")
def list_services(who: Who) -> list[Answer]:
    """All services: leader, last and next run, settings."""
    who.need(RoleRight.READ)

    def work(connection: Connection) -> list[Answer]:
        settings = board.all_settings(connection, who.context.kinds.values())
        held = {row.service: row for row in leases.rows(connection)}
        last = board.last_runs(connection)
        return [
            _view(who.context.kinds[name], found, held.get(name), last.get(name))
            for name, found in settings.items()
        ]

    return who.read(work)


@router.get("/services/{name}")
def one_service(name: str, who: Who) -> Answer:
    """One service."""
    who.need(RoleRight.READ)
    return _service(who, who.context.kind(name))


@router.get("/services/{name}/runs")
def service_runs(
    name: str, who: Who, count: Annotated[int, Query(ge=1, le=board.RUNS_KEPT)] = 20
) -> list[Answer]:
    """The runs of a service, the newest first."""
    who.need(RoleRight.READ)
    who.context.kind(name)
    return [asdict(run) for run in who.read(lambda connection: board.runs(connection, name, count))]


@router.patch("/services/{name}")
def edit_service(name: str, body: ServiceChange, who: Who) -> Answer:
    """Change a service's interval or options; takes effect within two seconds."""
    kind = _operable(who, name)
    if kind.name == cleanup.KIND.name:
        who.need(RoleRight.ADMINISTER)  # retention of the log of user actions

    def work(connection: Connection, actor: Actor) -> None:
        if body.interval_ms is not None:
            board.set_interval(connection, kind, body.interval_ms, actor)
        if body.options:
            board.set_options(connection, kind, body.options, actor)

    who.change(body.reason, work)
    return _woken(who, kind)


@router.post("/services/{name}/pause")
def pause_service(name: str, body: Reason, who: Who) -> Answer:
    """Pause a service until it is resumed."""
    kind = _operable(who, name)
    who.change(body.reason, lambda connection, actor: board.set_paused(connection, kind, True, actor))
    return _woken(who, kind)


@router.post("/services/{name}/resume")
def resume_service(name: str, body: Reason, who: Who) -> Answer:
    """Resume a paused service."""
    kind = _operable(who, name)
    who.change(body.reason, lambda connection, actor: board.set_paused(connection, kind, False, actor))
    return _woken(who, kind)


@router.post("/services/{name}/run")
def run_service(name: str, body: Reason, who: Who) -> Answer:
    """Run a service now at its leader, even if it is paused."""
    kind = _operable(who, name)
    who.change(body.reason, lambda connection, actor: board.ask_run(connection, kind, actor))
    return _woken(who, kind)


@router.post("/services/{name}/hand-over")
def hand_over_service(name: str, body: Reason, who: Who) -> Answer:
    """Hand a service over: its leader gives it up and does not take it again for the time of one lease."""
    kind, block = _operable(who, name), who.context.times.ttl_ms
    who.change(body.reason, lambda connection, actor: board.hand_over(connection, kind, block, actor))
    return _woken(who, kind)


@router.get("/alarms")
def list_alarms(
    who: Who, state: Annotated[list[AlarmState] | None, Query()] = None, rule: str = "", group: str = ""
) -> list[Answer]:
    """Alarms that are not resolved, or those in the given states."""
    who.need(RoleRight.READ)
    states = state or [one for one in AlarmState if one is not AlarmState.RESOLVED]
    found = who.read(lambda connection: alarms.search(connection, states, rule=rule, group=group))
    return [alarm_view(row) for row in found]


@router.post("/alarms/{number}/acknowledge")
def acknowledge_alarm(number: int, body: Reason, who: Who) -> Answer:
    """Acknowledge an alarm: no more reminders."""
    _may(who, number)
    channels = who.context.channels
    return alarm_view(
        who.change(
            body.reason, lambda connection, actor: alarms.acknowledge(connection, number, actor, channels)
        )
    )


@router.post("/alarms/{number}/silence")
def silence_alarm(number: int, body: Silence, who: Who) -> Answer:
    """Silence an alarm for some minutes; then it fires again if its condition still holds."""
    _may(who, number)
    channels = who.context.channels
    return alarm_view(
        who.change(
            body.reason,
            lambda connection, actor: alarms.silence(connection, number, body.minutes, actor, channels),
        )
    )


@router.post("/alarms/{number}/wake")
def wake_alarm(number: int, body: Reason, who: Who) -> Answer:
    """End a silence early."""
    _may(who, number)
    channels = who.context.channels
    return alarm_view(
        who.change(body.reason, lambda connection, actor: alarms.wake(connection, number, actor, channels))
    )


@router.get("/notices")
def list_notices(
    who: Who, failed: bool = False, count: Annotated[int, Query(ge=1, le=outbox.PAGE_MAX)] = 100
) -> list[Answer]:
    """Notices of alarms with their receivers, the newest first. With `failed`, only those that a receiver has
    not accepted, with the reason.
    """
    who.need(RoleRight.OPERATE)
    return [asdict(one) for one in who.read(lambda found: outbox.search(found, failed=failed, count=count))]


@router.get("/limits")
def list_limits(who: Who) -> list[Answer]:
    """The limits of groups on topics."""
    who.need(RoleRight.READ)
    found = who.read(limits.read)
    return [{"group": group, "topic": topic, **asdict(limit)} for (group, topic), limit in found.items()]


@router.put("/limits/{group}")
def put_limit(group: str, body: LimitChange, who: Who) -> Answer:
    """Set the limit of a group's lag on a topic or on all topics."""
    who.need(RoleRight.EDIT, ("group", group))
    limit = Limit(body.messages, body.age_ms, body.enabled)
    who.change(body.reason, lambda connection, actor: limits.put(connection, group, body.topic, limit, actor))
    return {"group": group, "topic": body.topic, **asdict(limit)}


@router.delete("/limits/{group}")
def delete_limit(group: str, who: Who, topic: str = ALL_TOPICS, reason: str = "") -> Answer:
    """Remove a limit."""
    who.need(RoleRight.EDIT, ("group", group))
    who.change(reason, lambda connection, actor: limits.remove(connection, group, topic, actor))
    return {}


@router.get("/stalls")
def list_stalls(who: Who) -> Answer:
    """The stalls of this coordinator: turns of its loop in which no other client was served. Their number,
    the last and the longest.
    """
    who.need(RoleRight.READ)
    book = who.context.stalls
    return {
        "count": book.count,
        "total_ms": round(book.total_ms, 1),
        "last": [stall.to_dict() for stall in reversed(book.last.copy())],
        "longest": [stall.to_dict() for stall in book.longest],
    }


@router.get("/audit")
def list_audit(
    who: Who,
    actor: str = "",
    action: str = "",
    kind: str = "",
    object: str = "",
    before_id: int | None = None,
    count: Annotated[int, Query(ge=1, le=audit.PAGE_MAX)] = 100,
) -> list[Answer]:
    """The audit log, the newest entries first. Each search field is an exact match."""
    who.need(RoleRight.READ)
    wanted = audit.Search(
        actor=actor, action=action, kind=kind, object=object, before_id=before_id, count=count
    )
    return [asdict(entry) for entry in who.read(lambda connection: audit.search(connection, wanted))]


def alarm_view(row: AlarmRow) -> Answer:
    """An alarm as the API shows it."""
    return {
        "id": row.id,
        "rule": row.rule,
        "object": row.key,
        "group": row.group,
        "topic": row.topic,
        "state": str(row.alarm.state),
        "text": row.text,
        "since_ms": row.alarm.since,
        "changed_ms": row.alarm.changed_at,
        "noticed_ms": row.alarm.noticed_at,
        "silenced_until_ms": row.alarm.silenced_until,
        "changed_by": row.changed_by,
    }


def _operable(who: ApiCaller, name: str) -> ServiceKind:
    who.need(RoleRight.OPERATE)
    return who.context.kind(name)


def _may(who: ApiCaller, number: int) -> None:
    row = who.read(lambda connection: alarms.one(connection, number))
    who.need(RoleRight.EDIT if who.person.objects else RoleRight.OPERATE, alarm_thing(row))


def alarm_thing(row: AlarmRow) -> tuple[str, str]:
    """The object of an alarm; its owners may silence the alarm. An alarm of a group on a topic belongs to the
    group: a topic's owner must not hide from others that they fall behind.
    """
    return ("group", row.group) if row.group else ("topic", row.topic)


def _woken(who: ApiCaller, kind: ServiceKind) -> Answer:
    who.context.wake(kind.name)
    return _service(who, kind)


def _service(who: ApiCaller, kind: ServiceKind) -> Answer:
    def work(connection: Connection) -> Answer:
        found, lease = board.settings(connection, kind), leases.row(connection, kind.name)
        last = next(iter(board.runs(connection, kind.name, 1)), None)
        return _view(kind, found, lease, last)

    return who.read(work)


def _view(
    kind: ServiceKind, found: ServiceSettings, lease: LeaseRow | None, last: ServiceRun | None
) -> Answer:
    """A service as the API shows it."""
    leads = lease is not None and lease.live
    return {
        "name": kind.name,
        "title": kind.title,
        "leader": lease.owner_label if leads and lease else None,
        "epoch": lease.epoch if lease else 0,
        "lease_ends_ms": lease.expires_at if leads and lease else None,
        "paused": found.plan.paused,
        "pause_reason": found.pause_reason,
        "interval_ms": found.plan.interval_ms,
        "interval_min_ms": kind.floor_ms,
        "next_run_ms": None if found.plan.paused else max(found.plan.next_due_at, found.now),
        "now_ms": found.now,
        "last_run": asdict(last) if last else None,
        "options": [{**asdict(option), "value": found.options[option.name]} for option in kind.options],
    }
