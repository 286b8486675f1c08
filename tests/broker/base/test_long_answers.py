from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Generator
from typing import Any

from tests.broker.doubles import FakeConnection
from tests.support import run

from sparrowmq.broker.base.long_answers import AT_ONCE, LongAnswers
from sparrowmq.protocol.frame import Command
from sparrowmq.transport.slices import TURN_SECONDS


class Work:
    """Counts running work."""

    def __init__(self) -> None:
        self.under_way = self.most = 0
        self.done: list[int] = []

    def steps(self, number: int) -> Generator[None, None, Command]:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        for _ in range(3):
            time.sleep(TURN_SECONDS)
            yield
        self.under_way -= 1
        self.done.append(number)
        return Command(0, opaque=number)


def begin(long: LongAnswers, client: Any, steps: Generator[None, None, Command]) -> Awaitable[Command]:
    made = long.begin(client, steps)
    assert not isinstance(made, Command)
    return made


def test_each_connection_runs_one_task_and_others_run_in_between() -> None:
    async def main() -> None:
        long, work = LongAnswers(), Work()
        greedy, other = FakeConnection(), FakeConnection(50_001)
        asked = [begin(long, greedy, work.steps(number)) for number in range(20)]
        asked.append(begin(long, other, work.steps(99)))
        answers = await asyncio.gather(*asked)
        assert [one.opaque for one in answers] == [*range(20), 99]
        assert work.most == 2
        assert work.done.index(99) < 5
        assert repr(long) == "<LongAnswers for 0 connections>"

    run(main())


def test_number_of_tasks_of_all_connections_is_limited() -> None:
    async def main() -> None:
        long, work = LongAnswers(), Work()
        clients = [FakeConnection(port) for port in range(50_000, 50_030)]
        await asyncio.gather(*(begin(long, one, work.steps(0)) for one in clients))
        assert work.most == AT_ONCE

    run(main())


def test_cancelled_task_leaves_nothing_behind() -> None:
    async def main() -> None:
        long, work, client = LongAnswers(), Work(), FakeConnection()
        first, second = (asyncio.ensure_future(begin(long, client, work.steps(n))) for n in (1, 2))
        await asyncio.sleep(0)
        second.cancel()
        assert (await first).opaque == 1
        assert repr(long) == "<LongAnswers for 0 connections>"

    run(main())


def test_without_a_loop_the_result_is_immediate() -> None:
    made = LongAnswers().begin(FakeConnection(), Work().steps(7))  # type: ignore[arg-type]
    assert isinstance(made, Command) and made.opaque == 7


def test_nothing_is_computed_for_a_closed_connection() -> None:
    async def main() -> None:
        long, work, client = LongAnswers(), Work(), FakeConnection()
        asked = [begin(long, client, work.steps(number)) for number in range(20)]
        first, *others = (asyncio.ensure_future(one) for one in asked)
        await first
        client.close("gone")
        answers = await asyncio.gather(*others)
        assert len(work.done) <= 2
        assert {one.code for one in answers[1:]} == {2}

    run(main())
