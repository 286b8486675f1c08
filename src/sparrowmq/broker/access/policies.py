"""Access control of RocketMQ 5.x: users, policies, and who may do what (remoting:7.3).

Pure decisions. `auth_store` keeps users and policies; `gate` asks about each request.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from sparrowmq.broker.access.auth_needs import Need
from sparrowmq.broker.access.callers import Principal
from sparrowmq.core.errors import SettingsError
from sparrowmq.protocol.bodies.access import AclInfo, PolicyEntryInfo, UserInfo
from sparrowmq.protocol.frame import Command
from sparrowmq.transport.signing import ACCESS_KEY, verify

SUPER: Final = "Super"
NORMAL: Final = "Normal"
ENABLED: Final = "enable"
DISABLED: Final = "disable"
CUSTOM: Final = "Custom"
DEFAULT: Final = "Default"
ALLOW: Final = "Allow"
DENY: Final = "Deny"
ACTIONS: Final = frozenset({"All", "Pub", "Sub", "Create", "Update", "Delete", "Get", "List"})
RESOURCE_TYPES: Final = ("Topic", "Group", "Cluster", "Namespace")
USER_TYPES: Final = (SUPER, NORMAL)
USER_STATUSES: Final = (ENABLED, DISABLED)
POLICY_TYPES: Final = (CUSTOM, DEFAULT)


def one_of(text: str | None, words: Iterable[str]) -> str | None:
    """The listed word that equals a text, in its listed spelling, or None.

    As in the reference, commands ignore the case of ASCII letters. Decisions use the returned word, never the
    text.
    """
    if text is None or not text.isascii():
        return None
    lower = text.strip().lower()
    return next((word for word in words if word.lower() == lower), None)


Needs = Callable[[], Iterable[Need]]
"""Returns the needs of a request."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A pattern of resources: `kind` None is every kind; `name` ends with `*` for a prefix, `*` for all."""

    kind: str | None
    name: str

    def matches(self, need: Need) -> bool:
        """Whether the pattern includes the resource a request needs."""
        if self.kind is None:
            return True
        if self.kind != need.kind:
            return False
        if self.name.endswith("*"):
            return need.name.startswith(self.name[:-1])
        return need.name == self.name

    @property
    def rank(self) -> tuple[int, int, int]:
        """Order among matching patterns: the smallest is the most specific and decides."""
        if self.kind is None:
            return 1, 0, 0
        pattern = 2 if self.name == "*" else 1 if self.name.endswith("*") else 0
        return 0, pattern, -len(self.name)


def parse_resource(text: str) -> Resource:
    """`*`, `Topic:name`, `Group:prefix*`, `Cluster:*`. Raises `SettingsError`."""
    if text == "*":
        return Resource(None, "*")
    kind, colon, name = text.partition(":")
    wanted = one_of(kind, RESOURCE_TYPES)
    if wanted is None or not colon or not name:
        raise SettingsError("The resource is null." if not text else f"The resource {text} is illegal.")
    return Resource(wanted, name)


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """One entry of a policy in a form for evaluation."""

    resource: Resource
    actions: frozenset[str]
    sources: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]
    allow: bool

    def matches(self, need: Need, host: str) -> bool:
        """Whether the entry applies to this need from this address."""
        if not self.resource.matches(need):
            return False
        if "All" not in self.actions and not self.actions & need.actions:
            return False
        if not self.sources:
            return True
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return any(address in source for source in self.sources)


def parse_entry(info: PolicyEntryInfo) -> PolicyEntry:
    """Parse an entry of a policy. Raises `SettingsError` in the reference's words."""
    resource = parse_resource(info.resource or "")
    found = {action: one_of(action, (*ACTIONS, "Any")) for action in info.actions}
    actions = frozenset(word for word in found.values() if word is not None)
    if not found:
        raise SettingsError("The actions is empty.")
    if "Any" in actions:
        raise SettingsError("The actions can not be Any.")
    unknown = sorted(action for action, word in found.items() if word is None)
    if unknown:
        raise SettingsError(f"The actions {', '.join(unknown)} are illegal.")
    sources = []
    for source in info.source_ips or ():
        if not source.strip():
            raise SettingsError("The source ip is empty.")
        try:
            sources.append(ipaddress.ip_network(source.strip(), strict=False))
        except ValueError:
            raise SettingsError("The source ip is invalid.") from None
    decision = one_of(info.decision, (ALLOW, DENY))
    if decision is None:
        raise SettingsError("The decision is null or illegal.")
    return PolicyEntry(resource, actions, tuple(sources), decision == ALLOW)


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies of one user: custom entries first, the default ones when none of them applies."""

    custom: tuple[PolicyEntry, ...] = ()
    default: tuple[PolicyEntry, ...] = ()

    def refusal(self, need: Need, host: str) -> str | None:
        """Why a need is not granted, or None: the most specific entry decides, deny before allow."""
        for entries in (self.custom, self.default):
            speaking = [entry for entry in entries if entry.matches(need, host)]
            if speaking:
                entry = min(speaking, key=lambda entry: (entry.resource.rank, entry.allow))
                return None if entry.allow else "the decision is deny."
        return "no matched policies."


def _policy_type(text: str | None) -> str:
    """Custom or Default; Custom when missing. Raises `SettingsError`."""
    kind = one_of(text, POLICY_TYPES) if text else CUSTOM
    if kind is None:
        raise SettingsError(f"The policy type {text} is illegal.")
    return kind


def parse_policies(info: AclInfo) -> Policies:
    """A subject's policies. Raises `SettingsError`."""
    found: dict[str, list[PolicyEntry]] = {CUSTOM: [], DEFAULT: []}
    for policy in info.policies:
        if not policy.entries:
            raise SettingsError("The policy entries is empty.")
        found[_policy_type(policy.policy_type)] += map(parse_entry, policy.entries)
    return Policies(tuple(found[CUSTOM]), tuple(found[DEFAULT]))


