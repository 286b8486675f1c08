"""Users and policies of 5.x access control on disk: `users.json` and `acls.json` (remoting:7.3).

RocketMQ keeps them in RocksDB, so the files are specific to SparrowMQ; the commands are the same. The files
contain passwords in clear text, because signatures are checked with them. So only the broker's user may read
them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import to_builtins
from msgspec.structs import replace

from sparrowmq.broker.access.policies import (
    ENABLED,
    NORMAL,
    SUPER,
    USER_STATUSES,
    USER_TYPES,
    AuthTables,
    merge,
    one_of,
    parse_policies,
    without,
)
from sparrowmq.core.errors import ProtocolError, SettingsError
from sparrowmq.protocol.bodies.access import AclInfo, UserInfo
from sparrowmq.protocol.bodies.base import convert, without_nulls
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.refusals import Refused
from sparrowmq.store.tables.config_file import ConfigFile

SUBJECT: Final = "User:"


def refused(remark: str) -> Refused:
    """The refusal of a command about users or policies; the text is the reference's own."""
    return Refused(ResponseCode.NO_PERMISSION, remark)


class AuthStore:
    """The tables; their changes are on disk when the call returns.

    Changes may be made in any thread, one at a time; until a change is complete, the previous state is in
    force.

    Raises `SettingsError` when a file contains invalid policies, the `StoreError` family when one cannot be
    read.
    """

    def __init__(self, directory: Path) -> None:
        self._users_file = ConfigFile(directory / "users.json", mode=0o600)
        self._acls_file = ConfigFile(directory / "acls.json", mode=0o600)
        self.tables = AuthTables()
        self.acls: dict[str, AclInfo] = {}
        try:
            self.tables.take_users(
                {name: spelled(convert(value, UserInfo)) for name, value in self._users_file.load().items()}
            )
            for subject, value in self._acls_file.load().items():
                self.acls[subject] = acl = convert(value, AclInfo)
                self.tables.policies[subject] = parse_policies(acl)
        except (Refused, ProtocolError, SettingsError) as error:
            text = f"{directory}: users or policies cannot be used: {error}"
            raise SettingsError(text, what="users", value=directory) from None

    def __repr__(self) -> str:
        return f"<AuthStore {len(self.tables.users)} users, {len(self.acls)} with policies>"

    # Users

    def create_user(self, user: UserInfo) -> None:
        """Add a user; Normal and enabled by default. Raises `Refused`."""
        name = _name(user)
        if not user.password or not user.password.strip():
            raise refused("password can not be blank")
        if name in self.tables.users:
            raise refused("The user is existed")
        self._put_user(user)

    def update_user(self, user: UserInfo) -> None:
        """Change the given fields of a user; ignores blank fields, as the reference does. Raises
        `Refused`."""
        old = self.tables.users.get(_name(user))
        if old is None:
            raise refused("The user is not exist")
        told = {
            name: value
            for name in ("password", "user_type", "user_status")
            if (value := getattr(user, name) or "").strip()
        }
        self._put_user(replace(old, **told))

    def delete_user(self, name: str) -> None:
        """Delete a user and its policies; does nothing when it does not exist."""
        if SUBJECT + name in self.acls:
            self._put_acl(SUBJECT + name, None)
        if name in self.tables.users:
            self._save_users({key: user for key, user in self.tables.users.items() if key != name})

    def users(self, part: str = "") -> list[UserInfo]:
        """The users whose names contain `part`, sorted."""
        return [user for name, user in sorted(self.tables.users.items()) if part in name]

    def add(self, users: Mapping[str, UserInfo], acls: Mapping[str, AclInfo]) -> None:
        """Add complete users and their policies by subject, replacing those of the same names.

        The policies are written first: a crash in between leaves policies without a user, which allow
        nothing.
        """
        policies = {subject: parse_policies(acl) for subject, acl in acls.items()}
        all_acls = {**self.acls, **acls}
        self._acls_file.save(_table(all_acls))
        self.acls = all_acls
        self.tables.policies.update(policies)
        self._save_users({**self.tables.users, **users})

    def make_first(self, text: str, name: str, keys: tuple[str, str]) -> tuple[str, str] | None:
        """Create the super user named in a setting, unless it exists; returns its name and password.

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
            raise SettingsError(f'{name}: write {{"{keys[0]}":"…","{keys[1]}":"…"}}', name)
        if user not in self.tables.users:
            self._put_user(UserInfo(user, password, SUPER, ENABLED))
        return user, password

    def is_super(self, name: str | None) -> bool:
        """Whether the user exists and is a super user."""
        user = self.tables.users.get(name or "")
        return user is not None and user.user_type == SUPER

    def _put_user(self, user: UserInfo) -> None:
        name = _name(user)
        told = spelled(user)
        made = replace(told, user_type=told.user_type or NORMAL, user_status=told.user_status or ENABLED)
        self._save_users({**self.tables.users, name: made})

    # Policies

    def put_acl(self, acl: AclInfo) -> None:
        """Add policies to a subject's, or change them (3006 and 3007 are the same). Raises `Refused`."""
        subject = self._subject(acl.subject)
        if not acl.policies:
            raise refused("The policies is empty.")
        try:
            merged = merge(self.acls.get(subject), replace(acl, subject=subject))
            parse_policies(acl)
            self._put_acl(subject, merged)
        except SettingsError as error:
            raise refused(str(error)) from None

    def delete_acl(self, subject: str, policy_type: str | None, resource: str | None) -> None:
        """Delete a subject's policies, or only the entry for one resource. Raises `Refused`."""
        subject = self._subject(subject, "The subject is not exist.")
        acl = self.acls.get(subject)
        if acl is None:
            raise refused("The acl is not exist.")
        try:
            left = without(acl, policy_type, resource) if resource or policy_type else None
        except SettingsError as error:
            raise refused(str(error)) from None
        self._put_acl(subject, left)

    def acl(self, subject: str) -> AclInfo | None:
        """A subject's policies. Raises `Refused` for an unknown subject."""
        return self.acls.get(self._subject(subject, "The subject is not exist."))

    def list_acls(self, subject_part: str = "", resource_part: str = "") -> list[AclInfo]:
        """The policies of subjects, and entries for resources, whose names contain these parts."""
        found = []
        for subject, held in sorted(self.acls.items()):
            if subject_part not in subject:
                continue
            kinds = {
                policy.policy_type or "": {
                    entry.resource or "": entry
                    for entry in policy.entries
                    if resource_part in (entry.resource or "")
                }
                for policy in held.policies
            }
            acl = AclInfo.of(subject, {kind: entries for kind, entries in kinds.items() if entries})
            if acl.policies:
                found.append(acl)
        return found

    def _subject(self, subject: str | None, unknown: str = "") -> str:
        if not subject or not subject.startswith(SUBJECT):
            raise refused("The subject is null.")
        if subject[len(SUBJECT) :] not in self.tables.users:
            raise refused(unknown or f"The subject of {subject} is not exist.")
        return subject

    # Write to disk first: a change that cannot be saved must not take effect.

    def _save_users(self, users: dict[str, UserInfo]) -> None:
        self._users_file.save(_table(users))
        self.tables.take_users(users)

    def _put_acl(self, subject: str, acl: AclInfo | None) -> None:
        policies = None if acl is None else parse_policies(acl)
        acls = {key: kept for key, kept in self.acls.items() if key != subject}
        if acl is not None:
            acls[subject] = acl
        self._acls_file.save(_table(acls))
        self.acls = acls
        if policies is None:
            self.tables.policies.pop(subject, None)
        else:
            self.tables.policies[subject] = policies


def spelled(user: UserInfo) -> UserInfo:
    """The user with type and status spelled as in comparisons; blank values count as not given.

    Raises `Refused` for unknown values.
    """
    found: dict[str, str | None] = {}
    for name, title, words in (
        ("user_type", "userType", USER_TYPES),
        ("user_status", "userStatus", USER_STATUSES),
    ):
        text = getattr(user, name)
        told = text if text and text.strip() else None
        found[name] = one_of(told, words)
        if told is not None and found[name] is None:
            raise refused(f"{title} {text} is illegal")
    return replace(user, **found)


def _name(user: UserInfo) -> str:
    if user.username is None or not user.username.strip():
        raise refused("username can not be blank")
    return user.username


def _table(values: dict[str, Any]) -> dict[str, Any]:
    return {name: without_nulls(to_builtins(value)) for name, value in values.items()}
