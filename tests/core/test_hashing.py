"""Java's string hash, compared with values from Java."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.core.hashing import java_hash, tags_code


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("A", 65),
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("中文", 646394),
        ("\U0001f600", 1772899),
        ("tag-é", 110118774),
        ("polygenelubricants", -(2**31)),
    ],
)
def test_hashes_equal_those_of_java(text: str, value: int) -> None:
    assert java_hash(text) == value
    assert tags_code(text) == value


def test_missing_tags_have_code_zero() -> None:
    assert tags_code(None) == 0


@given(st.text(max_size=40), st.characters(codec="utf-16"))
def test_hash_of_a_longer_text_follows_the_recurrence(text: str, last: str) -> None:
    value = java_hash(text)
    for unit in memoryview(last.encode("utf-16-le")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    assert java_hash(text + last) & 0xFFFFFFFF == value
    assert -(2**31) <= java_hash(text + last) < 2**31


def test_lone_surrogates_have_a_hash_as_in_java() -> None:
    assert java_hash("\ud83d") == 0xD83D
