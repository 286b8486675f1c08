"""Concurrent consumption: pulled messages to handlers, their outcomes to offsets and retries (client:D.9)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from sparrowmq.client.consume_hooks import ConsumeHooks
from sparrowmq.client.delivery import HandedMessage, MessageStream
from sparrowmq.client.knobs import LiveKnobs
from sparrowmq.client.offset_store import OffsetStore
from sparrowmq.client.outcomes import BROKER_CHOOSES, Outcome, Retry, outcome_of, retry_level
from sparrowmq.client.process_queue import ProcessQueue
from sparrowmq.client.send_back import SendBack
from sparrowmq.client.settings import ConsumerSettings
from sparrowmq.client.statistics import ConsumeStatistics
from sparrowmq.client.subscriptions import Subscriptions
from sparrowmq.client.tasks import TaskGroup
from sparrowmq.client.workers import Job, TaskWorkers, ThreadWorkers
from sparrowmq.core.message import ReceivedMessage
from sparrowmq.transport.occasional import OccasionalLog

log = logging.getLogger("sparrowmq.client")

_EXPIRED_LEVEL: Final = 3
"""Delay level of a message that took too long: 10 s by default (client:D-44)."""
_EXPIRED_ROUND_MAX: Final = 16


class ConsumeService:
    """Runs the handlers of one consumer.

    A message stays in its process queue until it is done or safe elsewhere. What fails is sent back to the
    broker, which delivers it again later or makes it a dead letter; when the broker does not take it, it is
    handled again here after `redeliver_delay`, and its offset is held.
    """

    def __init__(
        self,
        group: str,
        settings: ConsumerSettings,
        store: OffsetStore,
        subscriptions: Subscriptions,
        tasks: TaskGroup,
        send_back: SendBack,
        statistics: ConsumeStatistics,
        hooks: ConsumeHooks,
        knobs: LiveKnobs,
        now_ms: Callable[[], int],
    ) -> None:
        self._group = group
        self._knobs = knobs
        self._settings = settings
        self._store = store
        self._subscriptions = subscriptions
        self._tasks = tasks
        self._send_back = send_back
        self._statistics = statistics
        self._now_ms = now_ms
        self._is_broadcasting = settings.model == "broadcasting"
        self._loop = asyncio.get_running_loop()
        self._hooks = hooks
        begin = self._before if hooks.any else None
        self._threads = ThreadWorkers(settings.threads, f"sparrowmq-{group}", self._finish, begin)
        self._coroutines = TaskWorkers(settings.threads, self._finish, tasks.start, begin)
        self.rebatch()
        self._timers: set[asyncio.TimerHandle] = set()
        self._retries: set[asyncio.Task[None]] = set()
        self._occasional = OccasionalLog(log)
        self._ended: list[Job] = []
        self._flushing = False
        self._closing = False
        self.stream = MessageStream(self._settled)
        self.done = 0
        self.failed = 0

    def __repr__(self) -> str:
        waiting = self._threads.pending + self._coroutines.pending
        return f"<ConsumeService done={self.done} failed={self.failed} waiting={waiting} {self.stream!r}>"

    def submit(
        self, process_queue: ProcessQueue, messages: Sequence[HandedMessage], dispatch: bool = True
    ) -> None:
        """Have messages of `process_queue`, which are in it, handled (client:D-48, D-49)."""
        if self._closing:
            return
        topic = messages[0].topic
        if all(message.topic == topic for message in messages):
            self._submit_topic(process_queue, topic, messages)
            return
        for topic in dict.fromkeys(message.topic for message in messages):
            chosen = [message for message in messages if message.topic == topic]
            self._submit_topic(process_queue, topic, chosen)

    async def close(self, timeout: float) -> None:
        """Hand out no more; wait up to `timeout` seconds for what is in hand and its retries."""
        told, self._closing = self._closing, True
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self.stream.end(None)
        deadline = self._loop.time() + timeout
        ended = await asyncio.gather(
            self._threads.close(timeout), self._coroutines.close(timeout), self.stream.settled(timeout)
        )
        self._flush()
        if self._retries:
            await asyncio.wait(self._retries, timeout=max(0.0, deadline - self._loop.time()))
        if not all(ended) and not told:
            log.warning(
                "handlers of group %s still ran %.3g s after close; their results are thrown away and "
                "the messages come again"
                if not (ended[0] and ended[1])
                else "messages of group %s were still iterated over %.3g s after close; they come again",
                self._group,
                timeout,
            )

    async def expire(self, process_queues: Iterable[ProcessQueue]) -> None:
        """Send messages that are in hand longer than `consume_timeout` back (client:D-44)."""
        timeout = self._knobs.consume_timeout
        self.stream.expire(timeout)
        limit_ms = self._now_ms() - int(timeout * 1000)
        for process_queue in process_queues:
            for _ in range(min(_EXPIRED_ROUND_MAX, len(process_queue))):
                message = process_queue.first
                if message is None:
                    break
                assert isinstance(message, HandedMessage)
                if not message.started_ms or message.started_ms > limit_ms:
                    break
                if not self._is_broadcasting and not await self._send_back.send(message, _EXPIRED_LEVEL):
                    break
                if process_queue.first is message:
                    self._advance(process_queue, (message,))
        self._coroutines.cancel_older(limit_ms)

    def resize(self, threads: int) -> None:
        """Run up to `threads` handlers at once from now on."""
        self._threads.resize(threads)
        self._coroutines.resize(threads)

    def rebatch(self) -> None:
        """Give handlers as many messages at once as the knobs say."""
        for workers in (self._threads, self._coroutines):
            workers.rebatch(self._knobs.batch, takes_lists=self._knobs.takes_lists)

    def forget_given_up(self) -> None:
        """Let go of messages that wait for a handler and belong to queues that were given up."""
        self._threads.forget_given_up()
        self._coroutines.forget_given_up()
        self.stream.forget_given_up()

    # Handing out

    def _submit_topic(
        self, process_queue: ProcessQueue, topic: str, messages: Sequence[HandedMessage]
    ) -> None:
        if self._subscriptions.find(topic) is None:
            self._refuse(process_queue, topic, messages)
            return
        handler = self._subscriptions.handler(topic)
        if handler is None:
            self.stream.put(process_queue, messages)
            return
        workers: ThreadWorkers | TaskWorkers = self._coroutines if handler.is_async else self._threads
        workers.submit(process_queue, messages, handler.call, self._knobs.batch)

    def _refuse(self, process_queue: ProcessQueue, topic: str, messages: Sequence[HandedMessage]) -> None:
        """Send messages of a topic back that is not subscribed any more: retries of it may still come."""
        self._occasional.write(
            logging.WARNING,
            "unsubscribed",
            f"group {self._group} does not subscribe {topic}, of which {messages[0].queue} holds messages; "
            "they go to retry, and in the end to the dead letters",
        )
        for message in messages:
            self._fail(process_queue, message)

    # Outcomes

    def _before(self, job: Job) -> None:
        job.context = self._hooks.before(job.process_queue.queue, job.messages)

    def _finish(self, job: Job) -> None:
        """Note what a handler did; offsets are worked out once for all that ended in this turn."""
        self._ended.append(job)
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        finished: dict[ProcessQueue, list[ReceivedMessage]] = {}
        for job in self._ended:
            process_queue, messages = job.process_queue, job.messages
            if job.context is not None:
                self._hooks.after(job.context, job.result, job.error, job.seconds)
            if process_queue.dropped:
                continue  # the queue has another owner, who gets the messages again (client:C-53)
            count = done = len(messages)
            if job.error is not None or job.result is not None:
                outcome = outcome_of(count, job.result, job.error)
                done = outcome.done
                self._failed(job, outcome)
            queue = process_queue.queue
            self._statistics.consumed(messages[0].topic, done, count - done, job.seconds, queue)
            if done:
                self.done += done
                finished.setdefault(process_queue, []).extend(messages[:done])
        self._ended.clear()
        for process_queue, done_messages in finished.items():
            self._advance(process_queue, done_messages)

    def _failed(self, job: Job, outcome: Outcome) -> None:
        failed = job.messages[outcome.done :]
        if not failed:
            return
        first = failed[0]
        error = job.error if job.error is not None else job.result
        if not isinstance(error, Retry):
            self._occasional.write(
                logging.WARNING,
                f"{type(error).__name__} {first.topic}",
                f"the handler of {first.topic} in group {self._group} failed for message {first.message_id} "
                f"({first.queue} at offset {first.queue_offset}); "
                + ("broadcasting drops it" if self._is_broadcasting else "it goes to retry"),
                error=error if isinstance(error, BaseException) else None,
            )
        for message in failed:
            self._fail(job.process_queue, message, outcome.level)

    def _settled(
        self, process_queue: ProcessQueue, message: ReceivedMessage, retry: Retry | None, seconds: float
    ) -> None:
        ok, queue = retry is None, process_queue.queue
        self._statistics.consumed(message.topic, int(ok), int(not ok), seconds, queue)
        if self._hooks.any:
            self._hooks.after(self._hooks.before(process_queue.queue, [message]), None, retry, seconds)
        if retry is not None:
            self._fail(process_queue, message, retry.level)
            return
        self.done += 1
        self._advance(process_queue, (message,))

    def _advance(self, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        offset = process_queue.remove(messages)
        if offset >= 0:
            self._store.advance(process_queue.queue, offset)

    def _fail(
        self, process_queue: ProcessQueue, message: ReceivedMessage, level: int = BROKER_CHOOSES
    ) -> None:
        self.failed += 1
        if level == BROKER_CHOOSES:
            level = retry_level(self._knobs.retry_seconds(message.reconsume_times))
        if self._is_broadcasting:  # retrying is left to the application (client:D-52)
            self._advance(process_queue, (message,))
            return
        process_queue.began(self._loop.time())  # what is on its way to a retry is at work, too
        task = self._tasks.start(self._retry(process_queue, message, level), "retry")
        task.add_done_callback(lambda _: process_queue.ended())
        self._retries.add(task)
        task.add_done_callback(self._retries.discard)

    async def _retry(self, process_queue: ProcessQueue, message: ReceivedMessage, level: int) -> None:
        if process_queue.dropped or message.queue_offset not in process_queue:
            return  # sent back already because it took too long (client:G-38)
        taken = await self._send_back.send(message, level)
        if process_queue.dropped:
            return
        if taken:
            self._advance(process_queue, (message,))
        elif not self._closing:
            message.reconsume_times += 1
            self._later(process_queue, message)

    def _later(self, process_queue: ProcessQueue, message: ReceivedMessage) -> None:
        def again() -> None:
            self._timers.discard(timer)
            if not process_queue.dropped and message.queue_offset in process_queue:
                assert isinstance(message, HandedMessage)
                self.submit(process_queue, (message,))

        timer = self._loop.call_later(self._settings.redeliver_delay, again)
        self._timers.add(timer)
