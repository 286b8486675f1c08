from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.coordinator.database.texts import KEY_CHARS, fitting, key_of


def test_characters_that_servers_refuse_are_replaced() -> None:
    assert fitting("a\0b\ud800c", 9) == "a\ufffdb?c"
    assert fitting("abc", 2) == "ab"


def test_long_keys_that_differ_at_their_end_stay_distinct() -> None:
    long = "x" * KEY_CHARS
    assert key_of(long) == long
    one, two = key_of(long + "1"), key_of(long + "2")
    assert len(one) == len(two) == KEY_CHARS
    assert one != two
    assert key_of(long + "1") == one


@given(st.text(st.characters(), max_size=30), st.integers(40, 60))
def test_every_key_fits_and_can_be_written(text: str, chars: int) -> None:
    found = key_of(text * 5, chars)
    assert len(found) <= chars
    assert "\0" not in found
    found.encode()
