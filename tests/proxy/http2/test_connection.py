"""What a client may and may not do on a connection, frame by frame."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable
from typing import Any

import pytest
from tests.proxy.http2.rig import MIB, PIECE, App, H2Peer, listening, peer_of
from tests.support import run, until

from sparrowmq.proxy.http2 import frames, grpc
from sparrowmq.proxy.http2.calls import STREAM_WINDOW
from sparrowmq.proxy.http2.session import STREAMS_MAX


def test_several_calls_share_one_connection() -> None:
    async def main() -> None:
        async with listening(App()) as listener, peer_of(listener) as peer:
            for number in range(1, 9, 2):
                peer.write(peer.call(number, body=b"%d" % number))
                data, told = await peer.response()
                assert (data, told["grpc-status"]) == (grpc.prefixed(b"%d" % number), "0")
            assert listener.calls == 0

    run(main())


def test_request_in_many_frames_with_padding_and_gzip_is_read() -> None:
    async def main() -> None:
        body = bytes(range(256)) * 8192
        packed = gzip.compress(body, 1)
        data = b"\x01" + len(packed).to_bytes(4, "big") + packed
        async with listening(App()) as listener, peer_of(listener) as peer:
            block = peer.headers(1, grpc_encoding="gzip")[9:]
            start = b"\x04" + bytes(5) + block[:7] + bytes(4)
            peer.write(frames.frame(frames.HEADERS, frames.PADDED | frames.WITH_PRIORITY, 1, start))
            peer.write(frames.frame(frames.CONTINUATION, frames.END_HEADERS, 1, block[7:]))
            for at in range(0, len(data), 9_000):
                part = b"\x04" + data[at : at + 9_000] + bytes(4)
                peer.write(frames.frame(frames.DATA, frames.PADDED, 1, part))
            peer.write(frames.frame(frames.DATA, frames.END_STREAM, 1))
            peer.write(frames.window_frame(0, 16 * MIB) + frames.window_frame(1, 16 * MIB))
            found, told = await peer.response()
            assert (found[5:], told["grpc-status"]) == (body, "0")

    run(main())


def test_large_answer_respects_flow_control_windows() -> None:
    async def main() -> None:
        async with listening(App()) as listener, peer_of(listener) as peer:
            peer.write(peer.call(1, "/t/big"))
            got = 0
            while got < frames.WINDOW_USUAL:
                found = await peer.frame()
                got += len(found.payload) if found.kind == frames.DATA else 0
            assert got == frames.WINDOW_USUAL
            whole = 256 * (len(PIECE) + grpc.PREFIX_BYTES)
            while got < whole:
                peer.write(frames.window_frame(0, MIB) + frames.window_frame(1, MIB))
                goal = min(whole, got + MIB)
                while got < goal:
                    got += len((await peer.until(frames.DATA)).payload)
            assert (await peer.response())[1]["grpc-status"] == "0"

    run(main())


def test_streamed_requests_are_answered() -> None:
    async def main() -> None:
        async with listening(App()) as listener, peer_of(listener) as peer:
            peer.write(peer.headers(1, "/t/each"))
            for body in (b"a", b"b"):
                peer.write(frames.frame(frames.DATA, 0, 1, grpc.prefixed(body)))
                assert (await peer.until(frames.DATA)).payload == grpc.prefixed(body)
            peer.write(frames.frame(frames.DATA, frames.END_STREAM, 1))
            assert (await peer.response())[1]["grpc-status"] == "0"

    run(main())


def test_call_ends_at_its_deadline() -> None:
    async def main() -> None:
        app = App()
        async with listening(app) as listener, peer_of(listener) as peer:
            peer.write(peer.call(1, "/t/wait", grpc_timeout="50m"))
            assert (await peer.response())[1]["grpc-status"] == str(grpc.DEADLINE_EXCEEDED)
            peer.write(peer.headers(3, grpc_timeout="50m"))  # and never completes its request
            assert (await peer.response())[1]["grpc-status"] == str(grpc.DEADLINE_EXCEEDED)
            assert (app.given_up, listener.calls) == (1, 0)

    run(main())


def test_cancelled_calls_end() -> None:
    """Calls are cancelled by a reset, or by the end of the connection."""

    async def main() -> None:
        app = App()
        async with listening(app) as listener:
            async with peer_of(listener) as peer:
                peer.write(peer.call(1, "/t/wait") + peer.call(3, "/t/wait"))
                await until(lambda: len(app.calls) == 2)
                peer.write(frames.reset_frame(1, frames.CANCEL))
                await until(lambda: app.given_up == 1)
                assert listener.calls == 1
            await until(lambda: app.given_up == 2)
            assert (listener.calls, listener.account.total) == (0, 0)

    run(main())


def test_shutdown_waits_for_running_calls() -> None:
    async def main() -> None:
        app = App()
        async with listening(app) as listener, peer_of(listener) as peer:
            peer.write(peer.call(1, "/t/wait"))
            await until(lambda: app.calls)
            leaving = asyncio.create_task(listener.leave(20))
            assert (await peer.until(frames.GOAWAY)).payload[:4] == (1).to_bytes(4, "big")
            peer.write(peer.call(3))
            assert (await peer.frame()).kind == frames.RST_STREAM
            app.go_on.set()
            assert (await peer.response())[1]["grpc-status"] == "0"
            await leaving

    run(main())


def test_application_errors_are_returned_and_logged() -> None:
    async def main() -> None:
        async with listening(App()) as listener, peer_of(listener) as peer:
            peer.write(peer.call(1, "/t/fail"))
            _, told = await peer.response()
            assert (told["grpc-status"], told["grpc-message"]) == ("13", "fail failed with ValueError")

    run(main())


@pytest.mark.parametrize(
    ("more", "name", "value"),
    [
        ({"method": "GET"}, ":status", "405"),
        ({"content_type": "text/html"}, ":status", "415"),
        ({"grpc_timeout": "soon"}, "grpc-status", "13"),
        ({"x_long": "x" * 20_000}, "grpc-status", "8"),
    ],
)
def test_invalid_requests_are_refused(more: dict[str, Any], name: str, value: str) -> None:
    async def main() -> None:
        async with listening(App()) as listener, peer_of(listener) as peer:
            head = peer.headers(1, **more)
            peer.write(head)
            assert (await peer.response())[1][name] == value
            peer.write(peer.call(3))
            assert (await peer.response())[1]["grpc-status"] == "0"
            assert listener.calls == 0

    run(main())


def test_invalid_messages_are_refused() -> None:
    async def main() -> None:
        async with listening(App()) as listener, peer_of(listener) as peer:
            large = b"\0" + (7 * MIB).to_bytes(4, "big")
            for number, (start, status) in enumerate(
                [(large, grpc.RESOURCE_EXHAUSTED), (b"\x01\0\0\0\x01x", grpc.UNIMPLEMENTED)]
            ):
                stream = 2 * number + 1
                peer.write(peer.headers(stream) + frames.frame(frames.DATA, 0, stream, start))
                assert (await peer.response())[1]["grpc-status"] == str(status)
                assert (await peer.until(frames.RST_STREAM)).stream == stream
            peer.write(peer.headers(9, ends=True))  # half-closed without a message
            assert (await peer.response())[0] == b""
            assert listener.calls == 0

    run(main())


def test_too_many_streams_are_refused() -> None:
    async def main() -> None:
        app = App()
        async with listening(app) as listener, peer_of(listener) as peer:
            for number in range(STREAMS_MAX):
                peer.write(peer.call(2 * number + 1, "/t/wait"))
            peer.write(peer.call(2 * STREAMS_MAX + 1, "/t/wait"))
            found = await peer.until(frames.RST_STREAM)
            assert found.payload == frames.REFUSED_STREAM.to_bytes(4, "big")
            assert listener.calls == STREAMS_MAX

    run(main())


Bytes = Callable[[H2Peer], bytes]


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        pytest.param(lambda peer: peer.headers(2), frames.PROTOCOL_ERROR, id="even stream"),
        pytest.param(
            lambda peer: frames.frame(frames.DATA, 0, 7, b"x"), frames.PROTOCOL_ERROR, id="idle stream"
        ),
        pytest.param(
            lambda peer: frames.frame(frames.HEADERS, frames.END_HEADERS, 1, b"\xff\xff\xff\xff\xff\x7f"),
            frames.COMPRESSION_ERROR,
            id="no HPACK",
        ),
        pytest.param(
            lambda peer: (
                frames.frame(frames.HEADERS, 0, 1, b"\x88") + frames.frame(frames.PING, 0, 0, bytes(8))
            ),
            frames.PROTOCOL_ERROR,
            id="a frame inside headers",
        ),
        pytest.param(
            lambda peer: (
                frames.frame(frames.HEADERS, 0, 1, b"\x88")
                + frames.frame(frames.CONTINUATION, 0, 1, bytes(16_000)) * 5
            ),
            frames.ENHANCE_YOUR_CALM,
            id="endless headers",
        ),
        pytest.param(
            lambda peer: frames.window_frame(0, frames.WINDOW_MAX), frames.FLOW_CONTROL_ERROR, id="window"
        ),
        pytest.param(lambda peer: frames.frame(frames.PING, 0, 0, b"x"), frames.FRAME_SIZE_ERROR, id="ping"),
        pytest.param(
            lambda peer: frames.settings_frame({frames.INITIAL_WINDOW_SIZE: 2**31}),
            frames.FLOW_CONTROL_ERROR,
            id="settings",
        ),
        pytest.param(
            lambda peer: frames.frame(frames.PUSH_PROMISE, 0, 1, bytes(4)), frames.PROTOCOL_ERROR, id="push"
        ),
        pytest.param(lambda peer: frames.reset_frame(5, 0), frames.PROTOCOL_ERROR, id="reset"),
        pytest.param(lambda peer: b"\xff\xff\xff" + bytes(6), frames.FRAME_SIZE_ERROR, id="long frame"),
    ],
)
def test_protocol_errors_close_the_connection(sent: Bytes, code: int) -> None:
    async def main() -> None:
        async with listening(App()) as listener, peer_of(listener) as peer, peer_of(listener) as other:
            peer.write(sent(peer))
            last = (await peer.closed_with())[-1]
            assert (last.kind, int.from_bytes(last.payload[4:8], "big")) == (frames.GOAWAY, code)
            other.write(other.call(1))
            assert (await other.response())[1]["grpc-status"] == "0"

    run(main())


def test_data_beyond_the_window_resets_the_stream() -> None:
    async def main() -> None:
        app = App()
        async with listening(app) as listener, peer_of(listener) as peer:
            peer.write(peer.headers(1, "/t/wait"))
            part = frames.frame(frames.DATA, 0, 1, grpc.prefixed(bytes(60_000)))
            peer.write(part * (STREAM_WINDOW // 60_000 + 2))
            # It is asked for more as long as few messages wait, so the flood goes on until too many do.
            for _ in range(40):
                peer.write(part * 20)
            found = await peer.until(frames.RST_STREAM)
            assert found.stream == 1
            await until(lambda: app.given_up == 1)

    run(main())


def test_http_1_request_gets_an_explanation() -> None:
    async def main() -> None:
        async with listening(App()) as listener, peer_of(listener, greets=False) as peer:
            peer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            async with asyncio.timeout(20):
                answer = await peer.reader.read()
            assert answer.startswith(b"HTTP/1.1 505 ")
            head, _, body = answer.partition(b"\r\n\r\n")
            assert b"Content-Length: %d" % len(body) in head
            assert b"gRPC" in body

    run(main())


def test_calls_without_a_task_are_answered() -> None:
    async def main() -> None:
        app = App()
        async with listening(app) as listener, peer_of(listener) as peer:
            peer.write(peer.call(1, "/t/held", b"question"))
            await until(lambda: bool(app.calls))
            (call,) = app.calls
            assert (call.first_message, call.task, listener.calls) == (b"question", None, 1)
            call.answer(b"answer")
            data, told = await peer.response()
            assert (data, told["grpc-status"]) == (grpc.prefixed(b"answer"), "0")
            assert listener.calls == 0
            call.answer(b"another")  # has no effect
            peer.write(peer.headers(3, "/t/held", ends=True))  # without a message it gets a task
            assert (await peer.response())[1]["grpc-status"] == "0"

    run(main())


def test_answer_without_a_task_waits_for_the_flow_control_window() -> None:
    async def main() -> None:
        app = App()
        async with listening(app) as listener, peer_of(listener, greets=False) as peer:
            await peer.greet({frames.INITIAL_WINDOW_SIZE: 4})
            peer.write(peer.call(1, "/t/held"))
            await until(lambda: bool(app.calls))
            app.calls[0].answer(b"answer")
            assert (await peer.until(frames.DATA)).payload == grpc.prefixed(b"answer")[:4]
            peer.write(frames.window_frame(1, 100))
            data, told = await peer.response()
            assert (data, told["grpc-status"]) == (grpc.prefixed(b"answer")[4:], "0")
            assert listener.calls == 0

    run(main())


def test_calls_without_a_task_end_at_their_deadline_or_when_cancelled() -> None:
    async def main() -> None:
        app = App()
        async with listening(app) as listener, peer_of(listener) as peer:
            peer.write(peer.call(1, "/t/held", grpc_timeout="50m"))
            told = (await peer.response())[1]
            assert told["grpc-status"] == str(grpc.DEADLINE_EXCEEDED)
            assert told["grpc-message"] == "the deadline is over"
            peer.write(peer.call(3, "/t/held"))
            await until(lambda: len(app.calls) == 2)
            peer.write(frames.reset_frame(3, frames.CANCEL))
            await until(lambda: not listener.calls)
            for call in app.calls:
                call.answer(b"too late")
            peer.write(peer.call(5, body=b"next"))
            assert await peer.response() == (grpc.prefixed(b"next"), told_ok())

    run(main())


def told_ok() -> dict[str, str]:
    return {":status": "200", "content-type": "application/grpc", "grpc-status": "0"}
