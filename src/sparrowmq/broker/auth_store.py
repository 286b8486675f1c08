"""Users and policies of 5.x access control on disk: `users.json` and `acls.json` (remoting:7.3).

The reference keeps them in RocksDB, so these files are ours; what the commands carry is the same. Passwords
stand in them as they are, since signatures are checked with them: only the broker's user may read the files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from msgspec import to_builtins
from msgspec.structs import replace

from sparrowmq.broker.auth import (
    DISABLED,
    ENABLED,
    NORMAL,
    SUPER,
    AuthTables,
    merge,
    parse_policies,
    without,
)
from sparrowmq.core.errors import ProtocolError, SettingsError
from sparrowmq.protocol.bodies.access import AclInfo, UserInfo
from sparrowmq.protocol.bodies.base import convert, without_nulls
from sparrowmq.store.config_file import ConfigFile

SUBJECT: Final = "User:"


class AuthError(Exception):
    """A command about users or policies is refused; the text is the reference's."""


class AuthStore:
    """The tables, and changes to them that are on disk when the call returns.

    Raises `SettingsError` when a file holds policies that cannot be used, the `StoreError` family when one
    cannot be read.
    """

    def __init__(self, directory: Path) -> None:
        self._users_file = ConfigFile(directory / "users.json", mode=0o600)
        self._acls_file = ConfigFile(directory / "acls.json", mode=0o600)
        self.tables = AuthTables()
        self.acls: dict[str, AclInfo] = {}
        try:
            self.tables.users = {
                name: convert(value, UserInfo) for name, value in self._users_file.load().items()
            }
            for subject, value in self._acls_file.load().items():
                self.acls[subject] = acl = convert(value, AclInfo)
                self.tables.policies[subject] = parse_policies(acl)
        except (ProtocolError, SettingsError) as error:
            raise SettingsError(f"{directory}: users or policies cannot be used: {error}") from None

    def __repr__(self) -> str:
        return f"<AuthStore {len(self.tables.users)} users, {len(self.acls)} with policies>"

    # Users

    def create_user(self, user: UserInfo) -> None:
        """Add a user, Normal and enabled unless told. Raises `AuthError`."""
        name = _name(user)
        if not user.password or not user.password.strip():
            raise AuthError("password can not be blank")
        if name in self.tables.users:
            raise AuthError("The user is existed")
        self._put_user(user)

    def update_user(self, user: UserInfo) -> None:
        """Change what is told of a user; a blank is not told, as in the reference. Raises `AuthError`."""
        old = self.tables.users.get(_name(user))
        if old is None:
            raise AuthError("The user is not exist")
        told = {
            name: value
            for name in ("password", "user_type", "user_status")
            if (value := getattr(user, name) or "").strip()
        }
        self._put_user(replace(old, **told))

    def delete_user(self, name: str) -> None:
        """Take a user and its policies away; nothing happens when there is none."""
        if SUBJECT + name in self.acls:
            self._put_acl(SUBJECT + name, None)
        if name in self.tables.users:
            self._save_users({key: user for key, user in self.tables.users.items() if key != name})

    def users(self, part: str = "") -> list[UserInfo]:
        """The users whose names contain `part`, sorted."""
        return [self.tables.users[name] for name in sorted(self.tables.users) if part in name]

    def make_first(self, text: str, name: str, keys: tuple[str, str]) -> tuple[str, str] | None:
        """Make the super user that a setting names, unless there is such a user; its name and password.

        Raises `SettingsError` naming the setting, not its value.
        """
        if not text.strip():
            return None
        try:
            value = json.loads(text)
            user, password = value[keys[0]], value[keys[1]]
        except (ValueError, KeyError, TypeError):
            user = password = None
        if not isinstance(user, str) or not isinstance(password, str) or not user or not password:
            raise SettingsError(f'{name}: write {{"{keys[0]}":"…","{keys[1]}":"…"}}')
        if user not in self.tables.users:
            self._put_user(UserInfo(user, password, SUPER, ENABLED))
        return user, password

    def is_super(self, name: str | None) -> bool:
        """Whether the user exists and is a super user."""
        user = self.tables.users.get(name or "")
        return user is not None and user.user_type == SUPER

    def _put_user(self, user: UserInfo) -> None:
        kind = (user.user_type or NORMAL).capitalize()
        status = (user.user_status or ENABLED).lower()
        if kind not in (SUPER, NORMAL):
            raise AuthError(f"userType {user.user_type} is illegal")
        if status not in (ENABLED, DISABLED):
            raise AuthError(f"userStatus {user.user_status} is illegal")
        name = _name(user)
        made = replace(user, username=name, user_type=kind, user_status=status)
        self._save_users({**self.tables.users, name: made})

    # Policies

    def put_acl(self, acl: AclInfo) -> None:
        """Add policies to a subject's, or change them (3006 and 3007 do the same). Raises `AuthError`."""
        subject = self._subject(acl.subject)
        if not acl.policies:
            raise AuthError("The policies is empty.")
        try:
            merged = merge(self.acls.get(subject), replace(acl, subject=subject))
            parse_policies(acl)
            self._put_acl(subject, merged)
        except SettingsError as error:
            raise AuthError(str(error)) from None

    def delete_acl(self, subject: str, policy_type: str | None, resource: str | None) -> None:
        """Take a subject's policies away, or only the entry for one resource. Raises `AuthError`."""
        subject = self._subject(subject, "The subject is not exist.")
        acl = self.acls.get(subject)
        if acl is None:
            raise AuthError("The acl is not exist.")
        self._put_acl(subject, without(acl, policy_type, resource) if resource or policy_type else None)

    def acl(self, subject: str) -> AclInfo | None:
        """A subject's policies. Raises `AuthError` for an unknown subject."""
        return self.acls.get(self._subject(subject, "The subject is not exist."))

    def list_acls(self, subject_part: str = "", resource_part: str = "") -> list[AclInfo]:
        """The policies of subjects, and entries for resources, whose names contain these parts."""
        found = []
        for subject in sorted(self.acls):
            if subject_part not in subject:
                continue
            kinds = {
                policy.policy_type or "": {
                    entry.resource or "": entry
                    for entry in policy.entries
                    if resource_part in (entry.resource or "")
                }
                for policy in self.acls[subject].policies
            }
            acl = AclInfo.of(subject, {kind: entries for kind, entries in kinds.items() if entries})
            if acl.policies:
                found.append(acl)
        return found

    def _subject(self, subject: str | None, unknown: str = "") -> str:
        if not subject or not subject.startswith(SUBJECT):
            raise AuthError("The subject is null.")
        if subject[len(SUBJECT) :] not in self.tables.users:
            raise AuthError(unknown or f"The subject of {subject} is not exist.")
        return subject

    # On disk first: what cannot be written does not hold either.

    def _save_users(self, users: dict[str, UserInfo]) -> None:
        self._users_file.save(_table(users))
        self.tables.users = users

    def _put_acl(self, subject: str, acl: AclInfo | None) -> None:
        policies = None if acl is None else parse_policies(acl)
        acls = {key: kept for key, kept in self.acls.items() if key != subject}
        if acl is not None:
            acls[subject] = acl
        self._acls_file.save(_table(acls))
        self.acls = acls
        self.tables.policies.pop(subject, None)
        if policies is not None:
            self.tables.policies[subject] = policies


def _name(user: UserInfo) -> str:
    if user.username is None or not user.username.strip():
        raise AuthError("username can not be blank")
    return user.username


def _table(values: dict[str, Any]) -> dict[str, Any]:
    return {name: without_nulls(to_builtins(value)) for name, value in values.items()}
