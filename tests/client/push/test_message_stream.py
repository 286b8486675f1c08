from __future__ import annotations

import asyncio
import threading

import pytest
from tests.support import about, run, until

from sparrowmq.client.consumer.outcomes import Retry
from sparrowmq.client.consumer.process_queue import Limits, ProcessQueue
from sparrowmq.client.push.message_stream import DeliveredMessage, MessageStream, iterate
from sparrowmq.core.errors import ClientError, InvalidStateError
from sparrowmq.core.message import MessageQueue, ReceivedMessage

QUEUE = MessageQueue("T", "b", 0)


def messages(count: int) -> list[DeliveredMessage]:
    return [
        DeliveredMessage(QUEUE, offset, 0, "T", b"", {}, 0, 0, 0, "", 0, "", 0, 0, 0, "")
        for offset in range(count)
    ]


class Settled:
    """A stream over one process queue, and what was settled."""

    def __init__(self, count: int) -> None:
        self.settled: list[tuple[int, bool]] = []
        self.held = ProcessQueue(QUEUE, 0, Limits())
        self.messages = messages(count)
        self.held.put(self.messages)
        self.stream = MessageStream(self.settle)
        self.stream.put(self.held, self.messages)

    def settle(
        self, held: ProcessQueue, message: ReceivedMessage, retry: Retry | None, seconds: float
    ) -> None:
        self.settled.append((message.queue_offset, retry is not None))
        held.remove([message])


def test_messages_arrive_in_order_and_are_settled_once() -> None:
    async def main() -> None:
        s = Settled(3)
        async for message in iterate(s.stream):
            if message.queue_offset == 1:
                assert await message.retry()
            else:
                assert await message.ack()
            assert not await message.ack(), "it is settled"
            if message.queue_offset == 2:
                break
        assert s.settled == [(0, False), (1, True), (2, False)]
        assert s.stream.in_hand == 0

    run(main())


def test_leaving_the_loop_returns_unsettled_messages() -> None:
    async def main() -> None:
        s = Settled(4)
        iterator = iterate(s.stream)
        taken = [await anext(iterator) for _ in range(3)]
        await taken[1].ack()
        assert s.stream.in_hand == 2
        await iterator.aclose()
        assert s.stream.in_hand == 0
        assert not await taken[0].ack(), "it went back"
        again = [m.queue_offset for m in await s.stream.take(10)]
        assert again == [0, 2, 3]

    run(main())


def test_two_iterators_share_messages_and_return_only_their_own() -> None:
    async def main() -> None:
        s = Settled(4)
        one, two = iterate(s.stream), iterate(s.stream)
        first, second = await anext(one), await anext(two)
        assert (first.queue_offset, second.queue_offset) == (0, 1)
        await one.aclose()
        assert await second.ack()
        assert (await anext(two)).queue_offset == 0
        await two.aclose()

    run(main())


def test_waiting_iterator_is_woken_by_new_messages() -> None:
    async def main() -> None:
        s = Settled(0)
        waiting = [asyncio.create_task(s.stream.take()) for _ in range(2)]
        await asyncio.sleep(0)
        extra = messages(2)
        s.held.put(extra)
        waiting[0].cancel()
        s.stream.put(s.held, extra)
        (found,) = await waiting[1]
        assert found.queue_offset == 0
        assert [m.queue_offset for m in await s.stream.take(5)] == [1]

    run(main())


def test_all_waiting_iterators_are_woken_while_there_are_messages() -> None:
    async def main() -> None:
        s = Settled(0)
        waiting = [asyncio.create_task(s.stream.take()) for _ in range(3)]
        await asyncio.sleep(0)
        extra = messages(3)
        s.held.put(extra)
        s.stream.put(s.held, extra)
        async with asyncio.timeout(20):
            found = [message.queue_offset for taken in await asyncio.gather(*waiting) for message in taken]
        assert sorted(found) == [0, 1, 2]

    run(main())


def test_cancelled_wait_leaves_nothing_behind() -> None:
    async def main() -> None:
        s = Settled(0)
        for _ in range(3):
            waiting = asyncio.create_task(s.stream.take())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        assert not s.stream._wanted

    run(main())


def test_cancelled_wait_passes_its_wake_up_on() -> None:
    async def main() -> None:
        s = Settled(0)
        first, second = (asyncio.create_task(s.stream.take()) for _ in range(2))
        await asyncio.sleep(0)
        extra = messages(1)
        s.held.put(extra)
        s.stream.put(s.held, extra)
        first.cancel()
        assert [m.queue_offset for m in await second] == [0]

    run(main())


