from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import about

from sparrowmq.coordinator.alarms import machine
from sparrowmq.coordinator.alarms.machine import (
    REMINDER,
    TRANSITIONS,
    Alarm,
    AlarmEvent,
    AlarmPolicy,
    AlarmState,
)
from sparrowmq.core.errors import RefusedError

ONCE = AlarmPolicy(checks=1, hold_ms=0, reminder_ms=0)
MINUTE, HOUR = 60_000, 3_600_000


def in_state(state: AlarmState) -> Alarm:
    return Alarm(state, since=1, changed_at=1, bad_checks=1, silenced_until=10 * HOUR, noticed_at=1)


@pytest.mark.parametrize("state", AlarmState)
@pytest.mark.parametrize("event", AlarmEvent)
@pytest.mark.proves("pmq:T3")
def test_every_state_and_event_is_in_the_table_or_refused(state: AlarmState, event: AlarmEvent) -> None:
    after = TRANSITIONS.get((state, event))
    if after is None:
        with pytest.raises(RefusedError, check=about(status=409, what=event, value=state)):
            machine._to(in_state(state), event, 5)
        return
    alarm, notice = machine._to(in_state(state), event, 5)
    assert alarm.state is after
    told = after is not state and after is not AlarmState.PENDING
    assert notice == (str(after) if told else None)
    assert (alarm.changed_at == 5) is (after is not state)


@pytest.mark.proves("pmq:T3", "pmq:T11")
def test_one_hour_above_the_limit_gives_one_alarm_one_reminder_and_one_resolution() -> None:
    policy = AlarmPolicy(checks=2, hold_ms=0, reminder_ms=20 * MINUTE)
    alarm, told = Alarm(), []
    for minute in range(61):
        alarm, notice = machine.seen(alarm, minute * MINUTE, policy)
        told.append(notice)
    alarm, last = machine.gone(alarm, 61 * MINUTE)
    assert [notice for notice in told if notice] == ["firing", REMINDER, REMINDER]
    assert last == "resolved"
    assert machine.gone(alarm, 62 * MINUTE) == (alarm, None)


def test_alarm_fires_after_the_configured_checks_and_time() -> None:
    policy = AlarmPolicy(checks=3, hold_ms=10, reminder_ms=0)
    states = []
    alarm = Alarm()
    for now in (100, 105, 109, 110):
        alarm, _ = machine.seen(alarm, now, policy)
        states.append(alarm.state)
    assert states == [AlarmState.PENDING, AlarmState.PENDING, AlarmState.PENDING, AlarmState.FIRING]
    assert alarm.since == 100


def test_condition_that_ends_before_it_fires_is_not_reported() -> None:
    alarm, notice = machine.seen(Alarm(), 1, AlarmPolicy(checks=2))
    assert (alarm.state, notice) == (AlarmState.PENDING, None)
    alarm, notice = machine.gone(alarm, 2)
    assert (alarm.state, notice) == (AlarmState.RESOLVED, None)
    alarm, notice = machine.seen(alarm, 3, AlarmPolicy(checks=2))
    assert alarm.since == 3
    assert alarm.bad_checks == 1


def test_acknowledged_alarm_is_not_reminded() -> None:
    policy = AlarmPolicy(reminder_ms=MINUTE)
    alarm, _ = machine.seen(Alarm(), 0, policy)
    alarm, notice = machine.acknowledge(alarm, 1)
    assert notice == "acknowledged"
    assert machine.seen(alarm, HOUR, policy)[1] is None
    assert machine.gone(alarm, 2 * HOUR)[1] == "resolved"


def test_silence_expires_or_is_ended_by_a_user() -> None:
    policy = AlarmPolicy(reminder_ms=MINUTE)
    alarm, _ = machine.seen(Alarm(), 0, policy)
    alarm, notice = machine.silence(alarm, 1, HOUR)
    assert notice == "silenced"
    assert machine.seen(alarm, HOUR - 1, policy)[1] is None
    assert machine.silence(alarm, 2, 2 * HOUR)[1] is None
    again, notice = machine.seen(alarm, HOUR, policy)
    assert (again.state, notice, again.noticed_at) == (AlarmState.FIRING, "firing", HOUR)
    assert machine.wake(alarm, 5)[1] == "firing"
    assert machine.gone(alarm, 5)[1] == "resolved"


