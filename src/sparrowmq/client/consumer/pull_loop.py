"""The pull loop of one queue: send a request, process the answer, pass the messages on, repeat (client:D.4 to
D.7, E-28).

Push consumers and polled consumers run the same loop. Their differences are in their `PullDelegate`; rules
that hold for both belong here.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, Generic, Protocol, TypeVar

from sparrowmq.client.base.hooks import PullLoopContext
from sparrowmq.client.base.offset_store_protocol import Births
from sparrowmq.client.cluster.broker_api import PullAnswer, need_address
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.client.cluster.namespaces import unwrap_messages
from sparrowmq.client.consumer.decoding import decode_messages
from sparrowmq.client.consumer.dynamic_settings import DynamicSettings
from sparrowmq.client.consumer.min_age import hand_out_old
from sparrowmq.client.consumer.process_queue import ProcessQueue
from sparrowmq.core.errors import BrokerError, InvariantError, SparrowError, TransportError
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.core.results import PullStatus
from sparrowmq.core.route import MASTER_ID
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.transport.occasional import OccasionalLog

log = logging.getLogger("sparrowmq.client")

M = TypeVar("M", bound=ReceivedMessage)

PAUSED_SECONDS: Final = 1.0
"""Seconds between checks whether a paused queue may continue (client:D-80)."""
_REST_SECONDS: Final = 0.25
"""Seconds between checks of a queue for which no handler may start."""
_FLOW_CONTROL_DELAY: Final = 0.02
"""Seconds until a pull is repeated that the broker refused under load (client:D-28)."""
_INTRODUCED_DELAY: Final = 0.02
"""Seconds until a pull is repeated that a broker refused because it did not know this member yet."""
_UNKNOWN_MEMBER: Final = frozenset(
    {
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.FILTER_DATA_NOT_EXIST,
        ResponseCode.FILTER_DATA_NOT_LATEST,
    }
)
"""Response codes of a broker that has not received this member's heartbeat."""


def _moved_text(process_queue: ProcessQueue, answer: PullAnswer, birth: int) -> str:
    """Why a queue continues at another offset: its topic is not the one of `birth`, the offset is gone, or
    somebody reset the group.
    """
    asked, first, end = process_queue.next_offset, answer.min_offset, answer.max_offset
    if birth and answer.birth not in (0, birth):
        topic = process_queue.queue.topic
        where = f"offset {asked} of {process_queue.queue} is of an earlier topic {topic}"
        return f"{where}; continuing at {answer.next_offset} of the one that was created since"
    if first <= asked <= end:
        return f"the group's offset of {process_queue.queue} was reset from {asked} to {answer.next_offset}"
    where = f"offset {asked} of {process_queue.queue}"
    return f"{where} is not stored ({first} to {end}); continuing at {answer.next_offset}"


class PullDelegate(Protocol[M]):
    """What differs between kinds of consumers; the loop calls it."""

    dynamic: DynamicSettings
    """The effective settings."""
    births: Births
    """Of the offsets from which it pulls."""

    async def held_up(self, process_queue: ProcessQueue) -> bool:
        """Wait until the queue may be pulled. Returns whether it had to wait."""

    async def ask(self, process_queue: ProcessQueue, address: str) -> PullAnswer:
        """Pull once from the broker at `address`. Raises `SparrowError`."""

    def tags(self, topic: str) -> frozenset[str]:
        """Tags to compare by text, because brokers compare hashes; if empty, all messages pass."""

    def pulled(self, topic: str, count: int, seconds: float) -> None:
        """Record the number and duration of a pull for statistics."""

    def after_pull(self, context: PullLoopContext) -> None:
        """Call the pull hooks."""

    def filtered(self, queue: MessageQueue, messages: list[M]) -> list[M]:
        """The pulled messages that pass the filter hooks."""

    async def not_stored(self, process_queue: ProcessQueue, offset: int) -> None:
        """The broker has no message at the queue's next offset and suggested `offset`."""

    async def topic_gone(self, process_queue: ProcessQueue) -> None:
        """The master does not know the topic any more: its messages and the group's offsets were deleted. A
        topic that is created again with this name begins at offset 0, so nothing may go on from the old one.
        """

    def hand_out(self, process_queue: ProcessQueue, messages: list[M], starts_run: bool) -> None:
        """Pass messages to their handlers; they are already in the process queue.

        `starts_run`: an ordered run should start, because none is active (`ProcessQueue.put`).
        """

    def left_out(self, process_queue: ProcessQueue, answer: PullAnswer) -> None:
        """There are no unfinished messages, and all messages before the response's next offset were filtered
        out.
        """


