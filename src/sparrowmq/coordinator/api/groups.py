"""Routes of managed groups: members, the assignment of queues with reasons, and earlier plans."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query
from sqlalchemy import Connection

from sparrowmq.coordinator.api.shared import Answer, Who
from sparrowmq.coordinator.cluster.explorer import asked
from sparrowmq.coordinator.groups import dynamic_settings, followers
from sparrowmq.coordinator.groups import table as managed_groups
from sparrowmq.coordinator.groups.group_metadata import KeptGroup, client_of
from sparrowmq.coordinator.groups.initial_state import Terms
from sparrowmq.coordinator.groups.plan import LIST_MAX, MEMBERS_MAX, AdmissionRules
from sparrowmq.coordinator.groups.preview import JOIN_MAX, WhatIf, plan_values, preview
from sparrowmq.coordinator.groups.table import GroupView, MemberView, PlanView, QueueView
from sparrowmq.coordinator.groups.unmanaged import preview_unmanaged
from sparrowmq.coordinator.users.roles import RoleRight
from sparrowmq.core.errors import RefusedError, SettingsError

router = APIRouter(tags=["groups"])
NAME_CHARS_MAX = 512
UNMANAGED_SECONDS = 15.0
"""Time limit of a preview that asks all members of a group."""
Texts = Annotated[list[Annotated[str, Query(max_length=NAME_CHARS_MAX)]] | None, Query(max_length=LIST_MAX)]


@router.get("/groups")
def list_groups(who: Who) -> list[Answer]:
    """The managed groups, by name. The members of other groups assign their queues themselves."""
    who.need(RoleRight.READ)
    return [group_view(view) for view in who.read(managed_groups.views)]


@router.get("/groups/{group}")
def show_group(group: str, who: Who) -> Answer:
    """A managed group: its figures, its pauses, and the owner of each queue, with time and reason."""
    who.need(RoleRight.READ)

    def work(connection: Connection) -> Answer:
        view = _one(connection, group)
        queues = managed_groups.queue_views(connection, group)
        pauses = [row for row in dynamic_settings.read(connection, group) if row.setting.name == "pause"]
        return {
            **group_view(view),
            "pauses": [pause_view(one) for one in pauses],
            "queues": [queue_view(one) for one in queues],
        }

    return who.read(work)


@router.get("/groups/{group}/members")
def list_members(group: str, who: Who) -> list[Answer]:
    """The members of a managed group, those that joined first at the beginning. Two clients with one client
    id are two members.

    `settings` says whether a member applies the `newest` settings or `older` ones, None before its first
    report; `unable` names those it cannot apply, with the reason. `knobs` is the old name of `settings`.
    """
    who.need(RoleRight.READ)

    def work(connection: Connection) -> tuple[list[MemberView], int]:
        _one(connection, group)
        return managed_groups.member_views(connection, group), followers.number(connection, group)

    views, wanted = who.read(work)
    return [member_view(one, wanted) for one in views]


@router.get("/groups/{group}/plans")
def list_plans(
    group: str,
    who: Who,
    count: Annotated[int, Query(ge=1, le=managed_groups.PAGE_MAX)] = 20,
    before_id: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
) -> list[Answer]:
    """The plans of a managed group, the newest first."""
    who.need(RoleRight.READ)

    def work(connection: Connection) -> list[PlanView]:
        _one(connection, group)
        return managed_groups.plan_views(connection, group, count, before_id)

    return [plan_view(one) for one in who.read(work)]


@router.get("/groups/{group}/preview")
def preview_plan(
    group: str,
    who: Who,
    maximum: Annotated[int | None, Query(ge=0, le=MEMBERS_MAX)] = None,
    allow: Texts = None,
    deny: Texts = None,
    join: Annotated[int, Query(ge=0, le=JOIN_MAX)] = 0,
    without: Texts = None,
) -> Answer:
    """The next plan of a managed group, with reasons; optionally with other rules or members.

    Rules that are not given are the group's own. Nothing is changed.
    """
    who.need(RoleRight.READ)
    what_if = WhatIf.of(maximum, allow, deny, join, without)

    def work(connection: Connection) -> tuple[KeptGroup, AdmissionRules]:
        _one(connection, group)
        terms = Terms.of(row.setting for row in dynamic_settings.read(connection, group))
        return managed_groups.load(connection, group), terms.rules

    kept, rules = who.read(work)
    try:
        return plan_values(preview(group, kept, rules, what_if))
    except SettingsError as error:
        raise RefusedError(str(error), status=422) from None


@router.get("/groups/{group}/would-be")
async def preview_unmanaged_group(
    group: str,
    who: Who,
    join: Annotated[int, Query(ge=0, le=JOIN_MAX)] = 0,
    without: Texts = None,
) -> Answer:
    """The plan that a group would get which is not managed now, from the division that its members report;
    optionally with other members. Nothing is changed.
    """
    who.need(RoleRight.READ)
    what_if = WhatIf.of(None, None, None, join, without)
    admin = await who.context.explorer.admin()
    return plan_values(
        await asked(preview_unmanaged(admin, group, what_if, AdmissionRules()), UNMANAGED_SECONDS)
    )


def _one(connection: Connection, group: str) -> GroupView:
    found = managed_groups.views(connection, group)
    if not found:
        raise RefusedError(
            f"group {group[:255]} is not managed: its members divide its queues themselves; "
            "see them with: sparrow group connections",
            status=404,
        )
    return found[0]


def group_view(view: GroupView) -> Answer:
    """A group as the API shows it."""
    return {
        "group": view.name,
        **asdict(view.numbers),
        "members": view.members,
        "queue_count": view.queues,
        "planned_ms": view.planned_at or None,
        "seen_ms": view.seen_at or None,
        "problem": view.problem,
    }


def pause_view(row: dynamic_settings.SettingRow) -> Answer:
    """A pause as the API shows it with its group; `until_ms` None: until it is resumed."""
    setting = row.setting
    return {
        "place": str(setting.place),
        "until_ms": setting.until or None,
        "reason": setting.reason,
        "who": row.changed_by,
    }


def queue_view(view: QueueView) -> Answer:
    """A queue as the API shows it; `target` is its next owner, None if that does not change."""
    row = view.row
    return {
        "topic": view.queue.topic,
        "broker": view.queue.broker_name,
        "queue": view.queue.queue_id,
        "owner": row.owner or None,
        "client_id": client_of(row.owner) or None,
        "generation": row.generation,
        "since_ms": view.since,
        "phase": row.phase,
        "target": row.target if row.target != row.owner else None,
        "why": row.why,
    }


def member_view(view: MemberView, wanted: int) -> Answer:
    """A member as the API shows it; its last report is the one its leader saved. `wanted` is the number of
    the newest dynamic settings.
    """
    row = view.row
    applied = (
        None if view.applied_revision is None else "newest" if view.applied_revision == wanted else "older"
    )
    return {
        "member": view.member,
        "client_id": row.client_id,
        "address": row.address,
        "version": row.version,
        "joined_ms": view.joined_at,
        "heard_ms": view.heard_at,
        "lease_ends_ms": view.lease_ends_at,
        "knows": view.knows,
        "standing": row.standing,
        "reason": row.reason,
        "queues": view.queues,
        "late": view.late,
        "settings": applied,
        "knobs": applied,
        "unable": {setting: followers.why_unable(word) for setting, word in view.unable.items()},
        "topics": list(row.topics),
    }


def plan_view(view: PlanView) -> Answer:
    """A plan as the API shows it; `moves` are the first moves by name."""
    row = view.row
    return {
        "id": view.id,
        "generation": row.generation,
        "epoch": view.epoch,
        "made_ms": view.made_at,
        "in_force_ms": view.in_force_at or None,
        "members": row.members,
        "queues": row.queues,
        "moved": row.moved,
        "cause": row.cause,
        "moves": [
            {
                "topic": one.queue.topic,
                "broker": one.queue.broker_name,
                "queue": one.queue.queue_id,
                "before": one.before or None,
                "after": one.after or None,
                "why": one.why,
            }
            for one in row.moves
        ],
    }
