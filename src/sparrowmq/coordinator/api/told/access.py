"""Routes of access control at the brokers: users and policies.

Only admins may see and change permissions at brokers. Passwords and secrets are written, never read, and are
in no audit entry.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from sparrowmq import aio
from sparrowmq.coordinator.api.acting import Change, carry_out
from sparrowmq.coordinator.api.cluster import explorer
from sparrowmq.coordinator.api.shared import Answer, ApiCaller, Reason, Who
from sparrowmq.coordinator.cluster.explorer import asked
from sparrowmq.coordinator.users.roles import RoleRight
from sparrowmq.core.errors import RefusedError

router = APIRouter(prefix="/cluster/access", tags=["access"])
NAME_CHARS_MAX = 255
SECRET_CHARS_MAX = 255
ENTRIES_MAX = 100
Name = Annotated[str, Field(min_length=1, max_length=NAME_CHARS_MAX)]
Names = Annotated[list[Name], Field(max_length=ENTRIES_MAX)]
Why = Annotated[str, Query(max_length=500)]


class BrokerUser(Reason):
    """A user of brokers; omitted values stay. A new user needs a password."""

    password: str | None = Field(default=None, min_length=1, max_length=SECRET_CHARS_MAX)
    super_user: bool | None = None
    enabled: bool | None = None


class Policy(Reason):
    """A permission or prohibition of a user for resources, from some addresses or from all."""

    resources: Names = Field(min_length=1)
    actions: Names = Field(min_length=1)
    sources: Names = Field(default_factory=list)
    allow: bool = True


@router.get("/users")
async def list_users(who: Who) -> list[Answer]:
    """The users of the brokers, as one master lists them."""
    who.need(RoleRight.ADMINISTER)
    admin = await explorer(who).admin()
    return [asdict(one) for one in await asked(admin.users.list())]


@router.put("/users/{user}")
async def put_user(user: str, body: BrokerUser, who: Who) -> Answer:
    """Create a user at every master, or change the given values of an existing one."""
    who.need(RoleRight.ADMINISTER)
    admin = await explorer(who).admin()
    known = {one.name: one for one in await asked(admin.users.list(user))}.get(user)
    if known is None and not (body.password or "").strip():
        raise RefusedError(f"there is no user {user[:64]!r}; a new one needs a password", status=422)
    values = body.model_dump(exclude={"reason", "password"}, exclude_none=True)
    if known is not None and not values and body.password is None:
        raise RefusedError("give a password, super_user or enabled; nothing would change", status=422)
    after = values | ({"password": "changed"} if body.password is not None else {})
    before = None if known is None else {"super_user": known.super_user, "enabled": known.enabled}

    async def act() -> None:
        if known is None:
            await asked(admin.users.create(user, body.password or "", super_user=bool(body.super_user)))
            if body.enabled is False:
                await asked(admin.users.update(user, enabled=False))
        else:
            await asked(admin.users.update(user, password=body.password, **values))

    action = "access-user.create" if known is None else "access-user.change"
    await _do(who, action, user, act, before=before, after=after, reason=body.reason)
    return {"user": user, **values}


@router.delete("/users/{user}")
async def delete_user(user: str, who: Who, reason: Why = "") -> Answer:
    """Delete a user at every master, with its policies."""
    who.need(RoleRight.ADMINISTER)
    admin = await explorer(who).admin()
    held = [one for one in await asked(admin.users.grants(user)) if one.user == user]
    before = {"policies": [_words(one) for one in held]}
    await _do(
        who, "access-user.delete", user, lambda: asked(admin.users.delete(user)), before=before, reason=reason
    )
    return {}


@router.get("/policies")
async def list_policies(who: Who, user: str = "") -> list[Answer]:
    """The policies of the brokers' users, as one master lists them."""
    who.need(RoleRight.ADMINISTER)
    admin = await explorer(who).admin()
    found = await asked(admin.users.grants(user))
    return [asdict(one) for one in found if user in ("", one.user)]


@router.post("/policies/{user}")
async def put_policy(user: str, body: Policy, who: Who) -> Answer:
    """Allow or deny a user actions at every master; replaces the user's policy for the resource."""
    who.need(RoleRight.ADMINISTER)
    admin = await explorer(who).admin()
    after = body.model_dump(exclude={"reason"})
    held = [
        one
        for one in await asked(admin.users.grants(user))
        if one.user == user and one.resource in body.resources
    ]
    before = {"policies": [_words(one) for one in held]}

    def act() -> Awaitable[Any]:
        return asked(
            admin.users.grant(user, body.resources, body.actions, sources=body.sources, allow=body.allow)
        )

    await _do(who, "access-policy.set", user, act, before=before, after=after, reason=body.reason)
    return {"user": user, **after}


@router.delete("/policies/{user}")
async def delete_policy(
    user: str,
    who: Who,
    resource: Annotated[str | None, Query(max_length=NAME_CHARS_MAX)] = None,
    reason: Why = "",
) -> Answer:
    """Delete a user's policy for one resource, or all of them."""
    who.need(RoleRight.ADMINISTER)
    admin = await explorer(who).admin()
    held = [
        one
        for one in await asked(admin.users.grants(user))
        if one.user == user and resource in (None, one.resource)
    ]
    before = {"policies": [_words(one) for one in held]}
    await _do(
        who,
        "access-policy.delete",
        user,
        lambda: asked(admin.users.revoke(user, resource)),
        before=before,
        reason=reason,
    )
    return {}


async def _do(who: ApiCaller, action: str, name: str, act: Callable[[], Awaitable[Any]], **what: Any) -> None:
    await carry_out(who, Change(action, ("access", name), **what), act)


def _words(one: aio.AccessGrant) -> str:
    """A policy in an audit entry."""
    verb = "allow" if one.allow else "deny"
    return f"{verb} {','.join(one.actions)} {one.resource} {','.join(one.sources)}".strip()
