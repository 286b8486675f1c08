"""Filters asked about messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import about

from sparrowmq.core.errors import InvalidExpressionError
from sparrowmq.protocol.properties import encode
from sparrowmq.protocol.sql92 import Predicate, compile_sql, numbers, parse
from sparrowmq.protocol.sql92.parser import CONTAINED_CHARS_MIN

MANY = "a > 1 AND b = 'x' AND (c IS NULL OR d IN ('1')) AND e NOT CONTAINS 'q'"


@pytest.mark.proves("broker:14.2")
def test_only_true_matches() -> None:
    assert compile_sql("a > 1").matches({"a": "2"})
    for properties in ({"a": "1"}, {}, {"a": "x"}):
        assert not compile_sql("a > 1").matches(properties)


def test_names_are_those_the_filter_looks_at() -> None:
    assert Predicate(parse(MANY)).names == ("a", "b", "c", "d", "e")
    assert Predicate(parse("-a = 1 OR b BETWEEN c AND 5")).names == ("a", "b", "c")
    assert Predicate(parse("TRUE")).names == ()


@given(
    st.sampled_from(["a > 1", "a = b OR d NOT IN ('x')", MANY, "b CONTAINS 'é'", "TRUE", "aa IS NULL"]),
    st.dictionaries(
        st.sampled_from(["a", "b", "c", "d", "e", "aa", "ba"]), st.sampled_from(["1", "2", "x", "é", "q", ""])
    ),
)
def test_stored_properties_give_the_same_answer_as_decoded_ones(text: str, values: dict[str, str]) -> None:
    kept = {name: value for name, value in values.items() if value}
    predicate = compile_sql(text)
    assert predicate.matches_encoded(encode(values)) == predicate.matches(kept)


@pytest.mark.parametrize(
    ("text", "wanted", "other"),
    [
        ("a > 1", {"a": "2"}, {"a": "1"}),
        ("a = '1' AND b = 'é' AND c IS NULL", {"a": "1", "b": "é"}, {"a": "1", "b": "é", "c": "x"}),
        (MANY, {"a": "2", "b": "x", "e": "1"}, {"a": "2", "b": "x", "e": "q"}),
    ],
)
def test_few_properties_and_many_are_looked_at(
    text: str, wanted: dict[str, str], other: dict[str, str]
) -> None:
    """A predicate made here, not a remembered one."""
    predicate = Predicate(parse(text))
    assert predicate.matches(wanted) and predicate.matches_encoded(encode(wanted))
    assert not predicate.matches(other) and not predicate.matches_encoded(encode(other))


@pytest.mark.parametrize(
    "text", ["a CONTAINS 'x'", "a CONTAINS 'x' AND b IS NULL AND c IS NULL AND d IS NULL"]
)
def test_properties_that_are_no_utf_8_do_no_harm(text: str) -> None:
    assert compile_sql(text).matches_encoded(b"a\x01\xff\xfex\x02")
    assert not compile_sql(text).matches_encoded(b"\xff\x01")


def test_good_and_bad_expressions_are_remembered() -> None:
    assert compile_sql("a = 77") is compile_sql("a = 77")
    errors = []
    for _ in range(2):
        with pytest.raises(InvalidExpressionError, check=about(position=2, token="@")) as caught:
            compile_sql("a @")
        errors.append(caught.value)
    assert errors[0] is not errors[1] and {error.position for error in errors} == {2}


@pytest.mark.parametrize(
    ("term", "text", "reader"),
    [("p > {}.5", "7" * 300, "_long_double"), ("p > {}", "0" * 30_000 + "7", "_long_integer")],
)
def test_a_long_text_is_read_once_for_all_comparisons(term: str, text: str, reader: str) -> None:
    remembered = getattr(numbers, reader)
    predicate = Predicate(parse(" AND ".join(term.format(number) for number in range(7))))
    remembered.cache_clear()
    assert predicate.matches({"p": text})
    info = remembered.cache_info()
    assert (info.misses, info.hits) == (1, 6)


def test_a_condition_says_how_large_it_is() -> None:
    small, large = compile_sql("a = 1"), compile_sql("a = 1 AND b BETWEEN 1 AND 2 AND c CONTAINS 'x'")
    assert small.nodes < large.nodes
    assert (small.contained, large.contained) == (0, CONTAINED_CHARS_MIN)
    assert compile_sql(f"c CONTAINS '{'x' * 50}'").contained == 50
