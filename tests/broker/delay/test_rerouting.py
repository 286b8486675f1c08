"""Where delayed and timed messages are stored."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.broker.delay.rerouting import (
    PRECISION_MS,
    TIMER_PROPERTIES,
    Placement,
    Rerouting,
    slot_of,
)
from sparrowmq.core.delay import DelayLevels
from sparrowmq.core.names import SCHEDULE_TOPIC, TIMER_TOPIC
from sparrowmq.core.settings.servers import BrokerSettings
from sparrowmq.protocol import properties
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.refusals import Refused

NOW = 1_795_253_193_533
RULES = Rerouting()


def place(own: dict[str, str], *, topic: str = "T", sys_flag: int = 0, rules: Rerouting = RULES) -> Placement:
    return rules.place(topic, 3, properties.encode(own), sys_flag, NOW)


def refused(own: dict[str, str], rules: Rerouting = RULES) -> Refused:
    with pytest.raises(Refused) as caught:
        place(own, rules=rules)
    return caught.value


@pytest.mark.proves("client:D-103", "client:D-100", "broker:8.1")
@pytest.mark.parametrize(("asked", "level"), [(1, 1), (2, 2), (18, 18), (19, 18), (99, 18)])
def test_delayed_message_waits_in_its_levels_queue(asked: int, level: int) -> None:
    found = place({"DELAY": str(asked), "K": "v"})
    assert (found.topic, found.queue_id) == (SCHEDULE_TOPIC, level - 1)
    assert found.delay_ms == RULES.levels.delay_ms(level)
    own = {"DELAY": str(level), "K": "v", "REAL_TOPIC": "T", "REAL_QID": "3"}
    assert properties.decode(found.properties) == own


@pytest.mark.parametrize("own", [{}, {"DELAY": "0"}, {"DELAY": "-1"}, {"XDELAY": "3"}, {"TIMER_D": "3"}])
def test_other_messages_are_not_moved(own: dict[str, str]) -> None:
    assert place(own) == Placement("T", 3, properties.encode(own))


@pytest.mark.parametrize("sys_flag", [4, 12])
def test_half_messages_are_not_moved(sys_flag: int) -> None:
    assert place({"DELAY": "3"}, sys_flag=sys_flag).topic == "T"
    assert place({"DELAY": "3"}, sys_flag=8).topic == SCHEDULE_TOPIC


def test_levels_are_configurable() -> None:
    rules = Rerouting(levels=DelayLevels.parse("2s 7d"))
    assert place({"DELAY": "1"}, rules=rules).delay_ms == 2000
    assert place({"DELAY": "9"}, rules=rules) == Placement(
        SCHEDULE_TOPIC, 1, b"DELAY\x012\x02REAL_TOPIC\x01T\x02REAL_QID\x013\x02", delay_ms=604_800_000
    )


@pytest.mark.parametrize("text", ["soon", "1.5", "", " 3", "99999999999", "٣"])
def test_non_numeric_delay_level_is_refused(text: str) -> None:
    if not text:
        assert place({"DELAY": text}).topic == "T"  # a property without value is none
        return
    error = refused({"DELAY": text})
    assert error.code == ResponseCode.SYSTEM_ERROR
    assert f'For input string: "{text}"' in error.remark


@pytest.mark.proves("broker:8.2")
@pytest.mark.parametrize(
    ("own", "slot"),
    [
        ({"TIMER_DELAY_SEC": "2"}, 1_795_253_195_000),
        ({"TIMER_DELAY_MS": "3000"}, 1_795_253_196_000),
        ({"TIMER_DELIVER_MS": "1795253196557"}, 1_795_253_196_000),
        ({"TIMER_DELIVER_MS": "1795253196000"}, 1_795_253_195_000),
        ({"TIMER_DELAY_SEC": "2", "TIMER_DELAY_MS": "90000", "TIMER_DELIVER_MS": "1"}, 1_795_253_195_000),
        ({"TIMER_DELAY_MS": "3000", "TIMER_DELIVER_MS": "1"}, 1_795_253_196_000),
    ],
)
def test_timed_message_waits_in_the_timer_topic(own: dict[str, str], slot: int) -> None:
    found = place(own)
    assert (found.topic, found.queue_id, found.timer_out) == (TIMER_TOPIC, 0, slot)
    added = {"TIMER_OUT_MS": str(slot), "REAL_TOPIC": "T", "REAL_QID": "3"}
    assert properties.decode(found.properties) == own | added


@pytest.mark.parametrize(
    "own",
    [
        {"TIMER_DELIVER_MS": str(NOW)},
        {"TIMER_DELIVER_MS": "1"},
        {"TIMER_DELIVER_MS": "-5"},
        {"TIMER_DELAY_SEC": "0"},
        {"TIMER_DELAY_MS": "-1"},
        {"TIMER_DELAY_SEC": "9", "TIMER_OUT_MS": "1795253200000"},
    ],
)
def test_due_or_already_timed_messages_are_stored_unchanged(own: dict[str, str]) -> None:
    assert place(own).topic == "T"
    assert place({"TIMER_DELAY_SEC": "9"}, topic=TIMER_TOPIC).timer_out is None


def test_delay_level_has_precedence_over_a_time() -> None:
    found = place({"DELAY": "2"} | dict.fromkeys(TIMER_PROPERTIES, "5"))
    assert found.topic == SCHEDULE_TOPIC
    assert not properties.decode(found.properties).keys() & set(TIMER_PROPERTIES)


@pytest.mark.parametrize(
    "own",
    [
        {"TIMER_DELIVER_MS": "soon"},
        {"TIMER_DELAY_SEC": "9" * 19},
        {"TIMER_DELAY_MS": "1_000"},
        {"TIMER_DELAY_SEC": "259201"},
        {"TIMER_DELIVER_MS": "1", "TIMER_DEL_UNIQKEY": "A"},
    ],
)
def test_too_distant_times_are_refused_as_by_the_reference(own: dict[str, str]) -> None:
    error = refused(own)
    assert error.code == ResponseCode.MESSAGE_ILLEGAL
    assert error.remark == (
        "timer message illegal, the delay time should not be bigger than the max delay 259200000ms; or if "
        "set del msg, the delay time should be bigger than the current time"
    )


def test_three_days_ahead_is_the_limit() -> None:
    assert place({"TIMER_DELAY_MS": "259200000"}).topic == TIMER_TOPIC
    assert refused({"TIMER_DELAY_MS": "259200001"}).code == ResponseCode.MESSAGE_ILLEGAL


def test_times_are_refused_without_a_timer_wheel() -> None:
    error = refused({"TIMER_DELAY_SEC": "1"}, Rerouting(timer_enabled=False))
    assert error.code == ResponseCode.SYSTEM_ERROR
    assert error.remark == "accurate timer message is not enabled, timerWheelEnable is false"


@given(st.integers(min_value=1, max_value=2**50))
def test_slot_fires_within_a_second_after_the_time_and_never_before(due: int) -> None:
    fires = slot_of(due) + PRECISION_MS
    assert slot_of(due) % PRECISION_MS == 0
    assert due <= fires < due + PRECISION_MS


def test_rules_come_from_the_settings() -> None:
    made = Rerouting.of(BrokerSettings(message_delay_level="3s", timer_max_delay_sec=9))
    assert made == Rerouting(DelayLevels.parse("3s"), timer_enabled=True, timer_max_ms=9000)
