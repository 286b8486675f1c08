from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from tests.support import run, until

from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.leases import table as leases
from sparrowmq.coordinator.leases.rules import LeaseTimes, Owner
from sparrowmq.coordinator.records.audit import Actor, Search, record, search
from sparrowmq.coordinator.services.base import board
from sparrowmq.coordinator.services.base import runner as frame
from sparrowmq.coordinator.services.base.board import ServiceRun, ServiceSettings
from sparrowmq.coordinator.services.base.runner import ServiceRunner, Work
from sparrowmq.coordinator.services.base.schedule import RunReport, ServiceKind, ServiceOption
from sparrowmq.core.clock import SystemClock
from sparrowmq.core.errors import CoordinatorError, LeaseLostError, RequestTimeoutError

KIND = ServiceKind("x", "X", 3_600_000, 1, 30.0, (ServiceOption("n", 1, 0, 9, ""),))
TIMES = LeaseTimes(ttl_ms=60_000, renew_ms=50, margin_ms=10)
ANN = Actor("ann")


class Doing:
    """A service whose step the test defines."""

    def __init__(self, step: Callable[[Work], Awaitable[RunReport]], kind: ServiceKind = KIND) -> None:
        self._step, self.kind = step, kind
        self.works: list[Work] = []

    async def step(self, work: Work) -> RunReport:
        self.works.append(work)
        return await self._step(work)


@asynccontextmanager
async def running(database: Database, service: Doing, label: str = "one") -> AsyncIterator[ServiceRunner]:
    board.ensure(database, [service.kind])
    runner = ServiceRunner(database, service, Owner(label * 4, label), TIMES, SystemClock())
    task = asyncio.create_task(runner.run())
    try:
        yield runner
    finally:
        task.cancel()
        await asyncio.wait([task])


def runs(database: Database) -> list[ServiceRun]:
    with database.read() as connection:
        return board.runs(connection, "x")


def renewed_at(database: Database) -> int:
    with database.read() as connection:
        found = leases.row(connection, "x")
    assert found is not None
    return found.renewed_at


def change(database: Database, call: Callable[..., None], *arguments: object) -> None:
    with database.write() as connection:
        call(connection, KIND, *arguments, ANN)


async def nothing(work: Work) -> RunReport:
    return RunReport({"n": work.options["n"]})


@pytest.mark.proves("pmq:2", "pmq:T1")
def test_step_runs_when_due_and_again_when_the_interval_is_shortened(database: Database) -> None:
    async def main() -> None:
        async with running(database, Doing(nothing)) as runner:
            await until(lambda: len(runs(database)) == 1)
            change(database, board.set_options, {"n": 5})
            change(database, board.set_interval, 1)
            runner.wake()
            await until(lambda: len(runs(database)) >= 3)
        assert runs(database)[0].counts == {"n": 5}
        assert len({run.epoch for run in runs(database)}) == 1

    run(main())


def test_paused_service_runs_only_on_request(database: Database) -> None:
    async def main() -> None:
        board.ensure(database, [KIND])
        change(database, board.set_paused, True)
        service = Doing(nothing)
        async with running(database, service) as runner:
            await until(lambda: runner.holder.epoch)
            change(database, board.ask_run)
            runner.wake()
            await until(lambda: len(runs(database)) == 1)
            change(database, board.set_paused, False)
            runner.wake()
            await until(lambda: runner.holder.epoch)
        assert len(service.works) == 1

    run(main())


@pytest.mark.parametrize(
    ("error", "outcome", "message"),
    [
        (CoordinatorError("no broker answers"), "failed", "no broker answers"),
        (RequestTimeoutError("broker-a did not answer"), "failed", "broker-a did not answer"),
        (ZeroDivisionError("oh"), "failed", "ZeroDivisionError: oh"),
    ],
)
def test_failing_step_is_recorded_and_does_not_end_the_service(
    database: Database, error: Exception, outcome: str, message: str
) -> None:
    async def main() -> None:
        async def step(work: Work) -> RunReport:
            if len(service.works) == 1:
                raise error
            return RunReport()

        service = Doing(step)
        async with running(database, service) as runner:
            await until(lambda: runs(database))
            change(database, board.ask_run)
            runner.wake()
            await until(lambda: len(runs(database)) == 2)
        second, first = runs(database)
        assert (first.outcome, first.message, second.outcome) == (outcome, message, "done")

    run(main())


@pytest.mark.proves("pmq:L2")
def test_hanging_step_is_cancelled_at_its_deadline(database: Database) -> None:
    async def main() -> None:
        async def step(work: Work) -> RunReport:
            await asyncio.Event().wait()
            return RunReport()

        async with running(database, Doing(step, ServiceKind("x", "X", 3_600_000, 1, 0.05))):
            await until(lambda: runs(database))
        assert [(one.outcome, one.message) for one in runs(database)] == [
            ("too long", "not finished within 0.05 s; cancelled")
        ]

    run(main())


