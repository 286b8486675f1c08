"""A running name server to ask, and the registration of a broker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from tests.support import run

from sparrowmq.nameserver.server import NameServer
from sparrowmq.protocol.bodies import DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigTable
from sparrowmq.protocol.frame import Command
from sparrowmq.transport.client import RemotingClient

SECONDS = 20.0
Ask = Callable[..., Coroutine[Any, Any, Command]]
BROKER = {
    "brokerName": "broker-a",
    "brokerAddr": "10.0.0.1:10911",
    "clusterName": "C",
    "haServerAddr": "10.0.0.1:10912",
    "brokerId": "0",
}


@asynccontextmanager
async def asking(**options: Any) -> AsyncIterator[tuple[NameServer, Ask]]:
    """A name server, and a function that asks it: `ask(code, body=..., version=..., **fields)`."""
    server = NameServer(port=0, **options)
    await server.start()
    client = RemotingClient()

    async def ask(code: int, *, body: bytes = b"", version: int = 475, **ext: str) -> Command:
        return await client.call(server.address, Command(code, ext=ext, body=body, version=version), SECONDS)

    try:
        yield server, ask
    finally:
        await client.close()
        await server.close()


def asked(main: Callable[[NameServer, Ask], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def whole() -> None:
        async with asking(**options) as (server, ask):
            await main(server, ask)

    run(whole())


def registration(*topics: str, **options: Any) -> bytes:
    table = {name: TopicConfig(topic_name=name, **options) for name in topics}
    return RegisterBrokerBody([], TopicConfigTable(DataVersion(1, 0, 1), table)).encode()
