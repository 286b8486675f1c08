"""Texts that other people chose, as every database takes them: SQLite takes any, the servers do not."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

KEY_CHARS: Final = 600
_HASH_CHARS: Final = 32


def fitting(text: str, chars: int) -> str:
    """The text without what PostgreSQL refuses (NUL, halves of surrogates), at most so many characters."""
    return text[:chars].replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def key_of(text: str, chars: int = KEY_CHARS) -> str:
    """The text to tell things apart by: one that is too long ends with its hash, so that two stay two."""
    if len(text) <= chars:
        return fitting(text, chars)
    digest = sha256(text.encode("utf-8", "replace")).hexdigest()[:_HASH_CHARS]
    return f"{fitting(text, chars - _HASH_CHARS - 1)}~{digest}"
