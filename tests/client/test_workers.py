from __future__ import annotations

import asyncio
import functools
import threading
from typing import Any

import pytest
from tests.support import run, until

from sparrowmq.client.process_queue import Limits, ProcessQueue
from sparrowmq.client.tasks import TaskGroup
from sparrowmq.client.workers import Job, TaskWorkers, ThreadWorkers, TopicHandler
from sparrowmq.core.message import PROPERTY_CONSUME_START_TIME, MessageQueue, ReceivedMessage

QUEUE = MessageQueue("T", "b", 0)


def message(offset: int) -> ReceivedMessage:
    return ReceivedMessage(QUEUE, offset, 0, "T", b"%d" % offset, {}, 0, 0, 0, "", 0, "", 0, 0, 0, "")


class Outcomes:
    """Notes what finished, and makes jobs."""

    def __init__(self) -> None:
        self.finished: list[tuple[int, BaseException | None]] = []
        self.deaths: list[BaseException] = []
        self.process_queue = ProcessQueue(QUEUE, 0, Limits())

    def finish(self, job: Job, error: BaseException | None) -> None:
        self.finished.append((job.messages[0].queue_offset, error))

    def job(self, offset: int, handler: Any) -> Job:
        return Job(self.process_queue, [message(offset)], handler, False)

    def tasks(self, count: int) -> TaskWorkers:
        group = TaskGroup(lambda name, error: self.deaths.append(error))
        return TaskWorkers(count, self.finish, group.start)


def test_the_argument_is_a_message_or_a_list_with_the_time_of_handing_out() -> None:
    outcomes = Outcomes()
    one = Job(outcomes.process_queue, [message(1)], print, False).argument()
    assert one.properties[PROPERTY_CONSUME_START_TIME].isdigit()
    many = Job(outcomes.process_queue, (message(1), message(2)), print, True).argument()
    assert [m.queue_offset for m in many] == [1, 2]
    assert isinstance(many, list)


class CallableAsync:
    async def __call__(self, message: object) -> None:
        """Asynchronous."""


async def coroutine_function(message: object) -> None:
    """Asynchronous."""


@pytest.mark.parametrize(
    ("handler", "is_async"),
    [
        (print, False),
        (lambda m: None, False),
        (coroutine_function, True),
        (functools.partial(coroutine_function), True),
        (CallableAsync(), True),
        (CallableAsync().__call__, True),
    ],
)
def test_async_handlers_are_recognised(handler: Any, is_async: bool) -> None:
    assert TopicHandler(handler).is_async is is_async


def test_threads_run_jobs_at_once_up_to_their_number() -> None:
    async def main() -> None:
        outcomes = Outcomes()
        workers = ThreadWorkers(3, "test", outcomes.finish)
        together = threading.Barrier(3)
        for offset in range(6):
            workers.submit(outcomes.job(offset, lambda m: together.wait(20)))
        await until(lambda: len(outcomes.finished) == 6)
        assert [error for _, error in outcomes.finished] == [None] * 6
        assert workers.pending == 0
        assert await workers.close(1)

    run(main())


def test_what_a_thread_raises_is_the_outcome() -> None:
    async def main() -> None:
        outcomes = Outcomes()
        workers = ThreadWorkers(1, "test", outcomes.finish)

        def handler(message: ReceivedMessage) -> None:
            raise SystemExit(1) if message.queue_offset else ValueError("bad")

        for offset in range(2):
            workers.submit(outcomes.job(offset, handler))
        await until(lambda: len(outcomes.finished) == 2)
        assert isinstance(outcomes.finished[0][1], ValueError)
        assert isinstance(outcomes.finished[1][1], SystemExit)
        assert await workers.close(1)

    run(main())


def test_a_plain_handler_that_gives_a_coroutine_failed() -> None:
    async def main() -> None:
        outcomes = Outcomes()
        workers = ThreadWorkers(1, "test", outcomes.finish)
        workers.submit(outcomes.job(0, lambda m: coroutine_function(m)))
        await until(lambda: outcomes.finished)
        assert "async def" in str(outcomes.finished[0][1])
        assert await workers.close(1)

    run(main())


def test_closing_threads_skips_what_waits_and_waits_for_what_runs() -> None:
    async def main() -> None:
        outcomes = Outcomes()
        workers = ThreadWorkers(1, "test", outcomes.finish)
        running, go = threading.Event(), threading.Event()

        def handler(message: ReceivedMessage) -> None:
            running.set()
            go.wait(20)

        for offset in range(3):
            workers.submit(outcomes.job(offset, handler))
        await until(running.is_set)
        assert not await workers.close(0.01), "one still runs"
        closing = asyncio.create_task(workers.close(20))
        await asyncio.sleep(0)
        go.set()
        assert await closing
        assert outcomes.finished == [(0, None)]

    run(main())


