"""Runs that several callers share."""

from __future__ import annotations

import asyncio

import pytest
from tests.support import run

from sparrowmq.broker.tables.coalesced_run import SharedRun


class Job:
    """Counts its runs; each lasts until the test releases it, and fails if the test wants it to."""

    def __init__(self) -> None:
        self.runs = 0
        self.go = asyncio.Event()
        self.fail = False

    async def __call__(self) -> None:
        self.runs += 1
        number = self.runs
        await self.go.wait()
        if self.fail:
            raise ValueError(f"run {number}")


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_callers_during_a_run_share_the_next_one() -> None:
    async def main() -> None:
        job = Job()
        shared = SharedRun(job)
        first = asyncio.create_task(shared.join())
        await turns()
        later = [asyncio.create_task(shared.join()) for _ in range(10)]
        await turns()
        assert job.runs == 1
        job.go.set()
        await asyncio.gather(first, *later)
        assert job.runs == 2
        await shared.join()
        assert job.runs == 3

    run(main())


def test_failure_is_raised_only_to_callers_of_that_run() -> None:
    async def main() -> None:
        job = Job()
        job.fail = True
        shared = SharedRun(job)
        first = [asyncio.create_task(shared.join()) for _ in range(2)]
        await turns(1)
        second = asyncio.create_task(shared.join())
        await turns()
        job.go.set()
        errors = await asyncio.gather(*first, second, return_exceptions=True)
        assert [str(error) for error in errors] == ["run 1", "run 2", "run 2"]
        job.fail = False
        await shared.join()
        assert job.runs == 3

    run(main())


def test_caller_at_the_moment_a_run_ends_gets_the_next_one() -> None:
    async def main() -> None:
        job = Job()
        job.go.set()
        shared = SharedRun(job)
        first = asyncio.create_task(shared.join())
        await turns(1)  # the run ends in the next turn, before what it has to say is heard
        second = asyncio.create_task(shared.join())
        await asyncio.gather(first, second)
        assert job.runs == 2

    run(main())


def test_cancelled_caller_does_not_end_the_run_of_the_others() -> None:
    async def main() -> None:
        job = Job()
        shared = SharedRun(job)
        gone = asyncio.create_task(shared.join())
        await turns()
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        job.go.set()
        await shared.join()
        assert job.runs == 2

    run(main())


def test_unawaited_failure_is_not_reported_by_asyncio() -> None:
    async def main() -> None:
        job = Job()
        job.fail = True
        shared = SharedRun(job)
        gone = asyncio.create_task(shared.join())
        await turns()
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        job.go.set()
        await turns()
        assert job.runs == 1

    run(main())  # a complaint would be a warning, and those are errors
