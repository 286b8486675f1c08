"""Answers with messages: which are made in the thread, and that it makes one at a time."""

from __future__ import annotations

import asyncio
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.support import run, until

from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.protocol.sysflag import COMPRESSED
from sparrowmq.proxy.base.converting import resource, to_message
from sparrowmq.proxy.calls import answers
from sparrowmq.proxy.calls.answers import THREAD_BYTES, MessageAnswers
from sparrowmq.proxy.definition.messages import v2
from sparrowmq.transport.slices import TurnGate


def received(body: bytes, sys_flag: int = 0) -> ReceivedMessage:
    return ReceivedMessage(
        queue=MessageQueue("t", "b", 0), queue_offset=0, physical_offset=0, topic="t", body=body,
        properties={}, flag=0, sys_flag=sys_flag, born_timestamp=0, born_host="1.2.3.4:5", store_timestamp=0,
        store_host="1.2.3.5:6", reconsume_times=0, store_size=100, prepared_transaction_offset=0,
        offset_message_id="OFFSETID",
    )  # fmt: skip


@contextmanager
def answering(gate: TurnGate | None = None) -> Iterator[MessageAnswers]:
    made = MessageAnswers(gate or TurnGate(64))
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize(
    ("message", "in_thread"),
    [
        (received(b"small"), False),
        (received(bytes(THREAD_BYTES + 1)), True),
        (received(zlib.compress(bytes(1 << 20)), COMPRESSED), True),
    ],
    ids=["small", "large", "compressed"],
)
def test_large_and_compressed_messages_are_made_in_a_thread(
    message: ReceivedMessage, in_thread: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kilobyte of a compressed body may be a megabyte, which takes as long as any other."""
    made: list[int] = []

    def noted(message: ReceivedMessage, topic: Any) -> Any:
        made.append(threading.get_ident())
        return to_message(message, topic)

    monkeypatch.setattr(answers, "to_message", noted)

    async def main() -> None:
        with answering() as answers:
            await answers.of(v2.PullMessageResponse, message, resource("t"))

    run(main())
    assert [one != threading.get_ident() for one in made] == [in_thread]


def test_compressed_message_has_the_weight_of_its_body() -> None:
    weights: list[int] = []

    class Noting(TurnGate):
        async def passed(self, weight: int) -> None:
            weights.append(weight)

    async def main() -> None:
        with answering(Noting(64)) as answers:
            packed = received(zlib.compress(bytes(1 << 20)), COMPRESSED)
            await answers.of(v2.PullMessageResponse, packed, resource("t"))

    run(main())
    assert weights == [pytest.approx(65, abs=1)]


def test_messages_of_clients_that_leave_are_still_made_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread cannot be cancelled: the next message waits for it, and those that nobody waits for are not
    made."""
    go_on, running = threading.Event(), [0, 0]

    def slow(message: ReceivedMessage, topic: Any) -> Any:
        running[0] += 1
        running[1] += 1
        assert running[1] == 1, "two at a time"
        go_on.wait(20)
        running[1] -= 1
        return to_message(message, topic)

    monkeypatch.setattr(answers, "to_message", slow)

    async def main() -> None:
        with answering() as answers:

            def ask() -> asyncio.Task[Any]:
                work = answers.of(v2.PullMessageResponse, received(bytes(THREAD_BYTES + 1)), resource("t"))
                return asyncio.create_task(work)

            first, *others = [ask() for _ in range(5)]
            await until(lambda: running[0])
            for task in (first, *others):
                task.cancel()
            await asyncio.wait([first, *others])
            last = ask()
            await asyncio.sleep(0)
            go_on.set()
            await last
            assert running[0] == 2

    run(main())
