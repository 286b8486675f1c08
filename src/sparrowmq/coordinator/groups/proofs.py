"""The proof of a member's identity: a random text that it gets when it joins (pmq:P1).

Only its digest is stored, in memory and in the database, so reading it does not allow anyone to impersonate a
member. Every leader knows the digests, so members of earlier leaders continue. Pure except for `new_proof`.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Final

PROOF_BYTES: Final = 16


def new_proof() -> str:
    """A random proof."""
    return secrets.token_hex(PROOF_BYTES)


def digest_of(group: str, member: str, proof: str) -> str:
    """The digest of a member's proof, which is stored."""
    return hashlib.sha256(f"{group}\0{member}\0{proof}".encode("utf-8", "replace")).hexdigest()


def is_right(digest: str, group: str, member: str, proof: str) -> bool:
    """Whether it is the member's proof; compared in constant time. False without a digest."""
    return bool(digest) and hmac.compare_digest(digest, digest_of(group, member, proof))
