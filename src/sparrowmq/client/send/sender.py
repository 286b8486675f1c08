"""The engine of a producer: chooses queues, sends requests, and retries failures (client:B.7, B.8).

The usual send takes the fast path: it is plain (`Outgoing.is_plain`), no hook watches it, its topic is known,
its connection is open, and there is room in flight. It costs one future and no task. Everything else (first
use of a topic, reconnecting, waiting for room, retries) takes the slow path.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from sparrowmq.client.base.hooks import Hook, Hooks, SendMode
from sparrowmq.client.base.settings import ProducerSettings
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.client.send.attempts import Attempts
from sparrowmq.client.send.batching import Linger
from sparrowmq.client.send.encoding import (
    Outgoing,
    SendTarget,
    outgoing_batch,
    outgoing_single,
    send_result,
)
from sparrowmq.client.send.fault_strategy import FaultStrategy
from sparrowmq.client.send.in_flight import Gate
from sparrowmq.client.send.message_checks import check_is_message
from sparrowmq.client.send.queue_selection import PublishInfo, QueueSelector, one_choice, select_target
from sparrowmq.client.send.retry import final_error, is_queue_gone, is_retryable, is_retryable_async
from sparrowmq.client.send.topic_routes import PublishTable, target_of
from sparrowmq.core.backoff import Backoff
from sparrowmq.core.errors import NoRoomError, SparrowError
from sparrowmq.core.message import Message, MessageQueue
from sparrowmq.core.results import SendResult, SendStatus
from sparrowmq.protocol.compression import compress
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.sysflag import CompressionType, with_compression
from sparrowmq.transport.occasional import OccasionalLog

log = logging.getLogger("sparrowmq.client")

Done = Callable[[SendResult | None, BaseException | None], None]

_KINDS: Final = {
    "zlib": CompressionType.ZLIB,
    "lz4": CompressionType.LZ4,
    "zstd": CompressionType.ZSTD,
}
_COMPRESS_IN_THREAD: Final = 256 * 1024
"""Bodies of this size or more are compressed in a thread, so that the loop is not blocked."""
_SAME_BROKER_PAUSE: Final = Backoff(first=0.02, most=0.5)
"""Pauses before a retry at the broker that just failed."""


class Sender:
    """Sends for one producer over `instance`. `gate` counts sends in flight."""

    item_room = 0
    """Bytes that this sender adds to each message of a batch."""

    def __init__(
        self,
        group: str,
        settings: ProducerSettings,
        instance: ClientInstance,
        hooks: Iterable[Hook] = (),
    ) -> None:
        """`hooks` run after those in the settings."""
        self.group = group
        self.instance = instance
        self.gate = Gate(settings.in_flight_max, settings.in_flight_bytes_max)
        self.sent = 0
        self.failed = 0
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self.table = PublishTable(group, settings, instance)
        self._infos = self.table.infos
        self.faults = _strategy(settings, instance)
        self.hooks = Hooks((*settings.hooks, *hooks))
        self._attempts = Attempts(group, settings, instance, self.gate, self.hooks, self.faults)
        self._may_go_fast = not self._attempts.is_watched and settings.try_timeout is None
        self.linger = Linger(self, settings, self.item_room) if settings.linger else None
        self._slow: set[asyncio.Task[None]] = set()
        self._occasional = OccasionalLog(log)

    def __repr__(self) -> str:
        return f"topics={len(self.table)} sent={self.sent} failed={self.failed} in_flight={self.gate.count}"

    # Sending

    async def send(self, message: Message, timeout: float | None) -> SendResult:
        """Send to the next queue in turn; retries go to other brokers."""
        if self.linger is not None and timeout is None:
            held = self._linger(message, None)
            if held is not None:
                return await held
        settings = self._settings
        deadline = self._loop.time() + (settings.send_timeout if timeout is None else timeout)
        outgoing = self._make(message)
        if len(message.body) >= settings.compress_over:
            with self.gate.coming():
                await self._compress(outgoing)
        started = self._start_fast(outgoing, deadline, settings.retries)
        if started is None:
            return await self._send_tries(outgoing, deadline)
        answer, target = started
        try:
            outcome: SendResult | SparrowError = send_result(await answer, outgoing, target)
        except SparrowError as error:
            outcome = error
            self._doubt(outgoing.topic, error)
        finally:
            self.gate.leave(outgoing.size)
        if self._is_final(outcome):
            return self._count(outcome)
        return await self._send_tries(outgoing, deadline, outcome, target)

    def submit(
        self,
        message: Message,
        done: Done,
        timeout: float | None,
        mode: SendMode = SendMode.ASYNC,
        queue: MessageQueue | None = None,
    ) -> None:
        """Send without waiting; `done` gets the result or the error.

        Retries follow the rules of `mode` (client:B.7). Raises `NoRoomError` when as many sends are
        waiting as may be in flight.
        """
        settings = self._settings
        if self.gate.waiting >= settings.in_flight_max:
            raise NoRoomError(
                f"{self.gate.waiting} sends are already waiting; wait for results before you send more",
                limit=settings.in_flight_max,
            )
        lingers = self.linger if timeout is None and mode is SendMode.ASYNC else None
        if lingers is not None and lingers.put(message, done, queue):
            return
        deadline = self._loop.time() + (settings.send_timeout if timeout is None else timeout)
        outgoing = self._make(message)
        if queue is None and len(message.body) < settings.compress_over:
            more = settings.retries_async if mode is SendMode.ASYNC else settings.retries
            started = self._start_fast(outgoing, deadline, more)
            if started is not None:
                answer, target = started
                answer.add_done_callback(partial(self._submitted, outgoing, target, deadline, done, mode))
                return
        self._submit_slow(self._compress_and_try(outgoing, deadline, mode, queue), done)

    async def send_to_chosen(
        self,
        message: Message,
        timeout: float | None,
        *,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        argument: Any,
        hash_key: object,
    ) -> SendResult:
        """Send once, to a given queue or one chosen by selector or hash key (client:B-34, B-35)."""
        selector = one_choice(queue, selector, hash_key)
        if self.linger is not None and timeout is None:
            if selector is not None:
                with self.gate.coming():
                    found = await self.table.find(message.topic, self._deadline(None))
                chosen_by = argument if hash_key is None else hash_key
                queue, selector = select_target(found, selector, message, chosen_by).queue, None
            held = self._linger(message, queue)
            if held is not None:
                return await held
        outgoing = self._make(message)
        deadline = self._deadline(timeout)
        with self.gate.coming():
            if len(message.body) >= self._settings.compress_over:
                await self._compress(outgoing)
            info = await self.table.find(outgoing.topic, deadline)
            if selector is not None:
                chosen_by = argument if hash_key is None else hash_key
                queue = select_target(info, selector, message, chosen_by).queue
            assert queue is not None
            return await self._send_once(outgoing, target_of(info, queue), deadline)

    async def send_outgoing(
        self, outgoing: Outgoing, timeout: float | None, *, queue: MessageQueue | None
    ) -> SendResult:
        """Send an encoded message: with retries, or once to `queue`."""
        deadline = self._deadline(timeout)
        if not outgoing.is_batch and len(outgoing.body) >= self._settings.compress_over:
            await self._compress(outgoing)
        if queue is None:
            return await self._send_tries(outgoing, deadline)
        with self.gate.coming():
            info = await self.table.find(outgoing.topic, deadline)
            return await self._send_once(outgoing, target_of(info, queue), deadline)

    async def send_oneway(
        self,
        message: Message,
        timeout: float | None,
        *,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        argument: Any,
        hash_key: object,
    ) -> None:
        """Pass one message to the connection without waiting for a response."""
        selector = one_choice(queue, selector, hash_key)
        outgoing = self._make(message)
        deadline = self._deadline(timeout)
        with self.gate.coming():
            if len(message.body) >= self._settings.compress_over:
                await self._compress(outgoing)
            info = await self.table.find(outgoing.topic, deadline)
            if selector is not None:
                chosen_by = argument if hash_key is None else hash_key
                target = select_target(info, selector, message, chosen_by)
            else:
                target = self._choose(info, outgoing) if queue is None else target_of(info, queue)
            await self._attempts.oneway(outgoing, target, deadline)
        self.sent += 1

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The writable queues of `topic`."""
        return (await self.table.find(topic, self._deadline(None))).queues

    def make_batch(self, messages: list[Message]) -> Outgoing:
        """A batch, checked and encoded; every message gets an id."""
        instance = self.instance
        keys = [instance.unique_ids.next() for _ in messages]
        now_ms, bytes_max = instance.clock.now_ms(), self._settings.message_bytes_max
        return outgoing_batch(messages, keys, self.batch_key(), now_ms, bytes_max)

    def batch_key(self) -> str:
        """The id of a batch; empty with 4.9's rules, because those brokers give it to all messages."""
        return "" if self._settings.compat == "4.9" else self.instance.unique_ids.next()

    def _linger(self, message: Message, queue: MessageQueue | None) -> asyncio.Future[SendResult] | None:
        """The result of a message sent in a batch with others, or None when it must be sent alone."""
        assert self.linger is not None
        future: asyncio.Future[SendResult] = self._loop.create_future()

        def done(result: SendResult | None, error: BaseException | None) -> None:
            if future.done():
                return
            if result is not None:
                future.set_result(result)
            elif isinstance(error, Exception):
                future.set_exception(error)
            else:
                future.cancel()

        return future if self.linger.put(message, done, queue) else None

    # The fast path

    def _make(self, message: Message) -> Outgoing:
        now_ms = self.instance.clock.now_ms()
        try:
            return outgoing_single(
                message, self.instance.unique_ids.next(now_ms), now_ms, self._settings.message_bytes_max
            )
        except AttributeError:
            check_is_message(message)
            raise

    def _start_fast(
        self, outgoing: Outgoing, deadline: float, more: int
    ) -> tuple[asyncio.Future[Command], SendTarget] | None:
        """Start a send if it need not wait; the caller must leave the gate when the send has ended. `more`
        attempts may follow."""
        info = self._infos.get(outgoing.topic)
        if info is None or not info.targets or not outgoing.is_plain or not self._may_go_fast:
            return None
        if not self.gate.try_enter(outgoing.size):
            return None
        key = outgoing.key
        target = info.next() if key is None else info.of_key(key)
        elsewhere = more if info.is_spread and key is None else 0
        try:
            answer = self._attempts.start(outgoing, target, deadline, elsewhere)
        except BaseException:  # raised by a request hook
            self.gate.leave(outgoing.size)
            raise
        if answer is None:
            if key is None:
                info.give_back()
            self.gate.leave(outgoing.size)
            return None
        return answer, target

    def _submitted(
        self,
        outgoing: Outgoing,
        target: SendTarget,
        deadline: float,
        done: Done,
        mode: SendMode,
        answer: asyncio.Future[Command],
    ) -> None:
        self.gate.leave(outgoing.size)
        try:
            outcome: SendResult | SparrowError = send_result(answer.result(), outgoing, target)
        except SparrowError as error:
            outcome = error
            self._doubt(outgoing.topic, error)
        except (Exception, asyncio.CancelledError) as error:
            self.failed += 1
            done(None, error)
            return
        if not self._is_final(outcome, mode):
            self._submit_slow(self._send_tries(outgoing, deadline, outcome, target, mode), done)
            return
        try:
            result = self._count(outcome)
        except SparrowError as error:
            done(None, error)
        else:
            done(result, None)

    def _is_final(self, outcome: SendResult | SparrowError, mode: SendMode = SendMode.SYNC) -> bool:
        """Whether an attempt's outcome ends the send (client:B.8)."""
        if is_queue_gone(outcome):
            return False
        if mode is SendMode.ASYNC:
            return isinstance(outcome, SendResult) or not is_retryable_async(outcome)
        if isinstance(outcome, SendResult):
            return outcome.status is SendStatus.SEND_OK or not self._settings.retry_not_stored_ok
        return not is_retryable(outcome, self._settings.codes_retried)

    def _doubt(self, topic: str, error: SparrowError) -> None:
        """After a change of the master, the route is not what it was."""
        if is_retryable(error, self._settings.codes_retried):
            self.instance.doubt_route(topic)

    def _count(self, outcome: SendResult | SparrowError) -> SendResult:
        if isinstance(outcome, SendResult):
            self.sent += 1
            return outcome
        self.failed += 1
        raise outcome

    # The slow path

    def _submit_slow(self, work: Coroutine[Any, Any, SendResult], done: Done) -> None:
        async def run() -> None:
            try:
                result = await work
            except BaseException as error:
                done(None, error)
                if not isinstance(error, Exception):
                    raise
            else:
                done(result, None)

        task = self._loop.create_task(run(), name="send")
        self._slow.add(task)
        self.gate.announce()
        task.add_done_callback(self._slow_ended)

    def _slow_ended(self, task: asyncio.Task[None]) -> None:
        self._slow.discard(task)
        self.gate.withdraw()

    async def _compress_and_try(
        self, outgoing: Outgoing, deadline: float, mode: SendMode, queue: MessageQueue | None
    ) -> SendResult:
        if len(outgoing.body) >= self._settings.compress_over:
            await self._compress(outgoing)
        return await self._send_tries(outgoing, deadline, mode=mode, queue=queue)

    async def _compress(self, outgoing: Outgoing) -> None:
        """Compress the body; if that fails, it is sent uncompressed (client:B-80).

        The same applies if it grows, because it could exceed a limit that the original respects.
        """
        kind, level = _KINDS[self._settings.compression], self._settings.compression_level
        try:
            if len(outgoing.body) < _COMPRESS_IN_THREAD:
                packed = compress(outgoing.body, kind, level)
            else:
                packed = await asyncio.to_thread(compress, outgoing.body, kind, level)
        except Exception as error:
            self._occasional.write(
                logging.WARNING,
                "compress",
                f"a body of {len(outgoing.body)} bytes is sent uncompressed: {error}",
            )
            return
        if len(packed) >= len(outgoing.body):
            return
        outgoing.body = packed
        outgoing.sys_flag = with_compression(outgoing.sys_flag, kind)

    async def _send_tries(
        self,
        outgoing: Outgoing,
        deadline: float,
        outcome: SendResult | SparrowError | None = None,
        failed: SendTarget | None = None,
        mode: SendMode = SendMode.SYNC,
        queue: MessageQueue | None = None,
    ) -> SendResult:
        """Retry until the message is stored, attempts or time run out, or the error is final.

        `outcome` and `failed` describe a first attempt already made; `queue` is the caller's choice.
        """
        with self.gate.coming():
            return await self._tries(outgoing, deadline, outcome, failed, mode, queue)

    async def _tries(
        self,
        outgoing: Outgoing,
        deadline: float,
        outcome: SendResult | SparrowError | None,
        failed: SendTarget | None,
        mode: SendMode,
        queue: MessageQueue | None,
    ) -> SendResult:
        began = self._loop.time()
        settings = self._settings
        more = settings.retries_async if mode is SendMode.ASYNC else settings.retries
        if queue is not None and mode is not SendMode.ASYNC:
            more = 0  # a queue chosen by the caller is tried once (client:B-34)
        tried = [] if failed is None else [failed]
        stored = outcome if isinstance(outcome, SendResult) else None
        pauses = _SAME_BROKER_PAUSE.delays(self.instance.rng)
        while len(tried) <= more:
            is_gone = is_queue_gone(outcome)
            if is_gone:
                await self._renew_route(outgoing.topic, deadline)
            try:
                info = await self.table.find(outgoing.topic, deadline)
                target = self._next_target(info, outgoing, tried, SendMode.SYNC if is_gone else mode, queue)
            except SparrowError as error:
                outcome = outcome or error
                break
            if tried and target.address == tried[-1].address:
                pause = min(next(pauses), max(0.0, deadline - self._loop.time()))
                await self.instance.sleep(pause)
            try:
                left = more - len(tried)
                elsewhere = left if info.is_spread and queue is None and outgoing.key is None else 0
                outcome = stored = await self._attempts.try_once(
                    outgoing, target, deadline, mode, last=not left, elsewhere=elsewhere
                )
            except NoRoomError as error:
                outcome = outcome or error  # this attempt was not sent: the previous outcome counts
                break
            except SparrowError as error:
                outcome = error
                self._doubt(outgoing.topic, error)
            tried.append(target)
            if self._is_final(outcome, mode) or self._loop.time() >= deadline:
                break
        if stored is not None:
            return self._count(stored)
        assert isinstance(outcome, SparrowError)
        seconds = self._loop.time() - began
        brokers = [target.queue.broker_name for target in tried]
        return self._count(
            final_error(
                outcome,
                topic=outgoing.topic,
                message_id=outgoing.message_id,
                tries=len(tried),
                seconds=seconds,
                brokers=brokers,
            )
        )

    async def _renew_route(self, topic: str, deadline: float) -> None:
        """A broker lacks a queue of the known route: get the route again before another one is chosen."""
        with suppress(SparrowError, TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self.instance.update_route(topic)

    def _next_target(
        self,
        info: PublishInfo,
        outgoing: Outgoing,
        tried: list[SendTarget],
        mode: SendMode,
        queue: MessageQueue | None,
    ) -> SendTarget:
        """The next target: the caller's queue or the key's, or for asynchronous retries the same queue number
        elsewhere.
        """
        if queue is not None:
            return target_of(info, queue)
        if tried and mode is SendMode.ASYNC and outgoing.key is None:
            return info.elsewhere(tried[-1])
        return self._choose(info, outgoing, tried[-1].queue.broker_name if tried else None)

    def _choose(self, info: PublishInfo, outgoing: Outgoing, last_broker: str | None = None) -> SendTarget:
        """The queue of the ordering key; without a key the next one in turn, rather not on `last_broker`."""
        if outgoing.key is not None:
            return info.of_key(outgoing.key)
        return self._attempts.choose(info, last_broker)

    async def _send_once(self, outgoing: Outgoing, target: SendTarget, deadline: float) -> SendResult:
        try:
            outcome: SendResult | SparrowError = await self._attempts.try_once(
                outgoing, target, deadline, SendMode.SYNC
            )
        except SparrowError as error:
            outcome = error
            self._doubt(outgoing.topic, error)
        return self._count(outcome)

    # Times

    def _deadline(self, timeout: float | None) -> float:
        return self._loop.time() + (self._settings.send_timeout if timeout is None else timeout)


def _strategy(settings: ProducerSettings, instance: ClientInstance) -> FaultStrategy | None:
    if not settings.latency_fault:
        return None
    return FaultStrategy(
        compat=settings.compat,
        latency_max=settings.latency_max,
        not_available=settings.not_available,
        detector=settings.detector,
        rng=instance.rng,
    )
