from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sparrowmq.console.pages.messages.timeline import LINES_MAX, TimelineSpan, spans_of, timeline
from sparrowmq.protocol.trace import EndTransactionTrace, PubTrace, SubAfterTrace, SubBeforeTrace, Trace


def told(*records: Trace) -> list[dict[str, Any]]:
    """Records as the API gives them."""
    return [{"record": type(one).__name__.removesuffix("Trace"), **asdict(one)} for one in records]


SENT = PubTrace(time=1000, region="r", group="shop", topic="T", message_id="id", cost=20)
TRIED = SubBeforeTrace(time=1100, region="r", group="billing", request_id="1", message_id="id")
FAILED = SubAfterTrace(request_id="1", message_id="id", cost=50, success=False)
AGAIN = SubBeforeTrace(time=2000, region="r", group="billing", request_id="2", message_id="id", retry_times=1)


def test_sends_and_deliveries_are_shown_with_their_results() -> None:
    assert spans_of(told(TRIED, FAILED, SENT, AGAIN)) == [
        TimelineSpan("sent", "shop", 1000, 1020, "success"),
        TimelineSpan("consumed", "billing", 1100, 1150, "failed"),
        TimelineSpan("consumed", "billing", 2000, 2000, "begun", 1),
    ]


def test_end_without_beginning_and_event_without_time_are_shown() -> None:
    late = SubAfterTrace(request_id="9", message_id="id", cost=50, time=3000, group="billing")
    assert spans_of(told(late, FAILED)) == [TimelineSpan("consumed", "billing", 2950, 3000, "success")]


def test_transaction_result_is_shown() -> None:
    end = EndTransactionTrace(
        time=5, region="r", group="g", topic="T", message_id="id", state="COMMIT_MESSAGE"
    )
    assert spans_of(told(end)) == [TimelineSpan("transaction", "g", 5, 5, "success")]


def test_bars_keep_their_order_and_stay_inside() -> None:
    drawn = timeline(spans_of(told(SENT, TRIED, FAILED, AGAIN)))
    assert [one.sign for one in drawn.bars] == ["✓", "✕", "…"]
    assert drawn.bars[0].x < drawn.bars[1].x < drawn.bars[2].x
    assert all(one.x + one.width <= drawn.width for one in drawn.bars)
    assert len({one.y for one in drawn.bars}) == 3 and max(one.y for one in drawn.bars) < drawn.height
    assert drawn.ticks[0].text.startswith("0") and drawn.begin_ms == 1000


def test_number_of_steps_is_bounded_and_may_be_zero() -> None:
    spans = [
        TimelineSpan("consumed", "g" * 100, number, number, "success") for number in range(LINES_MAX + 5)
    ]
    drawn = timeline(spans)
    assert (len(drawn.bars), drawn.left_out) == (LINES_MAX, 5) and len(drawn.bars[0].name) <= 32
    assert timeline([]).bars == ()
