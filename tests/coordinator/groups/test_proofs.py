"""The proof that a member is what it claims to be, and the stored form of it."""

from __future__ import annotations

import pytest

from sparrowmq.coordinator.groups.proofs import digest_of, is_right, new_proof


def test_proof_is_for_one_member_in_one_group() -> None:
    proof = new_proof()
    digest = digest_of("g", "p#1", proof)
    assert is_right(digest, "g", "p#1", proof)
    assert not is_right(digest, "h", "p#1", proof)
    assert not is_right(digest, "g", "p#2", proof)
    assert new_proof() != proof


@pytest.mark.parametrize("proof", ["", "ä", "0" * 32, "\udcff"])
def test_anything_else_is_no_proof(proof: str) -> None:
    assert not is_right(digest_of("g", "p#1", new_proof()), "g", "p#1", proof)


def test_stored_form_is_no_proof() -> None:
    digest = digest_of("g", "p#1", new_proof())
    assert not is_right(digest, "g", "p#1", digest)
    assert not is_right("", "g", "p#1", "")
    assert not is_right("", "g", "p#1", new_proof())
