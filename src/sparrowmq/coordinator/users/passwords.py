"""Creating, hashing and comparing passwords and tokens. Passwords with argon2id; tokens, which are random,
with SHA-256.
"""

from __future__ import annotations

import hashlib
import secrets
import unicodedata
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError

from sparrowmq.core.errors import RefusedError

PASSWORD_CHARS_MIN: Final = 10
PASSWORD_CHARS_MAX: Final = 200
"""Maximum length; longer ones are refused, because hashing is deliberately slow."""
TOKEN_PREFIX: Final = "smq_"
TOKEN_BYTES: Final = 32
_hasher = PasswordHasher(time_cost=3, memory_cost=65_536, parallelism=4)
"""RFC 9106's second choice, explicit: `_NOBODY` must cost the same."""
_NOBODY: Final = (
    "$argon2id$v=19$m=65536,t=3,p=4$c3BhcnJvd21xLW5vYm9keQ$3eBfXTVyHdsFfTLeFKtdYCMfSGqXUqvZJ6jWAf2y1zQ"
)
"""The hash with which an unknown person's password is compared, so that it takes as long as for a known
one.
"""


def new_password() -> str:
    """A random password that can be typed: 120 bits."""
    return secrets.token_urlsafe(15)


def new_token() -> str:
    """A random token: 256 bits after a prefix that secret scanners can find."""
    return TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def digest(token: str) -> str:
    """The digest of a token, which is stored."""
    return hashlib.sha256(token.encode()).hexdigest()


def check_password(password: str) -> None:
    """Raise `RefusedError` (422) for a password that is too short or too long."""
    size = len(_plain(password))
    if not PASSWORD_CHARS_MIN <= size <= PASSWORD_CHARS_MAX:
        raise RefusedError(
            f"a password must have {PASSWORD_CHARS_MIN} to {PASSWORD_CHARS_MAX} characters, not {size}",
            status=422,
            what="password",
            value=size,
            limit=PASSWORD_CHARS_MIN if size < PASSWORD_CHARS_MIN else PASSWORD_CHARS_MAX,
        )


def hashed(password: str) -> str:
    """The password's hash, with its salt and parameters. Slow: tens of milliseconds and 64 MiB."""
    return _hasher.hash(_plain(password))


def matches(stored: str | None, password: str) -> bool:
    """Whether the password matches the hash; equally slow for an unknown person (None), and for a person of a
    login provider, who has no password.
    """
    plain = _plain(password)
    if len(plain) > PASSWORD_CHARS_MAX:
        return False
    has_one = stored is not None and stored.startswith("$")
    try:
        return _hasher.verify(stored if stored and has_one else _NOBODY, plain) and has_one
    except (Argon2Error, InvalidHashError):
        return False


def _plain(password: str) -> str:
    """Normalize a text: systems send an é as one character or as two."""
    return unicodedata.normalize("NFKC", password)
