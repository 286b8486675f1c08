"""Decisions about a lease: when to claim, renew, release and stop. Pure; no clock, no database.

The two clocks are never compared. The database's clock defines when a lease expires for others. The holder's
own monotonic clock, read before the request that won or renewed the lease, defines when the holder must stop.
The holder stops at least `margin_ms` earlier, however long the answer took (pmq:1.6, L9).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from sparrowmq.core.errors import SettingsError

TTL_MS: Final = 15_000
RENEW_MS: Final = 5_000
MARGIN_MS: Final = 2_000


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Duration of a lease, renewal interval, and how long before its end the holder stops; milliseconds.

    Raises `SettingsError` when one lost renewal would already end the lease.
    """

    ttl_ms: int = TTL_MS
    renew_ms: int = RENEW_MS
    margin_ms: int = MARGIN_MS

    def __post_init__(self) -> None:
        if (
            min(self.ttl_ms, self.renew_ms, self.margin_ms) <= 0
            or 2 * self.renew_ms + self.margin_ms > self.ttl_ms
        ):
            raise SettingsError(
                f"leaseTime={self.ttl_ms}, leaseRenewInterval={self.renew_ms}, leaseMargin={self.margin_ms}: "
                "a lease must last longer than two renewals and the margin; increase leaseTime",
                "leaseTime",
                self.ttl_ms,
            )


@dataclass(frozen=True, slots=True)
class Owner:
    """A coordinator process: 128 random bits as text, and a name for people (pmq:L11)."""

    id: str
    label: str


@dataclass(frozen=True, slots=True)
class LeaseHolding:
    """A lease held by this process: its epoch, and the own monotonic time (seconds) by which it must stop."""

    epoch: int
    deadline: float
    renew_at: float


@dataclass(frozen=True, slots=True)
class LeaseCandidate:
    """One process's knowledge of one service's lease. Immutable; each change creates a new value."""

    holding: LeaseHolding | None = None
    ask_at: float = 0.0
    """When to ask for the lease next, while another process has it."""


class LeaseAction(Enum):
    """What to do next."""

    WAIT = "wait"
    CLAIM = "claim"
    RENEW = "renew"
    RELEASE = "release"
    """Release the lease: this process should not lead (a gate closed, or it stops)."""
    STOP = "stop"
    """The time is over: end the work immediately, without a request."""


def decide(candidate: LeaseCandidate, now: float, *, enabled: bool, overdue: bool) -> LeaseAction:
    """What to do at `now`.

    A process that is not `enabled` neither claims nor keeps a lease (pmq:L3, L4). If its step is `overdue`,
    it lets the lease expire: the step may hang forever, and another process should take over (pmq:L2).
    """
    holding = candidate.holding
    if holding is None:
        return LeaseAction.CLAIM if enabled and not overdue and now >= candidate.ask_at else LeaseAction.WAIT
    if now >= holding.deadline:
        return LeaseAction.STOP
    if not enabled:
        return LeaseAction.RELEASE
    if now >= holding.renew_at and not overdue:
        return LeaseAction.RENEW
    return LeaseAction.WAIT


def won(sent_at: float, epoch: int, times: LeaseTimes) -> LeaseCandidate:
    """The state after a claim or renewal sent at `sent_at` succeeded."""
    deadline = sent_at + (times.ttl_ms - times.margin_ms) / 1000
    return LeaseCandidate(LeaseHolding(epoch, deadline, sent_at + times.renew_ms / 1000))


def missed(now: float, times: LeaseTimes) -> LeaseCandidate:
    """The state after another process was found to have the lease, or the own one ended: ask again one
    interval later.
    """
    return LeaseCandidate(None, now + times.renew_ms / 1000)


def unanswered(candidate: LeaseCandidate, now: float, times: LeaseTimes) -> LeaseCandidate:
    """The state after the database could not be queried: the lease is kept while it runs, and the next
    attempt comes soon.
    """
    soon = now + times.renew_ms / 1000 / 4
    if candidate.holding is None:
        return LeaseCandidate(None, soon)
    return LeaseCandidate(replace(candidate.holding, renew_at=soon))


def answer_seconds(candidate: LeaseCandidate, now: float, times: LeaseTimes) -> float:
    """Timeout for the answer to a request sent now: not beyond the lease's end, and not so long that the next
    request is late."""
    most = times.renew_ms / 1000
    return most if candidate.holding is None else max(0.0, min(most, candidate.holding.deadline - now))


def wait_seconds(candidate: LeaseCandidate, now: float) -> float:
    """Time until `decide` may change its answer if nothing happens before."""
    holding = candidate.holding
    until = candidate.ask_at if holding is None else min(holding.renew_at, holding.deadline)
    return max(0.0, until - now)


def leads(candidate: LeaseCandidate, now: float) -> bool:
    """Whether work may continue; checked before each effect outside the database."""
    return candidate.holding is not None and now < candidate.holding.deadline
