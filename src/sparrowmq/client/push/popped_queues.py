"""The queues from which a push consumer receives by POP, because its brokers said so (client:C.12).

Each has a loop that asks for messages while few are unfinished. No member owns such a queue: giving it up
means to send no more requests; received messages are still handled and acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from sparrowmq.client.cluster.broker_api import need_address
from sparrowmq.client.consumer.pull_loop import PAUSED_SECONDS
from sparrowmq.client.push.pop_batches import PopBatch, streamed
from sparrowmq.core.errors import BrokerError, SparrowError
from sparrowmq.core.message import POP_MAX
from sparrowmq.core.names import with_namespace
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.client.base.settings import ConsumerSettings
    from sparrowmq.client.base.tasks import TaskGroup
    from sparrowmq.client.cluster.pop_calls import PoppedMessage
    from sparrowmq.client.push.concurrent import ConsumeService
    from sparrowmq.client.push.message_stream import StreamedMessage
    from sparrowmq.client.push.ordered import OrderedService
    from sparrowmq.client.push.pop_returns import PopReturns
    from sparrowmq.client.push.puller import Puller
    from sparrowmq.core.message import MessageQueue

log = logging.getLogger("sparrowmq.client")

SWEEP_SECONDS: Final = 1.0
"""How often the invisible time of received messages is checked."""
FLOW_CONTROL_SECONDS: Final = 0.02
"""Pause after a POP that a broker refused under load."""


class PopSource:
    """One queue that is read by POP, or all queues of a topic at a broker, and its unfinished messages."""

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.batches: set[PopBatch] = set()
        self.last_pop_ms = 0
        self.is_ending = False
        self._room: asyncio.Event = asyncio.Event()

    @property
    def unfinished(self) -> int:
        """Number of unfinished messages whose invisible time is not over."""
        return sum(len(batch) for batch in self.batches)

    def changed(self) -> None:
        """A message was finished, or its time is over."""
        self.batches = {batch for batch in self.batches if len(batch) and not batch.leaving}
        self._room.set()

    def end(self) -> None:
        """Ask for no more messages."""
        self.is_ending = True
        self._room.set()

    async def room(self, most: int) -> None:
        """Wait while more than `most` messages are unfinished."""
        while self.unfinished > most and not self.is_ending:
            self._room.clear()
            await self._room.wait()


class PoppedQueues:
    """All of one member. `service` runs the handlers."""

    def __init__(
        self,
        settings: ConsumerSettings,
        returns: PopReturns,
        puller: Puller,
        tasks: TaskGroup,
        service: ConsumeService | OrderedService,
        message_type: type[StreamedMessage],
    ) -> None:
        self._settings = settings
        self._instance = returns.instance
        self._returns = returns
        self._tasks = tasks
        self._puller = puller
        self._group = returns.group
        self._message_type = message_type
        self._service = service
        self._table: dict[MessageQueue, tuple[PopSource, asyncio.Task[None]]] = {}
        self._batches: set[PopBatch] = set()
        self._occasional = OccasionalLog(log)
        self._closing = False

    # Called by the rebalancer

    def owned(self) -> Collection[MessageQueue]:
        """The queues that are read by POP; queue id -1 stands for all of a broker."""
        return sorted(self._table)

    def sources(self) -> list[PopSource]:
        """What is known of each."""
        return [source for source, _ in self._table.values()]

    def take(self, queue: MessageQueue) -> bool:
        """Begin to read a queue."""
        if self._closing or queue in self._table:
            return False
        source = PopSource(queue)
        self._table[queue] = (source, self._tasks.start(self._run(source), f"pop {queue}"))
        return True

    def give_up(self, queues: Collection[MessageQueue]) -> None:
        """Ask for no more messages of queues; messages of the last request are still handled."""
        for queue in queues:
            if (entry := self._table.pop(queue, None)) is not None:
                entry[0].end()

    # The end

    def stop(self) -> None:
        """Ask for nothing more, and start no more handlers; running ones may end."""
        self._closing = True
        for source, task in self._table.values():
            source.end()
            task.cancel()
        for batch in self._batches:
            batch.leave()

    def clear(self) -> None:
        """Drop everything immediately; the messages come again when their time is over."""
        self.stop()
        for batch in self._batches:
            batch.drop()
        self._batches.clear()
        self._table.clear()

    # Receiving

    async def _run(self, source: PopSource) -> None:
        """Receive until the queue is given up."""
        settings, sleep, monotonic = self._settings, self._instance.sleep, self._instance.clock.monotonic
        ready = monotonic()  # what passes until it asks is the time for which it was held up
        while not source.is_ending:
            if self._puller.paused or self._puller.dynamic.is_paused(source.queue):
                await sleep(PAUSED_SECONDS)
                continue
            await source.room(settings.pop_unfinished_max)
            if source.is_ending:
                return
            try:
                await self._receive(source, monotonic() - ready)
            except SparrowError as error:
                await sleep(await self._failed(source, error))
            else:
                if interval := self._puller.dynamic.pull(source.queue.topic).interval:
                    await sleep(interval)
            ready = monotonic()

    async def _receive(self, source: PopSource, held_up: float) -> None:
        """One POP, and the messages of its answer to their handlers."""
        queue, instance, settings = source.queue, self._instance, self._settings
        subscription = self._puller.subscription(queue.topic)
        address = await instance.master_of(queue)
        start = instance.clock.monotonic()
        wire = with_namespace(instance.namespace, queue.topic)
        found = await self._returns.calls.pop(
            need_address(address, queue, "master"),
            queue.broker_name,
            SubscriptionData(
                wire,
                expression=subscription.expression,
                expression_type=subscription.expression_type,
            ),
            max_messages=min(settings.pop_batch, POP_MAX),
            invisible=settings.pop_invisible,
            wait=settings.pull_hold,
            from_first=settings.consume_from != "last",
            queue_id=queue.queue_id,
            held_up=held_up,
        )
        self._puller.answered()
        source.last_pop_ms = instance.clock.now_ms()
        if found:
            self._puller.pulled(queue.topic, len(found), instance.clock.monotonic() - start)
            self._hand_out(source, subscription, found)

    def _hand_out(
        self, source: PopSource, subscription: SubscriptionData, found: Sequence[PoppedMessage]
    ) -> None:
        """Give messages to their handlers; messages that the filters exclude are acknowledged."""
        monotonic = self._instance.clock.monotonic
        until = monotonic() + self._settings.pop_invisible
        received = [(streamed(message, self._message_type), message.receipt) for message in found]
        batch = PopBatch(source.queue, received, until, monotonic, source.changed)
        every = batch.messages
        wanted = [message for message in every if subscription.matches(message.tags)]
        kept = {id(message) for message in self._puller.filtered(source.queue, wanted)}
        left_out = [message for message in every if id(message) not in kept]
        if left_out:
            self._returns.done(batch, left_out)
        if not len(batch):
            return
        if self._closing:
            batch.leave()  # they come again when their time is over
            return
        source.batches.add(batch)
        self._batches.add(batch)
        self._service.submit(batch, batch.messages, False)

    async def sweep(self) -> None:
        """Let batches leave whose time is over: no handler may start with the remaining ones.

        Called every `SWEEP_SECONDS`.
        """
        late = [batch for batch in self._batches if batch.is_over and len(batch)]
        self._batches = {batch for batch in self._batches if len(batch) and not batch.is_over}
        if not late:
            return
        for batch in late:
            batch.leave()
        for source in self.sources():
            source.changed()
        self._service.forget_given_up()
        self._occasional.write(
            logging.WARNING,
            "late",
            f"{sum(map(len, late))} messages of {late[0].queue} and others for group {self._group} were not "
            f"handled within {self._settings.pop_invisible:g} s and will be delivered again; raise "
            f"pop_invisible or lower "
            "pop_unfinished_max",
        )

    async def _failed(self, source: PopSource, error: SparrowError) -> float:
        """Note a failed POP; how many seconds the queue pauses."""
        self._puller.failed(error)
        if isinstance(error, BrokerError) and error.code == ResponseCode.FLOW_CONTROL:
            return FLOW_CONTROL_SECONDS
        queue, seconds = source.queue, self._settings.error_delay
        self._occasional.write(
            logging.WARNING,
            f"pop {queue.broker_name}",
            f"POP of {queue} for group {self._group} failed and continues in {seconds:g} s: {error}",
        )
        try:
            await self._instance.update_route(queue.topic)
        except SparrowError as also:
            log.debug("the route of %s is unknown, too: %s", queue.topic, also)
        return seconds
