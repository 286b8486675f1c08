"""Registration at name servers: when it is repeated and how it stops."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from tests.support import run, until

from sparrowmq.broker.base import registration as module
from sparrowmq.broker.base.registration import Registration
from sparrowmq.core.errors import ConnectError
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command
from sparrowmq.protocol.headers import RegisterBrokerRequest


class NameServers:
    """The client that the registration uses; `errors` contains the errors of the next calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        self.errors: list[Exception] = []

    async def call(self, address: str, command: Command, timeout: float) -> Command:
        self.calls.append((address, command.code))
        if self.errors:
            raise self.errors.pop(0)
        return Command(ResponseCode.SUCCESS, flag=FLAG_RESPONSE)

    def registrations(self) -> int:
        return sum(code == RequestCode.REGISTER_BROKER for _, code in self.calls)


def registration(servers: Any, period: float = 3600) -> Registration:
    identity = RegisterBrokerRequest(
        broker_name="b",
        broker_addr="127.0.0.1:1",
        cluster_name="c",
        ha_server_addr="127.0.0.1:2",
        broker_id=0,
    )
    return Registration(servers, ("a:1",), identity=identity, body=lambda: b"{}", period=period, timeout=1.0)


def test_registration_stops_although_a_change_is_pending() -> None:
    async def main() -> None:
        for turns in range(6):
            registering = registration(NameServers())
            await registering.start()
            await asyncio.sleep(0)  # it begins to wait
            registering.changed_soon()
            for _ in range(turns):
                await asyncio.sleep(0)
            closing = asyncio.create_task(registering.close())
            done, _ = await asyncio.wait({closing}, timeout=5)
            assert done, f"closed {turns} turns after the change"

    run(main())


def test_error_does_not_stop_the_registration(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        servers = NameServers()
        registering = registration(servers, period=0.001)
        await registering.start()
        servers.errors = [ZeroDivisionError("a fault of ours")]
        seen = servers.registrations()
        await until(lambda: not servers.errors and servers.registrations() > seen + 1)
        await registering.close()
        assert servers.calls[-1] == ("a:1", RequestCode.UNREGISTER_BROKER)

    with caplog.at_level(logging.ERROR, "sparrowmq.broker"):
        run(main())
    assert "registration failed" in caplog.text


def test_silent_name_server_is_reported_once_and_when_it_answers_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        servers = NameServers()
        servers.errors = [ConnectError("nobody there"), ConnectError("nobody there")]
        registering = registration(servers, period=0.001)
        await registering.start()
        await until(lambda: servers.registrations() > 3)
        await registering.close()

    with caplog.at_level(logging.INFO, "sparrowmq.broker"):
        run(main())
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "nobody there" in caplog.records[0].message


def test_unavailable_name_server_is_soon_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)

    async def main() -> None:
        servers = NameServers()
        servers.errors = [ConnectError("nobody listens"), ConnectError("nobody listens")]
        registering = registration(servers)
        await registering.start()
        await until(lambda: servers.registrations() == 3)
        await registering.close()
        assert servers.registrations() == 3

    run(main())


def test_other_broker_of_the_same_name_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    class Shared(NameServers):
        async def call(self, address: str, command: Command, timeout: float) -> Command:
            answer = await super().call(address, command, timeout)
            answer.ext["sparrowRival"] = "127.0.0.1:9"
            return answer

    run(registration(Shared()).register())
    assert "name server a:1 has another broker b with id 0 at 127.0.0.1:9" in caplog.text
