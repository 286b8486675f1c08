"""Opaques, the bound in flight, and calls that wait."""

from __future__ import annotations

import asyncio
import gc
from functools import partial

import pytest
from tests.support import about, run, until

from sparrowmq.core.errors import ConnectionLostError, NoRoomError, RequestTimeoutError
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command
from sparrowmq.transport.correlation import OPAQUE_MAX, InFlight, OpaqueCounter, PendingCalls


def answer(opaque: int) -> Command:
    return Command(0, opaque, FLAG_RESPONSE)


def test_opaques_count_up_and_start_again_before_they_turn_negative() -> None:
    counter = OpaqueCounter()
    assert [counter.take(), counter.take()] == [0, 1]
    counter._next = OPAQUE_MAX
    assert [counter.take(), counter.take()] == [2**31 - 1, 0]


class TestInFlight:
    def test_room_runs_out_and_comes_back(self) -> None:
        bound = InFlight(2)
        assert [bound.try_acquire() for _ in range(3)] == [True, True, False]
        bound.release()
        assert bound.try_acquire()
        assert bound.used == 2

    def test_those_who_wait_get_room_in_their_order(self) -> None:
        async def main() -> list[int]:
            bound, got = InFlight(1), []
            deadline = asyncio.get_running_loop().time() + 20

            async def wait(number: int) -> None:
                await bound.acquire(deadline)
                got.append(number)

            assert bound.try_acquire()
            tasks = [asyncio.create_task(wait(number)) for number in range(3)]
            for number in range(3):
                await asyncio.sleep(0)
                assert not bound.try_acquire(), "nobody may overtake those who wait"
                bound.release()
                await until(partial(lambda count: len(got) == count, number + 1))
            await asyncio.gather(*tasks)
            assert bound.used == 1
            return got

        assert run(main()) == [0, 1, 2]

    def test_waiting_ends_at_the_deadline(self) -> None:
        async def main() -> None:
            bound = InFlight(1)
            assert bound.try_acquire()
            with pytest.raises(NoRoomError, check=about(limit=1)):
                await bound.acquire(asyncio.get_running_loop().time() + 0.01)
            bound.release()
            assert bound.used == 0, "the one that gave up must not be given room"

        run(main())

    def test_room_given_to_one_who_is_cancelled_in_that_moment_is_not_lost(self) -> None:
        async def main() -> None:
            bound = InFlight(1)
            assert bound.try_acquire()
            task = asyncio.create_task(bound.acquire(asyncio.get_running_loop().time() + 20))
            await asyncio.sleep(0)
            bound.release()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert bound.used == 0

        run(main())


class TestPendingCalls:
    def test_an_answer_goes_to_its_call(self) -> None:
        async def main() -> None:
            bound = InFlight(10)
            calls = PendingCalls("peer", bound, asyncio.get_running_loop())
            futures = []
            for opaque in (7, 8):
                assert bound.try_acquire()
                futures.append(calls.start(opaque, 20.0, 10))
            assert calls.resolve(answer(8))
            assert (await futures[1]).opaque == 8
            assert not futures[0].done()
            assert len(calls) == bound.used == 1
            assert not calls.resolve(answer(8)), "the second answer to a call is nobody's"
            calls.fail("end of test")
            with pytest.raises(ConnectionLostError):
                await futures[0]

        run(main())

    def test_calls_end_at_their_deadlines_and_tell(self) -> None:
        async def main() -> None:
            bound, expired = InFlight(10), []
            loop = asyncio.get_running_loop()
            calls = PendingCalls("1.2.3.4:5", bound, loop, expired.append)
            calls.connected_from("10.0.0.7:51234")
            for _ in range(3):
                assert bound.try_acquire()
            started = loop.time()
            short = [calls.start(1, 0.05, 105), calls.start(2, 0.06, 105, waited=0.02)]
            long = calls.start(3, 20.0, 105)
            for number, future in enumerate(short, 1):
                with pytest.raises(RequestTimeoutError, check=about(address="1.2.3.4:5", value=105)) as late:
                    await future
                assert f"(105) number {number} of 10.0.0.7:51234" in str(late.value)
            assert loop.time() - started >= 0.05
            assert not long.done()
            assert bound.used == len(calls) == 1
            assert {round(seconds, 3) for seconds in expired} <= {0.05, 0.04}, "how long they were out"
            assert expired
            assert not calls.resolve(answer(1)), "a late answer is nobody's"
            calls.fail("end of test")
            with pytest.raises(ConnectionLostError):
                await long

        run(main())

    def test_all_fail_at_once_when_the_connection_goes(self) -> None:
        async def main() -> None:
            bound = InFlight(10)
            calls = PendingCalls("peer", bound, asyncio.get_running_loop())
            for _ in range(3):
                assert bound.try_acquire()
            futures = [calls.start(opaque, 20.0, 310) for opaque in range(3)]
            futures[1].cancel()
            calls.fail("it broke")
            for future in (futures[0], futures[2]):
                with pytest.raises(ConnectionLostError, check=about(address="peer", value=310)):
                    await future
            assert bound.used == len(calls) == 0

        run(main())

    def test_a_cancelled_call_counts_until_its_answer_comes(self) -> None:
        async def main() -> None:
            bound = InFlight(1)
            calls = PendingCalls("peer", bound, asyncio.get_running_loop())
            assert bound.try_acquire()
            calls.start(1, 20.0, 10).cancel()
            assert bound.used == 1
            assert calls.resolve(answer(1))
            assert bound.used == 0

        run(main())

    def test_calls_of_one_moment_share_a_timer(self) -> None:
        async def main() -> None:
            bound = InFlight(1000)
            calls = PendingCalls("peer", bound, asyncio.get_running_loop())
            for opaque in range(1000):
                assert bound.try_acquire()
                calls.start(opaque, 20.0, 10)
            assert len(calls._slots) < 100
            for opaque in range(1000):
                calls.resolve(answer(opaque))
            calls.fail("end of test")
            assert calls._slots == {}

        run(main())
        gc.collect()
