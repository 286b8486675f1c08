"""A queue whose handlers may not start for a while: none starts, nothing is lost, and all continue later."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support import run, until

from sparrowmq.client.base.settings import PullSettings
from sparrowmq.client.base.tasks import TaskGroup
from sparrowmq.client.cluster.broker_api import no_generation
from sparrowmq.client.consumer.dynamic_settings import DynamicSettings
from sparrowmq.client.consumer.lazy_message import LazyMessage
from sparrowmq.client.consumer.process_queue import Limits, ProcessQueue
from sparrowmq.client.pull.polling import LitePull, _Held
from sparrowmq.client.push.message_stream import DeliveredMessage, MessageStream
from sparrowmq.client.push.ordered import _Calls
from sparrowmq.client.push.workers import HandlerJob, TaskWorkers, ThreadWorkers
from sparrowmq.core.clock import SystemClock
from sparrowmq.core.message import MessageQueue, ReceivedMessage

QUEUE = MessageQueue("T", "b", 0)


def message(offset: int, kind: type[Any] = LazyMessage) -> Any:
    return kind(QUEUE, offset, 0, "T", b"", {}, 0, 0, 0, "", 0, "", 0, 0, 0, "")


class Gated(ProcessQueue):
    """Paused until it is opened; counts the queries."""

    __slots__ = ("asked", "opened")

    def __init__(self) -> None:
        super().__init__(QUEUE, 0, Limits())
        self.opened = False
        self.asked = 0

    def may_start(self) -> bool:
        self.asked += 1
        return self.opened and not self.leaving


@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_paused_handlers_continue_without_a_retry(kind: str) -> None:
    async def main() -> None:
        held, got = Gated(), list[int]()
        done: list[int] = []

        def finish(job: HandlerJob) -> None:
            done.append(job.messages[0].queue_offset)

        async def handle(one: LazyMessage) -> None:
            got.append(one.queue_offset)

        group = TaskGroup(lambda name, error: None)
        workers: ThreadWorkers | TaskWorkers
        workers = TaskWorkers(2, finish, group.start) if kind == "tasks" else ThreadWorkers(2, "t", finish)
        handler = handle if kind == "tasks" else lambda one: got.append(one.queue_offset)
        workers.submit(held, [message(offset) for offset in range(5)], handler, 1)
        for _ in range(50):
            await asyncio.sleep(0)
        assert got == []
        assert held.asked < 5, "nobody asks again and again"
        held.opened = True
        workers.go_on()
        await until(lambda: sorted(done) == list(range(5)))
        assert sorted(got) == list(range(5))
        await workers.close(5)
        await group.close()

    run(main())


def test_unstarted_jobs_of_threads_are_returned() -> None:
    async def main() -> None:
        held, got, gate = Gated(), list[int](), threading.Event()
        held.opened = True
        done: list[int] = []

        def handle(one: LazyMessage) -> None:
            got.append(one.queue_offset)
            gate.wait(20)

        workers = ThreadWorkers(1, "t", lambda job: done.append(job.messages[0].queue_offset))
        workers.submit(held, [message(offset) for offset in range(6)], handle, 1)
        await until(lambda: got == [0])
        held.opened = False
        gate.set()
        await until(lambda: done == [0] and not held.running)
        assert got == [0], "more were handed over, and none began"
        held.opened = True
        workers.go_on()
        await until(lambda: len(done) == 6)
        assert got == list(range(6)), "in their order, each once"
        await workers.close(5)

    run(main())


def test_ordered_calls_stop_when_the_lease_expires() -> None:
    held = Gated()
    held.opened = True
    got: list[int] = []

    def handle(one: LazyMessage) -> None:
        got.append(one.queue_offset)
        held.opened = False

    calls = _Calls(held, handle, 1, SystemClock(), takes_lists=False)
    calls.run([message(0), message(1)])
    assert (got, calls.done) == ([0], 1)


def test_iteration_waits_while_the_lease_is_expired() -> None:
    async def main() -> None:
        held = Gated()
        messages = [message(offset, DeliveredMessage) for offset in range(3)]
        held.put(messages)
        stream = MessageStream(lambda *arguments: None)
        stream.put(held, messages)
        taking = asyncio.ensure_future(stream.take(2))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not taking.done()
        held.opened = True
        stream.go_on()
        assert await taking == messages[:2]
        assert await stream.take() == messages[2:]

    run(main())


def test_polls_wait_and_get_the_messages_later() -> None:
    async def main() -> None:
        settings, clock = PullSettings(auto_commit=False), SystemClock()
        instance: Any = SimpleNamespace(clock=clock)
        hooks: Any = SimpleNamespace(taken=lambda queue, messages: None)
        nothing: Any = None
        polls = LitePull(
            *("g", settings, nothing, instance, nothing, nothing, hooks),
            dynamic=DynamicSettings(settings, clock.now_ms, clock.monotonic),
            make=ProcessQueue,
            generation_of=no_generation,
        )
        held = Gated()
        polls._queues[QUEUE] = _Held(held)
        messages = [message(0, ReceivedMessage), message(1, ReceivedMessage)]
        polls.hand_out(held, messages, held.put(messages))
        assert await polls.poll(0.01) == []
        polling = asyncio.ensure_future(polls.poll(20))
        await asyncio.sleep(0)
        held.opened = True
        polls.go_on()
        assert [one.queue_offset for one in await polling] == [0, 1]
        assert held.running == 1, "it is with the application"

    run(main())
