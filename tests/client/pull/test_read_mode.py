from __future__ import annotations

import pytest
from tests.support import about

from sparrowmq.client.pull.read_mode import Mode, PullPlan
from sparrowmq.core.clock import SystemClock
from sparrowmq.core.errors import InvalidExpressionError, InvalidNameError, InvalidStateError, SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.subscription import SQL92, Sql, SubscriptionData

A, B = MessageQueue("T", "broker-a", 0), MessageQueue("U", "broker-a", 1)


def listener(topic: str, every: list[MessageQueue], mine: list[MessageQueue]) -> None:
    raise AssertionError("only compared here")


def other(topic: str, every: list[MessageQueue], mine: list[MessageQueue]) -> None:
    raise AssertionError("only compared here")


def test_new_plan_is_empty() -> None:
    plan = PullPlan(SystemClock())
    assert (plan.mode, plan.topics, plan.shared, plan.announced, plan.assigned) == (Mode.NONE, (), (), (), ())
    assert plan.listener is None
    assert plan.listener_of("T") is None
    assert plan.subscription("T") == plan.pull_filter("T") == SubscriptionData("T")


@pytest.mark.proves("client:E-21")
@pytest.mark.parametrize("first", ["subscribe", "assign", "register"])
@pytest.mark.parametrize("second", ["subscribe", "assign", "register"])
def test_first_call_decides_how_queues_are_selected(first: str, second: str) -> None:
    plan = PullPlan(SystemClock())
    calls = {
        "subscribe": lambda: plan.subscribe("T", "*", None),
        "assign": lambda: plan.assign([A]),
        "register": lambda: plan.register("T", None),
    }
    calls[first]()
    if first == second:
        calls[second]()
        return
    before = plan.mode
    with pytest.raises(InvalidStateError, check=about(value=before.value)):
        calls[second]()
    assert plan.mode is before


@pytest.mark.proves("client:E-22")
def test_subscription_is_checked_and_replaced_by_the_next() -> None:
    plan = PullPlan(SystemClock())
    for bad in ("", "a b", " "):
        with pytest.raises(InvalidNameError):
            plan.subscribe(bad, "*", None)
    with pytest.raises(InvalidExpressionError, match="for topic 'T' has no tag"):
        plan.subscribe("T", "||", None)
    assert (plan.mode, plan.topics) == (Mode.NONE, ()), "what was refused left nothing behind"
    plan.subscribe("T", "A || B", listener)
    assert plan.subscription("T").tags == {"A", "B"}
    assert plan.listener_of("T") is listener
    plan.subscribe("T", "*", None)
    assert plan.subscription("T").tags == frozenset()
    assert plan.listener_of("T") is None
    plan.subscribe("T", "*", listener)
    plan.unsubscribe("T")
    plan.unsubscribe("never")
    assert (plan.topics, plan.listener_of("T")) == ((), None)


@pytest.mark.proves("client:E-23", "client:E-44")
def test_assignment_replaces_the_previous_one_and_is_not_announced() -> None:
    plan = PullPlan(SystemClock())
    with pytest.raises(SettingsError, check=about(setting="queues")):
        plan.assign([])
    assert plan.mode is Mode.NONE
    with pytest.raises(InvalidExpressionError, match="for topic 'T' has no tag"):
        plan.filter_assigned("T", "||")
    plan.filter_assigned("T", "A")
    assert repr(plan) == "<PullPlan nothing yet >"
    plan.assign([A, B, A])
    assert plan.assigned == (A, B)
    assert plan.topics == ("T", "U")
    assert plan.subscription("T").tags == {"A"}
    assert plan.subscription("T").version > 0
    assert plan.subscription("U") == SubscriptionData("U"), "everything, by default"
    assert repr(plan) == "<PullPlan assign T, U>"
    assert (plan.announced, plan.shared) == ((), ())
    plan.assign([B])
    assert plan.assigned == (B,)


