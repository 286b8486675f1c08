"""When a service runs next. Pure; times are milliseconds by the database's clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from sparrowmq.core.errors import RefusedError

INTERVAL_MS_MAX = 7 * 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class ServiceOption:
    """An integer option of a service; both bounds are allowed."""

    name: str
    default: int
    low: int
    high: int
    help: str


@dataclass(frozen=True, slots=True)
class ServiceKind:
    """Description of a service: name, defaults and bounds.

    `floor_ms` is the shortest interval. A step that runs longer than `deadline_seconds` is cancelled; if it
    does not end, the lease is not renewed (pmq:L2).
    """

    name: str
    title: str
    interval_ms: int
    floor_ms: int
    deadline_seconds: float
    options: tuple[ServiceOption, ...] = ()

    def defaults(self) -> dict[str, int]:
        """The options with their defaults."""
        return {option.name: option.default for option in self.options}

    def check_interval(self, interval_ms: int) -> None:
        """Raise `RefusedError` (422) with the bounds unless the interval is allowed."""
        if not self.floor_ms <= interval_ms <= INTERVAL_MS_MAX:
            raise RefusedError(
                f"the interval of {self.name} must be from {self.floor_ms / 1000:g} to "
                f"{INTERVAL_MS_MAX / 1000:.0f} seconds, not {interval_ms / 1000:.15g}",
                status=422,
                what="interval",
                value=interval_ms,
                limit=self.floor_ms if interval_ms < self.floor_ms else INTERVAL_MS_MAX,
            )

    def check_options(self, options: dict[str, int]) -> None:
        """Raise `RefusedError` (422) for an option that is unknown or out of its range."""
        known = {option.name: option for option in self.options}
        for name, value in options.items():
            option = known.get(name)
            if option is None:
                names = ", ".join(known) or "none"
                text = f"{self.name} has no option {name!r}; it has: {names}"
                raise RefusedError(text, status=422, what=name)
            if not option.low <= value <= option.high:
                raise RefusedError(
                    f"{name} of {self.name} must be from {option.low} to {option.high}, not {value}",
                    status=422,
                    what=name,
                    value=value,
                    limit=option.low if value < option.low else option.high,
                )


class RunOutcome(Enum):
    """Result of a run."""

    DONE = "done"
    FAILED = "failed"
    TOO_LONG = "too long"


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a step did, as numbers and as one line."""

    counts: dict[str, int] = field(default_factory=dict)
    message: str = ""


@dataclass(frozen=True, slots=True)
class RunPlan:
    """Values that determine when a service runs."""

    interval_ms: int
    paused: bool
    next_due_at: int
    run_asked_at: int


def due_in_ms(plan: RunPlan, now: int) -> int | None:
    """Time until the next run, 0 for now; None while it is paused. A requested run takes place even then."""
    if plan.run_asked_at:
        return 0
    if plan.paused:
        return None
    # A clock that was set back must not delay a service by more than its interval.
    return max(0, min(plan.next_due_at - now, plan.interval_ms))


def due_after(plan: RunPlan, ended_at: int) -> int:
    """When it is due after a run that ended at the given time: a fixed delay, so that runs never queue up."""
    return ended_at + plan.interval_ms


def due_with(plan: RunPlan, interval_ms: int, now: int) -> int:
    """When it is due after the interval was changed: a shorter one takes effect immediately (pmq:T1)."""
    return min(plan.next_due_at, now + interval_ms)
