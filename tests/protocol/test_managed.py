"""Messages about dynamic settings between members and their coordinator."""

from __future__ import annotations

from typing import Final

import pytest

from sparrowmq.core.dynamic_settings import SettingPlace, SettingValue
from sparrowmq.core.errors import BodyError
from sparrowmq.core.grants import Orders, Report
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.managed import DynamicSettingBody, DynamicSettingsBody, OrdersBody, ReportBody

QUEUE: Final = MessageQueue("Orders", "broker-a", 3)
TOLD: Final = [
    SettingValue("delay", SettingPlace("Orders"), 1.5),
    SettingValue("pause", SettingPlace("Orders", 3, "broker-a"), True, until=77),
    SettingValue("tags", SettingPlace("Orders"), "A || B"),
    SettingValue("threads", SettingPlace(), 8),
]


def test_members_receive_all_their_settings_and_the_revision() -> None:
    plans = [
        SettingValue("maximum", SettingPlace(), 1),
        SettingValue("deny", SettingPlace(), ("10.0.0.0/8",)),
    ]
    body = DynamicSettingsBody.of([*reversed(TOLD), *plans])
    found = DynamicSettingsBody.decode(body.encode())
    assert found.settings == TOLD
    assert found.revision == DynamicSettingsBody.of(TOLD).revision > 0
    assert DynamicSettingsBody.of(plans) == DynamicSettingsBody(0, [])


def test_settings_of_a_newer_release_are_left_out() -> None:
    strange = [
        DynamicSettingBody("thoughts", "*", "8"),
        DynamicSettingBody("threads", "*", "0"),
        DynamicSettingBody("threads", "*", "{"),
        DynamicSettingBody("threads", "a/b", "8"),
        DynamicSettingBody("threads", "*", "8"),
    ]
    assert DynamicSettingsBody(5, strange).settings == [SettingValue("threads", SettingPlace(), 8)]


def test_orders_carry_settings_only_when_they_changed() -> None:
    orders = Orders(4, 8.0, {QUEUE: 7}, {})
    plain = OrdersBody.decode(OrdersBody.of(orders).encode())
    assert (plain.orders, plain.knobs) == (orders, None)
    told = OrdersBody.decode(OrdersBody.of(orders, DynamicSettingsBody.of(TOLD)).encode())
    assert told.orders == orders
    assert told.knobs is not None
    assert told.knobs.settings == TOLD


def test_a_report_has_the_revision_of_the_applied_settings() -> None:
    report = Report(3, 4, {QUEUE: 6})
    found = ReportBody.decode(
        ReportBody.of("billing", "m", report, ["Orders"], 2, applied_revision=99).encode()
    )
    assert (found.report, found.late, found.knobs) == (report, 2, 99)
    assert ReportBody.decode(b'{"group":"g","member":"m","number":1,"revision":0}').knobs == 0


def test_revisions_of_settings_are_integers() -> None:
    with pytest.raises(BodyError, match="DynamicSettingsBody"):
        DynamicSettingsBody.decode(b'{"revision":"many"}')


def test_what_this_release_does_not_know_is_named_once() -> None:
    strange = [
        DynamicSettingBody("thoughts", "*", "8"),
        DynamicSettingBody("thoughts", "Orders", "8"),
        DynamicSettingBody("threads", "*", "0"),
        DynamicSettingBody("delay", "*", "8"),
    ]
    assert DynamicSettingsBody(7, strange).unknown == ["thoughts", "threads"]
    assert DynamicSettingsBody.of(TOLD).unknown == []


def test_a_coordinator_says_what_time_it_has() -> None:
    body = DynamicSettingsBody.of(TOLD)
    found = DynamicSettingsBody.decode(body.at(1_700_000_000_000).encode())
    assert (found.now_ms, found.revision, found.settings) == (1_700_000_000_000, body.revision, TOLD)
    assert DynamicSettingsBody.decode(b'{"revision":1}').now_ms == 0, "an older one says nothing"


def test_a_report_lists_the_settings_its_member_cannot_apply() -> None:
    body = ReportBody.of("g", "m", Report(1, 2, {}), ["T"], 0, 7, unable={"batch": "single"})
    found = ReportBody.decode(body.encode())
    assert (found.knobs, found.unable) == (7, {"batch": "single"})
    assert ReportBody.decode(b'{"group":"g","member":"m","number":1,"revision":1}').unable == {}
