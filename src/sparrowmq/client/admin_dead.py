"""Dead letters: what a group could not consume after all its retries (broker:7)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable
from typing import Final

from sparrowmq.client import requests
from sparrowmq.client.admin_calls import AdminCalls, masters_of
from sparrowmq.client.admin_types import DeadLetterStatus
from sparrowmq.client.settings import check_range
from sparrowmq.core.errors import ClientError, NoRouteError
from sparrowmq.core.message import SYSTEM_PROPERTIES, MessageQueue, ReceivedMessage
from sparrowmq.core.names import (
    DLQ_PREFIX,
    INNER_PRODUCER_GROUP,
    TEMPLATE_TOPIC,
    check_group,
    dlq_topic,
    retry_topic,
)
from sparrowmq.core.results import PullStatus
from sparrowmq.core.route import TopicRoute
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.protocol import headers, properties
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.record import decode_records, to_message

READER_GROUP: Final = "TOOLS_CONSUMER"
_WITH_SUBSCRIPTION: Final = 4
_BATCH: Final = 32
_BATCH_BYTES: Final = 256 * 1024
_SECONDS: Final = 15.0
_COUNT_MAX: Final = 1_000_000
_KEPT: Final = frozenset("KEYS TAGS WAIT UNIQ_KEY RETRY_TOPIC ORIGIN_MESSAGE_ID __SHARDINGKEY".split())
"""RocketMQ's properties that a letter keeps when it is sent again; the others tell of its journey so far."""


class DeadLetterAdmin(AdminCalls):
    """The part of `Admin` for dead letters."""

    async def dead_letter_groups(self) -> list[DeadLetterStatus]:
        """Groups with dead letters, sorted; a group whose dead letters are all gone again has 0.

        Raises `ClientError` when no broker is there to have any.
        """
        await self._cluster_masters(None)
        names = [name for name in await self.topic_list(system=True) if name.startswith(DLQ_PREFIX)]
        found = []
        for name in sorted(names):
            ends = await self._ends(await self._queues_of(name))
            found.append(DeadLetterStatus(name[len(DLQ_PREFIX) :], sum(n - first for _, first, n in ends)))
        return found

    async def dead_letters(
        self, group: str, *, count: int = 32, after: ReceivedMessage | None = None
    ) -> list[ReceivedMessage]:
        """Up to `count` dead letters of a group, by broker, oldest first; reading changes nothing.

        `after` goes on behind a letter of an earlier call; the end is an empty list, as is what a group
        without dead letters has. Raises `ClientError` for a group that no broker knows.
        """
        check_range("count", count, 1, _COUNT_MAX)
        found: list[ReceivedMessage] = []
        for queue, first, end in await self._dead_queues(group):
            if after is not None and queue < after.queue:
                continue
            if after is not None and queue == after.queue:
                first = max(first, after.queue_offset + 1)
            async for letter in self._read(queue, first, end):
                found.append(letter)
                if len(found) == count:
                    return found
        return found

    async def resend_dead_letter(self, group: str, message: ReceivedMessage) -> str:
        """Give a dead letter to its group again, with its retries counted anew; the new offset message id.

        It goes to the group's retry topic, so other groups of its topic do not get it a second time. The
        dead letter stays where it is. Raises `ClientError` for a group without a retry topic.
        """
        check_group(group)
        topic = retry_topic(group)
        masters = masters_of(await self._route_for_retries(topic))
        address = masters.get(message.queue.broker_name) or next(iter(masters.values()), None)
        if address is None:
            raise ClientError(f"no master has the topic {topic}; see `sparrow cluster list`")
        kept = {
            name: value
            for name, value in message.properties.items()
            if name in _KEPT or name not in SYSTEM_PROPERTIES
        }
        request = headers.SendMessageRequest(
            producer_group=INNER_PRODUCER_GROUP,
            topic=topic,
            default_topic=TEMPLATE_TOPIC,
            default_topic_queue_nums=1,
            queue_id=-1,
            sys_flag=0,
            born_timestamp=int(time.time() * 1000),
            flag=message.flag,
            properties=properties.encode(kept).decode(),
        )
        ask = self._running().brokers.ask
        answer = await ask(address, RequestCode.SEND_MESSAGE, request, body=message.body, timeout=_SECONDS)
        return headers.from_ext(headers.SendMessageResponse, answer.ext).msg_id

    async def resend_dead_letters(self, group: str, message_ids: Iterable[str] | None = None) -> list[str]:
        """Give dead letters to their group again, all there are now or those named; the ids of those sent.

        A message that died several times is sent once. Letters that are named and gone are missing from the
        answer. Errors as `dead_letters` and `resend_dead_letter`.
        """
        wanted = None if message_ids is None else set(message_ids)
        sent: dict[str, None] = {}
        for queue, first, end in await self._dead_queues(group):
            async for letter in self._read(queue, first, end):
                key = letter.message_id
                if key not in sent and (wanted is None or key in wanted):
                    await self.resend_dead_letter(group, letter)
                    sent[key] = None
        return list(sent)

    # Inside

    async def _route_for_retries(self, topic: str) -> TopicRoute:
        try:
            return await self.topic_route(topic)
        except NoRouteError:
            raise ClientError(
                f"there is no topic {topic} to send to; start a consumer of the group first"
            ) from None

    async def _dead_queues(self, group: str) -> list[tuple[MessageQueue, int, int]]:
        """Queues of a group's dead letters with the offsets they have now: first, next."""
        check_group(group)
        try:
            queues = await self._queues_of(dlq_topic(group))
        except NoRouteError:
            if group in await self.group_list(system=True):
                return []
            raise ClientError(
                f"no broker knows the group {group!r}; see the names with `sparrow group list`"
            ) from None
        return await self._ends(queues)

    async def _queues_of(self, topic: str) -> list[tuple[MessageQueue, str]]:
        """Queues of masters, sorted, with the master's address; also those that may not be read."""
        route = await self.topic_route(topic)
        masters = masters_of(route)
        return sorted(
            (MessageQueue(topic, data.broker_name, number), masters[data.broker_name])
            for data in route.queues
            if data.broker_name in masters
            for number in range(data.read_queue_nums)
        )

    async def _ends(self, queues: list[tuple[MessageQueue, str]]) -> list[tuple[MessageQueue, int, int]]:
        brokers = self._running().brokers
        return [
            (queue, await brokers.min_offset(address, queue), await brokers.max_offset(address, queue))
            for queue, address in queues
        ]

    async def _read(self, queue: MessageQueue, offset: int, end: int) -> AsyncIterator[ReceivedMessage]:
        """Messages of a queue from `offset` up to `end`; those deleted meanwhile are left out."""
        address = await self._master_of(queue)
        while offset < end:
            answer = await self._pull(address, queue, offset)
            if answer.next_offset <= offset:
                return
            if answer.status is PullStatus.FOUND:
                for record in decode_records(answer.body):
                    if record.queue_offset < end:
                        yield to_message(record, queue.broker_name)
            offset = answer.next_offset

    async def _pull(self, address: str, queue: MessageQueue, offset: int) -> requests.PullAnswer:
        command = requests.pull_request(
            group=READER_GROUP,
            queue=queue,
            offset=offset,
            max_messages=_BATCH,
            max_bytes=_BATCH_BYTES,
            hold=0.0,
            subscription=SubscriptionData(queue.topic, "*"),
            sys_flag=_WITH_SUBSCRIPTION,
        )
        answer = await self._running().remoting.call(address, command, _SECONDS)
        return requests.decode_pull(answer, address, queue)
