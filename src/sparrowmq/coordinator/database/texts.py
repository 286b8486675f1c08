"""Conversion of users' texts to a form that every database accepts: SQLite accepts any text, the servers do
not.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

KEY_CHARS: Final = 600
_HASH_CHARS: Final = 32


def fitting(text: str, chars: int) -> str:
    """The text without characters that PostgreSQL refuses (NUL, lone surrogates), truncated to a maximum
    length.
    """
    return text[:chars].replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def key_of(text: str, chars: int = KEY_CHARS) -> str:
    """The text as a key: one that is too long ends with its hash, so that different texts stay different."""
    if len(text) <= chars:
        return fitting(text, chars)
    digest = sha256(text.encode("utf-8", "replace")).hexdigest()[:_HASH_CHARS]
    return f"{fitting(text, chars - _HASH_CHARS - 1)}~{digest}"
