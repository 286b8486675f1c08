"""Passwords and tokens: made, hashed and compared. Passwords by argon2id; tokens, being random, by
SHA-256.
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
"""Longer ones are refused rather than hashed: hashing is slow on purpose."""
TOKEN_PREFIX: Final = "smq_"
TOKEN_BYTES: Final = 32
_hasher = PasswordHasher(time_cost=3, memory_cost=65_536, parallelism=4)
"""RFC 9106's second choice, written out: `_NOBODY` has to cost the same."""
_NOBODY: Final = (
    "$argon2id$v=19$m=65536,t=3,p=4$c3BhcnJvd21xLW5vYm9keQ$3eBfXTVyHdsFfTLeFKtdYCMfSGqXUqvZJ6jWAf2y1zQ"
)
"""What an unknown person's password is compared with, so that it takes as long as a known one's."""


def new_password() -> str:
    """A random password that can be typed: 120 bits."""
    return secrets.token_urlsafe(15)


def new_token() -> str:
    """A random token: 256 bits behind a prefix that scanners for secrets can look for."""
    return TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def digest(token: str) -> str:
    """What is stored of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def check_password(password: str) -> None:
    """Raise `RefusedError` (422) for a password that is too short or too long."""
    size = len(_plain(password))
    if not PASSWORD_CHARS_MIN <= size <= PASSWORD_CHARS_MAX:
        raise RefusedError(
            f"a password has from {PASSWORD_CHARS_MIN} to {PASSWORD_CHARS_MAX} characters, not {size}",
            status=422,
        )


def hashed(password: str) -> str:
    """The password's hash, with its salt and parameters. Slow: tens of milliseconds and 64 MiB."""
    return _hasher.hash(_plain(password))


def matches(stored: str | None, password: str) -> bool:
    """Whether the password is the one that was hashed; as slow for nobody (None)."""
    plain = _plain(password)
    if len(plain) > PASSWORD_CHARS_MAX:
        return False
    try:
        return _hasher.verify(stored or _NOBODY, plain) and stored is not None
    except (Argon2Error, InvalidHashError):
        return False


def _plain(password: str) -> str:
    """The same for the same keys: systems send an é as one character or as two."""
    return unicodedata.normalize("NFKC", password)
