"""Shared by the tests of bad input: bare connections, and neighbours that must not notice anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from tests.support import until
from tests.transport.helpers import Peer

from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.headers import GetRouteInfoRequest as RouteRequest
from sparrowmq.protocol.headers import SendMessageRequest, send_v2_to_ext, to_ext

TOPIC = "Neighbour"
Round = Callable[[Peer, int], Awaitable[None]]


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[Peer]:
    """A bare connection to a server."""
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(20):
        peer = Peer(*await asyncio.open_connection(host, int(port)))
    try:
        yield peer
    finally:
        await peer.close()


def send_request(
    body: bytes,
    *,
    topic: str = TOPIC,
    queue_id: int = 0,
    properties: str = "",
    sys_flag: int = 0,
    opaque: int = 0,
) -> Command:
    """A send as a stock client writes it."""
    header = SendMessageRequest(
        producer_group="p",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=queue_id,
        sys_flag=sys_flag,
        born_timestamp=1_700_000_000_000,
        flag=0,
        properties=f"UNIQ_KEY\x01{opaque:032X}\x02{properties}",
    )
    return Command(RequestCode.SEND_MESSAGE_V2, opaque, ext=send_v2_to_ext(header), body=body)


async def ask(address: str, *requests: Command) -> list[Command]:
    """The answers to requests on one new connection, in the order of the requests."""
    for number, request in enumerate(requests):
        request.opaque = number
    async with connected(address) as peer:
        await peer.send(*requests)
        answers: dict[int, Command] = {}
        while len(answers) < len(requests):
            answer = await peer.command()
            if answer.is_response:  # brokers also ask their clients
                answers[answer.opaque] = answer
    return [answers[number] for number in range(len(requests))]


async def send_one(peer: Peer, number: int) -> None:
    """One message to the broker."""
    await peer.send(send_request(b"%d" % number, opaque=number))
    answer = await peer.command()
    assert (answer.opaque, answer.code) == (number, ResponseCode.SUCCESS), answer


async def ask_route(peer: Peer, number: int) -> None:
    """One question to the name server."""
    request = RouteRequest(topic=TOPIC)
    await peer.send(Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, number, ext=to_ext(request)))
    answer = await peer.command()
    assert (answer.opaque, answer.code) == (number, ResponseCode.SUCCESS), answer


class Neighbour:
    """A well-behaved client on one connection that never stops; `rounds` counts what went well."""

    def __init__(self, peer: Peer, work: Round) -> None:
        self.rounds = 0
        self._peer = peer
        self._work = work
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:  # until cancelled by close
            await self._work(self._peer, self.rounds)
            self.rounds += 1

    async def goes_on(self) -> None:
        """It is served now, and was until now."""
        seen = self.rounds

        def served() -> bool:
            if self._task.done():
                self._task.result()
            return self.rounds >= seen + 2

        await until(served)

    async def close(self) -> None:
        """Stop."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@asynccontextmanager
async def neighbour(address: str, work: Round) -> AsyncIterator[Neighbour]:
    """A `Neighbour` of what happens in the block; it must have been served until the end of it."""
    async with connected(address) as peer:
        other = Neighbour(peer, work)
        try:
            await other.goes_on()
            yield other
            await other.goes_on()
        finally:
            await other.close()
