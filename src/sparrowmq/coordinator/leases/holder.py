"""`LeaseHolder`: carries out the rules for one service, on the event loop, against the lease table.

The election does not wait for the service's own schedule (pmq:L6): who leads is settled at every renewal
interval, work or no work. What the holder knows is by its own clock; a database that does not answer cannot
make it late.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.leases import rules, table
from sparrowmq.coordinator.leases.rules import Action, Candidate, LeaseTimes, Owner
from sparrowmq.core.clock import Clock
from sparrowmq.core.errors import DatabaseError

_log = logging.getLogger("sparrowmq.coordinator.leases")
RELEASE_SECONDS = 2.0
"""How long a clean stop waits for the database to take the lease back."""


class LeaseHolder:
    """One process's part in who leads `service`. `changed` is called when the answer of `epoch` has
    changed.
    """

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
        self.step_deadline: float | None = None
        """Monotonic seconds at which the work that runs must have ended; None while nothing runs."""
        self._database = database
        self._owner = owner
        self._times = times
        self._clock = clock
        self._changed = changed
        self._candidate = Candidate()
        self._wake = asyncio.Event()

    def __repr__(self) -> str:
        return f"<LeaseHolder {self.service} epoch={self.epoch}>"

    @property
    def epoch(self) -> int | None:
        """The epoch this process leads in; None when it does not."""
        holding = self._candidate.holding
        return holding.epoch if holding and rules.leads(self._candidate, self._clock.monotonic()) else None

    @property
    def owner(self) -> Owner:
        """Who this process is."""
        return self._owner

    def wake(self) -> None:
        """Decide anew now: something that counts has changed."""
        self._wake.set()

    def lost(self) -> None:
        """The table says that this process does not lead: stop now, and ask again at once."""
        if self._candidate.holding is not None:
            self._become(Candidate())
        self._wake.set()

    async def run(self) -> None:
        """Take part until cancelled; then give the lease back."""
        try:
            while True:
                await self._turn()
                wait = rules.wait_seconds(self._candidate, self._clock.monotonic())
                with suppress(TimeoutError):
                    # An overdue step leaves a renewal due that is not made: look again soon, not at once.
                    async with asyncio.timeout(max(wait, 0.01 if wait else 0.05)):
                        await self._wake.wait()
                self._wake.clear()
        finally:
            await self._give_back()

    async def _turn(self) -> None:
        now = self._clock.monotonic()
        overdue = self.step_deadline is not None and now > self.step_deadline
        action = rules.decide(self._candidate, now, enabled=self.enabled, overdue=overdue)
        if action is Action.STOP:
            _log.warning("%s: the lease ended before it could be renewed; its work stops", self.service)
            self._become(rules.missed(now, self._times))
        elif action is Action.RELEASE:
            await self._give_back()
        elif action in (Action.CLAIM, Action.RENEW):
            await self._ask(action, now)

    async def _ask(self, action: Action, sent_at: float) -> None:
        """Claim or renew; the answer counts from when the question was sent."""
        holding = self._candidate.holding
        limit = rules.answer_seconds(self._candidate, sent_at, self._times)
        try:
            async with asyncio.timeout(limit):
                epoch = await self._database.run(self._claim_or_renew)
        except (DatabaseError, TimeoutError) as error:
            _log.warning("%s: %s failed: %s", self.service, action.value, error or "no answer in time")
            self._become(rules.unanswered(self._candidate, self._clock.monotonic(), self._times))
            return
        now = self._clock.monotonic()
        if epoch is None:
            if holding is not None:
                _log.warning("%s: somebody else leads now; its work stops", self.service)
            self._become(rules.missed(now, self._times))
        else:
            self._become(rules.won(sent_at, epoch, self._times))

    def _claim_or_renew(self) -> int | None:
        holding = self._candidate.holding
        with self._database.write() as connection:
            if holding is None:
                return table.claim(connection, self.service, self._owner, self._times.ttl_ms)
            kept = table.renew(connection, self.service, self._owner, holding.epoch, self._times.ttl_ms)
            return holding.epoch if kept else None

    async def _give_back(self) -> None:
        holding = self._candidate.holding
        if holding is None:
            return
        self._become(rules.missed(self._clock.monotonic(), self._times))

        def work() -> bool:
            with self._database.write() as connection:
                return table.release(connection, self.service, self._owner, holding.epoch)

        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await self._database.run(work)
        except (DatabaseError, TimeoutError) as error:
            _log.warning("%s: the lease was not given back, it runs out by itself: %s", self.service, error)

    def _become(self, candidate: Candidate) -> None:
        before = self._candidate.holding
        self._candidate = candidate
        after = candidate.holding
        if (before and before.epoch) != (after and after.epoch):
            self._changed()
