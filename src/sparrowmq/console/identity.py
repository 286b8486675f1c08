"""The identity of a person according to an OpenID Connect provider: settings, claims, and the resulting role.
Pure.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from sparrowmq.console.safety import is_here
from sparrowmq.coordinator.alarms.senders import check_address
from sparrowmq.coordinator.users.external import PREFIX, External
from sparrowmq.coordinator.users.roles import GLOBAL_ROLES, RANKS, Role, role_of
from sparrowmq.core.errors import RefusedError, SettingsError
from sparrowmq.core.settings.servers import CoordinatorSettings

ANYBODY: Final = "*"
VALUES_MAX: Final = 1000
"""Maximum number of values of the role claim that are checked: a person is in at most this many groups."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")


@dataclass(frozen=True, slots=True)
class OpenId:
    """Settings of the login with a provider."""

    issuer: str
    client_id: str
    client_secret: str = field(default="", repr=False)
    scope: str = "openid profile email"
    name_claim: str = "preferred_username"
    role_claim: str = "groups"
    roles: Mapping[str, Role] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: CoordinatorSettings) -> OpenId | None:
        """The settings of the provider; None if there is none. Raises `SettingsError`."""
        if not settings.oidc_issuer:
            return None
        issuer = settings.oidc_issuer.rstrip("/")
        check_url(issuer, "oidcIssuer")
        if not settings.oidc_client_id:
            raise SettingsError(
                "oidcIssuer is set, but oidcClientId, by which the provider identifies the console, is not"
            )
        if "openid" not in settings.oidc_scope.split():
            raise SettingsError(f"oidcScope {settings.oidc_scope[:100]!r} must have openid in it")
        return cls(
            issuer,
            settings.oidc_client_id,
            settings.oidc_client_secret,
            settings.oidc_scope,
            settings.oidc_name_claim,
            settings.oidc_role_claim,
            roles_of(settings.oidc_roles),
        )

    @property
    def host(self) -> str:
        """The provider's name on the login page."""
        return urlsplit(self.issuer).netloc

    def person(self, claims: Mapping[str, Any]) -> External:
        """The person that the claims describe. Raises `RefusedError` (403) without a name or role."""
        name, subject = claims.get(self.name_claim), claims.get("sub")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise RefusedError(
                f"{self.host} returned no usable name in {self.name_claim}: a name has at most 64 letters, "
                f"digits and '_.@-'",
                status=403,
            )
        if not isinstance(subject, str) or not subject:
            raise RefusedError(f"{self.host} does not say who {name} is", status=403)
        role = self.role(claims.get(self.role_claim))
        if role is None:
            text = f"{name} has no role here: no value of {self.role_claim} is in oidcRoles; ask an admin"
            raise RefusedError(text, status=403)
        whole = f"{self.issuer}\n{subject}"
        credential = f"{PREFIX}{hashlib.sha256(whole.encode()).hexdigest()}"
        return External(name, credential, str(role), _email(claims))

    def role(self, values: object) -> Role | None:
        """The highest role among a claim's values; if none has one, the default role or None."""
        given = values if isinstance(values, list) else [values]
        found = [self.roles[one] for one in given[:VALUES_MAX] if isinstance(one, str) and one in self.roles]
        if ANYBODY in self.roles:
            found.append(self.roles[ANYBODY])
        return max(found, key=RANKS.index, default=None)


def roles_of(text: str) -> Mapping[str, Role]:
    """The roles of `value=role,value=role`. Raises `SettingsError`."""
    found = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        value, equals, role = (one.strip() for one in part.rpartition("="))
        if not equals or not value:
            raise SettingsError(
                f"oidcRoles: {part[:60]!r} is not a rule; write for example mq-admins=admin,*=viewer"
            )
        try:
            found[value] = role_of(role, GLOBAL_ROLES)
        except RefusedError as error:
            raise SettingsError(f"oidcRoles: {part[:60]!r}: {error}") from None
    return found


def _email(claims: Mapping[str, Any]) -> str:
    """The person's mail address, if the provider has verified it and it is valid."""
    found = claims.get("email")
    if claims.get("email_verified") is not True or not isinstance(found, str):
        return ""
    try:
        return check_address(found)
    except SettingsError:
        return ""


def check_url(url: str, what: str) -> None:
    """Raise `SettingsError` unless an address uses HTTPS; HTTP is allowed for this machine."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if (
        not host
        or parts.username
        or not (parts.scheme == "https" or (parts.scheme == "http" and is_here(host)))
    ):
        raise SettingsError(f"{what} {url[:200]!r} must begin with https://")
