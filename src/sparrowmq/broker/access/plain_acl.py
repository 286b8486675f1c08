"""Access control of RocketMQ 4.x: accounts, permissions, and who may do what (remoting:7.2).

Pure decisions. `acl_files` reads `plain_acl.yml` into a `PlainAcl`; `gate` asks it about each request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntFlag
from typing import Any, Final

from sparrowmq.broker.access.address_patterns import Matches, address_pattern
from sparrowmq.broker.access.callers import Principal
from sparrowmq.broker.access.rights import RIGHTS, Plain, producer_groups
from sparrowmq.core.errors import SettingsError
from sparrowmq.core.names import INNER_TOPICS, RETRY_PREFIX, TRACE_TOPIC, retry_topic
from sparrowmq.protocol.frame import Command
from sparrowmq.transport.signing import ACCESS_KEY, verify

KEY_CHARS_MIN: Final = 7
"""Access keys and secret keys must be longer than 6 characters."""

ADMIN_CODES: Final = frozenset(code for code, right in RIGHTS.items() if right.plain is Plain.ADMIN)
"""Requests that only admins may make. The reference names 17, 25, 200, 207 and 215. It allows the others to
every account: 50, 51 and 53 would let any account become admin, 222, 314, 323 and 353 change what others
consume, 306, 316 and 329 delete files, and 18 and 225 are the newer versions of 17 and 200. Our own requests
90101 to 90202 hold files and block groups from their queues."""


class Perm(IntFlag):
    """What an account may do with a topic or group."""

    DENY = 1
    PUB = 4
    SUB = 8


_DENY: Final = int(Perm.DENY)
_PERMS: Final = {
    "DENY": Perm.DENY,
    "PUB": Perm.PUB,
    "SUB": Perm.SUB,
    "PUB|SUB": Perm.PUB | Perm.SUB,
    "SUB|PUB": Perm.PUB | Perm.SUB,
}


def parse_perm(text: str | None) -> Perm:
    """The permission in a text; empty text is DENY. Raises `SettingsError` on anything else."""
    if text is None or not text.strip():
        return Perm.DENY
    perm = _PERMS.get(text.strip())
    if perm is None:
        raise SettingsError(f"{text!r} is not a permission; write DENY, PUB, SUB or PUB|SUB")
    return perm


@dataclass(frozen=True, slots=True)
class AclAccount:
    """One account; `resources` are permissions by topic, groups as their retry topics."""

    access_key: str
    secret_key: str = field(repr=False)
    white: Matches = field(repr=False)
    admin: bool = False
    default_topic: Perm = Perm.DENY
    default_group: Perm = Perm.DENY
    resources: Mapping[str, Perm] | None = None


_ACCOUNT_NAMES: Final = frozenset(
    {
        *("accessKey", "secretKey", "whiteRemoteAddress", "admin", "defaultTopicPerm", "defaultGroupPerm"),
        *("topicPerms", "groupPerms"),
    }
)


def parse_account(entry: Any) -> AclAccount:
    """One entry of `accounts`, all scalars as text. Raises `SettingsError`, which contains no secret."""
    if not isinstance(entry, Mapping):
        raise SettingsError("an account is a mapping with accessKey and secretKey")
    access_key, secret_key = _text(entry, "accessKey"), _text(entry, "secretKey")
    if len(access_key) < KEY_CHARS_MIN or len(secret_key) < KEY_CHARS_MIN:
        raise SettingsError(
            f"the account {access_key!r}: accessKey and secretKey need {KEY_CHARS_MIN} characters or more"
        )
    unknown = sorted(set(entry) - _ACCOUNT_NAMES)
    if unknown:
        raise SettingsError(f"the account {access_key!r} has unknown members: {', '.join(map(str, unknown))}")
    admin = _text(entry, "admin").lower()
    if admin not in ("", "true", "false"):
        raise SettingsError(f"the account {access_key!r}: admin is {admin!r}; write true or false")
    try:
        resources = {
            **parse_resources(_list(entry, "topicPerms"), str),
            **parse_resources(_list(entry, "groupPerms"), retry_topic),
        }
        return AclAccount(
            access_key,
            secret_key,
            address_pattern(_text(entry, "whiteRemoteAddress")),
            admin == "true",
            parse_perm(_text(entry, "defaultTopicPerm")),
            parse_perm(_text(entry, "defaultGroupPerm")),
            resources or None,
        )
    except SettingsError as error:
        raise SettingsError(f"the account {access_key!r}: {error}") from None


def parse_resources(entries: Sequence[Any], name: Callable[[str], str]) -> dict[str, Perm]:
    """Permissions of entries `resource=PERM`; `name` makes the key of a resource."""
    found = {}
    for entry in entries:
        resource, equals, perm = str(entry).partition("=")
        if not equals or not resource.strip():
            raise SettingsError(f"{entry!r} is not a resource permission; write name=PUB|SUB")
        found[name(resource.strip())] = parse_perm(perm)
    return found


def _text(entry: Mapping[str, Any], name: str) -> str:
    value = entry.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise SettingsError(f"{name} must be a string")
    return value.strip()


def _list(entry: Mapping[str, Any], name: str) -> Sequence[Any]:
    value = entry.get(name) or ()
    if not isinstance(value, list | tuple):
        raise SettingsError(f"{name} must be a list of name=PERM")
    return value


def _nowhere(host: str) -> bool:
    return False


BY_ADDRESS: Final = AclAccount(
    "(none)", "", _nowhere, default_topic=Perm.PUB | Perm.SUB, default_group=Perm.PUB | Perm.SUB
)
"""The caller from a global white address, where such addresses are not admins."""


@dataclass(frozen=True, slots=True)
class PlainAcl:
    """All accounts, and the addresses that need none.

    Callers from white addresses are admins, as in the reference; with `white_is_admin` off, the address only
    replaces a signature. With `producers_need_pub`, producers in a heartbeat need PUB on their groups.
    """

    accounts: Mapping[str, AclAccount]
    white: Sequence[Matches] = ()
    white_is_admin: bool = True
    producers_need_pub: bool = False

    def refusal(self, host: str, command: Command) -> str | None:
        """Why a request from `host` is refused, in the reference's words, or None.

        Its body is read only after its signature was verified.
        """
        asking = self._asking(host, command)
        if asking is None or isinstance(asking, str):
            return asking
        why = permission_refusal(asking, command.code, needs(command))
        if why is None and self.producers_need_pub:
            groups = producer_groups(command.code, command.body)
            why = permission_refusal(asking, command.code, {retry_topic(name): Perm.PUB for name in groups})
        return why

    def topic_refusal(self, host: str, command: Command, needed: Mapping[str, Perm]) -> str | None:
        """Why an accepted request may not concern these topics, or None."""
        asking = self._asking(host, command)
        if asking is None or isinstance(asking, str):
            return asking
        return permission_refusal(asking, command.code, needed)

    def caller(self, host: str, command: Command) -> Principal:
        """The caller of a request."""
        if self._is_white(host):
            return Principal.by_address(host)
        asking = self._asking(host, command)
        return (
            Principal.nobody(host) if isinstance(asking, str) else Principal.account(command.ext[ACCESS_KEY])
        )

    def may(self, caller: Principal, host: str, needed: Mapping[str, Perm]) -> bool:
        """Whether a caller whose earlier request was accepted may now do this to topics."""
        if self._is_white(host):
            account: AclAccount | None = None if self.white_is_admin else BY_ADDRESS
        else:
            account = self.accounts.get(caller.name) if caller.is_account else None
            if account is None:
                return False
            if self.white_is_admin and account.white(host):
                return True
        return account is None or permission_refusal(account, 0, needed) is None

    def _is_white(self, host: str) -> bool:
        return bool(self.white) and any(matches(host) for matches in self.white)

    def _asking(self, host: str, command: Command) -> AclAccount | str | None:
        """The account for the check of a request: None for a caller with all rights, a text for a refusal."""
        if self._is_white(host):
            return None if self.white_is_admin else BY_ADDRESS
        key = command.ext.get(ACCESS_KEY)
        if key is None:
            return "No accessKey is configured"
        account = self.accounts.get(key)
        if account is None:
            return f"No acl config for {key}"
        white = account.white(host)
        if white and self.white_is_admin:
            return None
        if verify(command.ext, command.body, account.secret_key):
            return account
        return replace(account, admin=False) if white else f"Check signature failed for accessKey={key}"


def permission_refusal(account: AclAccount, code: int, needed: Mapping[str, Perm]) -> str | None:
    """Why an account may not make a request with these needs, or None."""
    if code in ADMIN_CODES and not account.admin:
        return f"Need admin permission for request code={code}, but accessKey={account.access_key} is not"
    if account.admin and account.resources is None:
        return None
    owned = account.resources or {}
    for resource, perm in needed.items():
        if resource == TRACE_TOPIC and perm is Perm.PUB:
            continue  # message traces need no separate permission
        if resource in INNER_TOPICS and not account.admin:
            return f"Need admin permission for topic:{resource}, but accessKey={account.access_key} is not"
        is_group = resource.startswith(RETRY_PREFIX)
        has = owned.get(resource)
        default = has is None
        if has is None:
            has = account.default_group if is_group else account.default_topic
        held = int(has)  # plain numbers: flags take as long as everything else together
        if held & _DENY or not held & int(perm):
            shown = f"group:{resource[len(RETRY_PREFIX) :]}" if is_group else f"topic:{resource}"
            return f"No {'default ' if default else ''}permission for {shown}"
    return None


def needs(command: Command) -> dict[str, Perm]:
    """The permissions that a request needs, by topic; groups as their retry topics.

    Raises the `ProtocolError` family for an unreadable body.
    """
    right = RIGHTS.get(command.code)
    if right is None or right.plain not in (Plain.PUB, Plain.SUB):
        return {}
    perm = Perm.PUB if right.plain is Plain.PUB else Perm.SUB
    return {
        # Consumers of a group may send its messages back.
        (retry_topic(name) if kind == "Group" else name): Perm.SUB if kind == "Group" else perm
        for kind, name in right.resources(command.ext, command.body)
    }


def placed_perm(code: int) -> Perm:
    """The permission that a request about one stored message needs on its original topic."""
    right = RIGHTS.get(code)
    return Perm.PUB if right is not None and right.plain is Plain.PUB else Perm.SUB
