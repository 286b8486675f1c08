"""Large answers: read to where they stay, in whatever pieces they come, and what happens in their middle."""

from __future__ import annotations

import asyncio
import random
import tracemalloc
from unittest.mock import patch

import pytest
from tests.support import run as run_plain
from tests.support import until
from tests.transport.conftest import Run
from tests.transport.helpers import EchoHandler, Peer, answer_to, scripted, serving
from tests.transport.test_client import SECONDS, client_of, never_answer

from sparrowmq.core.errors import ConnectionLostError
from sparrowmq.protocol import frame as frames
from sparrowmq.protocol.frame import Command, LargeFrame, RawFrame, encode
from sparrowmq.transport.client_connection import LargeBody

BODY = random.Random(1).randbytes(3 << 20)


@pytest.mark.parametrize("size", [frames.LARGE_FRAME_BYTES, len(BODY)])
def test_large_answers_and_small_ones_come_in_order(run: Run, size: int) -> None:
    async def main() -> None:
        async with serving(EchoHandler()) as server, client_of() as client:
            bodies = [BODY[:size], b"small", BODY[-size:], b"", BODY[:size]]
            with patch.object(LargeBody, "begin", autospec=True, side_effect=LargeBody.begin) as begun:
                calls = [client.call(server.address, Command(10, body=body), SECONDS) for body in bodies]
                answers = await asyncio.gather(*calls)
            assert [answer.body for answer in answers] == bodies
            assert {type(answer.body) for answer in answers} == {bytes}
            assert begun.call_count > 0
            assert (await client.call(server.address, Command(10, body=b"after"), SECONDS)).body == b"after"

    run(main())


@pytest.mark.parametrize("cuts", [[], [3], [8], [9], [400], [5, 50, 300_000], [-1], [-200_000, -1]])
def test_a_large_answer_may_come_in_any_pieces(run: Run, cuts: list[int]) -> None:
    """With a small answer before it and one behind it in the same pieces."""

    async def script(peer: Peer) -> None:
        first, large, last = [await peer.command() for _ in range(3)]
        before, behind = encode(answer_to(first)), encode(answer_to(last))
        whole = encode(Command(0, large.opaque, 1, body=BODY[:500_000]))
        stream = before + whole + behind
        ends = [len(before) + (cut if cut >= 0 else len(whole) + cut) for cut in cuts]
        for start, stop in zip([0, *ends], [*ends, len(stream)], strict=True):
            await peer.send_bytes(stream[start:stop])
            for _ in range(20):
                await asyncio.sleep(0)

    async def main() -> None:
        async with scripted(script) as address, client_of() as client:
            calls = [client.call(address, Command(10, body=b"%d" % n), SECONDS) for n in range(3)]
            answers = await asyncio.gather(*calls)
            assert [answer.body for answer in answers] == [b"0", BODY[:500_000], b"2"]

    run(main())


def test_a_connection_lost_in_the_middle_fails_its_calls(run: Run) -> None:
    async def script(peer: Peer) -> None:
        request = await peer.command()
        await peer.send_bytes(encode(Command(0, request.opaque, 1, body=BODY))[:-1])
        peer.writer.close()

    async def main() -> None:
        async with scripted(script) as address, client_of() as client:
            with pytest.raises(ConnectionLostError):
                await client.call(address, Command(10), SECONDS)
            assert client.in_flight == 0

    run(main())


def test_a_client_closed_in_the_middle_is_closed(run: Run) -> None:
    async def script(peer: Peer) -> None:
        request = await peer.command()
        await peer.send_bytes(encode(Command(0, request.opaque, 1, body=BODY))[:1_000_000])
        await never_answer(peer)

    async def main() -> None:
        async with scripted(script) as address, client_of() as client:
            with patch.object(LargeBody, "begin", autospec=True, side_effect=LargeBody.begin) as begun:
                call = asyncio.ensure_future(client.call(address, Command(10), SECONDS))
                await until(lambda: begun.called)
            await client.close()
            with pytest.raises(ConnectionLostError):
                await call

    run(main())


def test_a_large_answer_with_a_bad_header_closes_the_connection(run: Run) -> None:
    async def script(peer: Peer) -> None:
        request = await peer.command()
        whole = encode(Command(0, request.opaque, 1, body=BODY))
        await peer.send_bytes(whole.replace(b"{", b"[", 1))
        await never_answer(peer)

    async def main() -> None:
        async with scripted(script) as address, client_of() as client:
            with pytest.raises(ConnectionLostError):
                await client.call(address, Command(10), SECONDS)

    run(main())


def test_a_large_request_of_the_server_is_served(run: Run) -> None:
    seen: list[Command] = []

    async def script(peer: Peer) -> None:
        await peer.command()
        await peer.send(Command(40, 7, body=BODY))
        await never_answer(peer)

    async def keep(_: str, request: Command) -> None:
        seen.append(request)

    async def main() -> None:
        async with scripted(script) as address, client_of(on_request={40: keep}) as client:
            call = asyncio.ensure_future(client.call(address, Command(10), SECONDS))
            await until(lambda: seen)
            assert (seen[0].code, seen[0].opaque, seen[0].body) == (40, 7, BODY)
            call.cancel()

    run(main())


@pytest.mark.parametrize("step", [1 << 20, 3_000_000])
def test_the_body_is_not_copied(step: int) -> None:
    """The bytes handed on are those that were read into: there is never a second megabyte of each."""

    async def main() -> None:
        done: list[RawFrame] = []
        size = 8 << 20
        tracemalloc.start()
        try:
            body = LargeBody(
                LargeFrame(0, b"{}", size, b"ab"), Still(), asyncio.Protocol(), lambda: None, done.append
            )
            while not done:
                if room := len(body.get_buffer(-1)[:step]):
                    body.get_buffer(-1)[:room] = b"x" * room
                    body.buffer_updated(room)
                else:
                    await asyncio.sleep(0)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert done == [(0, b"{}", b"ab" + b"x" * (size - 2))]
        assert peak < size + 2 * step

    run_plain(main())


class Still(asyncio.Transport):
    """Does nothing."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None: ...

    def is_closing(self) -> bool:
        return False
