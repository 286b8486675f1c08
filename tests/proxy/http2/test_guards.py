"""Limits on what clients can cost: memory of incomplete requests and unread answers, and loop time."""

from __future__ import annotations

import asyncio
import gc
import gzip
import weakref
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.proxy.http2.rig import MIB, App, H2Peer, listening, peer_of
from tests.support import run, until

from sparrowmq.proxy.http2 import frames, grpc, session
from sparrowmq.proxy.http2.calls import CALL_BYTES, REQUEST_BYTES_MAX
from sparrowmq.proxy.http2.listener import Http2Listener
from sparrowmq.transport import account

LIMIT = 16 * MIB


async def answered(peer: H2Peer, stream: int) -> None:
    peer.write(peer.call(stream))
    assert (await peer.response())[1]["grpc-status"] == "0"


def peak_of(listener: Http2Listener) -> int:
    """The highest value the account may show: its hard limit plus one read from a socket."""
    return listener.account.hard_limit + MIB


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account, "STALL_SECONDS", 0.2)
    monkeypatch.setattr(account, "LOOK_SECONDS", 0.05)


def test_memory_of_unread_answers_is_bounded() -> None:
    """Hundreds of streams ask for 16 MiB each, and the client reads nothing."""

    async def main() -> None:
        async with AsyncExitStack() as stack:
            app = App()
            listener = await stack.enter_async_context(
                listening(app, memory_max=LIMIT, write_high_water=256 * 1024)
            )
            good = await stack.enter_async_context(peer_of(listener))
            for _ in range(4):
                peer = await stack.enter_async_context(peer_of(listener))
                peer.write(frames.settings_frame({frames.INITIAL_WINDOW_SIZE: frames.WINDOW_MAX}))
                calls = [peer.call(2 * number + 1, "/t/big") for number in range(500)]
                # In one write: the server stops reading as soon as the answers to the first calls are unread.
                room = frames.window_frame(0, frames.WINDOW_MAX - frames.WINDOW_USUAL)
                peer.write(b"".join([room, *calls]))
            await until(lambda: len(app.calls) >= 100)
            highest = 0
            for number in range(30):
                await answered(good, 2 * number + 1)
                highest = max(highest, listener.account.total)
            assert highest <= peak_of(listener)
            await until(lambda: len(listener.connections) < 5)
            await answered(good, 99)

    run(main())


