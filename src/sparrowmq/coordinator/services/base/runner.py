"""`ServiceRunner`: one service in one process. Runs its step when it is due and this process leads.

All that a step writes goes through `Work.write`, which checks the lease inside the same transaction: a
process that was frozen and resumes cannot write (pmq:L1). When the lease is lost the step is cancelled
(pmq:L9).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

from sqlalchemy import Connection

from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.leases import table as leases
from sparrowmq.coordinator.leases.holder import LeaseHolder
from sparrowmq.coordinator.leases.rules import LeaseTimes, Owner
from sparrowmq.coordinator.records.audit import Actor
from sparrowmq.coordinator.services.base import board
from sparrowmq.coordinator.services.base.board import ServiceSettings
from sparrowmq.coordinator.services.base.schedule import RunOutcome, RunReport, ServiceKind, due_in_ms
from sparrowmq.core.clock import Clock
from sparrowmq.core.errors import DatabaseError, LeaseLostError, SparrowError

T = TypeVar("T")

LOOK_SECONDS: Final = 1.0
"""How often a leader checks for changes of its service, including those by other coordinators."""
GRACE_SECONDS: Final = 2.0
"""Time after its deadline in which a cancelled step may end before the lease is left to expire."""
_log = logging.getLogger("sparrowmq.coordinator.services")


class Work:
    """Context of a step: the options, the database, and whether it may continue."""

    def __init__(
        self,
        database: Database,
        holder: LeaseHolder,
        epoch: int,
        options: Mapping[str, int],
        fresh_seconds: float = 0.0,
    ) -> None:
        self.options = options
        self.epoch = epoch
        self.fresh_seconds = fresh_seconds
        """Maximum age of other services' results: one interval, but 0 when a user requested the run."""
        self._database = database
        self._holder = holder

    @property
    def actor(self) -> Actor:
        """The actor in the audit entries of this step."""
        return Actor(f"service:{self._holder.service}", generation=self.epoch)

    @property
    def leads(self) -> bool:
        """Whether the lease still runs; check it before any effect outside the database."""
        return self._holder.epoch == self.epoch

    async def read(self, work: Callable[[Connection], T]) -> T:
        """The result of `work(connection)`."""

        def call() -> T:
            with self._database.read() as connection:
                return work(connection)

        return await self._database.run(call)

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Run `work(connection)` in one transaction as the leader. Raises `LeaseLostError`, then nothing is
        committed.
        """

        def call() -> T:
            with self._database.write() as connection:
                leases.guard(connection, self._holder.service, self._holder.owner, self.epoch)
                return work(connection)

        return await self._database.run(call)


class Service(Protocol):
    """A service: its description, and one step of its work."""

    @property
    def kind(self) -> ServiceKind:
        """Name, defaults and bounds."""

    async def step(self, work: Work) -> RunReport:
        """Run one step. May be cancelled at any await."""


@runtime_checkable
class ContinuousService(Service, Protocol):
    """A service that works continuously while its process leads, in addition to its steps."""

    async def look(self, work: Work, seen: ServiceSettings) -> None:
        """Maintain the continuous work. Called when this process begins to lead, then every second, even
        while the service is paused, and before a step. May be cancelled at any await.
        """

    async def resign(self) -> None:
        """Stop it immediately, because this process no longer leads. Raises nothing and does not block."""


class ServiceRunner:
    """A service, its lease and its schedule. `run` takes part until it is cancelled."""

    def __init__(
        self, database: Database, service: Service, owner: Owner, times: LeaseTimes, clock: Clock
    ) -> None:
        self.service = service
        self.runs: Counter[str] = Counter()
        """Runs in this process, by outcome."""
        self.seconds = 0.0
        """Time of these runs."""
        self._database = database
        self._clock = clock
        self._holder = LeaseHolder(database, service.kind.name, owner, times, clock, self._lease_changed)
        self._look = asyncio.Event()
        self._leading: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._standing = service if isinstance(service, ContinuousService) else None

    def __repr__(self) -> str:
        return f"<ServiceRunner {self.service.kind.name} epoch={self._holder.epoch}>"

    @property
    def holder(self) -> LeaseHolder:
        """The service's lease in this process."""
        return self._holder

    def wake(self) -> None:
        """Read the row now, because it was changed."""
        self._look.set()
        self._holder.wake()

    async def run(self) -> None:
        """Take part in the election, and work while leading, until cancelled."""
        try:
            await self._holder.run()
        finally:
            await self._stop_work()

    def _lease_changed(self) -> None:
        epoch, before = self._holder.epoch, self._leading
        if before is not None:
            before.cancel()
            self._leading = None
            self._ending.add(before)
            before.add_done_callback(self._ending.discard)
        if epoch is not None:
            work = self._lead_after(frozenset(self._ending), epoch)
            self._leading = asyncio.create_task(work, name=f"sparrow-{self.service.kind.name}")

    def _settings(self) -> ServiceSettings:
        with self._database.read() as connection:
            return board.settings(connection, self.service.kind)

    async def _stop_work(self) -> None:
        leading, tasks = self._leading, set(self._ending)
        self._leading = None
        if leading is not None:
            leading.cancel()  # the others were cancelled before and are about to end
            tasks.add(leading)
        if tasks:
            await asyncio.wait(tasks, timeout=GRACE_SECONDS)

    async def _lead_after(self, before: Collection[asyncio.Task[None]], epoch: int) -> None:
        if self._standing is None:
            await self._lead(epoch)
            return
        if before:
            await asyncio.wait(before, timeout=GRACE_SECONDS)  # they release resources that this one needs
        try:
            await self._lead(epoch)
        finally:
            await self._standing.resign()

    async def _lead(self, epoch: int) -> None:
        # Checked because a misbehaving step may have swallowed the cancellation.
        while self._holder.epoch == epoch:
            try:
                seen = await self._database.run(self._settings)
                if self._standing is not None:
                    await self._standing.look(self._work(epoch, seen), seen)
                wait = due_in_ms(seen.plan, seen.now)
                if wait == 0:
                    await self._run_step(epoch, seen)
                    continue
            except LeaseLostError as error:
                _log.warning("%s", error)
                self._holder.lost()
                wait = None
            except DatabaseError as error:
                _log.warning("%s: %s", self.service.kind.name, error)
                wait = None
            with suppress(TimeoutError):
                pause = LOOK_SECONDS if wait is None else min(wait / 1000, LOOK_SECONDS)
                async with asyncio.timeout(pause):
                    await self._look.wait()
            self._look.clear()

    def _work(self, epoch: int, seen: ServiceSettings) -> Work:
        fresh = 0.0 if seen.plan.run_asked_at else seen.plan.interval_ms / 1000
        return Work(self._database, self._holder, epoch, seen.options, fresh)

    async def _run_step(self, epoch: int, seen: ServiceSettings) -> None:
        kind, work = self.service.kind, self._work(epoch, seen)
        began = self._clock.monotonic()
        with self._holder.step(began + kind.deadline_seconds + GRACE_SECONDS):
            ended = await self._ended(work)
        self.runs[ended[0].value] += 1
        self.seconds += self._clock.monotonic() - began
        await work.write(lambda connection: board.add_run(connection, kind, seen, epoch, seen.now, ended))

    async def _ended(self, work: Work) -> tuple[RunOutcome, RunReport]:
        kind = self.service.kind
        try:
            async with asyncio.timeout(kind.deadline_seconds):
                return RunOutcome.DONE, await self.service.step(work)
        except LeaseLostError:
            raise
        except SparrowError as error:
            return RunOutcome.FAILED, RunReport(message=str(error))
        except TimeoutError:
            return RunOutcome.TOO_LONG, RunReport(
                message=f"not finished within {kind.deadline_seconds:g} s; cancelled"
            )
        except Exception as error:  # an error of one service must not end the others
            _log.exception("the service %s failed", kind.name)
            return RunOutcome.FAILED, RunReport(message=_short(error))


def _short(error: Any) -> str:
    return f"{type(error).__name__}: {error}"
