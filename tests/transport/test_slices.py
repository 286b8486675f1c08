"""Work in slices: at once when it is short, a part in each turn when it is long, in turn with others."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator

import pytest
from tests.support import about, run

from sparrowmq.transport.slices import Slices, TurnGate, shared


class Meter:
    """A clock that each step of a work moves on by a second."""

    def __init__(self) -> None:
        self.now = 0.0
        self.done: list[str] = []

    def __call__(self) -> float:
        return self.now

    def work(self, name: str, steps: int) -> Iterator[None]:
        for number in range(steps):
            self.now += 1.0
            self.done.append(f"{name}{number}")
            yield


def test_short_work_is_done_at_once() -> None:
    async def main() -> None:
        meter = Meter()
        slices = Slices(turn_seconds=10, clock=meter)
        slices.run(meter.work("a", 3))
        slices.run(meter.work("b", 3))
        assert meter.done == ["a0", "a1", "a2", "b0", "b1", "b2"]
        assert len(slices) == 0

    run(main())


def test_long_work_goes_on_in_later_turns_and_shares_them() -> None:
    async def main() -> None:
        meter = Meter()
        slices = Slices(turn_seconds=2, clock=meter)
        slices.run(meter.work("a", 5))
        slices.run(meter.work("b", 2))
        turns = [meter.done.copy()]
        while len(slices):
            await asyncio.sleep(0)
            turns.append(meter.done[sum(map(len, turns)) :])
        assert turns == [["a0", "a1"], ["a2", "b0"], ["a3", "b1"], ["a4"]]

    run(main())


def test_every_turn_gets_ahead_however_little_time_there_is() -> None:
    async def main() -> None:
        meter = Meter()
        slices = Slices(turn_seconds=0, clock=meter)
        slices.run(meter.work("a", 3))
        assert meter.done == []
        for count in (1, 2, 3):
            await asyncio.sleep(0)
            assert len(meter.done) == count
        await asyncio.sleep(0)
        assert len(slices) == 0

    run(main())


def test_a_fault_ends_its_work_only(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        meter = Meter()

        def faulty() -> Iterator[None]:
            yield
            raise RuntimeError("no")

        slices = Slices(turn_seconds=0, clock=meter)
        slices.run(faulty())
        slices.run(meter.work("a", 1))
        for _ in range(4):
            await asyncio.sleep(0)
        assert meter.done == ["a0"]
        assert len(slices) == 0

    run(main())
    assert "error in background work" in caplog.text


def test_what_waits_can_be_forgotten() -> None:
    async def main() -> None:
        meter = Meter()
        slices = Slices(turn_seconds=1, clock=meter)
        slices.run(meter.work("a", 5))
        slices.clear()
        await asyncio.sleep(0)
        assert meter.done == ["a0"]

    run(main())


def test_without_a_loop_everything_is_done_at_once() -> None:
    meter = Meter()
    Slices(turn_seconds=1, clock=meter).run(meter.work("a", 5))
    assert len(meter.done) == 5


def test_the_result_of_a_work_can_be_waited_for() -> None:
    def adding(count: int) -> Generator[None, None, int]:
        total = 0
        for number in range(count):
            total += number
            yield
        if not total:
            raise ValueError("nothing to add")
        return total

    async def main() -> None:
        slices = Slices(turn_seconds=0)
        assert await slices.result(adding(10)) == 45
        with pytest.raises(ValueError, check=about(args=("nothing to add",))):
            await slices.result(adding(1))

    run(main())


def test_work_ends_when_its_waiter_is_cancelled() -> None:
    async def main() -> None:
        slices, done = Slices(turn_seconds=0), []

        def endless() -> Generator[None, None, None]:
            while True:
                done.append(1)
                yield

        waiting = asyncio.create_task(slices.result(endless()))
        await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.sleep(0.01)
        assert done
        assert len(slices) == 0

    run(main())


def test_a_loop_has_one() -> None:
    async def main() -> Slices:
        assert shared() is shared()
        return shared()

    assert run(main()) is not run(main())
    assert shared() is not shared()


def test_gate_lets_some_pass_in_each_turn_in_their_order() -> None:
    turn = 0
    passed: list[tuple[str, int]] = []

    async def count() -> None:
        nonlocal turn
        while True:  # until cancelled
            turn += 1
            await asyncio.sleep(0)

    async def one(gate: TurnGate, name: str, weight: int) -> None:
        await gate.passed(weight)
        passed.append((name, turn))

    async def main() -> None:
        gate, counting = TurnGate(4), asyncio.create_task(count())
        gone = asyncio.create_task(one(gate, "gone", 0))
        weights = {"a": 2, "b": 2, "c": 1, "large": 9, "d": 4, "e": 1}
        tasks = [asyncio.create_task(one(gate, name, weight)) for name, weight in weights.items()]
        gone.cancel()
        await asyncio.gather(*tasks)
        await one(gate, "later", 3)
        counting.cancel()

    run(main())
    turns = dict(passed)
    assert list(turns) == ["a", "b", "c", "large", "d", "e", "later"]
    assert turns["a"] == turns["b"] < turns["c"] < turns["large"] < turns["d"] < turns["e"]


def test_gate_forgets_who_is_cancelled_while_waiting() -> None:
    async def main() -> None:
        gate = TurnGate(1)
        await gate.passed(1)
        waiting = [asyncio.create_task(gate.passed(1)) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.gather(*waiting[1:])
        await gate.passed(1)

    run(main())
