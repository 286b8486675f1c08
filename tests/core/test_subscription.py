"""Subscription data."""

from __future__ import annotations

import pytest

from sparrowmq.core.subscription import SubscriptionData


def test_subscription_to_all_messages_is_the_default() -> None:
    data = SubscriptionData("T")
    assert (data.expression, data.expression_type, data.tags, data.codes) == (
        "*",
        "TAG",
        frozenset(),
        frozenset(),
    )
    assert data.matches(None)
    assert data.matches("any")


@pytest.mark.parametrize(
    ("tags", "wanted"), [("TagA", True), ("TagB", True), ("TagC", False), (None, False), ("", False)]
)
def test_tags_are_compared_as_text(tags: str | None, wanted: bool) -> None:
    data = SubscriptionData("T", "TagA || TagB", frozenset({"TagA", "TagB"}))
    assert data.matches(tags) is wanted
    assert data.codes == {2598919, 2598920}


def test_equal_codes_do_not_make_equal_tags() -> None:
    data = SubscriptionData("T", "Aa", frozenset({"Aa"}))
    assert data.codes == SubscriptionData("T", "BB", frozenset({"BB"})).codes
    assert not data.matches("BB")
