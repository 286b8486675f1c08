from __future__ import annotations

import asyncio

import pytest
from tests.support import run

from sparrowmq.coordinator.cluster.room import Room
from sparrowmq.core.errors import RefusedError


async def refusal(room: Room, person: str | None) -> RefusedError:
    with pytest.raises(RefusedError) as found:
        async with room.place(person):
            pass
    return found.value


def test_limits_per_user_and_in_total_are_named_in_errors() -> None:
    async def work() -> None:
        room = Room("exports", 2, 1, 0.0, 10)
        async with room.place("ann"):
            own = await refusal(room, "ann")
            assert (own.status, own.retry_seconds) == (429, 10)
            assert str(own) == (
                "ann has 1 exports in progress and the limit for one user is 1; try again in 10 s"
            )
            async with room.place(None):
                full = await refusal(room, "ben")
                assert (full.status, full.retry_seconds) == (503, 10)
                assert str(full) == "2 exports are in progress and the limit is 2; try again in 10 s"
        assert room.taken == 0

    run(work())


def test_waiting_user_gets_a_freed_place() -> None:
    async def work() -> None:
        room, order = Room("looks", 2, 1, 60.0, 1), list[str]()

        async def look(person: str, name: str) -> None:
            async with room.place(person):
                order.append(name)
                await asyncio.sleep(0)

        async with room.place("ann"), room.place("ben"):
            tasks = [asyncio.create_task(look(person, f"{person}-2")) for person in ("ann", "ben", "cy")]
            await asyncio.sleep(0)
            assert not order
        await asyncio.gather(*tasks)
        assert sorted(order) == ["ann-2", "ben-2", "cy-2"] and room.taken == 0

    run(work())


def test_cancelled_waiting_takes_no_place() -> None:
    async def work() -> None:
        room = Room("looks", 1, 1, 60.0, 1)
        async with room.place("ann"):
            task = asyncio.create_task(refusal(room, "ben"))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert room.taken == 0
        async with room.place("ben"):
            assert room.taken == 1

    run(work())
