"""The engine of a producer: routes to queues to requests, failures to further tries (client:B.7, B.8).

The usual send takes the fast way: topic known, connection open, room in flight. It costs one future and no
task. Everything else (first use of a topic, reconnecting, waiting for room, further tries) takes the slow
way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Final

from sparrowmq.client.gate import Gate
from sparrowmq.client.instance import ClientInstance
from sparrowmq.client.publish import PublishInfo, QueueSelector, one_choice, select_target
from sparrowmq.client.retry import final_error, is_retryable
from sparrowmq.client.sending import (
    Outgoing,
    SendTarget,
    outgoing_batch,
    outgoing_single,
    send_result,
)
from sparrowmq.client.settings import ProducerSettings
from sparrowmq.core.backoff import Backoff
from sparrowmq.core.errors import (
    ClientError,
    NoRouteError,
    RequestTimeoutError,
    SparrowError,
    TooManyRequestsError,
)
from sparrowmq.core.message import Message, MessageQueue
from sparrowmq.core.names import check_topic_for_send
from sparrowmq.core.results import SendResult, SendStatus
from sparrowmq.core.route import TopicRoute
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.compression import compress
from sparrowmq.protocol.frame import FLAG_ONEWAY, Command
from sparrowmq.protocol.sysflag import CompressionType, with_compression

log = logging.getLogger("sparrowmq.client")

Done = Callable[[SendResult | None, BaseException | None], None]

_KINDS: Final = {
    "zlib": CompressionType.ZLIB,
    "lz4": CompressionType.LZ4,
    "zstd": CompressionType.ZSTD,
}
_SEND: Final = int(RequestCode.SEND_MESSAGE_V2)
_COMPRESS_IN_THREAD: Final = 256 * 1024
"""Bodies of this size or more are compressed in a thread, so that the loop goes on."""
_SAME_BROKER_PAUSE: Final = Backoff(first=0.02, most=0.5)
"""Pauses before a further try at the broker that just failed."""


class Sender:
    """Sends for one producer over `instance`. `gate` counts what is in flight."""

    def __init__(self, group: str, settings: ProducerSettings, instance: ClientInstance) -> None:
        self.group = group
        self.instance = instance
        self.gate = Gate(settings.in_flight_max, settings.in_flight_bytes_max)
        self.sent = 0
        self.failed = 0
        self._settings = settings
        self._remoting = instance.remoting
        self._loop = asyncio.get_running_loop()
        self._infos: dict[str, PublishInfo] = {}
        self._topics: set[str] = set()
        self._slow: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"topics={len(self._topics)} sent={self.sent} failed={self.failed} in_flight={self.gate.count}"

    # What the instance asks

    def topics(self) -> Iterable[str]:
        """Topics that were sent to; they are refreshed for ever (client:B-19)."""
        return tuple(self._topics)

    def route_changed(self, topic: str, route: TopicRoute) -> None:
        """Take the queues of a new route; the turn goes on where it was."""
        if topic not in self._topics:
            return
        settings, targets = self._settings, []
        for queue in route.publish_queues(topic):
            broker = route.broker(queue.broker_name)
            if broker is not None and broker.master is not None:
                targets.append(
                    SendTarget(
                        queue,
                        broker.master,
                        group=self.group,
                        create_topic_key=settings.create_topic_key,
                        create_topic_queues=settings.create_topic_queues,
                    )
                )
        previous = self._infos.get(topic)
        index = self.instance.rng.randrange(2**31) if previous is None else previous.index
        self._infos[topic] = PublishInfo(topic, targets, index)

    # Sending

    async def send(self, message: Message, timeout: float | None) -> SendResult:
        """Send to the queue whose turn it is; further tries go to other brokers."""
        settings = self._settings
        deadline = self._loop.time() + (settings.send_timeout if timeout is None else timeout)
        outgoing = self._make(message)
        if len(message.body) >= settings.compress_over:
            with self.gate.coming():
                await self._compress(outgoing)
        started = self._start_fast(outgoing, deadline)
        if started is None:
            return await self._send_tries(outgoing, deadline)
        answer, target = started
        try:
            outcome: SendResult | SparrowError = send_result(await answer, outgoing, target)
        except SparrowError as error:
            outcome = error
        finally:
            self.gate.leave(outgoing.size)
        if self._is_final(outcome):
            return self._count(outcome)
        return await self._send_tries(outgoing, deadline, outcome, target)

    def submit(self, message: Message, done: Done, timeout: float | None) -> None:
        """Send without waiting; `done` gets the result or the error.

        Raises `TooManyRequestsError` when as many sends wait for room as may be in flight.
        """
        settings = self._settings
        if self.gate.waiting >= settings.in_flight_max:
            raise TooManyRequestsError(
                f"{self.gate.waiting} sends wait for room already; wait for results before sending more"
            )
        deadline = self._loop.time() + (settings.send_timeout if timeout is None else timeout)
        outgoing = self._make(message)
        if len(message.body) < settings.compress_over:
            started = self._start_fast(outgoing, deadline)
            if started is not None:
                answer, target = started
                answer.add_done_callback(partial(self._submitted, outgoing, target, deadline, done))
                return
        self._submit_slow(self._compress_and_try(outgoing, deadline), done)

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
        """Send once, to a queue that was named or is chosen by selector or hash key (client:B-34, B-35)."""
        selector = one_choice(queue, selector, hash_key)
        outgoing = self._make(message)
        deadline = self._deadline(timeout)
        with self.gate.coming():
            if len(message.body) >= self._settings.compress_over:
                await self._compress(outgoing)
            info = await self._find_info(outgoing.topic, deadline)
            if selector is not None:
                chosen_by = argument if hash_key is None else hash_key
                queue = select_target(info, selector, message, chosen_by).queue
            assert queue is not None
            return await self._send_once(outgoing, self._target_of(info, queue), deadline)

    async def send_outgoing(
        self, outgoing: Outgoing, timeout: float | None, *, queue: MessageQueue | None
    ) -> SendResult:
        """Send what is encoded already: with tries, or once to `queue`."""
        deadline = self._deadline(timeout)
        if queue is None:
            return await self._send_tries(outgoing, deadline)
        with self.gate.coming():
            info = await self._find_info(outgoing.topic, deadline)
            return await self._send_once(outgoing, self._target_of(info, queue), deadline)

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
        """Hand one message to the connection and expect no answer."""
        selector = one_choice(queue, selector, hash_key)
        outgoing = self._make(message)
        deadline = self._deadline(timeout)
        with self.gate.coming():
            if len(message.body) >= self._settings.compress_over:
                await self._compress(outgoing)
            info = await self._find_info(outgoing.topic, deadline)
            if selector is not None:
                chosen_by = argument if hash_key is None else hash_key
                target = select_target(info, selector, message, chosen_by)
            else:
                target = info.next() if queue is None else self._target_of(info, queue)
            data = target.request(outgoing, self._remoting.next_opaque(), FLAG_ONEWAY)
            await self._remoting.notify_encoded(target.address, data, self._remaining(deadline), _SEND)
        self.sent += 1

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The writable queues of `topic`."""
        return (await self._find_info(topic, self._deadline(None))).queues

    def make_batch(self, messages: list[Message]) -> Outgoing:
        """A batch, checked and encoded; every message and the batch get an id."""
        ids = self.instance.unique_ids
        keys = [ids.next() for _ in messages]
        return outgoing_batch(
            messages, keys, ids.next(), self.instance.clock.now_ms(), self._settings.message_bytes_max
        )

    # The fast way

    def _make(self, message: Message) -> Outgoing:
        now_ms = self.instance.clock.now_ms()
        return outgoing_single(
            message, self.instance.unique_ids.next(now_ms), now_ms, self._settings.message_bytes_max
        )

    def _start_fast(
        self, outgoing: Outgoing, deadline: float
    ) -> tuple[asyncio.Future[Command], SendTarget] | None:
        """Start a send if nothing has to be waited for; the caller must leave the gate when it ended."""
        info = self._infos.get(outgoing.topic)
        if info is None or not info.targets or not self.gate.try_enter(outgoing.size):
            return None
        target = info.next()
        opaque = self._remoting.next_opaque()
        data = target.request(outgoing, opaque)
        remaining = deadline - self._loop.time()
        answer = self._remoting.call_encoded_nowait(target.address, opaque, data, remaining, _SEND)
        if answer is None:
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
        answer: asyncio.Future[Command],
    ) -> None:
        self.gate.leave(outgoing.size)
        try:
            outcome: SendResult | SparrowError = send_result(answer.result(), outgoing, target)
        except SparrowError as error:
            outcome = error
        except asyncio.CancelledError as error:
            done(None, error)
            return
        if not self._is_final(outcome):
            self._submit_slow(self._send_tries(outgoing, deadline, outcome, target), done)
            return
        try:
            result = self._count(outcome)
        except SparrowError as error:
            done(None, error)
        else:
            done(result, None)

    def _is_final(self, outcome: SendResult | SparrowError) -> bool:
        """Whether a try's outcome ends the send (client:B.8)."""
        if isinstance(outcome, SendResult):
            return outcome.status is SendStatus.SEND_OK or not self._settings.retry_not_stored_ok
        return not is_retryable(outcome, self._settings.codes_retried)

    def _count(self, outcome: SendResult | SparrowError) -> SendResult:
        if isinstance(outcome, SendResult):
            self.sent += 1
            return outcome
        self.failed += 1
        raise outcome

    # The slow way

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

    async def _compress_and_try(self, outgoing: Outgoing, deadline: float) -> SendResult:
        if len(outgoing.body) >= self._settings.compress_over:
            await self._compress(outgoing)
        return await self._send_tries(outgoing, deadline)

    async def _compress(self, outgoing: Outgoing) -> None:
        """Compress the body; one that cannot be compressed leaves as it is (client:B-80).

        So does one that grows: it could break a limit that the message itself keeps.
        """
        kind, level = _KINDS[self._settings.compression], self._settings.compression_level
        try:
            if len(outgoing.body) < _COMPRESS_IN_THREAD:
                packed = compress(outgoing.body, kind, level)
            else:
                packed = await asyncio.to_thread(compress, outgoing.body, kind, level)
        except Exception as error:
            log.warning("a body of %d bytes is sent uncompressed: %s", len(outgoing.body), error)
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
    ) -> SendResult:
        """Try until it is stored, tries or time run out, or the error is final.

        `outcome` and `failed` tell of a first try that was made already.
        """
        with self.gate.coming():
            return await self._tries(outgoing, deadline, outcome, failed)

    async def _tries(
        self,
        outgoing: Outgoing,
        deadline: float,
        outcome: SendResult | SparrowError | None,
        failed: SendTarget | None,
    ) -> SendResult:
        began = self._loop.time()
        tries = 0 if outcome is None else 1
        brokers = [] if failed is None else [failed.queue.broker_name]
        stored = outcome if isinstance(outcome, SendResult) else None
        pauses = _SAME_BROKER_PAUSE.delays(self.instance.rng)
        while tries <= self._settings.retries:
            try:
                info = await self._find_info(outgoing.topic, deadline)
            except SparrowError as error:
                outcome = outcome or error
                break
            last = brokers[-1] if brokers else None
            target = info.next_other(last)
            if target.queue.broker_name == last:
                await asyncio.sleep(min(next(pauses), max(0.0, deadline - self._loop.time())))
            try:
                outcome = stored = await self._try(outgoing, target, deadline)
            except TooManyRequestsError as error:
                outcome = outcome or error  # this try never left: what became of the one before counts
                break
            except SparrowError as error:
                outcome = error
            tries += 1
            brokers.append(target.queue.broker_name)
            if self._is_final(outcome) or self._loop.time() >= deadline:
                break
        if stored is not None:
            return self._count(stored)
        assert isinstance(outcome, SparrowError)
        seconds = self._loop.time() - began
        return self._count(
            final_error(outcome, topic=outgoing.topic, tries=tries, seconds=seconds, brokers=brokers)
        )

    async def _send_once(self, outgoing: Outgoing, target: SendTarget, deadline: float) -> SendResult:
        try:
            outcome: SendResult | SparrowError = await self._try(outgoing, target, deadline)
        except SparrowError as error:
            outcome = error
        return self._count(outcome)

    async def _try(self, outgoing: Outgoing, target: SendTarget, deadline: float) -> SendResult:
        size = outgoing.size
        await self.gate.enter(size, self._remaining(deadline))
        try:
            opaque = self._remoting.next_opaque()
            data = target.request(outgoing, opaque)
            answer = await self._remoting.call_encoded(
                target.address, opaque, data, self._remaining(deadline), _SEND
            )
        finally:
            self.gate.leave(size)
        return send_result(answer, outgoing, target)

    # Times and queues

    def _deadline(self, timeout: float | None) -> float:
        return self._loop.time() + (self._settings.send_timeout if timeout is None else timeout)

    def _remaining(self, deadline: float) -> float:
        remaining = deadline - self._loop.time()
        if remaining <= 0:
            raise TooManyRequestsError(
                "the time for a send was used up before it left; give a longer timeout or send less at once"
            )
        return remaining

    async def _find_info(self, topic: str, deadline: float) -> PublishInfo:
        """The queues of `topic`, asked for at first use; an unknown one gets the template's (client:B-17)."""
        info = self._infos.get(topic)
        if info is not None and info.targets:
            return info
        if topic not in self._topics:
            check_topic_for_send(topic)
        self._topics.add(topic)
        try:
            async with asyncio.timeout_at(deadline):
                route = await self.instance.update_route(topic)
                if route is None:
                    queues = self._settings.create_topic_queues
                    route = await self.instance.update_route(topic, template_queues=queues)
        except TimeoutError:
            address = self.instance.name_servers.current
            raise RequestTimeoutError(
                f"the name server {address} did not tell the route of {topic!r} in time; is it running?",
                address=address,
            ) from None
        info = self._infos.get(topic)
        if route is None or info is None or not info.targets:
            self._forget(topic, info)
            raise NoRouteError(
                f"no broker has a queue of topic {topic!r} to write to; create it first "
                f"(`sparrow topic create {topic}`) or check that a broker is registered and writable"
            )
        return info

    def _forget(self, topic: str, info: PublishInfo | None) -> None:
        """A topic that never had a queue is not refreshed for ever."""
        if info is None or not info.targets:
            self._topics.discard(topic)
            self._infos.pop(topic, None)

    def _target_of(self, info: PublishInfo, queue: MessageQueue) -> SendTarget:
        """The target of a queue the caller named."""
        if queue.topic != info.topic:
            raise ClientError(f"a message to {info.topic!r} cannot go to {queue}; topic and queue must agree")
        target = info.find(queue)
        if target is None:
            raise NoRouteError(
                f"topic {info.topic!r} has no queue {queue} to write to; it has {len(info.targets)} queues"
            )
        return target
