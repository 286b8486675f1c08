"""Tag expressions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.core.errors import InvalidExpressionError
from sparrowmq.core.hashing import java_hash
from sparrowmq.core.subscription import SQL92, Sql, SubscriptionData
from sparrowmq.protocol.filter import parse_expression, parse_tags


@pytest.mark.parametrize("expression", [None, "", "  ", "*", " * "])
def test_nothing_and_star_mean_every_message(expression: str | None) -> None:
    data = parse_tags("T", expression, 5)
    assert data == SubscriptionData("T", "*", frozenset(), 5, "TAG")
    assert data.matches(None)
    assert data.codes == frozenset()


@pytest.mark.proves("client:D-04")
@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("TagA", {"TagA"}),
        ("TagA || TagB", {"TagA", "TagB"}),
        ("TagA||TagB||", {"TagA", "TagB"}),
        ("|| TagA ||  || TagA", {"TagA"}),
        ("a|b", {"a|b"}),
        ("a b||c", {"a b", "c"}),
        ("中文 || *", {"中文", "*"}),
    ],
)
def test_expressions(expression: str, tags: set[str]) -> None:
    data = parse_tags("T", expression, 7)
    assert data.tags == tags
    assert (data.topic, data.expression) == ("T", expression)
    assert data.version == 7
    assert data.codes == {java_hash(tag) for tag in tags}


@pytest.mark.proves("client:D-04")
@pytest.mark.parametrize("expression", ["||", " || ", "||||"])
def test_separators_alone_are_refused(expression: str) -> None:
    with pytest.raises(InvalidExpressionError, match="has no tag"):
        parse_tags("T", expression, 0)


@given(st.text(max_size=30))
def test_any_text_is_tags_or_refused(expression: str) -> None:
    try:
        data = parse_tags("T", expression, 0)
    except InvalidExpressionError:
        assert not expression.replace("||", "").strip()
    else:
        assert all(tag and tag == tag.strip() and "||" not in tag for tag in data.tags)


@pytest.mark.proves("client:D-03", "broker:14.2")
def test_a_filter_becomes_subscription_data_as_it_is() -> None:
    text = "a > 1 -- more than one"
    assert parse_expression("T", Sql(text), 7) == SubscriptionData("T", text, frozenset(), 7, SQL92)
    assert parse_expression("T", "A || B", 7) == parse_tags("T", "A || B", 7)
    assert str(Sql(text)) == text


@pytest.mark.parametrize("expression", ["A ||", "|| A", "A || || B", "A||B||"])
def test_users_write_a_tag_on_both_sides_of_a_separator(expression: str) -> None:
    """A tag with `||` cannot be sent, so nobody may believe that one is subscribed."""
    with pytest.raises(InvalidExpressionError, match="without a tag before or after"):
        parse_expression("T", expression, 7)
    assert parse_tags("T", expression, 7).tags <= {"A", "B"}, "other clients may send it"


@pytest.mark.proves("broker:14.2")
@pytest.mark.parametrize(
    ("text", "position", "token"),
    [("a >", 3, ""), ("a > 1 b", 6, "b"), ("", 0, ""), ("a = 'x", 4, "'x"), ("a LIKE 'x'", 2, "LIKE")],
)
def test_a_wrong_filter_is_refused_where_it_is_used(text: str, position: int, token: str) -> None:
    with pytest.raises(InvalidExpressionError) as caught:
        parse_expression("T", Sql(text), 7)
    assert (caught.value.position, caught.value.token) == (position, token)


@pytest.mark.proves("client:D-09")
def test_a_filter_class_is_refused() -> None:
    with pytest.raises(InvalidExpressionError, match="filters by class are no longer supported"):
        parse_expression("T", SubscriptionData, 0)  # type: ignore[arg-type]
