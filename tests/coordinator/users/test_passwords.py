from __future__ import annotations

import pytest

from sparrowmq.coordinator.users import passwords
from sparrowmq.core.errors import RefusedError


@pytest.mark.proves("pmq:P5")
def test_a_password_matches_its_hash_alone() -> None:
    stored = passwords.hashed("correct horse battery")
    assert stored.startswith("$argon2id$")
    assert "horse" not in stored
    assert passwords.matches(stored, "correct horse battery")
    assert not passwords.matches(stored, "correct horse batterz")
    assert passwords.hashed("correct horse battery") != stored


def test_nobody_has_no_password() -> None:
    assert not passwords.matches(None, "anything at all")
    assert not passwords.matches("no hash", "anything at all")
    assert not passwords.matches(passwords._NOBODY, "x" * 201)


@pytest.mark.parametrize("length", [0, 9, 201])
def test_lengths_are_refused_with_the_range(length: int) -> None:
    with pytest.raises(RefusedError, match=f"from 10 to 200 characters, not {length}"):
        passwords.check_password("x" * length)
    passwords.check_password("x" * 10)


@pytest.mark.proves("pmq:P1")
def test_what_is_made_is_random_and_long_enough() -> None:
    made = {passwords.new_password() for _ in range(50)}
    assert len(made) == 50
    for one in made:
        passwords.check_password(one)
    token = passwords.new_token()
    assert token.startswith("smq_")
    assert len(token) > 40
    assert passwords.digest(token) != passwords.digest(passwords.new_token())
    assert token not in passwords.digest(token)
