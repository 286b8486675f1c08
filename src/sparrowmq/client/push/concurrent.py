"""Concurrent consumption: passes pulled messages to handlers, and turns their results into offsets and
retries (client:D.9).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Final

from sparrowmq.client.base.settings import ConsumerSettings
from sparrowmq.client.base.tasks import TaskGroup
from sparrowmq.client.consumer.consume_hooks import CallRecords
from sparrowmq.client.consumer.dynamic_settings import DynamicSettings
from sparrowmq.client.consumer.offset_store import OffsetStore
from sparrowmq.client.consumer.outcomes import (
    Outcome,
    Retry,
    outcome_of,
    why_of,
)
from sparrowmq.client.consumer.process_queue import ProcessQueue
from sparrowmq.client.push.message_stream import MessageStream, StreamedMessage
from sparrowmq.client.push.pop_batches import PopBatch
from sparrowmq.client.push.pop_returns import PopReturns
from sparrowmq.client.push.send_back import BROKER_CHOOSES, DEAD, SendBack
from sparrowmq.client.push.subscriptions import Subscriptions
from sparrowmq.client.push.workers import HandlerJob, TaskWorkers, ThreadWorkers
from sparrowmq.core.clock import Clock
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
        records: CallRecords,
        dynamic: DynamicSettings,
        clock: Clock,
        pops: PopReturns,
    ) -> None:
        self._group = group
        self._dynamic = dynamic
        self._settings = settings
        self._store = store
        self._subscriptions = subscriptions
        self._tasks = tasks
        self._send_back = send_back
        self._pops = pops
        self._statistics = records.statistics
        self._now_ms = clock.now_ms
        self._is_broadcasting = settings.model == "broadcasting"
        self._loop = asyncio.get_running_loop()
        self._hooks = records.hooks
        begin = self._before if self._hooks.any else None
        self._threads = ThreadWorkers(
            settings.threads, f"sparrowmq-{group}", self._finish, begin, clock=clock
        )
        self._coroutines = TaskWorkers(settings.threads, self._finish, tasks.start, begin, clock=clock)
        self.rebatch()
        self._timers: set[asyncio.TimerHandle] = set()
        self._retries: set[asyncio.Task[None]] = set()
        self._occasional = OccasionalLog(log)
        self._ended: list[HandlerJob] = []
        self._flushing = False
        self._closing = False
        self.stream = MessageStream(self._settled, counts=settings.managed)
        self.done = 0
        self.failed = 0

    def __repr__(self) -> str:
        waiting = self._threads.pending + self._coroutines.pending
        return f"<ConsumeService done={self.done} failed={self.failed} waiting={waiting} {self.stream!r}>"

    def submit(
        self, process_queue: ProcessQueue, messages: Sequence[StreamedMessage], dispatch: bool = True
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
        """Stop handing out; wait up to `timeout` seconds for running handlers and retries."""
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
        await self._pops.told(max(0.0, deadline - self._loop.time()))
        if not all(ended) and not told:
            log.warning(
                "handlers of group %s were still running %.3g s after close; their results are discarded "
                "and the messages will be delivered again"
                if not (ended[0] and ended[1])
                else "messages of group %s were still being processed %.3g s after close; they "
                "will be delivered again",
                self._group,
                timeout,
            )

    async def expire(self, process_queues: Iterable[ProcessQueue]) -> None:
        """Send back messages that are unfinished for longer than `consume_timeout` (client:D-44)."""
        timeout = self._dynamic.consume_timeout
        self.stream.expire(timeout)
        limit_ms = self._now_ms() - int(timeout * 1000)
        for process_queue in process_queues:
            for _ in range(min(_EXPIRED_ROUND_MAX, len(process_queue))):
                message = process_queue.first
                if message is None:
                    break
                assert isinstance(message, StreamedMessage)
                if not message.started_ms or message.started_ms > limit_ms:
                    break
                back = self._send_back
                if not self._is_broadcasting and not await back.send(message, level=_EXPIRED_LEVEL):
                    break
                if process_queue.first is message:
                    self._advance(process_queue, (message,))
        self._coroutines.cancel_older(limit_ms)

    def resize(self, threads: int) -> None:
        """Run up to `threads` handlers at once from now on."""
        self._threads.resize(threads)
        self._coroutines.resize(threads)

    def rebatch(self) -> None:
        """Give handlers as many messages at once as the dynamic settings say."""
        for workers in (self._threads, self._coroutines):
            workers.rebatch(self._dynamic.batch, takes_lists=self._dynamic.takes_lists)

    def forget_given_up(self) -> None:
        """Drop waiting messages of queues that were given up."""
        self._threads.forget_given_up()
        self._coroutines.forget_given_up()
        self.stream.forget_given_up()

    def go_on(self) -> None:
        """Hand out messages that waited because no handler was allowed to start."""
        self._threads.go_on()
        self._coroutines.go_on()
        self.stream.go_on()

    # Handing out

    def _submit_topic(
        self, process_queue: ProcessQueue, topic: str, messages: Sequence[StreamedMessage]
    ) -> None:
        if self._subscriptions.find(topic) is None:
            self._refuse(process_queue, topic, messages)
            return
        handler = self._subscriptions.handler(topic)
        if handler is None:
            self.stream.put(process_queue, messages)
            return
        workers: ThreadWorkers | TaskWorkers = self._coroutines if handler.is_async else self._threads
        workers.submit(process_queue, messages, handler.call, self._dynamic.batch)

    def _refuse(self, process_queue: ProcessQueue, topic: str, messages: Sequence[StreamedMessage]) -> None:
        """Send back messages of a topic that is no longer subscribed: retries of it may still come."""
        self._occasional.write(
            logging.WARNING,
            "unsubscribed",
            f"group {self._group} does not subscribe to {topic}, but {messages[0].queue} has messages of "
            f"it; they are retried and finally become dead letters",
        )
        for message in messages:
            self._fail(process_queue, message)

    # Outcomes

    def _before(self, job: HandlerJob) -> None:
        job.context = self._hooks.before(job.process_queue.queue, job.messages)

    def _finish(self, job: HandlerJob) -> None:
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

    def _failed(self, job: HandlerJob, outcome: Outcome) -> None:
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
            self._fail(job.process_queue, message, outcome.after, outcome.dead, why_of(error))

    def _settled(
        self, process_queue: ProcessQueue, message: ReceivedMessage, retry: Retry | None, seconds: float
    ) -> None:
        ok, queue = retry is None, process_queue.queue
        self._statistics.consumed(message.topic, int(ok), int(not ok), seconds, queue)
        if self._hooks.any:
            self._hooks.after(self._hooks.before(process_queue.queue, [message]), None, retry, seconds)
        if retry is not None:
            self._fail(process_queue, message, retry.after, retry.dead, why_of(retry))
            return
        self.done += 1
        self._advance(process_queue, (message,))

    def _advance(self, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        if isinstance(process_queue, PopBatch):
            self._pops.done(process_queue, messages)
            return
        offset = process_queue.remove(messages)
        if offset >= 0:
            self._store.advance(process_queue.queue, offset)

    def _fail(
        self,
        process_queue: ProcessQueue,
        message: ReceivedMessage,
        after: float | None = None,
        dead: bool = False,
        why: str = "",
    ) -> None:
        self.failed += 1
        if isinstance(process_queue, PopBatch):
            self._pops.failed(process_queue, message, after, dead=dead, why=why)
            return
        if self._is_broadcasting:  # retrying is left to the application (client:D-52)
            self._advance(process_queue, (message,))
            return
        process_queue.began(self._loop.time())  # messages on their way to a retry count as unfinished, too
        task = self._tasks.start(self._retry(process_queue, message, after, dead, why), "retry")
        task.add_done_callback(lambda _: process_queue.ended())
        self._retries.add(task)
        task.add_done_callback(self._retries.discard)

    async def _retry(
        self,
        process_queue: ProcessQueue,
        message: ReceivedMessage,
        after: float | None,
        dead: bool,
        why: str,
    ) -> None:
        if process_queue.dropped or not process_queue.holds(message):
            return  # sent back already because it took too long (client:G-38)
        if after is None:
            after = self._dynamic.retry_seconds(message.reconsume_times)
        level = DEAD if dead else BROKER_CHOOSES
        taken = await self._send_back.send(message, after, why, level=level)
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
            if not process_queue.dropped and process_queue.holds(message):
                assert isinstance(message, StreamedMessage)
                self.submit(process_queue, (message,))

        timer = self._loop.call_later(self._settings.redeliver_delay, again)
        self._timers.add(timer)