@pytest.mark.proves("pmq:L2")
def test_step_that_ignores_cancellation_loses_the_service(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame, "GRACE_SECONDS", 0.05)

    async def main() -> None:
        end = asyncio.Event()

        async def step(work: Work) -> RunReport:
            while not end.is_set():
                try:
                    await end.wait()
                except asyncio.CancelledError:
                    continue
            return RunReport()

        times = LeaseTimes(ttl_ms=500, renew_ms=200, margin_ms=50)
        kind = ServiceKind("x", "X", 3_600_000, 1, 0.02)
        board.ensure(database, [kind])
        stuck = ServiceRunner(database, Doing(step, kind), Owner("s" * 32, "stuck"), times, SystemClock())
        task = asyncio.create_task(stuck.run())
        await until(lambda: stuck.holder.epoch)
        async with running(database, Doing(nothing), "peer") as peer:
            await until(lambda: peer.holder.epoch)
            end.set()
        task.cancel()
        await asyncio.wait([task])

    run(main())


@pytest.mark.proves("pmq:L1", "pmq:L9")
def test_step_that_loses_its_lease_is_cancelled_and_writes_nothing(database: Database) -> None:
    async def main() -> None:
        cancelled = asyncio.Event()

        async def step(work: Work) -> RunReport:
            try:
                await asyncio.Event().wait()
            finally:
                with pytest.raises(LeaseLostError):
                    await asyncio.shield(
                        work.write(lambda c: record(c, work.actor, "late", ("service", "x")))
                    )
                assert not work.leads
                cancelled.set()
            return RunReport()

        service = Doing(step)
        async with running(database, service):
            await until(lambda: service.works)
            with database.write() as connection:
                leases.hand_over(connection, "x", 60_000)
            await asyncio.wait_for(cancelled.wait(), 20)
        assert runs(database) == []
        with database.read() as connection:
            assert search(connection, Search(action="late")) == []

    run(main())


def test_writes_of_a_step_name_the_service_and_its_epoch(database: Database) -> None:
    async def main() -> None:
        async def step(work: Work) -> RunReport:
            await work.write(lambda c: record(c, work.actor, "did", ("service", "x")))
            count = len(await work.read(lambda c: search(c, Search(action="did"))))
            return RunReport({"entries": count})

        async with running(database, Doing(step)):
            await until(lambda: runs(database))
        assert runs(database)[0].counts == {"entries": 1}
        with database.read() as connection:
            (entry,) = search(connection, Search(action="did"))
        assert (entry.actor, entry.generation) == ("service:x", runs(database)[0].epoch)

    run(main())


@pytest.mark.proves("pmq:L6")
def test_another_process_continues_when_the_first_ends(database: Database) -> None:
    async def main() -> None:
        first, second = Doing(nothing), Doing(nothing)
        async with running(database, second, "two") as peer:
            async with running(database, first, "one"):
                await until(lambda: runs(database))
            await until(lambda: peer.holder.epoch)
            change(database, board.ask_run)
            peer.wake()
            await until(lambda: len(runs(database)) == 2)
        assert first.works or second.works

    run(main())


class Continuous(Doing):
    """A service with continuous work, which takes until `end` to give up what it holds."""

    def __init__(self) -> None:
        super().__init__(nothing)
        self.end = asyncio.Event()
        self.looking: list[int] = []

    async def look(self, work: Work, seen: ServiceSettings) -> None:
        self.looking.append(work.epoch)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.shield(self.end.wait())
            self.looking.remove(work.epoch)

    async def resign(self) -> None:
        pass


@pytest.mark.proves("pmq:L9")
def test_work_waits_for_all_earlier_work_that_is_still_ending(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease is lost twice while the work of the first epoch is still ending."""
    monkeypatch.setattr(frame, "GRACE_SECONDS", 60.0)

    async def main() -> None:
        service = Continuous()
        async with running(database, service) as runner:
            await until(lambda: service.looking)
            first = runner.holder.epoch
            for _ in range(2):
                before = runner.holder.epoch
                runner.holder.lost()
                await until(lambda before=before: runner.holder.epoch not in (None, before))
            for _ in range(3):  # time for the last one to begin, if it does not wait
                now = renewed_at(database)
                await until(lambda now=now: renewed_at(database) > now)
            assert service.looking == [first]
            service.end.set()
            await until(lambda: service.looking == [runner.holder.epoch])

    run(main())
