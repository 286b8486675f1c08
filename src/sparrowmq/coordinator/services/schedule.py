"""When a service runs next. Pure; times are milliseconds by the database's clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from sparrowmq.core.errors import RefusedError

INTERVAL_MS_MAX = 7 * 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Option:
    """A whole number that people set of a service; both bounds are allowed."""

    name: str
    default: int
    low: int
    high: int
    help: str


@dataclass(frozen=True, slots=True)
class Kind:
    """What a service is: its name, defaults and bounds.

    `floor_ms` is the shortest interval. A step that runs longer than `deadline_seconds` is cancelled, and if
    it does not obey, the lease is not renewed (pmq:L2).
    """

    name: str
    title: str
    interval_ms: int
    floor_ms: int
    deadline_seconds: float
    options: tuple[Option, ...] = ()

    def defaults(self) -> dict[str, int]:
        """The options as they are before anybody changes them."""
        return {option.name: option.default for option in self.options}

    def check_interval(self, interval_ms: int) -> None:
        """Raise `RefusedError` (422) with the bounds unless the interval is allowed."""
        if not self.floor_ms <= interval_ms <= INTERVAL_MS_MAX:
            raise RefusedError(
                f"the interval of {self.name} must be from {self.floor_ms / 1000:g} to "
                f"{INTERVAL_MS_MAX / 1000:.0f} seconds, not {interval_ms / 1000:.15g}",
                status=422,
            )

    def check_options(self, options: dict[str, int]) -> None:
        """Raise `RefusedError` (422) for an option that is unknown or out of its range."""
        known = {option.name: option for option in self.options}
        for name, value in options.items():
            option = known.get(name)
            if option is None:
                names = ", ".join(known) or "none"
                raise RefusedError(f"{self.name} has no option {name!r}; it has: {names}", status=422)
            if not option.low <= value <= option.high:
                raise RefusedError(
                    f"{name} of {self.name} must be from {option.low} to {option.high}, not {value}",
                    status=422,
                )


class Outcome(Enum):
    """How a run ended."""

    DONE = "done"
    FAILED = "failed"
    TOO_LONG = "too long"


@dataclass(frozen=True, slots=True)
class Report:
    """What a step did, in numbers and in one line."""

    counts: dict[str, int] = field(default_factory=dict)
    message: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What decides when a service runs."""

    interval_ms: int
    paused: bool
    next_due_at: int
    run_asked_at: int


def due_in_ms(plan: Plan, now: int) -> int | None:
    """How long until the next run, 0 for now; None while it is paused. A run that was asked for runs even
    then.
    """
    if plan.run_asked_at:
        return 0
    if plan.paused:
        return None
    # A clock that was set back must not stop a service for longer than its interval.
    return max(0, min(plan.next_due_at - now, plan.interval_ms))


def due_after(plan: Plan, ended_at: int) -> int:
    """When it is due after a run that ended then: a fixed delay, so that runs never queue up."""
    return ended_at + plan.interval_ms


def due_with(plan: Plan, interval_ms: int, now: int) -> int:
    """When it is due once the interval is changed: a shorter one counts at once (pmq:T1)."""
    return min(plan.next_due_at, now + interval_ms)
