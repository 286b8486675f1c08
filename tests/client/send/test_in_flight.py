from __future__ import annotations

import asyncio

import pytest
from tests.support import about, run, until

from sparrowmq.client.send.in_flight import Gate
from sparrowmq.core.errors import NoRoomError


@pytest.mark.proves("client:B-108")
def test_entering_counts_and_leaving_frees_room() -> None:
    gate = Gate(2, 100)
    assert gate.try_enter(40)
    assert gate.try_enter(60)
    assert (gate.count, gate.bytes) == (2, 100)
    assert not gate.try_enter(0)
    gate.leave(60)
    assert not gate.try_enter(61)
    assert gate.try_enter(60)


def test_one_oversized_item_passes_alone() -> None:
    gate = Gate(10, 100)
    assert gate.try_enter(500)
    assert not gate.try_enter(1)


@pytest.mark.proves("client:B-108")
def test_waiting_callers_pass_in_order() -> None:
    async def main() -> None:
        gate = Gate(1, 1000)
        assert gate.try_enter(1)
        order: list[int] = []

        async def caller(number: int) -> None:
            await gate.enter(1, 20)
            order.append(number)

        callers = [asyncio.create_task(caller(number)) for number in range(3)]
        await until(lambda: gate.waiting == 3)
        assert not gate.try_enter(1), "nobody overtakes those who wait"
        for expected in range(1, 4):
            gate.leave(1)
            await until(lambda expected=expected: len(order) == expected)
        await asyncio.gather(*callers)
        assert order == [0, 1, 2]
        assert gate.count == 1

    run(main())


@pytest.mark.proves("client:B-25", "client:B-108")
def test_caller_that_waits_too_long_gets_an_error_with_the_limits() -> None:
    async def main() -> None:
        gate = Gate(1, 1000)
        assert gate.try_enter(1)
        with pytest.raises(NoRoomError, check=about(limit=1)):
            await gate.enter(1, 0.01)
        assert gate.waiting == 0
        gate.leave(1)
        assert (gate.count, gate.bytes) == (0, 0)

    run(main())


def test_cancelled_caller_leaves_its_place_to_the_next() -> None:
    async def main() -> None:
        gate = Gate(1, 1000)
        assert gate.try_enter(1)
        first = asyncio.create_task(gate.enter(1, 20))
        second = asyncio.create_task(gate.enter(1, 20))
        await until(lambda: gate.waiting == 2)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        gate.leave(1)
        await second
        assert (gate.count, gate.waiting) == (1, 0)

    run(main())


def test_cancelling_in_the_turn_of_admission_loses_no_room() -> None:
    async def main() -> None:
        gate = Gate(1, 1000)
        assert gate.try_enter(1)
        waiting = asyncio.create_task(gate.enter(1, 20))
        await until(lambda: gate.waiting == 1)
        gate.leave(1)
        waiting.cancel()
        (ended,) = await asyncio.gather(waiting, return_exceptions=True)
        if ended is None:
            gate.leave(1)
        assert (gate.count, gate.bytes, gate.waiting) == (0, 0, 0)

    run(main())


def test_admission_at_the_end_of_the_timeout_loses_no_room() -> None:
    async def main() -> None:
        gate = Gate(1, 1000)
        assert gate.try_enter(1)
        waiting = asyncio.create_task(gate.enter(1, 0))
        asyncio.get_running_loop().call_soon(gate.leave, 1)  # before the time-out is noticed
        with pytest.raises(NoRoomError):
            await waiting
        assert (gate.count, gate.bytes, gate.waiting) == (0, 0, 0)

    run(main())


def test_draining_waits_for_announced_items() -> None:
    async def main() -> None:
        gate = Gate(5, 1000)
        gate.announce()
        assert not await gate.drain(0.01)
        draining = asyncio.create_task(gate.drain(20))
        await asyncio.sleep(0)
        assert gate.try_enter(1)
        gate.withdraw()
        await asyncio.sleep(0)
        assert not draining.done(), "it entered"
        with gate.coming():
            gate.leave(1)
            await asyncio.sleep(0)
            assert not draining.done(), "another one comes"
        assert await draining

    run(main())


def test_draining_waits_until_nothing_is_in_flight() -> None:
    async def main() -> None:
        gate = Gate(5, 1000)
        assert await gate.drain(1)
        assert gate.try_enter(1)
        assert gate.try_enter(1)
        assert not await gate.drain(0.01)
        draining = [asyncio.create_task(gate.drain(20)) for _ in range(2)]
        assert not await gate.drain(0), "one that gives up leaves the others waiting"
        gate.leave(1)
        gate.leave(1)
        assert await asyncio.gather(*draining) == [True, True]

    run(main())
