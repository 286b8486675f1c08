"""The states of an alarm, as a table. Pure; times are milliseconds by the database's clock.

One notice per change of state and one per reminder period while it fires: an alarm that is checked every
minute must not notify every minute (pmq:T3, T11).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from sparrowmq.core.errors import RefusedError


class AlarmState(StrEnum):
    """States of an alarm."""

    PENDING = "pending"
    """The condition was found, but not for long enough; no notice was sent."""
    FIRING = "firing"
    ACKNOWLEDGED = "acknowledged"
    """A user is working on it: no more reminders."""
    SILENCED = "silenced"
    """No reminders until a given time; then it fires again if the condition persists."""
    RESOLVED = "resolved"


class AlarmEvent(StrEnum):
    """Events of an alarm."""

    BAD = "seen, but not for long enough"
    BAD_ENOUGH = "seen for long enough"
    GOOD = "no longer seen"
    ACKNOWLEDGE = "acknowledged"
    SILENCE = "silenced"
    BACK = "seen again while silenced"
    WAKE = "its silence has ended"


TRANSITIONS: Final[dict[tuple[AlarmState, AlarmEvent], AlarmState]] = {
    (AlarmState.RESOLVED, AlarmEvent.BAD): AlarmState.PENDING,
    (AlarmState.RESOLVED, AlarmEvent.BAD_ENOUGH): AlarmState.FIRING,
    (AlarmState.RESOLVED, AlarmEvent.GOOD): AlarmState.RESOLVED,
    (AlarmState.RESOLVED, AlarmEvent.BACK): AlarmState.SILENCED,
    (AlarmState.PENDING, AlarmEvent.BAD): AlarmState.PENDING,
    (AlarmState.PENDING, AlarmEvent.BAD_ENOUGH): AlarmState.FIRING,
    (AlarmState.PENDING, AlarmEvent.GOOD): AlarmState.RESOLVED,
    (AlarmState.PENDING, AlarmEvent.BACK): AlarmState.SILENCED,
    (AlarmState.FIRING, AlarmEvent.BAD): AlarmState.FIRING,
    (AlarmState.FIRING, AlarmEvent.BAD_ENOUGH): AlarmState.FIRING,
    (AlarmState.FIRING, AlarmEvent.GOOD): AlarmState.RESOLVED,
    (AlarmState.FIRING, AlarmEvent.ACKNOWLEDGE): AlarmState.ACKNOWLEDGED,
    (AlarmState.FIRING, AlarmEvent.SILENCE): AlarmState.SILENCED,
    (AlarmState.ACKNOWLEDGED, AlarmEvent.BAD): AlarmState.ACKNOWLEDGED,
    (AlarmState.ACKNOWLEDGED, AlarmEvent.BAD_ENOUGH): AlarmState.ACKNOWLEDGED,
    (AlarmState.ACKNOWLEDGED, AlarmEvent.GOOD): AlarmState.RESOLVED,
    (AlarmState.ACKNOWLEDGED, AlarmEvent.SILENCE): AlarmState.SILENCED,
    (AlarmState.SILENCED, AlarmEvent.BAD): AlarmState.SILENCED,
    (AlarmState.SILENCED, AlarmEvent.BAD_ENOUGH): AlarmState.SILENCED,
    (AlarmState.SILENCED, AlarmEvent.GOOD): AlarmState.RESOLVED,
    (AlarmState.SILENCED, AlarmEvent.ACKNOWLEDGE): AlarmState.ACKNOWLEDGED,
    (AlarmState.SILENCED, AlarmEvent.SILENCE): AlarmState.SILENCED,
    (AlarmState.SILENCED, AlarmEvent.WAKE): AlarmState.FIRING,
}
"""(state, event) → next state; a missing pair is refused."""

REMINDER: Final = "reminder"
"""The kind of notice that repeats a firing; other notices have the name of the new state."""


@dataclass(frozen=True, slots=True)
class AlarmPolicy:
    """When a condition fires, when it is resolved, and how often reminders are sent.

    It fires after `checks` consecutive checks found it and it has lasted `hold_ms`. It is resolved after
    `calm_checks` consecutive checks did not find it: an intermittent condition is one firing. `reminder_ms`
    0: no reminders.
    """

    checks: int = 1
    hold_ms: int = 0
    reminder_ms: int = 3_600_000
    calm_checks: int = 1


@dataclass(frozen=True, slots=True)
class Alarm:
    """One alarm.

    `since` is when its condition was first found, `noticed_at` the time of the last notice. `bad_checks`
    counts consecutive checks that found it; negative values count those that did not.
    """

    state: AlarmState = AlarmState.RESOLVED
    since: int = 0
    changed_at: int = 0
    bad_checks: int = 0
    silenced_until: int = 0
    noticed_at: int = 0


def seen(alarm: Alarm, now: int, policy: AlarmPolicy) -> tuple[Alarm, str | None]:
    """The alarm after a check found its condition, and the kind of notice that is due, if any.

    A silence lasts for its full time, even if the condition disappears and returns: no notice is sent.
    """
    bad = max(0, alarm.bad_checks) + 1
    if alarm.state is AlarmState.SILENCED and now >= alarm.silenced_until:
        return _to(replace(alarm, bad_checks=bad), AlarmEvent.WAKE, now)
    new = alarm.state is AlarmState.RESOLVED
    # A clock that was set back must delay neither the alarm nor its reminders.
    counted = replace(alarm, since=now if new else min(alarm.since, now), bad_checks=1 if new else bad)
    enough = counted.bad_checks >= policy.checks and now - counted.since >= policy.hold_ms
    if enough and alarm.state in (AlarmState.RESOLVED, AlarmState.PENDING) and now < alarm.silenced_until:
        after, _ = _to(counted, AlarmEvent.BACK, now)
        return replace(after, noticed_at=alarm.noticed_at), None
    after, notice = _to(counted, AlarmEvent.BAD_ENOUGH if enough else AlarmEvent.BAD, now)
    if notice is None and after.state is AlarmState.FIRING and _reminds(after, now, policy.reminder_ms):
        return replace(after, noticed_at=now), REMINDER
    return after, notice


def gone(alarm: Alarm, now: int, calm_checks: int = 1) -> tuple[Alarm, str | None]:
    """The alarm after a check did not find its condition: resolved at the `calm_checks`th consecutive one. An
    alarm that never fired, or returned during a silence, ends without a notice.
    """
    good = max(0, -alarm.bad_checks) + 1
    if alarm.state not in (AlarmState.PENDING, AlarmState.RESOLVED) and good < calm_checks:
        return replace(alarm, bad_checks=-good), None
    came_back = alarm.state is AlarmState.SILENCED and alarm.changed_at != alarm.noticed_at
    after, notice = _to(replace(alarm, bad_checks=0), AlarmEvent.GOOD, now)
    if alarm.state is AlarmState.PENDING or came_back:
        return replace(after, noticed_at=alarm.noticed_at), None
    return after, notice


def _reminds(alarm: Alarm, now: int, reminder_ms: int) -> bool:
    return reminder_ms > 0 and not 0 <= now - alarm.noticed_at < reminder_ms


def acknowledge(alarm: Alarm, now: int) -> tuple[Alarm, str | None]:
    """The alarm after it was acknowledged. Raises `RefusedError` (409) unless it fires or is silenced."""
    return _to(replace(alarm, silenced_until=0), AlarmEvent.ACKNOWLEDGE, now)


def silence(alarm: Alarm, now: int, until: int) -> tuple[Alarm, str | None]:
    """The alarm silenced until a time. Raises `RefusedError` (409) if it is already resolved."""
    return _to(replace(alarm, silenced_until=until), AlarmEvent.SILENCE, now)


def wake(alarm: Alarm, now: int) -> tuple[Alarm, str | None]:
    """The alarm after its silence was ended early. Raises `RefusedError` (409) unless it is silenced."""
    return _to(replace(alarm, silenced_until=0), AlarmEvent.WAKE, now)


def _to(alarm: Alarm, event: AlarmEvent, now: int) -> tuple[Alarm, str | None]:
    state = TRANSITIONS.get((alarm.state, event))
    if state is None:
        raise RefusedError(
            f"an alarm that is {alarm.state} cannot be {event}", status=409, what=event, value=alarm.state
        )
    if state is alarm.state:
        return alarm, None
    if state is AlarmState.PENDING:
        return replace(alarm, state=state, changed_at=now), None
    return replace(alarm, state=state, changed_at=now, noticed_at=now), str(state)
