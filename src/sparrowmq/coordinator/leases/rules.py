"""Decisions about a lease: when to claim, renew, let go and stop. Values in, values out; no clock, no
database.

Two clocks never meet here. The database's clock says when a lease ends for others; the holder's own monotonic
clock, read before the request that won or renewed it was sent, says when the holder must have stopped. The
second comes first by `margin_ms`, however long the answer took (pmq:1.6, L9).
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
    """How long a lease runs, how often it is renewed, and how long before its end the holder stops;
    milliseconds.

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
                "a lease must outlast two renewals and the margin; make leaseTime longer"
            )


@dataclass(frozen=True, slots=True)
class Owner:
    """A coordinator process: 128 random bits as text, and what people call it (pmq:L11)."""

    id: str
    label: str


@dataclass(frozen=True, slots=True)
class Holding:
    """A lease this process has: its epoch, and when by the own monotonic clock (seconds) it must have
    stopped."""

    epoch: int
    deadline: float
    renew_at: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """What one process knows of one service's lease. A new value for every change."""

    holding: Holding | None = None
    ask_at: float = 0.0
    """When to ask for the lease next, while somebody else has it."""


class Action(Enum):
    """What to do next."""

    WAIT = "wait"
    CLAIM = "claim"
    RENEW = "renew"
    RELEASE = "release"
    """Give the lease back: this process is not to lead (a gate closed, or it stops)."""
    STOP = "stop"
    """The time is over: end the work at once, without asking anybody."""


def decide(candidate: Candidate, now: float, *, enabled: bool, overdue: bool) -> Action:
    """What to do at `now`.

    A process that is not `enabled` neither claims nor keeps a lease (pmq:L3, L4). One whose step is `overdue`
    lets its lease run out: the step may hang for ever, and a peer shall go on (pmq:L2).
    """
    holding = candidate.holding
    if holding is None:
        return Action.CLAIM if enabled and not overdue and now >= candidate.ask_at else Action.WAIT
    if now >= holding.deadline:
        return Action.STOP
    if not enabled:
        return Action.RELEASE
    if now >= holding.renew_at and not overdue:
        return Action.RENEW
    return Action.WAIT


def won(sent_at: float, epoch: int, times: LeaseTimes) -> Candidate:
    """After a claim or renewal that was sent at `sent_at` succeeded."""
    deadline = sent_at + (times.ttl_ms - times.margin_ms) / 1000
    return Candidate(Holding(epoch, deadline, sent_at + times.renew_ms / 1000))


def missed(now: float, times: LeaseTimes) -> Candidate:
    """After somebody else was found to have the lease, or the own one ended: ask again one interval later."""
    return Candidate(None, now + times.renew_ms / 1000)


def unanswered(candidate: Candidate, now: float, times: LeaseTimes) -> Candidate:
    """After the database could not be asked: a lease stays as long as it runs, the next try comes soon."""
    soon = now + times.renew_ms / 1000 / 4
    if candidate.holding is None:
        return Candidate(None, soon)
    return Candidate(replace(candidate.holding, renew_at=soon))


def answer_seconds(candidate: Candidate, now: float, times: LeaseTimes) -> float:
    """How long to wait for the answer to a question that is sent now: not beyond the lease's end, and
    never so long that the next question comes too late."""
    most = times.renew_ms / 1000
    return most if candidate.holding is None else max(0.0, min(most, candidate.holding.deadline - now))


def wait_seconds(candidate: Candidate, now: float) -> float:
    """How long until `decide` may say something else, if nothing happens before."""
    holding = candidate.holding
    until = candidate.ask_at if holding is None else min(holding.renew_at, holding.deadline)
    return max(0.0, until - now)


def leads(candidate: Candidate, now: float) -> bool:
    """Whether work may go on; asked before each thing that reaches beyond the database."""
    return candidate.holding is not None and now < candidate.holding.deadline
