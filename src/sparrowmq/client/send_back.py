"""Failed messages on their way back to a broker, which delivers them again later (client:D-56 to D-58)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from sparrowmq.client.instance import ClientInstance
from sparrowmq.client.outcomes import DEAD
from sparrowmq.client.requests import need_address
from sparrowmq.core.errors import BrokerError, NoRouteError, SparrowError
from sparrowmq.core.message import (
    PROPERTY_CONSUME_START_TIME,
    PROPERTY_DELAY,
    PROPERTY_MAX_OFFSET,
    PROPERTY_MAX_RECONSUME_TIMES,
    PROPERTY_MIN_OFFSET,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RECONSUME_TIME,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TRANSACTION_PREPARED,
    MessageQueue,
    ReceivedMessage,
)
from sparrowmq.core.names import TEMPLATE_TOPIC, retry_topic
from sparrowmq.core.results import SendStatus
from sparrowmq.protocol import headers, properties
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.transport.occasional import OccasionalLog

log = logging.getLogger("sparrowmq.client")

RETRIES_DEFAULT: Final = 16
"""What -1 means for concurrent consumption (client:D-56)."""
UNLIMITED: Final = 2**31 - 1
"""What -1 means for ordered consumption (client:D-64)."""
_FIRST_LEVEL: Final = 3
_AT_ONCE: Final = 64
"""Messages on their way back at once."""
_STORED: Final = frozenset(int(status) for status in SendStatus)
"""Answers to a send that stored the message, flushed and replicated in time or not."""
FENCED: Final = ResponseCode.GENERATION_FENCED
_NOT_COPIED: Final = (
    PROPERTY_MIN_OFFSET,
    PROPERTY_MAX_OFFSET,
    PROPERTY_CONSUME_START_TIME,
    PROPERTY_TRANSACTION_PREPARED,
)


def retry_properties(message: ReceivedMessage, times: int, limit: int) -> dict[str, str]:
    """Properties of the copy of `message` that goes to the retry topic by itself (client:D-58)."""
    copy = {name: value for name, value in message.properties.items() if name not in _NOT_COPIED}
    copy.setdefault(PROPERTY_ORIGIN_MESSAGE_ID, message.message_id)
    copy[PROPERTY_RETRY_TOPIC] = message.topic
    copy[PROPERTY_RECONSUME_TIME] = str(times)
    copy[PROPERTY_MAX_RECONSUME_TIMES] = str(limit)
    copy[PROPERTY_DELAY] = str(_FIRST_LEVEL + message.reconsume_times)
    return copy


class SendBack:
    """Sends failed messages of one group back. `max_reconsume_times` as the user set it, -1 for none."""

    def __init__(
        self, instance: ClientInstance, group: str, max_reconsume_times: int, timeout: float
    ) -> None:
        self._instance = instance
        self._group = group
        self.max_reconsume_times = max_reconsume_times
        self._timeout = timeout
        self._room = asyncio.Semaphore(_AT_ONCE)
        self.generation_of: Callable[[MessageQueue], int | None] = lambda queue: None
        """What requests carry in a managed group."""
        self.copies = True
        """Whether a copy is sent when the broker does not take a message back. Not in a managed group: a copy
        carries no generation, so who has the queue by then would have the message as well."""
        self.refused = 0
        """Messages that brokers did not take back because their queue had gone on to another member."""
        self._occasional = OccasionalLog(log)

    async def send(self, message: ReceivedMessage, level: int) -> bool:
        """Have the broker that stored the message deliver it again; whether that will happen.

        `level` 0 lets the broker choose when, -1 makes it a dead letter. When the broker does not take it
        back, a copy is sent to the group's retry topic.
        """
        limit = RETRIES_DEFAULT if self.max_reconsume_times < 0 else self.max_reconsume_times
        async with self._room:
            try:
                await self._to_broker(message, level, limit)
                return True
            except SparrowError as error:
                if isinstance(error, BrokerError) and error.code == FENCED:
                    self.refused += 1  # who has the queue now gets the message: no copy
                    return False
                if not self.copies:
                    self._tell(message, error)
                    return False
                name = message.queue.broker_name
                log.info("%s did not take a message back, a copy is sent: %s", name, error)
                first = error
            return await self._copy(message, limit, first)

    async def bury(self, message: ReceivedMessage) -> bool:
        """Have the broker make the message a dead letter; whether it did. No copy: that would come again."""
        async with self._room:
            try:
                await self._to_broker(message, DEAD, RETRIES_DEFAULT)
            except SparrowError as error:
                self.refused += isinstance(error, BrokerError) and error.code == FENCED
                self._tell(message, error)
                return False
        return True

    async def _to_broker(self, message: ReceivedMessage, level: int, limit: int) -> None:
        queue = message.queue
        address = need_address(self._instance.routes.master(queue.broker_name), queue, "master")
        await self._instance.brokers.send_back(
            address,
            self._group,
            message,
            delay_level=level,
            max_reconsume_times=limit,
            generation=self.generation_of(queue),
        )

    async def send_copy(self, message: ReceivedMessage) -> bool:
        """Send a message with no retries left to the retry topic, whose broker buries it (client:D-64).

        In a managed group the broker that has the message buries it, if the queue is still this member's.
        """
        if not self.copies:
            return await self.bury(message)
        limit = UNLIMITED if self.max_reconsume_times < 0 else self.max_reconsume_times
        async with self._room:
            return await self._copy(message, limit, None)

    async def _copy(self, message: ReceivedMessage, limit: int, first: SparrowError | None) -> bool:
        topic, times = retry_topic(self._group), message.reconsume_times + 1
        try:
            route = await self._instance.find_route(topic)
            queues = [] if route is None else route.publish_queues(topic)
            if not queues:
                raise NoRouteError(f"no broker serves {topic}")
            queue = self._instance.rng.choice(queues)
            address = need_address(self._instance.routes.master(queue.broker_name), queue, "master")
            header = headers.SendMessageRequest(
                producer_group="CLIENT_INNER_PRODUCER",
                topic=topic,
                default_topic=TEMPLATE_TOPIC,
                default_topic_queue_nums=1,
                queue_id=queue.queue_id,
                sys_flag=0,
                born_timestamp=self._instance.clock.now_ms(),
                flag=message.flag,
                properties=properties.encode(retry_properties(message, times, limit)).decode(),
                reconsume_times=times,
                max_reconsume_times=limit,
                broker_name=queue.broker_name,
            )
            request = Command(
                RequestCode.SEND_MESSAGE_V2, ext=headers.send_v2_to_ext(header), body=message.body
            )
            answer = await self._instance.remoting.call(address, request, self._timeout)
            if answer.code not in _STORED:
                raise BrokerError(answer.code, answer.remark or "", address=address, request="a retry's send")
        except SparrowError as error:
            self._tell(message, first or error)
            return False
        return True

    def _tell(self, message: ReceivedMessage, error: SparrowError) -> None:
        self._occasional.write(
            logging.WARNING,
            f"send-back {message.queue.broker_name}",
            f"a failed message of group {self._group} could not be sent back and is kept here: {error}",
        )
