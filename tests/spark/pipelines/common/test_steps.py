"""Plans as text and as JSON."""

from __future__ import annotations

from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.pipelines.common.steps import AT_MOST, Plan, Step, reads

PLAN = Plan("archive", (Step("read", "Orders", {"queues": 4}), Step("merge", "small ones")), 1200)


def test_a_plan_is_shown_step_by_step() -> None:
    assert str(PLAN).splitlines() == [
        "archive: 2 steps, 1,200 messages wait",
        "  1. read Orders",
        "     queues: 4",
        "  2. merge small ones",
    ]
    assert str(Plan("sql", ())) == "sql: nothing to do"
    assert str(Plan("history", PLAN.steps[:1], 7, AT_MOST)).startswith(
        "history: 1 step, 7 messages at most\n"
    )


def test_a_plan_as_json() -> None:
    assert PLAN.to_json() == {
        "pipeline": "archive",
        "rows": 1200,
        "steps": [
            {"action": "read", "what": "Orders", "details": {"queues": "4"}},
            {"action": "merge", "what": "small ones", "details": {}},
        ],
    }


def test_what_is_read_of_each_topic() -> None:
    orders, bills = MessageQueue("Orders", "a", 0), MessageQueue("Bills", "a", 1)
    assert reads("read", [Span(orders, 0, 5), Span(bills, 2, 3), Span(orders, 7, 9)]) == [
        Step("read", "Bills", {str(bills): "offsets 2 to before 3"}),
        Step("read", "Orders", {str(orders): "offsets 0 to before 5, 7 to before 9"}),
    ]
    assert reads("read", []) == []