def test_whole_answer_counts_until_its_last_byte_is_read() -> None:
    async def main() -> None:
        async with listening(App()) as listener, peer_of(listener) as peer:
            size = MIB + grpc.PREFIX_BYTES
            room = frames.window_frame(0, 2 * MIB)
            peer.write(frames.settings_frame({frames.INITIAL_WINDOW_SIZE: size - 1}) + room)
            peer.write(peer.headers(1))
            data = grpc.prefixed(bytes(MIB))
            pieces = [data[at : at + len(data) // 80] for at in range(0, len(data), len(data) // 80)]
            peer.write(b"".join(frames.frame(frames.DATA, 0, 1, piece) for piece in pieces))
            peer.write(frames.frame(frames.DATA, frames.END_STREAM, 1, b""))
            got = 0
            while got < size - 1:
                got += len((await peer.until(frames.DATA)).payload)
            await until(lambda: listener.account.total >= 2 * MIB)  # the request, and its answer
            peer.write(frames.window_frame(1, 1))
            await peer.response()

    run(main())


def test_memory_of_incomplete_requests_is_bounded() -> None:
    """Clients send messages of 5 MiB that never end. The connections with the most data are closed, others
    are served."""

    async def main() -> None:
        async with AsyncExitStack() as stack:
            listener = await stack.enter_async_context(
                listening(
                    App(), memory_max=LIMIT, unauthenticated_memory_max=8 * MIB, frame_bytes_max=6 * MIB
                )
            )
            good = await stack.enter_async_context(peer_of(listener))
            part = frames.frame(frames.DATA, 0, 1, bytes(16_000))

            async def half(peer: H2Peer) -> None:
                start = b"\0" + (5 * MIB).to_bytes(4, "big")
                for number in range(1, 21, 2):
                    peer.write(peer.headers(number) + frames.frame(frames.DATA, 0, number, start))
                    for _ in range(60):
                        peer.write(part[:8] + bytes((number,)) + part[9:])
                        try:
                            await peer.writer.drain()
                        except ConnectionError:
                            return

            peers = [await stack.enter_async_context(peer_of(listener)) for _ in range(6)]
            sending = [asyncio.create_task(half(peer)) for peer in peers]
            highest = 0
            for number in range(60):
                await answered(good, 2 * number + 1)
                highest = max(highest, listener.account.total)
                await asyncio.sleep(0.005)
            assert highest <= peak_of(listener)
            await until(lambda: len(listener.connections) < 7)
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)

    run(main())


def test_unauthenticated_connections_have_a_separate_limit() -> None:
    """Where callers must sign, incomplete requests of connections without an authenticated caller may use
    little memory."""

    async def main() -> None:
        async with AsyncExitStack() as stack:
            listener = await stack.enter_async_context(
                listening(App(), strangers=True, unauthenticated_memory_max=2 * MIB, frame_bytes_max=MIB)
            )
            for _ in range(8):
                peer = await stack.enter_async_context(peer_of(listener))
                start = b"\0" + (5 * MIB).to_bytes(4, "big") + bytes(60_000)
                for number in range(1, 19, 2):
                    peer.write(peer.headers(number) + frames.frame(frames.DATA, 0, number, start))
            await until(lambda: len(listener.connections) < 8)
            assert listener.account.strangers <= 3 * MIB

    run(main())


def test_incomplete_header_block_is_counted() -> None:
    async def main() -> None:
        async with listening(App()) as listener, peer_of(listener) as peer:
            peer.write(frames.frame(frames.HEADERS, 0, 1, bytes(60_000)))
            await until(lambda: listener.account.total >= 60_000)

    run(main())


def test_compressed_messages_of_one_frame_share_a_limit() -> None:
    """A frame of 61 KiB can contain ten messages that are 6 MiB each after decompression."""

    async def main() -> None:
        async with listening(App()) as listener, peer_of(listener) as peer:
            peer.write(peer.headers(1, "/t/wait", grpc_encoding="gzip"))
            peer.write(frames.frame(frames.DATA, 0, 1, ZEROS * 10))
            assert (await peer.response())[1]["grpc-status"] == "8"
            peer.write(peer.headers(3, "/t/each", grpc_encoding="gzip"))
            peer.write(frames.frame(frames.DATA, frames.END_STREAM, 3, TEXT * 10))
            assert (await peer.response())[1]["grpc-status"] == "0"

    run(main())


def test_calls_of_one_address_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        app = App()
        async with (
            listening(app, calls_max=10) as listener,
            peer_of(listener) as peer,
            peer_of(listener) as other,
        ):
            for number in range(5):
                peer.write(peer.call(2 * number + 1, "/t/wait"))
            await until(lambda: len(app.calls) == 5)
            await answered(other, 1)
            monkeypatch.setattr(session, "is_own_machine", lambda host: False)
            other.write(other.call(3))
            _, told = await other.response()
            assert (told["grpc-status"], "one address" in told["grpc-message"]) == ("8", True)
            peer.write(frames.reset_frame(1, frames.CANCEL))
            await until(lambda: listener.calls == 4)
            await answered(other, 5)

    run(main())


def test_answers_of_reset_calls_are_discarded() -> None:
    """These answers used to wait until the client opened its flow control window."""

    async def main() -> None:
        app = App()
        async with listening(app) as listener, peer_of(listener) as peer:
            peer.write(peer.call(1, body=bytes(frames.WINDOW_USUAL - grpc.PREFIX_BYTES)))
            await peer.response()
            app.calls.clear()
            numbers = range(3, 203, 2)
            for number in numbers:
                peer.write(peer.call(number))
            await until(lambda: len(app.calls) == len(numbers))
            calls = [weakref.ref(call) for call in app.calls]
            app.calls.clear()
            for number in numbers:
                peer.write(frames.reset_frame(number, frames.CANCEL))
            await until(lambda: listener.calls == 0)
            await until(lambda: gc.collect() >= 0 and not any(call() for call in calls))

    run(main())


def test_open_calls_are_counted() -> None:
    async def main() -> None:
        app = App()
        async with listening(app) as listener, peer_of(listener) as peer:
            for number in range(100):
                peer.write(peer.call(2 * number + 1, "/t/wait", body=b""))
            await until(lambda: len(app.calls) == 100)
            assert listener.account.total >= 100 * CALL_BYTES

    run(main())


def packed(plain: bytes) -> bytes:
    """A compressed message."""
    data = gzip.compress(plain, 9)
    return b"\1" + len(data).to_bytes(4, "big") + data


ZEROS = packed(bytes(REQUEST_BYTES_MAX))
TEXT = packed(b"text")

FLOODS: dict[str, Any] = {
    "pings": lambda peer: frames.frame(frames.PING, 0, 0, bytes(8)) * 20_000,
    "settings": lambda peer: frames.settings_frame({frames.INITIAL_WINDOW_SIZE: 70_000}) * 10_000,
    "windows": lambda peer: frames.window_frame(0, 1) * 20_000,
    "empty data": lambda peer: peer.headers(1, "/t/each") + frames.frame(frames.DATA, 0, 1) * 20_000,
    "small messages": lambda peer: (
        peer.headers(1, "/t/each") + frames.frame(frames.DATA, 0, 1, grpc.prefixed(b"")) * 5_000
    ),
    "calls": lambda peer: b"".join(peer.call(2 * number + 1) for number in range(900)),
    "windows of many streams": lambda peer: (
        b"".join(peer.headers(2 * number + 1, "/t/wait") for number in range(1_000))
        + b"".join(
            frames.settings_frame({frames.INITIAL_WINDOW_SIZE: 65_535 + number % 2}) for number in range(40)
        )
        + frames.frame(
            frames.SETTINGS, 0, 0, b"".join(b"\0\4\0\1\0" + bytes((n % 256,)) for n in range(10_900))
        )
    ),
    "resets": lambda peer: b"".join(
        peer.call(2 * number + 1, "/t/wait") + frames.reset_frame(2 * number + 1, frames.CANCEL)
        for number in range(2_000)
    ),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_flood_does_not_block_the_loop(flood: str) -> None:
    """The stall guard finds no stall (it fails every test that has one), and other clients are served."""

    async def main() -> None:
        async with (
            listening(App(), write_high_water=64 * 1024) as listener,
            peer_of(listener) as bad,
            peer_of(listener) as good,
        ):
            bad.write(FLOODS[flood](bad))
            for number in range(20):
                await answered(good, 2 * number + 1)
            assert listener.account.total <= 8 * MIB

    run(main())