@dataclass(frozen=True, slots=True)
class AccessRules:
    """Which parts of 5.x access control are on; white lists are request codes."""

    authorize: bool
    unauthenticated: frozenset[int] = frozenset()
    unauthorized: frozenset[int] = frozenset()


@dataclass(slots=True)
class AuthTables:
    """All users, and policies by subject (`User:name`)."""

    users: dict[str, UserInfo] = field(default_factory=dict)
    policies: dict[str, Policies] = field(default_factory=dict)

    def take_users(self, users: dict[str, UserInfo]) -> None:
        """Replace all users."""
        self.users = users

    def refusal(self, host: str, command: Command, rules: AccessRules, needs: Needs) -> str | None:
        """Why a request is refused, in the reference's words, or None.

        `needs` is called only for known users with limited rights: it may have to read the body.
        """
        name = command.ext.get(ACCESS_KEY)
        unknown = self._unknown(name, command)
        if unknown is not None:
            if command.code not in rules.unauthenticated:
                return unknown
            # A request that needs no signature gains no further rights by naming a user.
            if name in self.users and rules.authorize and command.code not in rules.unauthorized:
                return unknown
        return self.denied(host, command, rules, needs)

    def denied(self, host: str, command: Command, rules: AccessRules, needs: Needs) -> str | None:
        """Why the user named in a request may not make it, or None; does not verify the caller."""
        if not rules.authorize or command.code in rules.unauthorized:
            return None
        return self._denied(command.ext.get(ACCESS_KEY), host, needs)

    def caller(self, host: str, command: Command) -> Principal:
        """The caller of a request: the user that signed it, or an unauthenticated caller."""
        name = command.ext.get(ACCESS_KEY)
        known = name is not None and self._unknown(name, command) is None
        return Principal.account(name) if name is not None and known else Principal.nobody(host)

    def may(self, name: str, host: str, need: Need) -> bool:
        """Whether a user may perform an action from an address now."""
        user = self.users.get(name)
        enabled = user is not None and user.user_status == ENABLED
        return enabled and self._denied(name, host, lambda: (need,)) is None

    def _unknown(self, name: str | None, command: Command) -> str | None:
        if not name:
            return "username cannot be null."
        user = self.users.get(name)
        if user is None:
            return f"User:{name} is not found."
        if user.user_status != ENABLED:
            return f"User:{name} is disabled."
        if not user.password or not verify(command.ext, command.body, user.password):
            return "check signature failed."
        return None

    def _denied(self, name: str | None, host: str, needs: Needs) -> str | None:
        user = self.users.get(name or "")
        if user is None:
            return f"User:{name or ''} not found."
        if user.user_type == SUPER:
            return None
        subject = f"User:{user.username}"
        policies = self.policies.get(subject, _NONE)
        for need in needs():
            why = policies.refusal(need, host)
            if why is not None:
                return f"{subject} has no permission to access {need.kind}:{need.name} from {host}, {why}"
        return None


_NONE: Final = Policies()


_CODE_DIGITS_MAX: Final = 9


def parse_codes(text: str, name: str) -> frozenset[int]:
    """A white list of request codes, separated by commas. Raises `SettingsError`."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isdecimal() and len(part) <= _CODE_DIGITS_MAX for part in parts):
        raise SettingsError(
            f"{name}={text}: write request codes joined with commas, such as 28,34", name, text
        )
    return frozenset(map(int, parts))


def merge(old: AclInfo | None, new: AclInfo) -> AclInfo:
    """The policies of `old` with those of `new`: an entry replaces the one for the same resource.

    Raises `SettingsError` for an unknown type of policy.
    """
    kinds: dict[str, dict[str, PolicyEntryInfo]] = {}
    sources: Sequence[AclInfo] = [new] if old is None else [old, new]
    for info in sources:
        for policy in info.policies:
            entries = kinds.setdefault(_policy_type(policy.policy_type), {})
            entries.update({entry.resource or "": entry for entry in policy.entries})
    return AclInfo.of(new.subject, kinds)


def without(info: AclInfo, policy_type: str | None, resource: str | None) -> AclInfo | None:
    """The policies without those of a type, or without their entry for `resource`; None when none remain.

    Raises `SettingsError` for an unknown type of policy.
    """
    kind = _policy_type(policy_type)
    kept: Mapping[str, dict[str, PolicyEntryInfo]] = {
        _policy_type(policy.policy_type): {
            entry.resource or "": entry
            for entry in policy.entries
            if _policy_type(policy.policy_type) != kind or entry.resource != resource
        }
        for policy in info.policies
    }
    left = AclInfo.of(info.subject, {name: entries for name, entries in kept.items() if entries})
    return left if left.policies else None
