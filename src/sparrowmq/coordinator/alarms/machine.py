"""The states of an alarm, as a table. Pure; times are milliseconds by the database's clock.

One notice for each change of state and one for each reminder period while it fires: what is checked every
minute must not be told every minute (pmq:T3, T11).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from sparrowmq.core.errors import RefusedError


class State(StrEnum):
    """Where an alarm is."""

    PENDING = "pending"
    """Seen, but not for long enough; nobody was told."""
    FIRING = "firing"
    ACKNOWLEDGED = "acknowledged"
    """Somebody looks after it: no more reminders."""
    SILENCED = "silenced"
    """No more reminders until a time; then it fires again if it is still so."""
    RESOLVED = "resolved"


class Event(StrEnum):
    """What happens to an alarm."""

    BAD = "seen, not for long enough"
    BAD_ENOUGH = "seen for long enough"
    GOOD = "no longer seen"
    ACKNOWLEDGE = "acknowledged"
    SILENCE = "silenced"
    BACK = "seen again within its silence"
    WAKE = "its silence is over"


TRANSITIONS: Final[dict[tuple[State, Event], State]] = {
    (State.RESOLVED, Event.BAD): State.PENDING,
    (State.RESOLVED, Event.BAD_ENOUGH): State.FIRING,
    (State.RESOLVED, Event.GOOD): State.RESOLVED,
    (State.RESOLVED, Event.BACK): State.SILENCED,
    (State.PENDING, Event.BAD): State.PENDING,
    (State.PENDING, Event.BAD_ENOUGH): State.FIRING,
    (State.PENDING, Event.GOOD): State.RESOLVED,
    (State.PENDING, Event.BACK): State.SILENCED,
    (State.FIRING, Event.BAD): State.FIRING,
    (State.FIRING, Event.BAD_ENOUGH): State.FIRING,
    (State.FIRING, Event.GOOD): State.RESOLVED,
    (State.FIRING, Event.ACKNOWLEDGE): State.ACKNOWLEDGED,
    (State.FIRING, Event.SILENCE): State.SILENCED,
    (State.ACKNOWLEDGED, Event.BAD): State.ACKNOWLEDGED,
    (State.ACKNOWLEDGED, Event.BAD_ENOUGH): State.ACKNOWLEDGED,
    (State.ACKNOWLEDGED, Event.GOOD): State.RESOLVED,
    (State.ACKNOWLEDGED, Event.SILENCE): State.SILENCED,
    (State.SILENCED, Event.BAD): State.SILENCED,
    (State.SILENCED, Event.BAD_ENOUGH): State.SILENCED,
    (State.SILENCED, Event.GOOD): State.RESOLVED,
    (State.SILENCED, Event.ACKNOWLEDGE): State.ACKNOWLEDGED,
    (State.SILENCED, Event.SILENCE): State.SILENCED,
    (State.SILENCED, Event.WAKE): State.FIRING,
}
"""What an event makes of a state; a pair that is absent is refused."""

REMINDER: Final = "reminder"
"""The kind of notice that repeats a firing; the others are called as the state they tell of."""


@dataclass(frozen=True, slots=True)
class Policy:
    """When a condition fires, when it is over, and how often it is told again.

    It fires once it was seen in `checks` checks running and has lasted `hold_ms`, and is over once it was not
    seen in `calm_checks` running: what comes and goes is one firing. `reminder_ms` 0: told once.
    """

    checks: int = 1
    hold_ms: int = 0
    reminder_ms: int = 3_600_000
    calm_checks: int = 1


@dataclass(frozen=True, slots=True)
class Alarm:
    """One alarm. `since` is when its condition was first seen, `noticed_at` when it was last told.

    `bad_checks` counts the checks running that saw it, below zero those that did not.
    """

    state: State = State.RESOLVED
    since: int = 0
    changed_at: int = 0
    bad_checks: int = 0
    silenced_until: int = 0
    noticed_at: int = 0


def seen(alarm: Alarm, now: int, policy: Policy) -> tuple[Alarm, str | None]:
    """The alarm after a check found its condition, and the kind of notice that is due, if any.

    A silence lasts as long as somebody said, also when the condition goes and comes back: nobody is told.
    """
    bad = max(0, alarm.bad_checks) + 1
    if alarm.state is State.SILENCED and now >= alarm.silenced_until:
        return _to(replace(alarm, bad_checks=bad), Event.WAKE, now)
    new = alarm.state is State.RESOLVED
    # A clock that was set back must neither hold an alarm up nor its reminders.
    counted = replace(alarm, since=now if new else min(alarm.since, now), bad_checks=1 if new else bad)
    enough = counted.bad_checks >= policy.checks and now - counted.since >= policy.hold_ms
    if enough and alarm.state in (State.RESOLVED, State.PENDING) and now < alarm.silenced_until:
        after, _ = _to(counted, Event.BACK, now)
        return replace(after, noticed_at=alarm.noticed_at), None
    after, notice = _to(counted, Event.BAD_ENOUGH if enough else Event.BAD, now)
    if notice is None and after.state is State.FIRING and _reminds(after, now, policy.reminder_ms):
        return replace(after, noticed_at=now), REMINDER
    return after, notice


def gone(alarm: Alarm, now: int, calm_checks: int = 1) -> tuple[Alarm, str | None]:
    """The alarm after a check did not find its condition: resolved at the `calm_checks`th running. One that
    never fired, or came back within a silence, ends without a word.
    """
    good = max(0, -alarm.bad_checks) + 1
    if alarm.state not in (State.PENDING, State.RESOLVED) and good < calm_checks:
        return replace(alarm, bad_checks=-good), None
    came_back = alarm.state is State.SILENCED and alarm.changed_at != alarm.noticed_at
    after, notice = _to(replace(alarm, bad_checks=0), Event.GOOD, now)
    if alarm.state is State.PENDING or came_back:
        return replace(after, noticed_at=alarm.noticed_at), None
    return after, notice


def _reminds(alarm: Alarm, now: int, reminder_ms: int) -> bool:
    return reminder_ms > 0 and not 0 <= now - alarm.noticed_at < reminder_ms


def acknowledge(alarm: Alarm, now: int) -> tuple[Alarm, str | None]:
    """The alarm once somebody took it on. Raises `RefusedError` (409) unless it fires or is silenced."""
    return _to(replace(alarm, silenced_until=0), Event.ACKNOWLEDGE, now)


def silence(alarm: Alarm, now: int, until: int) -> tuple[Alarm, str | None]:
    """The alarm silenced until a time. Raises `RefusedError` (409) for one that is not there any more."""
    return _to(replace(alarm, silenced_until=until), Event.SILENCE, now)


def wake(alarm: Alarm, now: int) -> tuple[Alarm, str | None]:
    """The alarm with its silence ended early. Raises `RefusedError` (409) unless it is silenced."""
    return _to(replace(alarm, silenced_until=0), Event.WAKE, now)


def _to(alarm: Alarm, event: Event, now: int) -> tuple[Alarm, str | None]:
    state = TRANSITIONS.get((alarm.state, event))
    if state is None:
        raise RefusedError(f"an alarm that is {alarm.state} cannot be {event}", status=409)
    if state is alarm.state:
        return alarm, None
    if state is State.PENDING:
        return replace(alarm, state=state, changed_at=now), None
    return replace(alarm, state=state, changed_at=now, noticed_at=now), str(state)
