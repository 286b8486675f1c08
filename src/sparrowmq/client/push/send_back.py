"""Return of failed messages to a broker, which delivers them again later (client:D-56 to D-58)."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from sparrowmq.client.cluster.broker_api import GenerationOf, need_address
from sparrowmq.client.cluster.group_limits import GroupLimits
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.client.consumer.dynamic_settings import DynamicSettings
from sparrowmq.core.errors import BrokerError, InvalidMessageError, NoRouteError, SparrowError
from sparrowmq.core.message import (
    PROPERTY_CONSUME_START_TIME,
    PROPERTY_DELAY,
    PROPERTY_ERROR,
    PROPERTY_MAX_OFFSET,
    PROPERTY_MAX_RECONSUME_TIMES,
    PROPERTY_MIN_OFFSET,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RECONSUME_TIME,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TRANSACTION_PREPARED,
    ReceivedMessage,
)
from sparrowmq.core.names import TEMPLATE_TOPIC, retry_topic
from sparrowmq.core.results import SendStatus
from sparrowmq.protocol import headers, properties
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.compression import stored_form
from sparrowmq.protocol.frame import Command
from sparrowmq.transport.occasional import OccasionalLog

log = logging.getLogger("sparrowmq.client")

BROKER_CHOOSES: Final = 0
DEAD: Final = -1
"""Special values for the delay level of a send-back: the broker's own choice, the dead letters
(client:D-57).
"""
FORBIDDEN_MAX: Final = 720
"""After this many tries, an hour at the usual `redeliver_delay`, a missing permission counts as permanent."""
UNLIMITED: Final = 2**31 - 1
"""What -1 means for ordered consumption (client:D-64)."""
_FIRST_LEVEL: Final = 3
ROOM_CHARS: Final = 8000
"""A copy with longer properties than this does not include the handler's error."""
_AT_ONCE: Final = 64
"""Maximum concurrent send-backs."""
_STORED: Final = frozenset(int(status) for status in SendStatus)
"""Response codes of a stored message, whether or not it was flushed and replicated in time."""
FENCED: Final = ResponseCode.GENERATION_FENCED
_NOT_COPIED: Final = (
    PROPERTY_MIN_OFFSET,
    PROPERTY_MAX_OFFSET,
    PROPERTY_CONSUME_START_TIME,
    PROPERTY_TRANSACTION_PREPARED,
)


def retry_properties(
    message: ReceivedMessage, times: int, limit: int | None, why: str = ""
) -> dict[str, str]:
    """Properties of a copy of `message` that is sent to the retry topic (client:D-58)."""
    copy = {name: value for name, value in message.properties.items() if name not in _NOT_COPIED}
    copy.setdefault(PROPERTY_ORIGIN_MESSAGE_ID, message.message_id)
    copy[PROPERTY_RETRY_TOPIC] = message.topic
    copy[PROPERTY_RECONSUME_TIME] = str(times)
    copy.pop(PROPERTY_MAX_RECONSUME_TIMES, None)
    if limit is not None:
        copy[PROPERTY_MAX_RECONSUME_TIMES] = str(limit)
    copy[PROPERTY_DELAY] = str(_FIRST_LEVEL + message.reconsume_times)
    copy.pop(PROPERTY_ERROR, None)
    if why and sum(len(name) + len(value) for name, value in copy.items()) < ROOM_CHARS:
        copy[PROPERTY_ERROR] = why
    return copy


def is_unfit(error: SparrowError, tries: int) -> bool:
    """Whether the error says that the message cannot be stored, after so many tries; all others may pass.

    A permission may be missing for a while only, as when a broker is being emptied.
    """
    if not isinstance(error, BrokerError):
        return isinstance(error, InvalidMessageError)
    is_forbidden = error.code == ResponseCode.NO_PERMISSION
    return error.code == ResponseCode.MESSAGE_ILLEGAL or (is_forbidden and tries >= FORBIDDEN_MAX)


