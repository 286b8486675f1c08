"""Dead letters: messages that a group failed to consume in all retries (broker:7)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable
from dataclasses import replace
from typing import Final

from sparrowmq.client.admin.calls import AdminCalls, AdminPart, masters_of
from sparrowmq.client.admin.groups import GroupAdmin
from sparrowmq.client.admin.topics import TopicAdmin
from sparrowmq.client.admin.types import DeadLetterStatus, ResentLetter
from sparrowmq.client.base.settings import check_range
from sparrowmq.client.cluster import broker_api
from sparrowmq.client.cluster.namespaces import unwrap_messages
from sparrowmq.core.errors import BrokerError, ClientError, NoRouteError, TransportError
from sparrowmq.core.message import (
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RETRY_TOPIC,
    SYSTEM_PROPERTIES,
    MessageQueue,
    ReceivedMessage,
)
from sparrowmq.core.names import (
    DLQ_PREFIX,
    INNER_PRODUCER_GROUP,
    TEMPLATE_TOPIC,
    check_group,
    dlq_topic,
    retry_topic,
    with_namespace,
)
from sparrowmq.core.results import PullStatus
from sparrowmq.core.route import TopicRoute
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.protocol import headers, properties
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.compression import stored_form
from sparrowmq.protocol.pop.receipts import FIRST_POP_TIME, normal_topic, pop_retry_topic
from sparrowmq.protocol.record import decode_records, to_message

READER_GROUP: Final = "TOOLS_CONSUMER"
_WITH_SUBSCRIPTION: Final = 4
_BATCH: Final = 32
_BATCH_BYTES: Final = 256 * 1024
_SECONDS: Final = 15.0
_COUNT_MAX: Final = 1_000_000
_RATE_MIN: Final = 0.01
_KEPT: Final = frozenset("KEYS TAGS WAIT UNIQ_KEY RETRY_TOPIC ORIGIN_MESSAGE_ID __SHARDINGKEY".split())
"""The RocketMQ properties that a resent dead letter keeps; the others describe its earlier delivery."""


def letter_key(letter: ReceivedMessage) -> tuple[str, str]:
    """What tells the dead letters of different messages apart: clients may give several the same id."""
    return letter.message_id, letter.properties.get(PROPERTY_ORIGIN_MESSAGE_ID) or letter.offset_message_id


class DeadLetterAdmin(AdminPart):
    """The dead letters of groups."""

    def __init__(self, calls: AdminCalls, topics: TopicAdmin, groups: GroupAdmin) -> None:
        super().__init__(calls)
        self._topics = topics
        self._groups = groups

    async def groups(self) -> list[DeadLetterStatus]:
        """The groups with a dead letter topic, sorted, and their numbers of dead letters; 0 when all were
        deleted.

        Raises `ClientError` when no broker is available.
        """
        await self._calls.cluster_masters(None)
        names = [name for name in await self._topics.list(system=True) if name.startswith(DLQ_PREFIX)]
        found = []
        for name in sorted(names):
            ends = await self._ends(await self._queues_of(name))
            found.append(DeadLetterStatus(name[len(DLQ_PREFIX) :], sum(n - first for _, first, n in ends)))
        return found

    async def resend_one(self, group: str, message: ReceivedMessage) -> str:
        """Send a dead letter to its group again, with a retry count of 0. Returns the new offset message id.

        It goes to the group's retry topic, so other groups of the topic do not receive it again: to the one
        of POP if the group received it by POP. The dead letter itself is kept. Raises `ClientError` for a
        group without a retry topic.
        """
        check_group(group)
        topic = retry_topic(group)
        masters = masters_of(await self._route_for_retries(topic))
        address = masters.get(message.queue.broker_name) or next(iter(masters.values()), None)
        if address is None:
            raise ClientError(f"no master has the topic {topic}; see `sparrow cluster list`")
        origin = message.properties.get(PROPERTY_RETRY_TOPIC, "")
        group = self._wire(group)  # as in the name of a retry topic of POP
        is_of_pop = normal_topic(origin, group) != origin or FIRST_POP_TIME in message.properties
        kept = {
            name: value
            for name, value in message.properties.items()
            if name in _KEPT or name not in SYSTEM_PROPERTIES
        }
        if origin and is_of_pop:  # a POP finds the topic in the name of its retry topic
            topic = pop_retry_topic(group, normal_topic(kept.pop(PROPERTY_RETRY_TOPIC), group))
        body, sys_flag = stored_form(message.body, message.sys_flag, message.store_size)
        request = headers.SendMessageRequest(
            producer_group=INNER_PRODUCER_GROUP,
            topic=topic,
            default_topic=TEMPLATE_TOPIC,
            default_topic_queue_nums=1,
            queue_id=-1,
            sys_flag=sys_flag,
            born_timestamp=self._calls.running().clock.now_ms(),
            flag=message.flag,
            properties=properties.encode(kept).decode(),
        )
        ask = self._calls.running().brokers.ask
        answer = await ask(address, RequestCode.SEND_MESSAGE, request, body=body, timeout=_SECONDS)
        return headers.from_ext(headers.SendMessageResponse, answer.ext).msg_id

    async def resend(
        self, group: str, message_ids: Iterable[str] | None = None, *, rate: float | None = None
    ) -> list[ResentLetter]:
        """Send dead letters to their group again: all current ones, or the given ids, `rate` per second at
        most. Returns what became of each.

        A message with several dead letters is sent once; different messages with one id are all sent. A
        letter that a broker refuses does not stop the others; when a broker cannot be reached, the
        remaining letters are skipped, and those that cannot be read are in the result only if their ids
        were given. Raises the errors of `list` if no letter could be read, and `ClientError` for a
        group without a retry topic.
        """
        if rate is not None:
            check_range("rate", rate, _RATE_MIN, _COUNT_MAX, "letters per second")
        wanted = None if message_ids is None else set(message_ids)
        found: dict[tuple[str, str], ResentLetter] = {}
        broken = ""
        rest = ResentLetter("", "missing")
        try:
            async for letter in self._chosen(group, wanted):
                key = letter_key(letter)
                if key in found:
                    continue
                if broken:
                    found[key] = ResentLetter(key[0], "skipped", reason=f"not tried after {broken}")
                    continue
                if found and rate is not None:
                    await self._calls.running().sleep(1 / rate)
                try:
                    found[key] = ResentLetter(key[0], "sent", await self.resend_one(group, letter))
                except BrokerError as error:
                    found[key] = ResentLetter(key[0], "refused", reason=str(error))
                except TransportError as error:
                    broken = str(error)
                    found[key] = ResentLetter(key[0], "refused", reason=broken)
        except TransportError as error:  # the other letters cannot be read
            if not found:
                raise
            rest = ResentLetter("", "skipped", reason=str(error))
        unseen = () if wanted is None else sorted(wanted.difference(name for name, _ in found))
        return [*found.values(), *(replace(rest, message_id=name) for name in unseen)]

    # Internals

    def _wire(self, group: str) -> str:
        return with_namespace(self._calls.running().namespace, group)

    async def _chosen(self, group: str, wanted: Collection[str] | None) -> AsyncIterator[ReceivedMessage]:
        """The current dead letters of a group, or those of them with these ids."""
        for queue, first, end in await self._dead_queues(group):
            async for letter in self._read(queue, first, end, decompress=False):
                if wanted is None or letter.message_id in wanted:
                    yield letter

    async def _route_for_retries(self, topic: str) -> TopicRoute:
        try:
            return await self._calls.route(topic)
        except NoRouteError:
            raise ClientError(
                f"the topic {topic} does not exist; start a consumer of the group first",
                what="topic",
                value=topic,
            ) from None

    async def _dead_queues(self, group: str) -> list[tuple[MessageQueue, int, int]]:
        """The queues of a group's dead letter topic with their current first and next offsets."""
        check_group(group)
        try:
            queues = await self._queues_of(dlq_topic(group))
        except NoRouteError:
            if self._wire(group) in await self._groups.list(system=True):
                return []
            raise ClientError(
                f"no broker knows the group {group!r}; they do once its first consumer has joined; see the "
                f"names with `sparrow group list`",
                what="group",
                value=group,
            ) from None
        return await self._ends(queues)

    async def _queues_of(self, topic: str) -> list[tuple[MessageQueue, str]]:
        """Queues of masters, sorted, with the master's address, including queues that may not be read."""
        route = await self._calls.route(topic)
        masters = masters_of(route)
        return sorted(
            (MessageQueue(topic, data.broker_name, number), masters[data.broker_name])
            for data in route.queues
            if data.broker_name in masters
            for number in range(data.read_queue_nums)
        )

    async def _ends(self, queues: list[tuple[MessageQueue, str]]) -> list[tuple[MessageQueue, int, int]]:
        brokers = self._calls.running().brokers
        return [
            (queue, await brokers.min_offset(address, queue), await brokers.max_offset(address, queue))
            for queue, address in queues
        ]

    async def _read(
        self, queue: MessageQueue, offset: int, end: int, *, decompress: bool = True
    ) -> AsyncIterator[ReceivedMessage]:
        """Messages of a queue from `offset` to `end`, without those deleted meanwhile."""
        address = await self._calls.master_of(queue)
        namespace = self._calls.running().namespace
        while offset < end:
            answer = await self._pull(address, queue, offset)
            if answer.next_offset <= offset:
                return
            if answer.status is PullStatus.FOUND:
                for record in decode_records(answer.body):
                    if record.queue_offset < end:
                        message = to_message(record, queue.broker_name, decompress=decompress)
                        unwrap_messages(namespace, [message])
                        yield message
            offset = answer.next_offset

    async def _pull(self, address: str, queue: MessageQueue, offset: int) -> broker_api.PullAnswer:
        command = broker_api.pull_request(
            group=READER_GROUP,
            queue=queue,
            offset=offset,
            max_messages=_BATCH,
            max_bytes=_BATCH_BYTES,
            hold=0.0,
            subscription=SubscriptionData(queue.topic, "*"),
            sys_flag=_WITH_SUBSCRIPTION,
        )
        answer = await self._calls.running().remoting.call(address, command, _SECONDS)
        return broker_api.decode_pull(answer, address, queue)

    async def list(
        self,
        group: str,
        *,
        count: int = 32,
        after: ReceivedMessage | None = None,
        decompress: bool = True,
    ) -> list[ReceivedMessage]:
        """Up to `count` dead letters of a group, by broker, oldest first. Reading changes nothing.

        `after` continues behind a dead letter of an earlier call. Returns an empty list at the end, and for a
        group without dead letters. Without `decompress`, bodies are as they are stored. Raises `ClientError`
        for a group that no broker knows.
        """
        check_range("count", count, 1, _COUNT_MAX)
        found: list[ReceivedMessage] = []
        for queue, first, end in await self._dead_queues(group):
            if after is not None and queue < after.queue:
                continue
            if after is not None and queue == after.queue:
                first = max(first, after.queue_offset + 1)
            async for letter in self._read(queue, first, end, decompress=decompress):
                found.append(letter)
                if len(found) == count:
                    return found
        return found