def test_threads_skip_jobs_of_dropped_queues() -> None:
    async def main() -> None:
        outcomes = Outcomes()
        outcomes.process_queue.drop()
        workers = ThreadWorkers(1, "test", outcomes.finish)
        workers.submit(outcomes.job(0, lambda m: pytest.fail("must not run")))
        await until(lambda: workers.pending == 0)
        assert outcomes.finished == []
        assert await workers.close(1)

    run(main())


def test_a_thread_ends_when_its_loop_is_gone() -> None:
    outcomes = Outcomes()
    running, go = threading.Event(), threading.Event()

    async def main() -> ThreadWorkers:
        workers = ThreadWorkers(1, "gone", outcomes.finish)
        workers.submit(outcomes.job(0, lambda m: (running.set(), go.wait(20))))
        await until(running.is_set)
        return workers

    run(main())
    go.set()
    (thread,) = [t for t in threading.enumerate() if t.name.startswith("gone")] or [None]
    if thread is not None:
        thread.join(20)
        assert not thread.is_alive()
    assert outcomes.finished == []


def test_async_handlers_run_at_once_up_to_their_number() -> None:
    async def main() -> None:
        outcomes = Outcomes()
        workers = outcomes.tasks(3)
        at_once, most = 0, 0
        go = asyncio.Event()

        async def handler(message: ReceivedMessage) -> None:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            await go.wait()
            at_once -= 1

        for offset in range(7):
            workers.submit(outcomes.job(offset, handler))
        await until(lambda: at_once == 3)
        go.set()
        await until(lambda: len(outcomes.finished) == 7)
        assert most == 3
        await until(lambda: workers.pending == 0)
        assert await workers.close(1)

    run(main())


def test_a_handler_that_waits_does_not_hold_up_jobs_that_come_later() -> None:
    async def main() -> None:
        outcomes = Outcomes()
        workers = outcomes.tasks(2)
        started: list[int] = []
        go = asyncio.Event()

        async def handler(message: ReceivedMessage) -> None:
            started.append(message.queue_offset)
            await go.wait()

        for offset in range(3):
            workers.submit(outcomes.job(offset, handler))
            await until(lambda offset=offset: len(started) == min(offset + 1, 2), seconds=5)
        assert started == [0, 1], "two at once, as many as may"
        go.set()
        await until(lambda: len(outcomes.finished) == 3)
        await until(lambda: workers.pending == 0)

    run(main())


def test_handlers_that_never_wait_let_the_loop_run() -> None:
    async def main() -> None:
        outcomes = Outcomes()
        workers = outcomes.tasks(2)
        ticks = 0

        async def handler(message: ReceivedMessage) -> None:
            sum(range(2000))

        for offset in range(3000):
            workers.submit(outcomes.job(offset, handler))
        while len(outcomes.finished) < 3000:
            ticks += 1
            await asyncio.sleep(0)
        assert ticks > 3
        assert await workers.close(1)

    run(main())


def test_what_an_async_handler_raises_is_the_outcome() -> None:
    async def main() -> None:
        outcomes = Outcomes()
        workers = outcomes.tasks(1)

        async def handler(message: ReceivedMessage) -> None:
            raise asyncio.CancelledError if message.queue_offset else ValueError("bad")

        for offset in range(2):
            workers.submit(outcomes.job(offset, handler))
        await until(lambda: len(outcomes.finished) == 2)
        assert isinstance(outcomes.finished[0][1], ValueError)
        assert isinstance(outcomes.finished[1][1], asyncio.CancelledError)

    run(main())


def test_closing_tasks_forgets_what_waits_and_waits_for_what_runs() -> None:
    async def main() -> None:
        outcomes = Outcomes()
        workers = outcomes.tasks(1)
        running, go = asyncio.Event(), asyncio.Event()

        async def handler(message: ReceivedMessage) -> None:
            running.set()
            await go.wait()

        for offset in range(3):
            workers.submit(outcomes.job(offset, handler))
        await running.wait()
        assert not await workers.close(0.01)
        closing = asyncio.create_task(workers.close(20))
        await asyncio.sleep(0)
        go.set()
        assert await closing
        assert outcomes.finished == [(0, None)]

    run(main())


def test_tasks_skip_jobs_of_dropped_queues() -> None:
    async def main() -> None:
        outcomes = Outcomes()
        outcomes.process_queue.drop()
        workers = outcomes.tasks(1)
        workers.submit(outcomes.job(0, lambda m: pytest.fail("must not run")))
        await until(lambda: workers.pending == 0)
        assert outcomes.finished == []

    run(main())
