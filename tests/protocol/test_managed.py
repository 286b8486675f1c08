"""What members and their coordinator say to each other about live knobs."""

from __future__ import annotations

from typing import Final

import pytest

from sparrowmq.core.errors import BodyError
from sparrowmq.core.grants import Orders, Report
from sparrowmq.core.knobs import Place, Setting
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.managed import KnobBody, KnobsBody, OrdersBody, ReportBody

QUEUE: Final = MessageQueue("Orders", "broker-a", 3)
TOLD: Final = [
    Setting("delay", Place("Orders"), 1.5),
    Setting("pause", Place("Orders", 3, "broker-a"), True, until=77),
    Setting("tags", Place("Orders"), "A || B"),
    Setting("threads", Place(), 8),
]


def test_members_are_told_all_their_knobs_and_their_number() -> None:
    plans = [Setting("maximum", Place(), 1), Setting("deny", Place(), ("10.0.0.0/8",))]
    body = KnobsBody.of([*reversed(TOLD), *plans])
    found = KnobsBody.decode(body.encode())
    assert found.settings == TOLD
    assert found.revision == KnobsBody.of(TOLD).revision > 0
    assert KnobsBody.of(plans) == KnobsBody(0, [])


def test_knobs_of_a_newer_release_are_left_out() -> None:
    strange = [
        KnobBody("thoughts", "*", "8"),
        KnobBody("threads", "*", "0"),
        KnobBody("threads", "*", "{"),
        KnobBody("threads", "a/b", "8"),
        KnobBody("threads", "*", "8"),
    ]
    assert KnobsBody(5, strange).settings == [Setting("threads", Place(), 8)]


def test_orders_carry_knobs_only_when_there_are_others() -> None:
    orders = Orders(4, 8.0, {QUEUE: 7}, {})
    plain = OrdersBody.decode(OrdersBody.of(orders).encode())
    assert (plain.orders, plain.knobs) == (orders, None)
    told = OrdersBody.decode(OrdersBody.of(orders, KnobsBody.of(TOLD)).encode())
    assert told.orders == orders
    assert told.knobs is not None
    assert told.knobs.settings == TOLD


def test_a_report_says_which_knobs_it_goes_by() -> None:
    report = Report(3, 4, {QUEUE: 6})
    found = ReportBody.decode(ReportBody.of("billing", "m", report, ["Orders"], 2, knobs=99).encode())
    assert (found.report, found.late, found.knobs) == (report, 2, 99)
    assert ReportBody.decode(b'{"group":"g","member":"m","number":1,"revision":0}').knobs == 0


def test_numbers_of_knobs_are_numbers() -> None:
    with pytest.raises(BodyError, match="KnobsBody"):
        KnobsBody.decode(b'{"revision":"many"}')


def test_what_this_release_does_not_know_is_named_once() -> None:
    strange = [
        KnobBody("thoughts", "*", "8"),
        KnobBody("thoughts", "Orders", "8"),
        KnobBody("threads", "*", "0"),
        KnobBody("delay", "*", "8"),
    ]
    assert KnobsBody(7, strange).unknown == ["thoughts", "threads"]
    assert KnobsBody.of(TOLD).unknown == []


def test_a_coordinator_says_what_time_it_has() -> None:
    body = KnobsBody.of(TOLD)
    found = KnobsBody.decode(body.at(1_700_000_000_000).encode())
    assert (found.now_ms, found.revision, found.settings) == (1_700_000_000_000, body.revision, TOLD)
    assert KnobsBody.decode(b'{"revision":1}').now_ms == 0, "an older one says nothing"


def test_a_report_says_what_its_member_cannot_go_by() -> None:
    body = ReportBody.of("g", "m", Report(1, 2, {}), ["T"], 0, 7, unable={"batch": "single"})
    found = ReportBody.decode(body.encode())
    assert (found.knobs, found.unable) == (7, {"batch": "single"})
    assert ReportBody.decode(b'{"group":"g","member":"m","number":1,"revision":1}').unable == {}
