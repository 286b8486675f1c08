"""`LeaseHolder`: carries out the rules for one service, on the event loop, against the lease table.

The election is independent of the service's schedule (pmq:L6): it takes place at every renewal interval, even
without work. The holder uses its own clock, so a database that does not answer cannot delay it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.leases import rules, table
from sparrowmq.coordinator.leases.rules import LeaseAction, LeaseCandidate, LeaseHolding, LeaseTimes, Owner
from sparrowmq.core.clock import Clock
from sparrowmq.core.errors import DatabaseError

_log = logging.getLogger("sparrowmq.coordinator.leases")
RELEASE_SECONDS = 2.0
"""How long a clean stop waits for the release of the lease."""


class LeaseHolder:
    """One process's part in the election for `service`. `changed` is called when `epoch` has changed."""

    def __init__(
        self,
        database: Database,
        service: str,
        owner: Owner,
        times: LeaseTimes,
        clock: Clock,
        changed: Callable[[], None],
    ) -> None:
        self.service = service
        self.enabled = True
        self._step_deadline: float | None = None
        self._database = database
        self._owner = owner
        self._times = times
        self._clock = clock
        self._changed = changed
        self._candidate = LeaseCandidate()
        self._claiming = False  # a claim was sent, and its answer has not come
        self._ended = False
        self._wake = asyncio.Event()

    def __repr__(self) -> str:
        return f"<LeaseHolder {self.service} epoch={self.epoch}>"

    @property
    def epoch(self) -> int | None:
        """The epoch in which this process leads; None if it does not lead."""
        holding = self._candidate.holding
        return holding.epoch if holding and rules.leads(self._candidate, self._clock.monotonic()) else None

    @property
    def owner(self) -> Owner:
        """The identity of this process."""
        return self._owner

    @contextmanager
    def step(self, deadline: float) -> Iterator[None]:
        """For work that must end by `deadline`, monotonic seconds: afterwards the lease is given up."""
        self._step_deadline = deadline
        try:
            yield
        finally:
            self._step_deadline = None

    def wake(self) -> None:
        """Decide again now, because an input has changed."""
        self._wake.set()

    def lost(self) -> None:
        """The table shows that this process does not lead: stop now, and ask again immediately."""
        if self._candidate.holding is not None:
            self._become(LeaseCandidate())
        self._wake.set()

    async def run(self) -> None:
        """Take part until cancelled; then release the lease."""
        try:
            while True:
                await self._turn()
                wait = rules.wait_seconds(self._candidate, self._clock.monotonic())
                with suppress(TimeoutError):
                    # An overdue step blocks a due renewal: check again soon, but not immediately.
                    async with asyncio.timeout(max(wait, 0.01 if wait else 0.05)):
                        await self._wake.wait()
                self._wake.clear()
        finally:
            self._ended = True
            await self._give_back()

    async def _turn(self) -> None:
        now = self._clock.monotonic()
        overdue = self._step_deadline is not None and now > self._step_deadline
        action = rules.decide(self._candidate, now, enabled=self.enabled, overdue=overdue)
        if action is LeaseAction.STOP:
            _log.warning("%s: the lease expired before it could be renewed; its work stops", self.service)
            self._become(rules.missed(now, self._times))
        elif action is LeaseAction.RELEASE or (self._claiming and not self.enabled):
            await self._give_back()
        elif action in (LeaseAction.CLAIM, LeaseAction.RENEW):
            await self._ask(action, now)

    async def _ask(self, action: LeaseAction, sent_at: float) -> None:
        """Claim or renew; the lease counts from the time the request was sent."""
        holding = self._candidate.holding
        limit = rules.answer_seconds(self._candidate, sent_at, self._times)
        self._claiming = holding is None
        try:
            async with asyncio.timeout(limit):
                epoch = await self._database.run(partial(self._claim_or_renew, holding))
        except (DatabaseError, TimeoutError) as error:
            _log.warning("%s: %s failed: %s", self.service, action.value, str(error) or "no answer in time")
            self._become(rules.unanswered(self._candidate, self._clock.monotonic(), self._times))
            return
        self._claiming = False
        if self._candidate.holding is not holding:
            return  # `lost` since the request: its answer is about a lease that was given up
        now = self._clock.monotonic()
        if epoch is None:
            if holding is not None:
                _log.warning("%s: another process leads now; its work stops", self.service)
            self._become(rules.missed(now, self._times))
        else:
            self._become(rules.won(sent_at, epoch, self._times))

    def _claim_or_renew(self, holding: LeaseHolding | None) -> int | None:
        with self._database.write() as connection:
            if holding is None:
                epoch = table.claim(connection, self.service, self._owner, self._times.ttl_ms)
                if epoch is None or (self.enabled and not self._ended):
                    return epoch
                table.release(connection, self.service, self._owner, epoch)
                return None
            kept = table.renew(connection, self.service, self._owner, holding.epoch, self._times.ttl_ms)
            return holding.epoch if kept else None

    async def _give_back(self) -> None:
        """Release the lease, also one that a claim may have won whose answer has not come."""
        if self._candidate.holding is None and not self._claiming:
            return
        self._claiming = False
        self._become(rules.missed(self._clock.monotonic(), self._times))

        def work() -> bool:
            with self._database.write() as connection:
                # The lock waits for a claim under way; one that comes later finds that it is not wanted.
                row = table.row(connection, self.service, lock=True)
                return row is not None and table.release(connection, self.service, self._owner, row.epoch)

        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await self._database.run(work)
        except (DatabaseError, TimeoutError) as error:
            _log.warning("%s: the lease could not be released and will expire: %s", self.service, error)

    def _become(self, candidate: LeaseCandidate) -> None:
        before = self._candidate.holding
        self._candidate = candidate
        after = candidate.holding
        if (before and before.epoch) != (after and after.epoch):
            self._changed()
