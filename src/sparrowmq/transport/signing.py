"""ACL signatures: the same in RocketMQ 4.x and 5.x, made by clients and checked by brokers (remoting:7.1).

A request carries `AccessKey`, optionally `SecurityToken`, and `Signature`: base64 of HMAC-SHA1 with the
secret key over the values of all other header fields, sorted by name and joined, and the body. Code, opaque,
version and remark are not covered, so a recorded request can be replayed: signatures exclude clients that do
not know the secret, but they do not prevent replays. Use TLS where others can listen.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sparrowmq.core.errors import SettingsError
from sparrowmq.protocol.frame import Command

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
"""A field of QUERY_MESSAGE that servers before 5.1 do not include in signatures."""
UNIQUE_KEY_QUERY_VERSION: Final = 399
"""All servers check requests of this version (4.9.3) or older without that field."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """An account: its access key (in 5.x the user's name) and its secret (the password).

    `repr` shows only the access key. Raises `SettingsError` when one of them is empty.
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.access_key:
            raise SettingsError(
                "access_key is empty; give the account's access key, or leave out both keys", "access_key"
            )
        if not self.secret_key:
            raise SettingsError(
                f"secret_key of access_key={self.access_key!r} is empty; give the account's secret key",
                "secret_key",
            )


def signature(fields: Mapping[str, str], body: bytes, secret_key: str) -> str:
    """The signature of a request with these header fields, ignoring a `Signature` among them."""
    return _signature(fields, body, secret_key, (SIGNATURE,))


def _signature(fields: Mapping[str, str], body: bytes, secret_key: str, without: tuple[str, ...]) -> str:
    # Code points are equivalent to Java's UTF-16 units here: names of header fields are ASCII.
    text = "".join(fields[name] for name in sorted(fields) if name not in without)
    digest = hmac.new(secret_key.encode(), text.encode() + body, hashlib.sha1).digest()
    return base64.b64encode(digest).decode()


def sign(command: Command, credentials: Credentials) -> None:
    """Add keys and signature to a request. No header field may be added afterwards.

    A query for a unique key is signed without its mark and claims version 4.9.3, which all servers accept.
    """
    fields = {**command.ext, ACCESS_KEY: credentials.access_key}
    if credentials.security_token:
        fields[SECURITY_TOKEN] = credentials.security_token
    without: tuple[str, ...] = (SIGNATURE,)
    if UNIQUE_KEY_QUERY in fields:
        command.version = min(command.version, UNIQUE_KEY_QUERY_VERSION)
        without = (SIGNATURE, UNIQUE_KEY_QUERY)
    fields[SIGNATURE] = _signature(fields, command.body, credentials.secret_key, without)
    command.ext = fields


class SigningHook:
    """Signs every request of a `RemotingClient`. Must be its last hook, because it covers fields that others
    add.
    """

    def __init__(self, credentials: Credentials) -> None:
        self.credentials = credentials

    @classmethod
    def of(cls, keys: tuple[str, str] | None) -> SigningHook | None:
        """The hook for an access key and a secret key; None without them."""
        return None if keys is None else cls(Credentials(*keys))

    def before_request(self, address: str, command: Command) -> None:
        """Add keys and signature."""
        sign(command, self.credentials)

    def after_response(self, address: str, command: Command, answer: Command) -> None:
        """Responses are not signed."""


def verify(fields: Mapping[str, str], body: bytes, secret_key: str) -> bool:
    """Whether the request's `Signature` is correct, with or without `_UNIQUE_KEY_QUERY`.

    The time does not depend on where a wrong signature differs.
    """
    given = fields.get(SIGNATURE, "").encode()
    right = hmac.compare_digest(signature(fields, body, secret_key).encode(), given)
    if not right and UNIQUE_KEY_QUERY in fields:
        other = _signature(fields, body, secret_key, (SIGNATURE, UNIQUE_KEY_QUERY))
        right = hmac.compare_digest(other.encode(), given)
    return right
