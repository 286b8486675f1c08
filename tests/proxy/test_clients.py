"""State that the proxy keeps for clients: their settings, and data for streams that they do not read."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.proxy.rig import publishing, subscribing
from tests.support import about, run, traced_bytes

from sparrowmq.client.base.tasks import TaskGroup
from sparrowmq.core.clock import SystemClock
from sparrowmq.core.errors import ProxyRefusal
from sparrowmq.proxy.base.caller import GrpcCaller
from sparrowmq.proxy.calls import abandoned
from sparrowmq.proxy.calls.abandoned import Abandoned
from sparrowmq.proxy.calls.clients import ANSWERS_MAX, COMMANDS_BYTES_MAX, TOPIC_BYTES, Clients, Stream
from sparrowmq.proxy.calls.members import ProxyMembers
from sparrowmq.proxy.calls.pending import PendingAnswers
from sparrowmq.proxy.definition.messages import Code, v2


class Memory:
    is_short = False

    def __init__(self) -> None:
        self.held = 0

    def hold(self, size: int) -> None:
        self.held += size


class NoBrokers:
    async def group(self, name: str) -> None:
        """None: no broker knows the group."""

    def masters(self) -> list[str]:
        """None: there are no masters."""
        return []

    def on_lost(self, call: Any) -> None:
        """Do nothing: no connection is lost here."""


async def _publishes(client_id: str, topics: frozenset[str], stream: Stream) -> None:
    """Return no transaction topics."""


def clients_of(clients_max: int = 100) -> Clients:
    brokers: Any = NoBrokers()
    members = ProxyMembers(brokers, TaskGroup(lambda name, error: None), SystemClock())
    return Clients(brokers, _publishes, members, PendingAnswers(), SystemClock(), clients_max=clients_max)


def caller(number: int, memory: Memory) -> GrpcCaller:
    return GrpcCaller(f"c{number}", "10.0.0.1:5000", None, {}, memory)


async def introduced(clients: Clients, number: int, settings: Any) -> Any:
    """An open stream with settings answered."""

    async def requests() -> AsyncIterator[Any]:
        yield v2.TelemetryCommand(settings=settings)
        await asyncio.Event().wait()

    stream = clients.telemetry(caller(number, Memory()), requests())
    assert (await anext(stream)).status.code == Code.OK
    return stream


def test_little_state_is_kept_for_a_client_without_a_stream() -> None:
    settings = publishing(*(f"topic-{number}" for number in range(3_000)))

    async def main() -> None:
        clients = clients_of()
        await (await introduced(clients, 0, settings)).aclose()
        tracemalloc.start()
        try:
            for number in range(1, 21):
                await (await introduced(clients, number, settings)).aclose()
            assert len(clients) == 21
            assert traced_bytes("*/sparrowmq/*", __file__) < 200 * 1024
        finally:
            tracemalloc.stop()

    run(main())


def test_number_of_clients_is_limited() -> None:
    async def main() -> None:
        clients = clients_of(clients_max=1)
        first = await introduced(clients, 1, publishing("t"))
        with pytest.raises(ProxyRefusal, check=about(code=Code.TOO_MANY_REQUESTS)):
            await introduced(clients, 2, publishing("t"))
        again = await introduced(clients, 1, publishing("t"))
        await first.aclose()
        await again.aclose()

    run(main())


def test_number_of_topics_per_client_is_limited() -> None:
    async def main() -> None:
        clients, memory = clients_of(), Memory()

        async def requests() -> AsyncIterator[Any]:
            yield v2.TelemetryCommand(settings=publishing(*(f"topic-{number}" for number in range(100))))
            yield v2.TelemetryCommand(settings=publishing("topic-1"))

        commands = clients.telemetry(caller(1, memory), requests())
        await anext(commands)
        await asyncio.sleep(0)
        assert [one.status.code async for one in commands] == [Code.OK]
        assert TOPIC_BYTES <= memory.held < 2 * TOPIC_BYTES

    run(main())


def test_settings_of_a_client_that_does_not_read_are_soon_not_answered() -> None:
    taken = 0

    async def requests() -> AsyncIterator[Any]:
        nonlocal taken
        for _ in range(200):
            taken += 1
            yield v2.TelemetryCommand(settings=subscribing("mine", "topic"))

    async def main() -> None:
        memory = Memory()
        commands = clients_of().telemetry(caller(1, memory), requests())
        await anext(commands)
        for _ in range(500):
            await asyncio.sleep(0)
        assert taken <= ANSWERS_MAX + 2
        assert memory.held > 0
        with pytest.raises(ProxyRefusal, check=about(code=Code.TOO_MANY_REQUESTS)):
            async for _ in commands:
                pass
        assert memory.held == 0

    run(main())


def test_pending_requests_for_a_client_that_does_not_read_are_bounded() -> None:
    memory = Memory()
    stream = Stream(memory)
    command = v2.TelemetryCommand()
    command.recover_orphaned_transaction_command.message.body = bytes(COMMANDS_BYTES_MAX // 2)
    assert [stream.write(command) for _ in range(4)] == [True, False, False, False]
    assert not stream.closed
    assert memory.held == command.ByteSize()


def test_number_of_cancelled_calls_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancelled calls count until the brokers have answered them."""
    monkeypatch.setattr(abandoned, "ABANDONED_MAX", 3)

    async def main() -> None:
        held = Abandoned()
        asked = [asyncio.get_running_loop().create_future() for _ in range(3)]
        for one in asked:
            held.check("10.0.0.1")
            held.add("10.0.0.1", one)
        with pytest.raises(ProxyRefusal, check=about(code=Code.TOO_MANY_REQUESTS)):
            held.check("10.0.0.1")
        held.check("10.0.0.2")
        asked[0].set_exception(ConnectionError())
        asked[1].set_result(None)
        await asyncio.sleep(0)
        held.check("10.0.0.1")
        assert len(held) == 1

    run(main())
