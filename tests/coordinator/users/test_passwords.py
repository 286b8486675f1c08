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


def test_the_same_keys_are_the_same_password_however_a_system_writes_them() -> None:
    stored = passwords.hashed("caf\u00e9 au lait")
    assert passwords.matches(stored, "cafe\u0301 au lait")
    assert not passwords.matches(stored, "cafe au lait")


def test_a_length_is_what_is_hashed_and_all_of_it_counts() -> None:
    long = "\U0001f600" * 199
    stored = passwords.hashed(long + "a")
    assert passwords.matches(stored, long + "a")
    assert not passwords.matches(stored, long + "b")
    with pytest.raises(RefusedError, match="from 10 to 200 characters, not 3600"):
        passwords.check_password("\ufdfa" * 200)  # one character that stands for eighteen
    assert not passwords.matches(stored, "\ufdfa" * 200)


def test_nobody_costs_what_somebody_does() -> None:
    """The parameters say how long it takes: a name that is not known must not show by them."""
    mine = passwords.hashed("correct horse battery").split("$")
    assert passwords._NOBODY.split("$")[:4] == mine[:4]
    assert [len(part) for part in passwords._NOBODY.split("$")] == [len(part) for part in mine]
    assert mine[1:4] == ["argon2id", "v=19", "m=65536,t=3,p=4"]
