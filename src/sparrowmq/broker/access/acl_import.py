"""Accounts of RocketMQ 4.x (`plain_acl.yml`) as users and policies of 5.x (remoting:7.2, 7.3).

Pure: texts in, users and policies out. Where 5.x has no counterpart, the user gets less than the account had,
never more, and a remark says so. The secret key becomes the password, so that clients sign as before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sparrowmq.broker.access.policies import ALLOW, CUSTOM, DEFAULT, DENY, ENABLED, NORMAL, SUPER
from sparrowmq.core.errors import SettingsError
from sparrowmq.core.names import TRACE_TOPIC
from sparrowmq.core.rights import resource
from sparrowmq.protocol.bodies.access import AclInfo, PolicyEntryInfo, UserInfo

WHITE: Final = "globalWhiteRemoteAddresses"
ACCOUNTS: Final = "accounts"
_FILE_NAMES: Final = frozenset({WHITE, ACCOUNTS, "dataVersion"})
_ACCOUNT_NAMES: Final = frozenset(
    {
        *("accessKey", "secretKey", "whiteRemoteAddress", "admin", "defaultTopicPerm", "defaultGroupPerm"),
        *("topicPerms", "groupPerms"),
    }
)
_PUB: Final = frozenset({"Pub"})
_SUB: Final = frozenset({"Sub", "Get"})
_NOTHING: Final[frozenset[str]] = frozenset()
_ACTIONS: Final = {
    "": _NOTHING,
    "DENY": _NOTHING,
    "PUB": _PUB,
    "SUB": _SUB,
    "PUB|SUB": _PUB | _SUB,
    "SUB|PUB": _PUB | _SUB,
}
"""The actions that replace a permission: consumers also ask for offsets, which needs Get."""


@dataclass(frozen=True, slots=True)
class Imported:
    """Users, their policies by subject, and what could not be translated, one line each."""

    users: Mapping[str, UserInfo] = field(default_factory=dict)
    acls: Mapping[str, AclInfo] = field(default_factory=dict)
    remarks: Sequence[str] = ()

    def rows(self) -> list[tuple[str, str, str, str, list[str], str]]:
        """User, kind, type of policy, resource, actions and decision: what each user may do."""
        found = []
        for name, user in self.users.items():
            kind = str(user.user_type)
            if kind == SUPER:
                found.append((name, kind, CUSTOM, "*", ["All"], ALLOW))
            acl = self.acls.get(f"User:{name}", AclInfo())
            found += [
                (name, kind, str(policy.policy_type), str(entry.resource), entry.actions, str(entry.decision))
                for policy in acl.policies
                for entry in policy.entries
            ]
        return found

    def without(self, known: Collection[str]) -> Imported:
        """Only the users whose names are not among the known ones, which stay as they are."""
        remarks = [
            f"{name}: a user of this name exists and stays as it is" for name in self.users if name in known
        ]
        return Imported(
            {name: user for name, user in self.users.items() if name not in known},
            {
                subject: acl
                for subject, acl in self.acls.items()
                if subject.removeprefix("User:") not in known
            },
            [*self.remarks, *remarks],
        )


def import_accounts(texts: Mapping[str, bytes]) -> Imported:
    """The accounts of some files, by the files' names. Raises `SettingsError`, which contains no secret."""
    users: dict[str, UserInfo] = {}
    acls: dict[str, AclInfo] = {}
    remarks: list[str] = []
    for name, text in texts.items():
        try:
            document = _document(text)
            remarks += [
                f"{WHITE} {address}: requests from there need a signature from now on"
                for address in _list(document, WHITE)
            ]
            for entry in _list(document, ACCOUNTS):
                user, acl = _account(entry, remarks)
                if user.username in users:
                    problem = f"the account {user.username!r} is defined twice"
                    raise SettingsError(problem, what="account", value=user.username)
                users[str(user.username)] = user
                if acl.policies:
                    acls[str(acl.subject)] = acl
        except SettingsError as error:
            raise SettingsError(f"{name}: {error}", what=error.what, value=error.value) from None
    return Imported(users, acls, remarks)


def _document(text: bytes) -> Mapping[str, Any]:
    """A YAML mapping with every scalar as text: a secret such as 0012345678 must not change."""
    import yaml

    try:
        document = yaml.load(text, Loader=yaml.BaseLoader)  # plain values only
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        raise SettingsError(f"{where}not YAML") from None
    if not isinstance(document or {}, dict):
        raise SettingsError(f"write a mapping with {WHITE} and {ACCOUNTS}")
    _refuse_unknown(document or {}, _FILE_NAMES)
    return document or {}