class SendBack:
    """Sends failed messages of one group back. `dynamic` has the maximum number of retries; with -1 nothing
    is said about it, and the broker applies the group's. A request takes up to `timeout` seconds.

    A message that no broker can store again is not tried for ever: once its retries are used up it is
    skipped, with an error in the log, and counted in `skipped`. It is kept while brokers are only busy or
    away, and for `FORBIDDEN_MAX` tries while they refuse permission.

    `copies`: send a copy when the broker refuses a message. Managed groups do not: a copy has no generation,
    so the queue's next owner would also process the message.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        dynamic: DynamicSettings,
        timeout: float,
        *,
        generation_of: GenerationOf,
        copies: bool,
    ) -> None:
        self._instance = instance
        self._group = group
        self._limits = GroupLimits(instance, group)
        self._dynamic = dynamic
        self._timeout = timeout
        self._generation_of = generation_of
        self._copies = copies
        self._room = asyncio.Semaphore(_AT_ONCE)
        self.refused = 0
        """Number of messages that brokers refused because their queue had moved to another member."""
        self.skipped = 0
        """Number of messages that failed, and that were neither retried nor made dead letters."""
        self._occasional = OccasionalLog(log)

    async def send(
        self,
        message: ReceivedMessage,
        after: float | None = None,
        why: str = "",
        *,
        level: int = BROKER_CHOOSES,
    ) -> bool:
        """Return a message to the broker that stored it, for a retry. Returns whether it is done with here.

        It comes again `after` seconds, rounded up to one of the broker's delay levels, or with the delay of
        `level`: 0 lets the broker choose it, -1 makes the message a dead letter. SparrowMQ's brokers store
        `why`, the handler's error, with it. If the broker refuses the message, a copy is sent to the group's
        retry topic.
        """
        async with self._room:
            try:
                await self._to_broker(message, level, self._limit, why, after)
                return True
            except SparrowError as error:
                if isinstance(error, BrokerError) and error.code == FENCED:
                    self.refused += 1  # no copy: the queue's new owner gets the message
                    return False
                first: SparrowError = error
            last: SparrowError | None = first
            if self._copies:
                name = message.queue.broker_name
                log.info("%s did not take a message back; a copy is sent instead: %s", name, first)
                last = await self._copy(message, why, after)
        if last is None:
            return True
        if is_unfit(last, message.reconsume_times) and await self.is_used_up(message):
            return await self.bury(message, why)
        return self._kept(message, first, last, is_last=False)

    async def is_used_up(self, message: ReceivedMessage) -> bool:
        """Whether a failed message has no retry left, by this consumer's limit or else the group's."""
        most = self._limit
        if most is None:
            address = self._instance.routes.master(message.queue.broker_name)
            most = None if address is None else await self._limits.retries_max(address)
        return most is not None and message.reconsume_times >= most

    @property
    def _limit(self) -> int | None:
        """The maximum number of retries that this consumer asks for; None leaves it to the group's."""
        tries = self._dynamic.max_reconsume_times
        return None if tries < 0 else tries

    async def bury(self, message: ReceivedMessage, why: str = "") -> bool:
        """Make the message a dead letter. Returns whether it is done with here. It sends no copy, which would
        be delivered again.
        """
        async with self._room:
            try:
                await self._to_broker(message, DEAD, None, why)
            except SparrowError as error:
                self.refused += isinstance(error, BrokerError) and error.code == FENCED
                return self._kept(message, error, error, is_last=True)
        return True

    async def _to_broker(
        self,
        message: ReceivedMessage,
        level: int,
        limit: int | None,
        why: str,
        after: float | None = None,
    ) -> None:
        queue = message.queue
        address = need_address(await self._instance.master_of(queue), queue, "master")
        if after is not None and level == BROKER_CHOOSES:
            level = await self._instance.delay_levels.level_after(address, after)
        await self._instance.brokers.send_back(
            address,
            self._group,
            message,
            delay_level=level,
            max_reconsume_times=limit,
            generation=self._generation_of(queue),
            why=why,
        )

    async def send_copy(self, message: ReceivedMessage, why: str = "") -> bool:
        """Send a message with no retries left to the retry topic; its broker makes it a dead letter
        (client:D-64).

        In a managed group the broker that stores the message does so, if this member still owns the queue; in
        others it does so if no broker can store the copy.
        """
        if self._copies:
            async with self._room:
                error = await self._copy(message, why)
            if error is None or not is_unfit(error, message.reconsume_times):
                return error is None or self._kept(message, error, error, is_last=True)
        return await self.bury(message, why)

    async def _copy(
        self, message: ReceivedMessage, why: str, after: float | None = None
    ) -> SparrowError | None:
        """Send a copy to the retry topic, where it comes `after` seconds or with the delay of its next retry;
        returns why it was not stored.
        """
        topic, times, limit = retry_topic(self._group), message.reconsume_times + 1, self._limit
        try:
            route = await self._instance.find_route(topic)
            queues = [] if route is None else route.publish_queues(topic)
            if not queues:
                raise NoRouteError(f"no broker serves {topic}")
            queue = self._instance.rng.choice(queues)
            address = need_address(await self._instance.master_of(queue), queue, "master")
            body, sys_flag = stored_form(message.body, message.sys_flag, message.store_size)
            copied = retry_properties(message, times, limit, why)
            if after is not None:
                copied[PROPERTY_DELAY] = str(await self._instance.delay_levels.level_after(address, after))
            header = headers.SendMessageRequest(
                producer_group="CLIENT_INNER_PRODUCER",
                topic=topic,
                default_topic=TEMPLATE_TOPIC,
                default_topic_queue_nums=1,
                queue_id=queue.queue_id,
                sys_flag=sys_flag,
                born_timestamp=self._instance.clock.now_ms(),
                flag=message.flag,
                properties=properties.encode(copied).decode(),
                reconsume_times=times,
                max_reconsume_times=limit,
                broker_name=queue.broker_name,
            )
            request = Command(RequestCode.SEND_MESSAGE_V2, ext=headers.send_v2_to_ext(header), body=body)
            answer = await self._instance.remoting.call(address, request, self._timeout)
            if answer.code not in _STORED:
                raise BrokerError(answer.code, answer.remark or "", address=address, request="a retry's send")
        except SparrowError as error:
            return error
        return None

    def _kept(
        self, message: ReceivedMessage, first: SparrowError, last: SparrowError, *, is_last: bool
    ) -> bool:
        """What becomes of a message that was not taken: True if it is skipped, False if it is kept here.

        It is skipped if it has no retry left and, as the last error says, no broker can store it.
        """
        if is_last and is_unfit(last, message.reconsume_times):
            self.skipped += 1
            log.error(
                "message %s of group %s (%s at offset %d) failed and is skipped, because neither a retry nor "
                "a dead letter of it can be stored: %s",
                message.message_id,
                self._group,
                message.queue,
                message.queue_offset,
                last,
            )
            return True
        self._tell(message, first)
        return False

    def _tell(self, message: ReceivedMessage, error: SparrowError) -> None:
        self._occasional.write(
            logging.WARNING,
            f"send-back {message.queue.broker_name}",
            f"a failed message of group {self._group} could not be sent back and is kept here: {error}",
        )
