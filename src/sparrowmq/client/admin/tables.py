"""Complete tables of single brokers and name servers, for comparison and repair."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from sparrowmq.client.admin.calls import AdminCalls
from sparrowmq.client.admin.types import BrokerTopics, ListedEntry
from sparrowmq.client.base.settings import check_range
from sparrowmq.core.clock import epoch_ms
from sparrowmq.core.errors import BrokerError, ClientError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import check_group, check_topic, is_system_topic
from sparrowmq.protocol import bodies, headers
from sparrowmq.protocol.bodies.queues import QueryConsumeQueueBody
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.topic_attributes import changes_text

T = TypeVar("T")
INLINE_BYTES_MAX: Final = 64 * 1024
"""Larger tables are decoded in a thread: thousands of rows would block the loop for 50 ms or more."""
OFFSETS_INLINE_BYTES: Final = 4 * 1024
"""The same for tables of offsets: their rows take few bytes, or have keys that only the slow parser reads."""
ENTRIES_MAX: Final = 1000
TABLE_SECONDS: Final = 15.0
"""Timeout for requests whose response has all of a broker's entries, in seconds."""
_decoding: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]] = WeakKeyDictionary()
"""Held by the caller, on each loop, whose large body is decoded."""


class TableAdmin(AdminCalls):
    """The part of `Admin` for the tables of single servers. `broker` is a name or `host:port`."""

    async def broker_topics(self, broker: str) -> BrokerTopics:
        """All topics of a broker and their configurations (code 21)."""
        body = await self._table(broker, RequestCode.GET_ALL_TOPIC_CONFIG)
        table = await apart(bodies.BrokerTopicTable.decode, body)
        return BrokerTopics(table.topic_config_table, frozenset(table.topic_queue_mapping_detail_map))

    async def broker_groups(self, broker: str) -> dict[str, bodies.SubscriptionGroupConfig]:
        """All consumer groups of a broker and their settings (code 201)."""
        body = await self._table(broker, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return (await apart(bodies.SubscriptionGroupTable.decode, body)).subscription_group_table

    async def stored_offsets(self, broker: str) -> dict[str, dict[MessageQueue, int]]:
        """All committed offsets of a broker by group (code 43), including those of deleted topics.

        The queues have the broker name that was given.
        """
        body = await self._table(broker, RequestCode.GET_ALL_CONSUMER_OFFSET)
        return await apart(partial(_offsets_by_group, broker), body, OFFSETS_INLINE_BYTES)

    async def listed_topics(self) -> dict[str, set[str]]:
        """The names of all topics, by address of the name server that returned them (code 206).

        A name server that does not answer is left out. Raises `TransportError` when none does.
        """
        addresses = await self._running().name_servers.known()
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        answers = await asyncio.gather(*(self._ask(at, code) for at in addresses), return_exceptions=True)
        found = {
            at: set((await apart(bodies.TopicList.decode, answer)).topic_list)
            for at, answer in zip(addresses, answers, strict=True)
            if isinstance(answer, bytes)
        }
        for answer in answers:
            if isinstance(answer, BaseException) and (not found or not isinstance(answer, Exception)):
                raise answer
        return found

    async def offset_at(self, queue: MessageQueue, at: datetime | int) -> int:
        """The offset of a queue's first message stored at or after `at`, an aware datetime or epoch
        milliseconds (code 29).
        """
        time_ms = epoch_ms("at", at)
        return await self._running().brokers.search_offset(await self._master_of(queue), queue, time_ms)

    async def put_topic_config(self, broker: str, config: bodies.TopicConfig, *, force: bool = False) -> None:
        """Create or change a topic on one broker (code 17). Other attributes of the topic on the broker stay.
        `force` as in `create_topic`.

        Raises `ClientError` for RocketMQ's system topics.
        """
        check_topic(config.topic_name)
        if is_system_topic(config.topic_name):
            raise ClientError(f"the topic {config.topic_name!r} is RocketMQ's own and cannot be changed")
        address = await self._broker_address(broker)
        await self._put_topic(address, config, await self._attribute_changes(address, config), force=force)

    async def _put_topic(
        self, address: str, config: bodies.TopicConfig, attributes: str | None, *, force: bool
    ) -> None:
        """Create or change a topic (code 17); `attributes` are the changes of its attributes."""
        header = headers.CreateTopicRequest(
            attributes=attributes,
            topic=config.topic_name,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_filter_type=config.topic_filter_type,
            topic_sys_flag=config.topic_sys_flag,
            order=config.order,
            sparrow_force=force or None,
        )
        await self._ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def _change_topic(
        self, address: str, name: str, given: Mapping[str, int], attributes: str | None, *, force: bool
    ) -> bodies.TopicConfig:
        """Create a topic, or change only the `given` settings of it; returns the new ones."""
        found = await self._topic_config(address, name)
        if found is None:
            found = bodies.TopicConfig(topic_name=name, read_queue_nums=8, write_queue_nums=8)
        config = replace(found, **given)
        reads, writes = config.read_queue_nums, config.write_queue_nums
        if reads < writes and not force and {"read_queue_nums", "write_queue_nums"} & given.keys():
            raise ClientError(
                f"topic {name!r} at {address} would have {writes} write queues and {reads} read queues: no "
                f"consumer would get the messages in the queues {reads} to {writes - 1}; give it at least "
                f"{writes} read queues, or force it"
            )
        await self._put_topic(address, config, attributes, force=force)
        return config

    async def queue_entries(self, queue: MessageQueue, offset: int, count: int = 10) -> list[ListedEntry]:
        """Entries of a consume queue from an offset on (code 321), at most 1000.

        Raises `BrokerError` for a queue that has never had a message.
        """
        check_range("offset", offset, 0, 2**63 - 1)
        check_range("count", count, 1, ENTRIES_MAX)
        header = headers.QueryConsumeQueueRequest(
            topic=queue.topic, queue_id=queue.queue_id, index=offset, count=count
        )
        address = await self._master_of(queue)
        found = QueryConsumeQueueBody.decode(
            await self._ask(address, RequestCode.QUERY_CONSUME_QUEUE, header)
        )
        first = max(offset, found.min_queue_index)
        return [
            ListedEntry(first + number, entry.physic_offset, entry.physic_size, entry.tags_code)
            for number, entry in enumerate(found.queue_data)
        ]

    async def topic_config(self, broker: str, topic: str) -> bodies.TopicConfig | None:
        """One topic's configuration on a broker (code 351); None if it does not exist there."""
        return await self._topic_config(await self._broker_address(broker), topic)

    async def _topic_config(self, address: str, topic: str) -> bodies.TopicConfig | None:
        header = headers.GetTopicConfigRequest(topic=topic)
        try:
            return bodies.TopicConfig.decode(await self._ask(address, RequestCode.GET_TOPIC_CONFIG, header))
        except BrokerError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:  # by older brokers
                table = await self._ask(address, RequestCode.GET_ALL_TOPIC_CONFIG)
                return (await apart(bodies.TopicConfigTable.decode, table)).topic_config_table.get(topic)
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            return None

    async def _attribute_changes(self, address: str, config: bodies.TopicConfig) -> str | None:
        """The attributes to change on a broker: only those that differ, because some cannot be changed."""
        if not config.attributes:
            return None
        found = await self._topic_config(address, config.topic_name)
        current = {} if found is None else found.attributes
        return changes_text({key: one for key, one in config.attributes.items() if current.get(key) != one})

    async def put_group_config(self, broker: str, config: bodies.SubscriptionGroupConfig) -> None:
        """Create or change a consumer group on one broker (code 200)."""
        check_group(config.group_name)
        address, code = await self._broker_address(broker), RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        await self._running().brokers.ask(address, code, body=config.encode(), timeout=TABLE_SECONDS)

    async def clear_topic(self, broker: str, topic: str) -> None:
        """Delete a topic with its messages and offsets on one broker, even if the broker no longer knows it
        (215).

        RocketMQ 4.9 keeps the offsets of deleted topics.
        """
        if is_system_topic(topic):
            raise ClientError(f"the topic {topic!r} is RocketMQ's own and cannot be deleted")
        header = headers.DeleteTopicRequest(topic=topic)
        await self._ask(await self._broker_address(broker), RequestCode.DELETE_TOPIC_IN_BROKER, header)

    async def unlist_topic(self, topic: str) -> None:
        """Delete a topic from every name server (code 216). Brokers that have it register it again."""
        header = headers.DeleteTopicFromNamesrvRequest(topic=topic)
        names = self._running().name_servers
        for address in await names.known():
            await self._ask(address, RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
        self._running().routes.forget(topic)

    async def _table(self, broker: str, code: RequestCode) -> bytes:
        address = await self._broker_address(broker)
        return (await self._running().brokers.ask(address, code, timeout=TABLE_SECONDS)).body


async def apart(decode: Callable[[bytes], T], body: bytes, inline_bytes: int | None = None) -> T:
    """`decode(body)`, in a thread if the body is large: its thousands of rows would block the loop.

    `inline_bytes` is the limit for bodies that take longer to decode than tables.
    """
    return await all_apart(lambda found: decode(found[0]), [body], inline_bytes)


async def all_apart(
    decode: Callable[[Sequence[bytes]], T], answers: Sequence[bytes], inline_bytes: int | None = None
) -> T:
    """The same for the answers of several brokers.

    Only one thread decodes at a time. Several would be no faster, because they share the interpreter, and
    the loop would have to wait for all of them.
    """
    limit = INLINE_BYTES_MAX if inline_bytes is None else inline_bytes
    if sum(map(len, answers)) <= limit:
        return decode(answers)
    async with _decoding.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        return await asyncio.to_thread(decode, answers)


def _offsets_by_group(broker: str, body: bytes) -> dict[str, dict[MessageQueue, int]]:
    found: defaultdict[str, dict[MessageQueue, int]] = defaultdict(dict)
    for key, offsets in bodies.OffsetTable.decode(body).offset_table.items():
        topic, _, group = key.partition("@")
        for queue_id, offset in offsets.items():
            found[group][MessageQueue(topic, broker, queue_id)] = offset
    return dict(found)