def is_unknown_topic(error: SparrowError) -> bool:
    """Whether a broker does not know the topic."""
    return isinstance(error, BrokerError) and error.code == ResponseCode.TOPIC_NOT_EXIST


def check_chunk(queue: MessageQueue, messages: Sequence[ReceivedMessage], next_offset: int) -> None:
    """Raise `InvariantError` unless a chunk is in order and ends before the next offset.

    It may begin before the requested offset, because brokers may store batches as a whole, and it lacks
    filtered messages. No message of an invalid chunk is handed out, and the pull is repeated at the same
    offset.
    """
    if messages and not (messages[0].queue_offset <= messages[-1].queue_offset < next_offset):
        raise InvariantError(
            f"{queue} returned offsets {messages[0].queue_offset} to {messages[-1].queue_offset}, but "
            f"{next_offset} as the next one"
        )


class PullLoop(Generic[M]):
    """Pulls for one consumer. `run` is the loop of one queue, whose state is in its process queue.

    `error_delay` is how many seconds a queue pauses after a failed pull.
    """

    def __init__(
        self,
        group: str,
        instance: ClientInstance,
        delegate: PullDelegate[M],
        message_type: type[M],
        *,
        error_delay: float,
    ) -> None:
        self._group = group
        self._instance = instance
        self._delegate = delegate
        self._message_type = message_type
        self._error_delay = error_delay
        self._occasional = OccasionalLog(log)
        self.last_success_ms = 0
        """Epoch milliseconds of the last successful pull of any queue; 0 before the first."""
        self.last_error: SparrowError | None = None
        """The error of the last pull; None once a pull has succeeded again."""

    async def run(self, process_queue: ProcessQueue) -> None:
        """Pull until the queue is leaving or this is cancelled."""
        broker_id, unmoved, failures, held_up = MASTER_ID, 0, 0, 0.0
        monotonic, sleep = self._instance.clock.monotonic, self._instance.sleep
        while not process_queue.leaving:
            start = monotonic()
            process_queue.looked_after(start)
            if not process_queue.may_start():
                await sleep(_REST_SECONDS)
                continue
            if await self._delegate.held_up(process_queue):
                held_up += monotonic() - start
                continue
            waited, held_up, took = held_up, 0.0, 0.0
            asked, at_master = process_queue.next_offset, broker_id == MASTER_ID
            try:
                answer = await self._pull(process_queue, broker_id)
                took = monotonic() - start
                if process_queue.leaving:  # given up, or a seek happened in the meantime (client:E-31)
                    self._tell(process_queue, took, waited)
                    return
                broker_id = answer.suggested_broker_id
                count = await self._take(process_queue, answer, start)
            except SparrowError as error:
                self._tell(process_queue, took or monotonic() - start, waited, error=error)
                broker_id = MASTER_ID
                failures += 1
                if at_master and asked > 0 and is_unknown_topic(error) and not process_queue.leaving:
                    await self._delegate.topic_gone(process_queue)
                await sleep(await self._failed(process_queue, error, failures))
                continue
            failures = 0
            self.answered()
            self._tell(process_queue, took, waited, count)
            unmoved = unmoved + 1 if answer.stays_at(asked) else 0
            if unmoved > 1:
                await sleep(self._error_delay)
            if interval := self._delegate.dynamic.pull(process_queue.queue.topic).interval:
                await sleep(interval)

    def _tell(
        self,
        process_queue: ProcessQueue,
        seconds: float,
        held_up: float,
        messages: int = 0,
        error: Exception | None = None,
    ) -> None:
        queue = process_queue.queue
        self._delegate.after_pull(
            PullLoopContext(
                group=self._group,
                queue=queue,
                seconds=seconds,
                held_up=held_up,
                messages=messages,
                error=error,
            )
        )

    def answered(self) -> None:
        """A broker answered."""
        self.last_success_ms = self._instance.clock.now_ms()
        self.last_error = None

    def failed(self, error: SparrowError) -> None:
        """A request failed."""
        self.last_error = error

    async def _pull(self, process_queue: ProcessQueue, broker_id: int) -> PullAnswer:
        queue, routes = process_queue.queue, self._instance.routes
        address = routes.readable(queue.broker_name, broker_id)
        if address is None:
            await self._instance.update_route(queue.topic)
            address = routes.readable(queue.broker_name, broker_id)
        return await self._delegate.ask(process_queue, need_address(address, queue, "broker"))

    async def _take(self, process_queue: ProcessQueue, answer: PullAnswer, start: float) -> int:
        """Hand out what was pulled; returns the number of messages that passed the filters."""
        queue = process_queue.queue
        process_queue.answered(answer.max_offset)
        births = self._delegate.births
        birth = births.get(queue, 0)
        if answer.birth:
            births[queue] = answer.birth
        if answer.status is PullStatus.OFFSET_ILLEGAL:
            log.warning("%s", _moved_text(process_queue, answer, birth))
            await self._delegate.not_stored(process_queue, answer.next_offset)
            return 0
        messages: list[M] = []
        if answer.status is PullStatus.FOUND:
            messages = self._decoded(queue, answer, start)
        count = len(messages)
        if messages and (delay := self._delegate.dynamic.pull(queue.topic).delay):
            messages = await hand_out_old(
                process_queue,
                messages,
                delay,
                self._instance.clock,
                self._instance.sleep,
                lambda old: self._hand_out(process_queue, old),
            )
            if process_queue.leaving:
                return count  # messages that were not handed out do not count as filtered
        process_queue.pulled_to(answer.next_offset)
        if messages:
            self._hand_out(process_queue, messages)
        elif not len(process_queue):
            self._delegate.left_out(process_queue, answer)
        return count

    def _hand_out(self, process_queue: ProcessQueue, messages: list[M]) -> None:
        """Put messages into the process queue, then give them to the consumer's handlers."""
        self._delegate.hand_out(process_queue, messages, process_queue.put(messages))

    def _decoded(self, queue: MessageQueue, answer: PullAnswer, start: float) -> list[M]:
        """The received messages that pass the consumer's filters."""
        messages = decode_messages(
            answer.body,
            queue,
            self._message_type,
            self._delegate.tags(queue.topic),
            answer.min_offset,
            answer.max_offset,
        )
        check_chunk(queue, messages, answer.next_offset)
        unwrap_messages(self._instance.namespace, messages)
        self._delegate.pulled(queue.topic, len(messages), self._instance.clock.monotonic() - start)
        return self._delegate.filtered(queue, messages)

    async def _failed(self, process_queue: ProcessQueue, error: SparrowError, failures: int) -> float:
        """Record the last of `failures` consecutive failed pulls, and return how many seconds the queue
        pauses.

        A pull may arrive before the heartbeat with a new subscription. Another heartbeat repairs that, so it
        is not logged as an error.
        """
        self.failed(error)
        if isinstance(error, BrokerError) and error.code == ResponseCode.FLOW_CONTROL:
            return _FLOW_CONTROL_DELAY
        is_unknown = isinstance(error, BrokerError) and error.code in _UNKNOWN_MEMBER
        if is_unknown and await self._instance.heartbeat() and failures == 1:
            return _INTRODUCED_DELAY
        self._occasional.write(
            logging.WARNING,
            f"pull {process_queue.queue.broker_name}",
            f"pulling {process_queue.queue} for group {self._group} failed and continues in "
            f"{self._error_delay:g} s: {error}",
        )
        if isinstance(error, TransportError):
            try:
                await self._instance.update_route(process_queue.queue.topic)
            except SparrowError as also:
                log.debug("the route of %s is unknown, too: %s", process_queue.queue.topic, also)
        return self._error_delay
