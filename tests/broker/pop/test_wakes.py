"""Waiting requests are answered in limited portions, however many are due."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from tests.support import run, until

from sparrowmq.broker.pop.waiting import WaitingRequest, WaitKey
from sparrowmq.broker.pop.wakes import OUTDATED_MAX, WaitingRequests
from sparrowmq.core.clock import SystemClock
from sparrowmq.protocol.frame import Command
from sparrowmq.transport.slices import TURN_SECONDS

COUNT = 20


class Client:
    closed = False

    def charge(self, size: int) -> bool:
        return True


def parked(requests: WaitingRequests) -> list[bool]:
    """Twenty waiting requests, each of which takes a whole turn; their results are added to the list."""
    told: list[bool] = []
    client: Any = Client()

    def resume(one: WaitingRequest, expired: bool) -> None:
        told.append(expired)
        time.sleep(TURN_SECONDS)

    for number in range(COUNT):
        key = WaitKey("topic", f"group{number}", 0)
        assert requests.pops.park(WaitingRequest(client, Command(0), key, ("topic",), 0, 1, resume))
    return told


def test_many_simultaneous_deadlines_take_several_turns() -> None:
    async def main() -> None:
        requests = WaitingRequests(SystemClock())
        told = parked(requests)
        requests.look()
        assert len(told) < COUNT
        await until(lambda: len(told) == COUNT)
        assert all(told) and requests.pops.count == 0

    run(main())


def test_message_that_wakes_many_requests_takes_several_turns() -> None:
    async def main() -> None:
        requests = WaitingRequests(SystemClock())
        told = parked(requests)
        for number in range(COUNT):
            requests.wake(WaitKey("topic", f"group{number}", 0))
        await asyncio.sleep(0)
        assert 0 < len(told) < COUNT
        await until(lambda: len(told) == COUNT)
        assert not any(told) and requests.pops.count == 0

    run(main())


def test_replaced_wake_times_are_discarded() -> None:
    requests = WaitingRequests(SystemClock())
    place, now = WaitKey("topic", "group", 0), SystemClock().now_ms()
    for number in range(10_000):
        requests.free_at(place, now + 60_000 + number)
    assert requests.moments <= OUTDATED_MAX + 2
