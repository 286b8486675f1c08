"""Users and policies of 5.x access control, in requests 3001 to 3010 (remoting:2.7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import field, to_builtins

from sparrowmq.protocol.bodies.base import Body, convert, without_nulls
from sparrowmq.protocol.java_json import dumps, loads


class UserInfo(Body, frozen=True):
    """A user. `user_type` is Super or Normal, `user_status` enable or disable; None: not given."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None

    def __repr__(self) -> str:
        return f"UserInfo(username={self.username!r}, user_type={self.user_type!r}, {self.user_status!r})"


class PolicyEntryInfo(Body, frozen=True):
    """A decision (Allow, Deny) about actions on a resource, from some addresses or from all."""

    resource: str | None = None
    actions: list[str] = field(default_factory=list)
    source_ips: list[str] | None = None
    decision: str | None = None


class PolicyInfo(Body, frozen=True):
    """Entries of one type: Custom, or Default for resources without a custom entry."""

    policy_type: str | None = None
    entries: list[PolicyEntryInfo] = field(default_factory=list)


class AclInfo(Body, frozen=True):
    """The policies of a subject, `User:name`."""

    subject: str | None = None
    policies: list[PolicyInfo] = field(default_factory=list)

    @classmethod
    def of(cls, subject: str | None, kinds: Mapping[str, Mapping[str, PolicyEntryInfo]]) -> AclInfo:
        """Policies from entries by type and resource."""
        return cls(subject, [PolicyInfo(kind, list(entries.values())) for kind, entries in kinds.items()])


def users_to_json(users: list[UserInfo]) -> bytes:
    """The body of a response to 3005; empty without users, as in RocketMQ."""
    return _list_to_json(users)


def users_from_json(data: bytes) -> list[UserInfo]:
    """The users in a response to 3005. Raises `BodyError` or `JavaJsonError`."""
    return convert(loads(data), list[UserInfo]) if data else []


def acls_to_json(acls: list[AclInfo]) -> bytes:
    """The body of a response to 3010; empty without policies."""
    return _list_to_json(acls)


def acls_from_json(data: bytes) -> list[AclInfo]:
    """The policies in a response to 3010. Raises `BodyError` or `JavaJsonError`."""
    return convert(loads(data), list[AclInfo]) if data else []


def _list_to_json(items: list[Any]) -> bytes:
    return dumps(without_nulls(to_builtins(items))) if items else b""
