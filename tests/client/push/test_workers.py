from __future__ import annotations

import asyncio
import functools
import threading
import time
from typing import Any

import pytest
from tests.support import run, until

from sparrowmq.client.base.tasks import TaskGroup
from sparrowmq.client.consumer.lazy_message import LazyMessage
from sparrowmq.client.consumer.process_queue import Limits, ProcessQueue
from sparrowmq.client.push.workers import HandlerJob, TaskWorkers, ThreadWorkers, TopicHandler, Waiting
from sparrowmq.core.message import PROPERTY_CONSUME_START_TIME, MessageQueue, ReceivedMessage

QUEUE = MessageQueue("T", "b", 0)


def message(offset: int) -> LazyMessage:
    return LazyMessage(QUEUE, offset, 0, "T", b"%d" % offset, {}, 0, 0, 0, "", 0, "", 0, 0, 0, "")


class Odd(BaseException):
    """An unexpected exception."""


class Outcomes:
    """Records finished jobs, and makes new ones."""

    def __init__(self) -> None:
        self.finished: list[tuple[int, BaseException | None]] = []
        self.deaths: list[BaseException] = []
        self.process_queue = ProcessQueue(QUEUE, 0, Limits())

    def finish(self, job: HandlerJob) -> None:
        self.finished.append((job.messages[0].queue_offset, job.error))

    def submit(self, workers: TaskWorkers | ThreadWorkers, offset: int, handler: Any) -> None:
        workers.submit(self.process_queue, [message(offset)], handler, 1)

    def tasks(self, count: int) -> TaskWorkers:
        group = TaskGroup(lambda name, error: self.deaths.append(error))
        return TaskWorkers(count, self.finish, group.start)


def test_argument_is_a_message_or_a_list_with_the_delivery_time() -> None:
    outcomes = Outcomes()
    one = HandlerJob(outcomes.process_queue, [message(1)], print, False).argument(5_000)
    assert (one.started_ms, one.properties[PROPERTY_CONSUME_START_TIME]) == (5_000, "5000")
    many = HandlerJob(outcomes.process_queue, (message(1), message(2)), print, True).argument(5_000)
    assert [m.queue_offset for m in many] == [1, 2]
    assert isinstance(many, list)


async def async_generator(message: object) -> Any:
    """Does nothing."""
    yield


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


class CallableGenerator:
    def __call__(self, message: object) -> Any:
        """Does nothing."""
        yield