def test_messages_of_dropped_queues_are_neither_delivered_nor_settled() -> None:
    async def main() -> None:
        s = Settled(3)
        (taken,) = await s.stream.take()
        assert isinstance(taken, DeliveredMessage)
        s.held.drop()
        assert not await taken.ack()
        assert s.settled == []
        waiting = asyncio.create_task(s.stream.take())
        await asyncio.sleep(0)
        assert not waiting.done()
        s.stream.end(None)
        assert await waiting == []

    run(main())


def test_messages_iterated_for_too_long_are_retried() -> None:
    async def main() -> None:
        s = Settled(2)
        (taken,) = await s.stream.take()
        assert s.stream.expire(3600) == 0
        assert s.stream.expire(0) == 1
        assert s.settled == [(0, True)]
        assert isinstance(taken, DeliveredMessage)
        assert not await taken.ack()

    run(main())


def test_closing_stops_iterators() -> None:
    async def main() -> None:
        s = Settled(0)
        seen = [asyncio.create_task(_all(s.stream)) for _ in range(2)]
        await asyncio.sleep(0)
        s.stream.end(None)
        assert await asyncio.gather(*seen) == [[], []]
        s.stream.end(ClientError("late"))
        with pytest.raises(ClientError, check=about(args=("late",))):
            await s.stream.take()

    async def _all(stream: MessageStream) -> list[object]:
        return [message async for message in iterate(stream)]

    run(main())


def test_error_is_raised_in_iterators() -> None:
    async def main() -> None:
        s = Settled(0)
        waiting = asyncio.create_task(s.stream.take())
        await asyncio.sleep(0)
        s.stream.end(ClientError("broken"))
        with pytest.raises(ClientError, check=about(args=("broken",))):
            await waiting

    run(main())


def test_message_can_be_settled_from_another_thread() -> None:
    async def main() -> None:
        s = Settled(50)
        taken = await s.stream.take(50)
        outcomes: list[bool] = []

        def settle() -> None:
            for message in taken:
                outcomes.append(s.stream.settle_from_thread(message))
                outcomes.append(s.stream.settle_from_thread(message, Retry()))

        thread = threading.Thread(target=settle)
        thread.start()
        await until(lambda: len(s.settled) == 50)
        thread.join()
        assert outcomes == [True, False] * 50
        assert s.settled == [(offset, False) for offset in range(50)]
        assert len(s.held) == 0

    run(main())


def test_settling_from_a_thread_after_the_queue_was_dropped_does_nothing() -> None:
    async def main() -> None:
        s = Settled(2)
        first, second = await s.stream.take(2)
        assert s.stream.settle_from_thread(first)
        s.held.drop()
        assert not s.stream.settle_from_thread(second)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert s.settled == []

    run(main())


def test_settling_in_a_forked_child_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        s = Settled(1)
        (message,) = await s.stream.take()
        with monkeypatch.context() as child:
            child.setattr("sparrowmq.client.push.message_stream.os.getpid", lambda: 7)
            with pytest.raises(InvalidStateError, check=about(what="process")):
                s.stream.settle_from_thread(message)
            with pytest.raises(InvalidStateError, check=about(what="process")):
                s.stream.settle(message)
        assert s.stream.settle_from_thread(message)

    run(main())


def test_message_of_a_handler_cannot_be_settled_manually() -> None:
    async def main() -> None:
        (message,) = messages(1)
        with pytest.raises(InvalidStateError, check=about(what="handler")):
            await message.ack()

    run(main())


def test_close_waits_until_unfinished_messages_are_settled_or_returned() -> None:
    async def main() -> None:
        s = Settled(5)
        first, second = await s.stream.take(2)
        threads = await s.stream.take(1, "a thread")
        s.stream.end(None)
        assert not await s.stream.settled(0.01)
        waiting = asyncio.create_task(s.stream.settled(20))
        s.stream.settle(first)
        await asyncio.to_thread(s.stream.settle_from_thread, second)
        await asyncio.sleep(0)
        assert not waiting.done()
        s.stream.let_go("a thread")
        assert await waiting
        assert s.settled == [(0, False), (1, False)]
        assert not s.stream.is_in_hand(threads[0])
        assert await s.stream.take() == [], "what went back is handed out no more"
        assert await s.stream.settled(0), "nothing is in hand"

    run(main())


def test_task_returns_only_its_own_messages() -> None:
    async def main() -> None:
        s = Settled(3)
        mine = await s.stream.take()
        (theirs,) = await asyncio.create_task(s.stream.take())
        s.stream.let_go(asyncio.current_task())
        assert not s.stream.is_in_hand(mine[0])
        assert s.stream.is_in_hand(theirs)
        assert [message.queue_offset for message in await s.stream.take(9)] == [0, 2]

    run(main())