@pytest.mark.proves("pmq:T3", "pmq:T11")
def test_flapping_condition_is_one_firing_and_is_reminded_like_others() -> None:
    policy, told = AlarmPolicy(reminder_ms=20 * MINUTE, calm_checks=2), []
    alarm = Alarm()
    for minute in range(60):
        seen = minute % 2 == 0
        step = (
            machine.seen(alarm, minute * MINUTE, policy) if seen else machine.gone(alarm, minute * MINUTE, 2)
        )
        alarm, notice = step
        told.append(notice)
    assert [notice for notice in told if notice] == ["firing", REMINDER, REMINDER]
    assert alarm.state is AlarmState.FIRING, "once without it is not enough"
    alarm, notice = machine.gone(alarm, HOUR, 2)
    assert (alarm.state, notice) == (AlarmState.RESOLVED, "resolved")


def test_silence_lasts_as_set_however_often_the_condition_returns() -> None:
    policy = AlarmPolicy(checks=2, reminder_ms=MINUTE)
    alarm, told = Alarm(), []
    for now in (0, 1):
        alarm, _ = machine.seen(alarm, now, policy)
    alarm, _ = machine.silence(alarm, 2, HOUR)
    for minute in range(1, 50, 5):
        for second, call in enumerate((machine.gone, machine.seen, machine.seen)):
            now = minute * MINUTE + second
            alarm, notice = call(alarm, now) if call is machine.gone else call(alarm, now, policy)
            told.append((alarm.state, notice))
    assert told[:3] == [
        (AlarmState.RESOLVED, "resolved"),
        (AlarmState.PENDING, None),
        (AlarmState.SILENCED, None),
    ]
    assert {notice for _, notice in told[1:]} == {None}, "whoever silenced it knows that it comes and goes"
    alarm, notice = machine.seen(alarm, HOUR, policy)
    assert (alarm.state, notice) == (AlarmState.FIRING, "firing")
    alarm, notice = machine.gone(alarm, HOUR + 1)
    assert (alarm.state, notice) == (AlarmState.RESOLVED, "resolved")


def test_waking_or_acknowledging_a_silenced_alarm_ends_its_silence() -> None:
    for end in (machine.wake, machine.acknowledge):
        alarm, _ = machine.seen(Alarm(), 0, ONCE)
        alarm, _ = machine.silence(alarm, 1, HOUR)
        alarm, _ = end(alarm, 2)
        alarm, notice = machine.gone(alarm, 3)
        assert notice == "resolved"
        assert machine.seen(alarm, 4, ONCE)[1] == "firing"


def test_clock_set_back_delays_neither_alarms_nor_reminders() -> None:
    policy = AlarmPolicy(hold_ms=MINUTE, reminder_ms=HOUR)
    alarm, _ = machine.seen(Alarm(), 10 * HOUR, policy)
    alarm, _ = machine.seen(alarm, 5 * HOUR, policy)
    alarm, notice = machine.seen(alarm, 5 * HOUR + MINUTE, policy)
    assert notice == "firing"
    alarm, notice = machine.seen(alarm, 2 * HOUR, policy)
    assert notice == REMINDER
    assert machine.seen(alarm, 2 * HOUR + 1, policy)[1] is None


steps = st.lists(st.sampled_from(["seen", "gone", "acknowledge", "silence", "wake"]), max_size=40)


@given(steps, st.integers(1, 3), st.integers(0, 5), st.integers(0, 4))
@pytest.mark.proves("pmq:T3")
def test_each_change_is_reported_once_and_reminders_keep_their_interval(
    calls: list[str], checks: int, hold: int, reminder: int
) -> None:
    policy, alarm = AlarmPolicy(checks, hold, reminder), Alarm()
    reminded_at = 0
    for now, call in enumerate(calls, 1):
        try:
            if call == "seen":
                after, notice = machine.seen(alarm, now, policy)
            elif call == "silence":
                after, notice = machine.silence(alarm, now, now + 2)
            else:
                after, notice = getattr(machine, call)(alarm, now)
        except RefusedError:
            continue
        told = {AlarmState.FIRING, AlarmState.ACKNOWLEDGED, AlarmState.SILENCED}
        if call in ("seen", "gone") and now < alarm.silenced_until:
            assert notice in (None, "resolved"), "a silence is kept"
            alarm, reminded_at = after, now if notice else reminded_at
            continue
        changed = after.state is not alarm.state
        if notice == REMINDER:
            assert after.state is AlarmState.FIRING and not changed
            assert now - reminded_at >= reminder
        elif changed and after.state is not AlarmState.PENDING and alarm.state in told | {after.state}:
            assert notice == str(after.state)
        elif not changed:
            assert notice is None
        if notice:
            reminded_at = now
        alarm = after