@pytest.mark.proves("client:E-09", "client:E-10")
def test_registered_topics_are_announced_completely_and_have_one_listener() -> None:
    plan = PullPlan(SystemClock())
    plan.register("T", listener)
    plan.register("U", None)
    assert [(data.topic, data.expression, data.version) for data in plan.announced] == [
        ("T", "*", 0),
        ("U", "*", 0),
    ]
    assert plan.listener_of("T") is plan.listener_of("U") is listener
    plan.register("U", other)
    assert plan.listener_of("T") is other, "there is one for all topics"


@pytest.mark.proves("client:E-06")
def test_pulled_topics_are_shared_but_not_announced() -> None:
    plan = PullPlan(SystemClock())
    assert not plan.note_pull("X"), "without registered topics it does not matter"
    plan.register("T", None)
    assert not plan.note_pull("T")
    assert plan.note_pull("X")
    assert not plan.note_pull("X"), "it is new once"
    assert plan.shared == ("T", "X")
    assert [data.topic for data in plan.announced] == ["T"]
    plan.register("X", None)
    assert [data.topic for data in plan.announced] == ["T", "X"]
    assert plan.shared == ("T", "X"), "each once"


@pytest.mark.proves("client:E-07")
def test_pull_sends_tags_with_version_0() -> None:
    plan = PullPlan(SystemClock())
    assert repr(plan) == "<PullPlan nothing yet >"
    plan.subscribe("T", "A", None)
    assert plan.subscription("T").version > 0
    assert (plan.pull_filter("T").version, plan.pull_filter("T").tags) == (0, {"A"})


@pytest.mark.proves("broker:14.2")
def test_property_filters_are_subscribed_and_keep_their_version_in_pulls() -> None:
    plan = PullPlan(SystemClock())
    with pytest.raises(InvalidExpressionError) as caught:
        plan.subscribe("T", Sql("a > 1 AN b"), None)
    assert (caught.value.position, plan.mode) == (6, Mode.NONE)
    plan.subscribe("T", Sql("a > 1"), None)
    sent = plan.pull_filter("T")
    assert (sent.expression, sent.expression_type, sent.tags) == ("a > 1", SQL92, frozenset())
    assert sent.version == plan.announced[0].version > 0
    assigned = PullPlan(SystemClock())
    assigned.filter_assigned("T", Sql("b = 'x'"))
    assigned.assign([A])
    assert assigned.pull_filter("T").expression == "b = 'x'"


def test_tags_are_replaced_and_restored_each_with_a_later_version() -> None:
    plan = PullPlan(SystemClock())
    plan.subscribe("T", "A", None)
    plan.subscribe("U", Sql("a > 1"), None)
    own, other = plan.subscription("T"), plan.subscription("U")
    plan.replace_tags({"T": "B || C", "U": "D", "V": "E"})
    told = plan.subscription("T")
    assert (told.tags, plan.subscription("U").tags) == ({"B", "C"}, {"D"})
    assert told.version > own.version
    plan.subscribe("T", "F", None)
    assert plan.subscription("T").tags == {"B", "C"}, "also for what is subscribed meanwhile"
    plan.replace_tags({"U": "D"})
    assert plan.subscription("T").tags == {"F"}
    assert plan.subscription("T").version > told.version
    plan.unsubscribe("U")
    plan.subscribe("U", Sql("a > 1"), None)
    plan.replace_tags({})
    assert (plan.subscription("U").expression_type, plan.subscription("U").expression) == (SQL92, "a > 1")
    assert plan.subscription("U").version > other.version
    plan.replace_tags({})
    with pytest.raises(InvalidExpressionError):
        plan.replace_tags({"T": "||"})


def test_registered_topics_use_the_dynamic_tags_too() -> None:
    plan = PullPlan(SystemClock())
    plan.replace_tags({"T": "A"})
    plan.register("T", None)
    assert plan.announced[0].expression == "A"
    plan.replace_tags({})
    assert plan.announced[0].expression == "*"