@pytest.mark.parametrize(
    ("handler", "text"),
    [
        (5, "handler=5 cannot be called: give a function that takes a message"),
        ("print", "handler='print' cannot be called"),
        (async_generator, "is a generator: write it without `yield`"),
        (functools.partial(async_generator), "is a generator"),
        (CallableGenerator(), "is a generator"),
    ],
)
def test_invalid_handlers_are_refused(handler: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        TopicHandler(handler)


@pytest.mark.proves("client:D-47", "client:A-37")
def test_threads_run_jobs_at_once_up_to_their_number() -> None:
    async def main() -> None:
        outcomes = Outcomes()
        workers = ThreadWorkers(3, "test", outcomes.finish)
        together = threading.Barrier(3)
        names: set[str] = set()

        def handle(message: Any) -> None:
            names.add(threading.current_thread().name)
            together.wait(20)

        for offset in range(60):
            outcomes.submit(workers, offset, handle)
        await until(lambda: len(outcomes.finished) == 60)
        assert [error for _, error in outcomes.finished] == [None] * 60
        assert len(names) == 3
        assert workers.pending == 0
        assert await workers.close(1)

    run(main())


def test_exception_in_a_thread_is_the_result() -> None:
    async def main() -> None:
        outcomes = Outcomes()
        workers = ThreadWorkers(1, "test", outcomes.finish)

        def handler(message: ReceivedMessage) -> None:
            raise SystemExit(1) if message.queue_offset else ValueError("bad")

        for offset in range(2):
            outcomes.submit(workers, offset, handler)
        await until(lambda: len(outcomes.finished) == 2)
        assert isinstance(outcomes.finished[0][1], ValueError)
        assert isinstance(outcomes.finished[1][1], SystemExit)
        assert await workers.close(1)

    run(main())


def test_plain_handler_that_returns_a_coroutine_failed() -> None:
    async def main() -> None:
        outcomes = Outcomes()
        workers = ThreadWorkers(1, "test", outcomes.finish)
        outcomes.submit(workers, 0, lambda m: coroutine_function(m))
        await until(lambda: outcomes.finished)
        assert "async def" in str(outcomes.finished[0][1])
        assert await workers.close(1)

    run(main())


@pytest.mark.proves("client:D-84")
def test_closing_threads_skips_waiting_jobs_and_waits_for_running_ones() -> None:
    async def main() -> None:
        outcomes = Outcomes()
        workers = ThreadWorkers(1, "test", outcomes.finish)
        running, go = threading.Event(), threading.Event()

        def handler(message: ReceivedMessage) -> None:
            running.set()
            go.wait(20)

        for offset in range(3):
            outcomes.submit(workers, offset, handler)
        await until(running.is_set)
        assert not await workers.close(0.01), "one still runs"
        closing = asyncio.create_task(workers.close(20))
        await asyncio.sleep(0)
        go.set()
        assert await closing
        assert outcomes.finished == [(0, None)]

    run(main())


@pytest.mark.proves("client:C-53", "client:D.9")
def test_threads_skip_jobs_of_dropped_queues() -> None:
    async def main() -> None:
        outcomes = Outcomes()
        outcomes.process_queue.drop()
        workers = ThreadWorkers(1, "test", outcomes.finish)
        outcomes.submit(workers, 0, lambda m: pytest.fail("must not run"))
        await until(lambda: workers.pending == 0)
        assert outcomes.finished == []
        assert await workers.close(1)

    run(main())


def test_thread_ends_when_its_loop_is_closed() -> None:
    outcomes = Outcomes()
    running, go = threading.Event(), threading.Event()

    async def main() -> ThreadWorkers:
        workers = ThreadWorkers(1, "gone", outcomes.finish)
        outcomes.submit(workers, 0, lambda m: (running.set(), go.wait(20)))
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
            outcomes.submit(workers, offset, handler)
        await until(lambda: at_once == 3)
        go.set()
        await until(lambda: len(outcomes.finished) == 7)
        assert most == 3
        await until(lambda: workers.pending == 0)
        assert await workers.close(1)

    run(main())


def test_waiting_handler_does_not_delay_later_jobs() -> None:
    async def main() -> None:
        outcomes = Outcomes()
        workers = outcomes.tasks(2)
        started: list[int] = []
        go = asyncio.Event()

        async def handler(message: ReceivedMessage) -> None:
            started.append(message.queue_offset)
            await go.wait()

        for offset in range(3):
            outcomes.submit(workers, offset, handler)
            await until(lambda offset=offset: len(started) == min(offset + 1, 2))
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
            outcomes.submit(workers, offset, handler)
        while len(outcomes.finished) < 3000:
            ticks += 1
            await asyncio.sleep(0)
        assert ticks > 3
        assert await workers.close(1)

    run(main())


def test_exception_of_an_async_handler_is_the_result() -> None:
    async def main() -> None:
        outcomes = Outcomes()
        workers = outcomes.tasks(1)

        async def handler(message: ReceivedMessage) -> None:
            raise asyncio.CancelledError if message.queue_offset else ValueError("bad")

        for offset in range(2):
            outcomes.submit(workers, offset, handler)
        await until(lambda: len(outcomes.finished) == 2)
        assert isinstance(outcomes.finished[0][1], ValueError)
        assert isinstance(outcomes.finished[1][1], asyncio.CancelledError)

    run(main())


def test_closing_tasks_discards_waiting_jobs_and_waits_for_running_ones() -> None:
    async def main() -> None:
        outcomes = Outcomes()
        workers = outcomes.tasks(1)
        running, go = asyncio.Event(), asyncio.Event()

        async def handler(message: ReceivedMessage) -> None:
            running.set()
            await go.wait()

        for offset in range(3):
            outcomes.submit(workers, offset, handler)
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
        outcomes.submit(workers, 0, lambda m: pytest.fail("must not run"))
        await until(lambda: workers.pending == 0)
        assert outcomes.finished == []

    run(main())


@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_messages_behind_hung_handlers_are_dropped_with_their_queue(kind: str) -> None:
    async def main() -> None:
        outcomes = Outcomes()
        go, running = threading.Event(), threading.Event()
        free, begun = asyncio.Event(), asyncio.Event()

        async def hang(message: object) -> None:
            begun.set()
            await free.wait()

        def block(message: object) -> None:
            running.set()
            go.wait(20)

        workers = ThreadWorkers(1, "test", outcomes.finish) if kind == "threads" else outcomes.tasks(1)
        handler: Any = block if kind == "threads" else hang
        await until(lambda: outcomes.submit(workers, 0, handler) or begun.is_set() or running.is_set())
        for _ in range(100):  # a queue that comes and goes
            outcomes.process_queue = ProcessQueue(QUEUE, 0, Limits())
            workers.submit(outcomes.process_queue, [message(n) for n in range(50)], handler, 1)
            outcomes.process_queue.drop()
            workers.forget_given_up()
        assert workers.pending < 10
        go.set()
        free.set()
        assert await workers.close(20)

    run(main())


def test_pieces_have_the_requested_size() -> None:
    waiting = Waiting()
    held = ProcessQueue(QUEUE, 0, Limits())
    waiting.add(held, [message(n) for n in range(5)], print, 2)
    waiting.add(held, [message(5)], print, 1)
    assert len(waiting) == 4
    jobs = []
    while (job := waiting.take()) is not None:
        jobs.append(([m.queue_offset for m in job.messages], job.takes_list))
    assert jobs == [([0, 1], True), ([2, 3], True), ([4], True), ([5], False)]


@pytest.mark.proves("client:D-93")
@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_number_of_workers_can_be_changed(kind: str) -> None:
    async def main() -> None:
        outcomes = Outcomes()
        lock, at_once, most = threading.Lock(), 0, 0
        free = threading.Event()

        def enter(by: int) -> None:
            nonlocal at_once, most
            with lock:
                at_once += by
                most = max(most, at_once)

        def block(message: object) -> None:
            enter(1)
            free.wait(20)
            enter(-1)

        async def hang(message: object) -> None:
            enter(1)
            await until(free.is_set)
            enter(-1)

        workers = ThreadWorkers(1, "test", outcomes.finish) if kind == "threads" else outcomes.tasks(1)
        for offset in range(8):
            outcomes.submit(workers, offset, block if kind == "threads" else hang)
        await until(lambda: at_once == 1)
        workers.resize(3)
        await until(lambda: at_once == 3)
        free.set()
        await until(lambda: len(outcomes.finished) == 8)
        assert most == 3
        free.clear()
        workers.resize(2)
        most = 0
        for offset in range(8):
            outcomes.submit(workers, offset, block if kind == "threads" else hang)
        await until(lambda: at_once == 2)
        free.set()
        await until(lambda: len(outcomes.finished) == 16)
        assert most == 2
        assert await workers.close(5)

    run(main())


@pytest.mark.proves("client:A-37")
@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_backlog_does_not_change_the_number_of_workers(kind: str) -> None:
    """RocketMQ checks each minute whether more than 100,000 messages wait, but does nothing about it."""

    async def main() -> None:
        outcomes = Outcomes()
        lock, at_once, most = threading.Lock(), 0, 0

        def enter(by: int) -> None:
            nonlocal at_once, most
            with lock:
                at_once += by
                most = max(most, at_once)

        def plain(message: object) -> None:
            enter(1)
            time.sleep(0)
            enter(-1)

        async def coroutine(message: object) -> None:
            enter(1)
            await asyncio.sleep(0)
            enter(-1)

        workers = ThreadWorkers(2, "test", outcomes.finish) if kind == "threads" else outcomes.tasks(2)
        backlog = [message(0)] * 100_500
        workers.submit(outcomes.process_queue, backlog, plain if kind == "threads" else coroutine, 1)
        assert workers.pending > 100_000
        await until(lambda: len(outcomes.finished) >= 500)
        outcomes.process_queue.drop()
        assert await workers.close(5)
        assert most == 2

    run(main())


def test_async_handlers_that_take_too_long_are_cancelled() -> None:
    async def main() -> None:
        outcomes = Outcomes()
        workers = outcomes.tasks(1)
        begun = asyncio.Event()

        async def hang(message: object) -> None:
            begun.set()
            await asyncio.sleep(3600)

        async def quick(message: object) -> None:
            """Ends at once."""

        outcomes.submit(workers, 0, hang)
        outcomes.submit(workers, 1, quick)
        await begun.wait()
        assert workers.cancel_older(0) == 0
        assert workers.cancel_older(2**62) == 1
        await until(lambda: len(outcomes.finished) == 2)
        assert isinstance(outcomes.finished[0][1], TimeoutError)
        assert outcomes.finished[1] == (1, None), "the worker goes on"
        assert outcomes.deaths == []

    run(main())


@pytest.mark.parametrize("raised", [SystemExit(3), BaseExceptionGroup("", [SystemExit()]), Odd()])
def test_system_exit_is_the_result_of_an_async_handler(raised: BaseException) -> None:
    async def main() -> None:
        outcomes = Outcomes()
        workers = outcomes.tasks(1)

        async def handler(message: ReceivedMessage) -> None:
            if message.queue_offset == 0:
                raise raised

        for offset in range(2):
            outcomes.submit(workers, offset, handler)
        await until(lambda: len(outcomes.finished) == 2)
        assert outcomes.finished == [(0, raised), (1, None)]
        assert outcomes.deaths == []

    run(main())


@pytest.mark.parametrize("hooks", [False, True])
def test_threads_use_a_changed_batch_size(hooks: bool) -> None:
    async def main() -> None:
        outcomes, begun = Outcomes(), []
        begin = begun.append if hooks else None
        workers = ThreadWorkers(1, "test", outcomes.finish, begin)
        sizes: list[int] = []
        gate = threading.Event()

        def handle(messages: list[ReceivedMessage]) -> None:
            sizes.append(len(messages))
            gate.wait(20)

        workers.rebatch(2, takes_lists=True)
        workers.submit(outcomes.process_queue, [message(n) for n in range(20)], handler=handle, batch=2)
        await until(lambda: sizes == [2])
        assert outcomes.process_queue.running == 4, "a thread is kept busy"
        workers.rebatch(5, takes_lists=True)
        gate.set()
        await until(lambda: sum(sizes) == 20)
        assert sizes == ([2, 2, 2, 2, 5, 5, 2] if hooks else [2, 5, 5, 5, 3])
        assert [offset for offset, _ in outcomes.finished] == sorted(
            offset for offset, _ in outcomes.finished
        )
        await until(lambda: not outcomes.process_queue.running)
        assert workers.pending == 0
        workers.rebatch(1, takes_lists=True)
        workers.submit(outcomes.process_queue, [message(20), message(21)], handler=handle, batch=1)
        await until(lambda: sizes[-2:] == [1, 1])
        assert await workers.close(5)

    run(main())


def test_tasks_use_a_changed_batch_size() -> None:
    async def main() -> None:
        outcomes = Outcomes()
        workers = outcomes.tasks(1)
        sizes: list[int] = []
        gate = asyncio.Event()

        async def handle(messages: list[ReceivedMessage]) -> None:
            sizes.append(len(messages))
            await gate.wait()

        workers.submit(outcomes.process_queue, [message(n) for n in range(9)], handler=handle, batch=2)
        await until(lambda: sizes == [2])
        workers.rebatch(1, takes_lists=True)
        gate.set()
        await until(lambda: sizes == [2, 1, 1, 1, 1, 1, 1, 1])
        assert await workers.close(5)

    run(main())


def test_returned_jobs_come_first_and_keep_queues_separate() -> None:
    waiting = Waiting()
    one, two = ProcessQueue(QUEUE, 0, Limits()), ProcessQueue(QUEUE, 0, Limits())
    waiting.add(one, [message(9)], print, 2)
    jobs = [HandlerJob(one, [message(n)], print, False) for n in range(3)] + [
        HandlerJob(two, [message(5)], print, False)
    ]
    waiting.put_back(jobs, 2)
    found = []
    while (job := waiting.take()) is not None:
        found.append((job.process_queue is one, [m.queue_offset for m in job.messages]))
    assert found == [(True, [0, 1]), (True, [2]), (False, [5]), (True, [9])], "none overtakes"


def test_fewer_threads_still_run_jobs_handed_over_before() -> None:
    async def main() -> None:
        outcomes = Outcomes()
        workers = ThreadWorkers(4, "test", outcomes.finish)
        lock, work, gate = threading.Lock(), [0, 0], threading.Semaphore(0)

        def handle(message: object) -> None:
            with lock:
                work[0] += 1
            gate.acquire(timeout=20)
            with lock:
                work[0] -= 1
                work[1] += 1

        for offset in range(16):
            outcomes.submit(workers, offset, handle)
        await until(lambda: work[0] == 4)
        workers.resize(1)
        gate.release(4)
        await until(lambda: work == [1, 4])
        workers.resize(3)
        await until(lambda: work == [3, 4])
        gate.release(12)
        await until(lambda: len(outcomes.finished) == 16)
        assert await workers.close(5)

    run(main())
