"""From requests to answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from typing import Any

import pytest
from tests.support import run, until
from tests.transport.conftest import Run
from tests.transport.helpers import peer_of_server, serving

from sparrowmq.core.errors import (
    BrokerError,
    InvalidMessageError,
    InvalidNameError,
    NoRoomError,
    ProtocolError,
    SparrowError,
    StoreFullError,
)
from sparrowmq.protocol.codes import VERSION, ResponseCode
from sparrowmq.protocol.frame import FLAG_ONEWAY, FLAG_RESPONSE, Command, FrameReader, decode
from sparrowmq.transport.connection import Connection
from sparrowmq.transport.dispatch import TURN_SECONDS, CommandHandler, Dispatcher, refusal
from sparrowmq.transport.request_watch import RequestWatch
from sparrowmq.transport.slices import Slices


class Answers:
    """Collects what a dispatcher writes."""

    def __init__(self) -> None:
        self.commands: list[Command] = []

    def write(self, data: bytes) -> None:
        self.commands += [decode(*raw) for raw in FrameReader().feed(data)]


def served(handler: Any, request: Command, **options: Any) -> list[Command]:
    """The answers to one request whose code is 10."""

    async def main() -> list[Command]:
        answers = Answers()
        dispatcher: Dispatcher[str] = Dispatcher({10: handler}, **options)
        dispatcher.serve("peer", request, answers.write)
        await dispatcher.close()
        return answers.commands

    return run(main())


def test_the_answer_carries_the_requests_opaque_and_our_version() -> None:
    def handler(peer: str, request: Command) -> Command:
        assert peer == "peer"
        return Command(code=0, body=request.body, ext={"a": "b"})

    (answer,) = served(handler, Command(10, 77, body=b"x"))
    assert (answer.opaque, answer.flag, answer.code) == (77, FLAG_RESPONSE, 0)
    assert (answer.body, answer.ext) == (b"x", {"a": "b"})
    assert answer.version == VERSION >= 401


def test_an_awaitable_is_answered_when_it_is_done() -> None:
    async def handler(peer: str, request: Command) -> Command:
        await asyncio.sleep(0)
        return Command(code=0)

    (answer,) = served(handler, Command(10, 5))
    assert answer.opaque == 5


def test_a_handler_that_returns_none_sends_no_response() -> None:
    async def later(peer: str, request: Command) -> None:
        return None

    assert served(lambda peer, request: None, Command(10)) == []
    assert served(later, Command(10)) == []


@pytest.mark.parametrize("code", [10, 9999])
def test_one_way_requests_are_never_answered(code: int) -> None:
    def fail(peer: str, request: Command) -> None:
        raise ValueError

    assert served(lambda peer, request: Command(code=0), Command(code, flag=FLAG_ONEWAY)) == []
    assert served(fail, Command(code, flag=FLAG_ONEWAY)) == []


def test_responses_without_a_waiting_call_are_dropped() -> None:
    def fail(peer: str, request: Command) -> None:
        raise AssertionError("a late answer was taken for a request")

    assert served(fail, Command(10, flag=FLAG_RESPONSE)) == []


def test_unknown_codes_are_refused_as_the_reference_does() -> None:
    (answer,) = served(None, Command(9999, 3))
    assert (answer.code, answer.remark, answer.opaque) == (3, " request type 9999 not supported", 3)


@pytest.mark.parametrize(
    ("error", "code", "remark"),
    [
        (SparrowError("what happened"), 1, "what happened"),
        (ProtocolError("a field"), 1, "a field"),
        (InvalidMessageError("too big"), ResponseCode.MESSAGE_ILLEGAL, "too big"),
        (InvalidNameError("a name"), ResponseCode.INVALID_PARAMETER, "a name"),
        (StoreFullError("full"), ResponseCode.SERVICE_NOT_AVAILABLE, "full"),
        (NoRoomError("slow down"), ResponseCode.SYSTEM_BUSY, "slow down"),
        (BrokerError(17, "no topic"), 17, "no topic"),
        (TimeoutError("disk"), 1, "TimeoutError: disk"),
        (KeyError("x"), 1, "KeyError: 'x'"),
    ],
)
def test_errors_become_answers(error: Exception, code: int, remark: str) -> None:
    def at_once(peer: str, request: Command) -> None:
        raise error

    async def later(peer: str, request: Command) -> None:
        await asyncio.sleep(0)
        raise error

    for handler in (at_once, later):
        (answer,) = served(handler, Command(10, 4))
        assert (answer.code, answer.remark, answer.opaque) == (code, remark, 4)


def test_only_faults_are_logged_and_not_each_time(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        def fault(peer: str, request: Command) -> None:
            raise ZeroDivisionError

        def refuse(peer: str, request: Command) -> None:
            raise InvalidNameError("no")

        dispatcher: Dispatcher[str] = Dispatcher({10: fault, 11: refuse})
        for code in (10, 10, 11):
            dispatcher.serve("peer", Command(code), Answers().write)

    run(main())
    assert [record.message for record in caplog.records] == ["error while handling SEND_MESSAGE (10)"]


def test_a_handler_that_hangs_is_ended() -> None:
    async def hang(peer: str, request: Command) -> None:
        await asyncio.Event().wait()

    (answer,) = served(hang, Command(10), answer_seconds_max=0.01)
    assert (answer.code, answer.remark) == (1, "SEND_MESSAGE (10) was not completed within 0.01 s")


def test_handlers_that_wait_are_bounded_and_cancelled_at_the_end() -> None:
    async def main() -> None:
        started = []

        async def hang(peer: str, request: Command) -> None:
            started.append(request.opaque)
            await asyncio.Event().wait()

        answers = Answers()
        watch = RequestWatch()
        dispatcher: Dispatcher[str] = Dispatcher({10: hang}, running_max=2, requests=watch)
        for opaque in range(3):
            dispatcher.serve(f"peer {opaque}", Command(10, opaque), answers.write)
        assert [(a.opaque, a.code) for a in answers.commands] == [(2, ResponseCode.SYSTEM_BUSY)]
        assert watch._refused == {("send_message", "system_busy"): 1}
        await until(lambda: started == [0, 1])
        await dispatcher.close(timeout=0.01)
        assert len(asyncio.all_tasks()) == 1

    run(main())


def test_one_peer_leaves_room_for_others() -> None:
    """However many have much that waits, who has nothing yet is served."""

    async def main() -> None:
        done = asyncio.Event()

        async def hang(peer: str, request: Command) -> Command:
            await done.wait()
            return Command(0)

        answers = Answers()
        dispatcher: Dispatcher[str] = Dispatcher({10: hang}, running_max=100)
        for peer in ("greedy", "greedy, too", "the third"):
            for opaque in range(100):
                dispatcher.serve(peer, Command(10, opaque), answers.write)
        refused = answers.commands
        assert all(a.code == ResponseCode.SYSTEM_BUSY for a in refused)
        assert "20 requests of this client are in progress" in (refused[0].remark or "")
        running = 300 - len(refused)
        assert 40 < running < 60
        dispatcher.serve("modest", Command(10, 1000), answers.write)
        done.set()
        await until(lambda: len(answers.commands) == 301)
        assert next(a.code for a in answers.commands if a.opaque == 1000) == 0
        dispatcher.serve("greedy", Command(10, 1001), answers.write)
        await until(lambda: answers.commands[-1].opaque == 1001)
        assert answers.commands[-1].code == 0, "what has ended counts no more"

    run(main())


def test_work_in_slices_that_is_refused_ends() -> None:
    async def main() -> None:
        steps = 0

        def work() -> Generator[None, None, Command]:
            nonlocal steps
            for _ in range(10):
                steps += 1
                yield
            return Command(0)

        slices, answers = Slices(turn_seconds=0.0), Answers()
        dispatcher: Dispatcher[str] = Dispatcher(
            {10: lambda peer, request: slices.finish(work())}, charge=lambda peer, size: size < 0
        )
        dispatcher.serve("peer", Command(10, 7), answers.write)
        assert [(a.opaque, a.code) for a in answers.commands] == [(7, ResponseCode.SYSTEM_BUSY)]
        for _ in range(20):
            await asyncio.sleep(0)
        assert steps <= 1
        assert not len(slices)

    run(main())


def test_refusals_are_answers() -> None:
    assert refusal(17, "no").is_response


class TestCommandHandler:
    def test_requests_of_a_connection_are_answered_and_its_life_is_told(self, run: Run) -> None:
        async def main() -> None:
            made: list[Connection] = []
            lost: list[Connection] = []

            async def later(conn: Connection, request: Command) -> Command:
                await asyncio.sleep(0)
                return Command(code=0, body=b"later")

            handler = CommandHandler(
                {10: lambda conn, request: Command(code=0, body=conn.address.encode()), 11: later},
                on_connection_made=made.append,
                on_connection_lost=lost.append,
            )
            async with serving(handler) as server:
                async with peer_of_server(server) as peer:
                    await peer.send(Command(11, 1), Command(10, 2), Command(12, 3))
                    answers = {a.opaque: a for a in [await peer.command() for _ in range(3)]}
                    assert answers[1].body == b"later"
                    assert answers[2].body == made[0].address.encode()
                    assert answers[3].code == 3
                await until(lambda: lost == made)
                await handler.close()

        run(main())

    def test_connections_need_no_listener(self, run: Run) -> None:
        async def main() -> None:
            async with serving(CommandHandler({})) as server, peer_of_server(server) as peer:
                await peer.send(Command(10))
                assert (await peer.command()).code == 3

        run(main())

    @pytest.mark.parametrize("header", [b"{]", b"[]", b'{"code":"x"}', b"\xff\xfe"])
    def test_a_header_that_cannot_be_read_closes_the_connection(self, run: Run, header: bytes) -> None:
        async def main() -> None:
            async with (
                serving(CommandHandler({})) as server,
                peer_of_server(server) as peer,
                peer_of_server(server) as other,
            ):
                size = len(header)
                bad = (4 + size).to_bytes(4, "big") + size.to_bytes(4, "big") + header
                await peer.send_bytes(bad)
                assert await peer.closed_with() == b""
                await other.send(Command(10))
                assert (await other.command()).code == 3

        run(main())


def test_a_long_chunk_lets_others_have_their_turn() -> None:
    """All of it is answered, and who asks for one thing in between does not wait for its end."""
    seen: list[str] = []

    def slow(conn: Connection, request: Command) -> Command:
        seen.append("slow")
        time.sleep(TURN_SECONDS / 2)
        return Command(0, body=request.body)

    def quick(conn: Connection, request: Command) -> Command:
        seen.append("quick")
        return Command(0)

    async def main() -> None:
        handler = CommandHandler({10: slow, 11: quick})
        async with (
            serving(handler) as server,
            peer_of_server(server) as long,
            peer_of_server(server) as other,
        ):
            await long.send(*(Command(10, opaque=number, body=b"x") for number in range(40)))
            await long.command()
            await other.send(Command(11))
            await other.command()
            assert seen.count("slow") < 40
            answers = [(await long.command()).opaque for _ in range(39)]
            assert answers == list(range(1, 40)), "in order, each once"
            await long.send(Command(11, opaque=99))
            assert (await long.command()).opaque == 99, "and it is read from again"

    run(main())
