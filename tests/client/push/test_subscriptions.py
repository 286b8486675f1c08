from __future__ import annotations

import pytest

from sparrowmq.client.push.subscriptions import Subscriptions
from sparrowmq.core.clock import SystemClock
from sparrowmq.core.errors import InvalidExpressionError, InvalidNameError


class At(SystemClock):
    """A stopped clock."""

    time_ms = 1000

    def now_ms(self) -> int:
        return self.time_ms


@pytest.mark.proves("client:D-05", "client:D-106")
def test_group_always_subscribes_to_its_retry_topic() -> None:
    subscriptions = Subscriptions("g", At())
    assert subscriptions.topics == ("%RETRY%g",)
    subscriptions.remove("%RETRY%g")
    assert subscriptions.topics == ("%RETRY%g",)
    (retry,) = subscriptions.data
    assert (retry.expression, retry.tags, retry.version) == ("*", frozenset(), 1000)
    assert subscriptions.find("%RETRY%g") is retry
    assert subscriptions.is_empty
    subscriptions.add("T", "*", None)
    assert not subscriptions.is_empty


@pytest.mark.proves("client:D-06")
def test_group_without_retries_does_not() -> None:
    subscriptions = Subscriptions("g", At(), has_retry=False)
    assert (subscriptions.topics, subscriptions.data, subscriptions.is_empty) == ((), (), True)
    subscriptions.add("T", "*", None)
    assert subscriptions.topics == ("T",)


@pytest.mark.proves("client:D-07")
def test_subscribing_again_replaces_expression_handler_and_version() -> None:
    clock = At()
    subscriptions = Subscriptions("g", clock)
    subscriptions.add("T", "A || B", print)
    first = subscriptions.find("T")
    assert first is not None
    assert (first.tags, first.version) == (frozenset({"A", "B"}), 1000)
    handler = subscriptions.handler("T")
    assert handler is not None
    assert handler.call is print
    clock.time_ms = 2000
    subscriptions.add("T", "*", None)
    second = subscriptions.find("T")
    assert second is not None
    assert (second.tags, second.version) == (frozenset(), 2000)
    assert subscriptions.handler("T") is None
    assert subscriptions.topics == ("T", "%RETRY%g")


@pytest.mark.proves("client:D-08")
def test_unsubscribing_removes_everything_of_a_topic() -> None:
    subscriptions = Subscriptions("g", At())
    subscriptions.add("T", "*", print)
    assert repr(subscriptions) == "<Subscriptions T, %RETRY%g>"
    subscriptions.remove("T")
    subscriptions.remove("never")
    assert repr(subscriptions) == "<Subscriptions %RETRY%g>"
    assert subscriptions.find("T") is None
    assert subscriptions.handler("T") is None
    assert "T" not in subscriptions.topics


def test_invalid_names_and_expressions_change_nothing() -> None:
    subscriptions = Subscriptions("g", At())
    with pytest.raises(InvalidNameError):
        subscriptions.add("no blanks", "*", None)
    with pytest.raises(InvalidExpressionError):
        subscriptions.add("T", " || ", None)
    assert subscriptions.topics == ("%RETRY%g",)


@pytest.mark.proves("client:C-39")
def test_changed_subscription_has_a_newer_version_whatever_the_clock() -> None:
    clock = At()
    subscriptions = Subscriptions("g", clock)
    subscriptions.add("T", "A", print)

    def version() -> int:
        data = subscriptions.find("T")
        assert data is not None and data.tags == {"A"}
        return data.version

    subscriptions.touch("T")
    assert version() == 1001, "the clock stands"
    clock.time_ms = 5000
    subscriptions.touch("T")
    assert version() == 5000
    clock.time_ms = 2000
    subscriptions.touch("T")
    assert version() == 5001, "the clock was set back"
    subscriptions.touch("never")
    assert subscriptions.topics == ("T", "%RETRY%g")


def test_tags_are_replaced_dynamically_and_restored() -> None:
    clock = At()
    subscriptions = Subscriptions("g", clock)
    subscriptions.add("T", "A", None)
    subscriptions.add("U", "*", None)
    subscriptions.replace_tags({"T": "B || C", "V": "D"})
    found = {one.topic: one for one in subscriptions.data}
    assert (found["T"].expression, found["T"].tags, found["T"].version) == ("B || C", {"B", "C"}, 1001)
    assert (found["U"].version, "V" in found) == (1000, False)
    subscriptions.add("T", "E", None)
    assert subscriptions.find("T") is not None
    assert subscriptions.find("T").tags == {"B", "C"}, "whoever subscribes does not undo it"
    subscriptions.add("V", "*", None)
    assert subscriptions.find("V").tags == {"D"}
    subscriptions.replace_tags({})
    assert [one.expression for one in subscriptions.data if one.topic in "TV"] == ["E", "*"]
    assert subscriptions.find("T").version > found["T"].version


def test_invalid_tags_are_refused_and_nothing_changes() -> None:
    subscriptions = Subscriptions("g", At())
    subscriptions.add("T", "A", None)
    before = subscriptions.find("T")
    with pytest.raises(InvalidExpressionError):
        subscriptions.replace_tags({"T": "|| ||"})
    assert subscriptions.find("T") == before
