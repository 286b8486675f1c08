"""What becomes of messages received by POP: acknowledged, hidden until a retry, or dead letters."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.client.cluster.broker_api import need_address
from sparrowmq.client.cluster.pop_calls import PopCalls
from sparrowmq.core.errors import SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import with_namespace
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.client.base.hooks import Hook
    from sparrowmq.client.base.tasks import TaskGroup
    from sparrowmq.client.cluster.instance import ClientInstance
    from sparrowmq.client.consumer.dynamic_settings import DynamicSettings
    from sparrowmq.client.push.pop_batches import PopBatch
    from sparrowmq.client.push.send_back import SendBack
    from sparrowmq.core.message import ReceivedMessage
    from sparrowmq.protocol.pop.receipts import Receipt

log = logging.getLogger("sparrowmq.client")

RETRY_SECONDS: Final = (
    *(10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600),
    *(1200, 1800, 3600, 7200),
)
"""Seconds until a failed message comes again, by how often it was delivered before (`popDelayLevel`)."""
TRIES: Final = 3
"""How often a broker is sent the outcome of a message."""
AGAIN_SECONDS: Final = 1.0


def retry_seconds(after: float | None, dynamic: float | None, times: int) -> float:
    """How long a failed message is hidden: as the handler or the dynamic settings say, or longer each
    time."""
    if after is not None:
        return after
    return RETRY_SECONDS[min(times, len(RETRY_SECONDS) - 1)] if dynamic is None else dynamic


class PopReturns:
    """Sends the brokers the outcomes of the messages of `group`; `calls` are its requests.

    If its broker cannot be reached, a message is delivered again after its invisible time.
    """

    def __init__(
        self,
        group: str,
        instance: ClientInstance,
        send_back: SendBack,
        dynamic: DynamicSettings,
        tasks: TaskGroup,
        hooks: Iterable[Hook] = (),
    ) -> None:
        self.group = group
        self.instance = instance
        namespace = instance.namespace
        wire = with_namespace(namespace, group)
        self.calls = PopCalls(instance.remoting, wire, namespace, hooks)
        self._send_back = send_back
        self._dynamic = dynamic
        self._tasks = tasks
        self._telling: set[asyncio.Task[Any]] = set()
        self._occasional = OccasionalLog(log)

    def done(self, batch: PopBatch, messages: Sequence[ReceivedMessage]) -> None:
        """Acknowledge messages, also when their time is over: it is not forbidden, and may not be too late
        at the broker.
        """
        topics = [message.topic for message in messages if batch.holds(message)]
        receipts = batch.finish(messages)
        if receipts:
            self._tell(self._ack_all(list(zip(topics, receipts, strict=True))))

    def failed(
        self,
        batch: PopBatch,
        message: ReceivedMessage,
        after: float | None = None,
        *,
        dead: bool = False,
        why: str = "",
    ) -> None:
        """Have a message delivered again `after` seconds (None: longer each time), or make it a dead letter
        if it was delivered too often or `dead` says so. Others have a message whose time is over.
        """
        receipts = batch.finish([message])
        if not receipts or batch.is_over:
            return
        dynamic = self._dynamic.retry_seconds(message.reconsume_times)
        seconds = retry_seconds(after, dynamic, message.reconsume_times)
        self._tell(self._return(message, receipts[0], None if dead else seconds, why))

    async def told(self, timeout: float) -> None:
        """Wait up to `timeout` seconds until the brokers know."""
        if self._telling:
            await asyncio.wait(self._telling, timeout=timeout)

    def _tell(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._tasks.start(work, "popped messages")
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _ack_all(self, messages: list[tuple[str, Receipt]]) -> None:
        await asyncio.gather(*(self._try(topic, receipt) for topic, receipt in messages))

    async def _return(
        self, message: ReceivedMessage, receipt: Receipt, seconds: float | None, why: str
    ) -> None:
        if seconds is not None and not await self._send_back.is_used_up(message):
            await self._try(message.topic, receipt, seconds)
        elif await self._send_back.bury(message, why):
            await self._try(message.topic, receipt)

    async def _try(self, topic: str, receipt: Receipt, seconds: float | None = None) -> None:
        """Acknowledge, or hide for `seconds`; a few times if there is no answer."""
        wire = with_namespace(self.instance.namespace, topic)
        queue = MessageQueue(topic, receipt.broker_name, receipt.queue_id)
        for tries_left in range(TRIES - 1, -1, -1):
            try:
                address = need_address(await self.instance.master_of(queue), queue, "master")
                if seconds is None:
                    await self.calls.ack(address, wire, receipt)
                else:
                    await self.calls.change(address, wire, receipt, seconds)
                return
            except SparrowError as error:
                if not tries_left:
                    text = f"the outcome of a message of {queue} for group {self.group} could not be sent"
                    self._occasional.write(
                        logging.WARNING,
                        f"pop {queue.broker_name}",
                        f"{text}; it will be delivered again: {error}",
                    )
                    return
            await self.instance.sleep(AGAIN_SECONDS)
