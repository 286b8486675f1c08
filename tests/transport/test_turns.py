"""Whose requests are handled next; and that many connections do not make one turn of the loop long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from tests.support import until
from tests.transport.helpers import EchoHandler, Peer, answer_to, serving

from sparrowmq.protocol.frame import Command, encode
from sparrowmq.transport import turns as module
from sparrowmq.transport.connection import Connection
from sparrowmq.transport.turns import TURN_SECONDS, Turns, turns_of

Run = Callable[[Coroutine[Any, Any, None]], None]


class Clock:
    """Time that passes when a guest is served."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


class Guest:
    """Has so many requests, each of which takes so long."""

    def __init__(self, name: str, rig: Rig, requests: int, seconds: float) -> None:
        self.name, self.rig, self.requests, self.seconds = name, rig, requests, seconds
        self.used = 0.0

    def go_on(self) -> None:
        self.rig.clock.now += self.seconds
        self.rig.served.append(self.name)
        self.requests -= 1
        if self.requests:
            self.rig.turns.wait(self)


class Rig:
    """Turns with a clock of their own."""

    def __init__(self, monkeypatch: Any) -> None:
        self.clock = Clock()
        self.served: list[str] = []
        monkeypatch.setattr(module, "monotonic", self.clock.monotonic)
        self.turns = Turns(asyncio.get_running_loop())

    async def turn(self) -> list[str]:
        """Who is served in the next turn of the loop."""
        self.served.clear()
        await asyncio.sleep(0)
        return list(self.served)


def test_who_used_least_is_served_first(monkeypatch: Any) -> None:
    async def main() -> None:
        rig = Rig(monkeypatch)
        for name in "abc":
            rig.turns.wait(Guest(name, rig, 10, 1.5 * TURN_SECONDS))
        assert [await rig.turn() for _ in range(3)] == [["a"], ["b"], ["c"]]
        rig.turns.wait(Guest("light", rig, 1, TURN_SECONDS / 100))
        assert (await rig.turn())[0] == "light", "it waits for none of the others"
        assert [await rig.turn() for _ in range(3)] == [["b"], ["c"], ["a"]]

    asyncio.run(main())


def test_who_was_idle_has_not_saved_anything_up(monkeypatch: Any) -> None:
    async def main() -> None:
        rig = Rig(monkeypatch)
        busy, idle = Guest("busy", rig, 100, 1.5 * TURN_SECONDS), Guest("idle", rig, 100, TURN_SECONDS)
        rig.turns.wait(busy)
        for _ in range(20):
            assert await rig.turn() == ["busy"]
        rig.turns.wait(idle)
        served = [name for _ in range(10) for name in await rig.turn()]
        assert 4 <= served.count("busy") <= 6

    asyncio.run(main())


def test_short_requests_share_a_turn(monkeypatch: Any) -> None:
    async def main() -> None:
        rig = Rig(monkeypatch)
        for name in "abcdef":
            rig.turns.wait(Guest(name, rig, 1, TURN_SECONDS / 4))
        assert [await rig.turn(), await rig.turn()] == [list("abcd"), list("ef")]
        assert repr(rig.turns) == "<Turns 0 connections wait>"

    asyncio.run(main())


def test_a_fault_of_one_leaves_the_others_their_turns(monkeypatch: Any) -> None:
    class Faulty(Guest):
        def go_on(self) -> None:
            super().go_on()
            raise RuntimeError("for the test")

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        rig = Rig(monkeypatch)
        rig.turns.wait(Faulty("bad", rig, 1, TURN_SECONDS / 4))
        rig.turns.wait(Guest("good", rig, 1, TURN_SECONDS / 4))
        assert [await rig.turn(), await rig.turn()] == [["bad"], ["good"]]

    asyncio.run(main())


def wait_until_all_are_there() -> None:
    """With the loop held, so that one poll finds them all."""
    time.sleep(0.05)


def test_requests_of_many_connections_do_not_share_one_long_turn(run: Run) -> None:
    """All come in one poll of the sockets, and each takes as long as all may: none is in another's turn."""
    ticks: list[int] = []
    now = 0

    def slow(conn: Connection, request: Command) -> None:
        ticks.append(now)
        time.sleep(1.5 * TURN_SECONDS)
        conn.send(answer_to(request))

    async def main() -> None:
        def tick() -> None:
            nonlocal now
            now += 1
            loop.call_soon(tick)

        loop = asyncio.get_running_loop()
        handler = EchoHandler()
        async with serving(handler) as server:
            peers = [Peer(*await asyncio.open_connection(server.host, server.port)) for _ in range(6)]
            await until(lambda: len(handler.made) == 6)
            handler.on_request = slow
            turns_of(loop).spent = 0.0
            loop.call_soon(tick)
            for number, peer in enumerate(peers):
                peer.writer.write(encode(Command(10, number)))
            wait_until_all_are_there()
            answers = [await peer.command() for peer in peers]
            assert [answer.opaque for answer in answers] == list(range(6))
            assert len(set(ticks)) == 6, "each had a turn of its own"
            for peer in peers:
                await peer.close()

    run(main())