def _account(entry: Any, remarks: list[str]) -> tuple[UserInfo, AclInfo]:
    """One entry of `accounts` as a user and its policies."""
    if not isinstance(entry, dict):
        raise SettingsError("an account is a mapping with accessKey and secretKey")
    key = _text(entry, "accessKey")
    if not key:
        raise SettingsError("an account has no accessKey")
    try:
        _refuse_unknown(entry, _ACCOUNT_NAMES)
        secret, admin, white = (_text(entry, name) for name in ("secretKey", "admin", "whiteRemoteAddress"))
        if not secret:
            raise SettingsError("secretKey is missing")
        if admin.lower() not in ("", "true", "false"):
            raise SettingsError(f"admin is {admin!r}; write true or false")
        held = _held(entry, key, remarks)
        defaults = {
            "Topic": _actions(_text(entry, "defaultTopicPerm")),
            "Group": _actions(_text(entry, "defaultGroupPerm")),
        }
    except SettingsError as error:
        raise SettingsError(f"the account {key!r}: {error}") from None
    if white:
        remarks.append(f"{key}: whiteRemoteAddress {white}: its requests need a signature from now on")
    subject = f"User:{key}"
    if admin.lower() == "true":
        if not (entry.get("topicPerms") or entry.get("groupPerms")):  # also what is left out limits it
            return UserInfo(key, secret, SUPER, ENABLED), AclInfo(subject)
        remarks.append(
            f"{key}: admin with permissions of its own: becomes a normal user with these permissions; for a "
            f"super user, type: sparrow user update {key} --super"
        )
    return UserInfo(key, secret, NORMAL, ENABLED), _policies(subject, held, defaults)


Held = dict[tuple[str, str], frozenset[str]]
"""The actions on each topic and group that an account names."""


def _held(entry: Mapping[str, Any], key: str, remarks: list[str]) -> Held:
    held: Held = {}
    for kind, name in (("Topic", "topicPerms"), ("Group", "groupPerms")):
        for item in _list(entry, name):
            named, equals, perm = item.partition("=") if isinstance(item, str) else ("", "", "")
            if not equals or not named.strip():
                raise SettingsError(f"{name}: {item!r} is not a permission; write name=PUB|SUB")
            actions = _actions(perm)
            if named.strip().endswith("*"):
                remarks.append(f"{key}: {name} {item}: left out; it matched no name, in 5.x it is a pattern")
            else:
                held[resource(kind, named.strip())] = actions
    return held


def _policies(subject: str, held: Held, defaults: Mapping[str, frozenset[str]]) -> AclInfo:
    """Policies that decide like 4.x: what is named has only its own actions, all else has the default's.

    An entry decides only about its actions. So the default policy denies what a named topic or group lacks
    of the default. Traces may be sent without a permission.
    """
    trace = ("Topic", TRACE_TOPIC)
    named = {**held, trace: _PUB | held.get(trace, defaults["Topic"])}
    custom, default = [], []
    for kind, actions in defaults.items():
        if actions:
            default.append(_entry(f"{kind}:*", actions))
    for (kind, name), actions in named.items():
        custom.append(_entry(f"{kind}:{name}", actions))
        lacking = defaults[kind] - actions
        if actions and lacking:
            default.append(_entry(f"{kind}:{name}", lacking, DENY))
    kinds = {CUSTOM: custom, DEFAULT: default}
    return AclInfo.of(
        subject,
        {kind: {str(one.resource): one for one in entries} for kind, entries in kinds.items() if entries},
    )


def _entry(name: str, actions: frozenset[str], decision: str = ALLOW) -> PolicyEntryInfo:
    """A decision about actions; without any, everything is denied."""
    return PolicyEntryInfo(name, sorted(actions) or ["All"], None, decision if actions else DENY)


def _actions(perm: str) -> frozenset[str]:
    actions = _ACTIONS.get(perm.strip())
    if actions is None:
        raise SettingsError(f"{perm!r} is not a permission; write DENY, PUB, SUB or PUB|SUB")
    return actions


def _refuse_unknown(found: Iterable[Any], known: frozenset[str]) -> None:
    unknown = sorted(str(name) for name in found if name not in known)
    if unknown:
        raise SettingsError(f"unknown members: {', '.join(unknown)}")


def _text(entry: Mapping[str, Any], name: str) -> str:
    value = entry.get(name, "")
    if not isinstance(value, str):
        raise SettingsError(f"{name} must be a string")
    return value.strip()


def _list(entry: Mapping[str, Any], name: str) -> Sequence[Any]:
    value = entry.get(name) or ()
    if not isinstance(value, list | tuple):
        raise SettingsError(f"{name} must be a list")
    return value
