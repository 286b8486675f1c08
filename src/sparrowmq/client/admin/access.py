"""Access control: users and policies of 5.x brokers (client:F, access control)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from sparrowmq.client.admin.calls import AdminPart
from sparrowmq.client.admin.types import AccessGrant, AccessUser
from sparrowmq.client.cluster.broker_api import check
from sparrowmq.core.errors import ClientError
from sparrowmq.protocol.bodies.access import (
    AclInfo,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
    acls_from_json,
    users_from_json,
)
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command

_SECONDS: Final = 5.0
_SUBJECT: Final = "User:"
_CUSTOM: Final = "Custom"
_NOT_ON: Final = ("system error occurred", "MetadataProvider")
"""Parts of the remarks of Apache's brokers that have no users or policies."""


class UserAdmin(AdminPart):
    """The users and their grants. Changes are made at every master, or at those of `cluster`.

    The first error is raised after all masters were asked. Lists come from one master.
    """

    async def create(
        self, name: str, password: str, *, super_user: bool = False, cluster: str | None = None
    ) -> None:
        """Create a user (3001); a super user may do everything. Raises `BrokerError` if the user exists."""
        _check_name("the user", name)
        _check_name("the password", password)
        user = UserInfo(name, password, _kind(super_user))
        await self._tell(RequestCode.AUTH_CREATE_USER, {"username": name}, user.encode(), cluster)

    async def update(
        self,
        name: str,
        *,
        password: str | None = None,
        super_user: bool | None = None,
        enabled: bool | None = None,
        cluster: str | None = None,
    ) -> None:
        """Change the given fields of a user (3002). Raises `BrokerError` if the user does not exist."""
        if password is None and super_user is None and enabled is None:
            raise ClientError(f"no change for user {name!r}; give password, super_user or enabled")
        kind = None if super_user is None else _kind(super_user)
        status = None if enabled is None else "enable" if enabled else "disable"
        user = UserInfo(name, password, kind, status)
        await self._tell(RequestCode.AUTH_UPDATE_USER, {"username": name}, user.encode(), cluster)

    async def delete(self, name: str, *, cluster: str | None = None) -> None:
        """Delete a user and its policies (3003). Does nothing if the user does not exist."""
        _check_name("the user", name)
        await self._tell(RequestCode.AUTH_DELETE_USER, {"username": name}, b"", cluster)

    async def grant(
        self,
        user: str,
        resources: Sequence[str],
        actions: Sequence[str],
        *,
        sources: Sequence[str] = (),
        allow: bool = True,
        cluster: str | None = None,
    ) -> None:
        """Allow a user to perform `actions` on `resources` (3007), only from `sources` if given.

        Actions are Pub, Sub, Create, Update, Delete, Get, List and All. Resources are like `Topic:Orders`,
        `Group:bill*`, `Cluster:*` and `*`. Sources are addresses and networks. With `allow=False` the actions
        are denied. Earlier entries for the same resource are replaced. Raises `BrokerError` for values that
        the broker rejects.
        """
        _check_name("the user", user)
        if isinstance(resources, str) or isinstance(actions, str) or isinstance(sources, str):
            raise ClientError("resources, actions and sources must be lists of strings")
        if not resources or not actions:
            raise ClientError(f"no grant for user {user!r}; give resources and actions")
        entries = [
            PolicyEntryInfo(resource, list(actions), list(sources) or None, "Allow" if allow else "Deny")
            for resource in resources
        ]
        acl = AclInfo(_SUBJECT + user, [PolicyInfo(_CUSTOM, entries)])
        await self._tell(RequestCode.AUTH_UPDATE_ACL, {"subject": _SUBJECT + user}, acl.encode(), cluster)

    async def revoke(self, user: str, resource: str | None = None, *, cluster: str | None = None) -> None:
        """Delete a user's entries for one resource, or for all (3008)."""
        _check_name("the user", user)
        ext = {"subject": _SUBJECT + user}
        if resource is not None:
            ext |= {"resource": resource, "policyType": _CUSTOM}
        await self._tell(RequestCode.AUTH_DELETE_ACL, ext, b"", cluster)

    async def grants(self, part: str = "", *, cluster: str | None = None) -> list[AccessGrant]:
        """The policies of the users whose names contain `part` (3010), by user."""
        ext = {"subjectFilter": part} if part else {}
        body = await self._ask_one(RequestCode.AUTH_LIST_ACL, ext, cluster)
        found = [grant for acl in acls_from_json(body) for grant in _grants(acl)]
        return sorted(found, key=lambda grant: grant.user)

    # Internals

    async def _tell(self, code: RequestCode, ext: dict[str, str], body: bytes, cluster: str | None) -> None:
        masters = await self._calls.cluster_masters(cluster)
        calls = (self._call(address, code, ext, body) for address in masters.values())
        for answer in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer

    async def _ask_one(self, code: RequestCode, ext: dict[str, str], cluster: str | None) -> bytes:
        masters = await self._calls.cluster_masters(cluster)
        return (await self._call(masters[min(masters)], code, ext, b"")).body

    async def _call(self, address: str, code: RequestCode, ext: dict[str, str], body: bytes) -> Command:
        request = Command(code, ext=dict(ext), body=body)
        answer = await self._calls.running().remoting.call(address, request, _SECONDS)
        said = answer.remark or ""
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED or any(one in said for one in _NOT_ON):
            answer.remark = f"{said.strip().rstrip('.')}. Is access control on there (authenticationEnabled)?"
        return check(answer, address, code)

    async def list(self, part: str = "", *, cluster: str | None = None) -> list[AccessUser]:
        """The users whose names contain `part` (3005), sorted; without passwords."""
        body = await self._ask_one(RequestCode.AUTH_LIST_USER, {"filter": part} if part else {}, cluster)
        found = [
            AccessUser(user.username or "", user.user_type == "Super", user.user_status != "disable")
            for user in users_from_json(body)
        ]
        return sorted(found, key=lambda user: user.name)


def _grants(acl: AclInfo) -> list[AccessGrant]:
    user = (acl.subject or "").removeprefix(_SUBJECT)
    return [
        AccessGrant(
            user,
            entry.resource or "",
            tuple(entry.actions),
            tuple(entry.source_ips or ()),
            (entry.decision or "").lower() == "allow",
            (policy.policy_type or _CUSTOM).lower() == "default",
        )
        for policy in acl.policies
        for entry in policy.entries
    ]


def _kind(super_user: bool) -> str:
    return "Super" if super_user else "Normal"


def _check_name(what: str, text: str) -> None:
    if not text.strip():
        raise ClientError(f"{what} is empty")
