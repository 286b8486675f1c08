from __future__ import annotations

import pytest
from tests.support import about

from sparrowmq.coordinator.users import passwords
from sparrowmq.core.errors import RefusedError

USUAL = {name: getattr(passwords, name) for name in ("_hasher", "_NOBODY")}


@pytest.fixture(autouse=True)
def usual(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes cost what they should, also while a coordinator of other tests has cheap ones."""
    for name, value in USUAL.items():
        monkeypatch.setattr(passwords, name, value)


@pytest.mark.proves("pmq:P5")
def test_password_matches_only_its_own_hash() -> None:
    stored = passwords.hashed("correct horse battery")
    assert stored.startswith("$argon2id$")
    assert "horse" not in stored
    assert passwords.matches(stored, "correct horse battery")
    assert not passwords.matches(stored, "correct horse batterz")
    assert passwords.hashed("correct horse battery") != stored


def test_no_password_matches_an_unknown_user() -> None:
    assert not passwords.matches(None, "anything at all")
    assert not passwords.matches("no hash", "anything at all")
    assert not passwords.matches(passwords._NOBODY, "x" * 201)


@pytest.mark.parametrize(("length", "limit"), [(0, 10), (9, 10), (201, 200)])
def test_invalid_lengths_are_refused_with_the_range(length: int, limit: int) -> None:
    with pytest.raises(RefusedError, check=about(status=422, value=length, limit=limit)):
        passwords.check_password("x" * length)
    passwords.check_password("x" * 10)


@pytest.mark.proves("pmq:P1")
def test_generated_passwords_are_random_and_long_enough() -> None:
    made = {passwords.new_password() for _ in range(50)}
    assert len(made) == 50
    for one in made:
        passwords.check_password(one)
    token = passwords.new_token()
    assert token.startswith("smq_")
    assert len(token) > 40
    assert passwords.digest(token) != passwords.digest(passwords.new_token())
    assert token not in passwords.digest(token)


def test_password_is_the_same_in_every_unicode_form() -> None:
    stored = passwords.hashed("caf\u00e9 au lait")
    assert passwords.matches(stored, "cafe\u0301 au lait")
    assert not passwords.matches(stored, "cafe au lait")


def test_length_counts_hashed_bytes_and_all_of_them_matter() -> None:
    long = "\U0001f600" * 199
    stored = passwords.hashed(long + "a")
    assert passwords.matches(stored, long + "a")
    assert not passwords.matches(stored, long + "b")
    with pytest.raises(RefusedError, check=about(value=3600, limit=200)):
        passwords.check_password("\ufdfa" * 200)  # one character that stands for eighteen
    assert not passwords.matches(stored, "\ufdfa" * 200)


def test_check_of_an_unknown_user_takes_as_long_as_of_a_known_one() -> None:
    """The hash parameters determine the time: they must not reveal that a name is unknown."""
    mine = passwords.hashed("correct horse battery").split("$")
    assert passwords._NOBODY.split("$")[:4] == mine[:4]
    assert [len(part) for part in passwords._NOBODY.split("$")] == [len(part) for part in mine]
    assert mine[1:4] == ["argon2id", "v=19", "m=65536,t=3,p=4"]
