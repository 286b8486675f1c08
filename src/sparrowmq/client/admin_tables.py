"""Whole tables of single brokers and name servers: what each of them has, to be compared and mended."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Final

from sparrowmq.client.admin_calls import AdminCalls
from sparrowmq.client.admin_types import BrokerTopics
from sparrowmq.core.errors import ClientError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import check_group, check_topic, is_system_topic
from sparrowmq.protocol import bodies, headers
from sparrowmq.protocol.codes import RequestCode

TABLE_SECONDS: Final = 15.0
"""For requests whose answer has everything of a kind that a broker knows."""


class TableAdmin(AdminCalls):
    """The part of `Admin` for tables as one server has them. `broker` is a name or `host:port`."""

    async def broker_topics(self, broker: str) -> BrokerTopics:
        """Every topic of a broker and its configuration (code 21)."""
        table = bodies.BrokerTopicTable.decode(await self._table(broker, RequestCode.GET_ALL_TOPIC_CONFIG))
        return BrokerTopics(table.topic_config_table, frozenset(table.topic_queue_mapping_detail_map))

    async def broker_groups(self, broker: str) -> dict[str, bodies.SubscriptionGroupConfig]:
        """Every consumer group of a broker and its settings (code 201)."""
        body = await self._table(broker, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return bodies.SubscriptionGroupTable.decode(body).subscription_group_table

    async def stored_offsets(self, broker: str) -> dict[str, dict[MessageQueue, int]]:
        """All committed offsets of a broker by group (code 43), of topics it no longer has, too.

        The queues have the broker's name as it was given.
        """
        body = await self._table(broker, RequestCode.GET_ALL_CONSUMER_OFFSET)
        found: defaultdict[str, dict[MessageQueue, int]] = defaultdict(dict)
        for key, offsets in bodies.OffsetTable.decode(body).offset_table.items():
            topic, _, group = key.partition("@")
            for queue_id, offset in offsets.items():
                found[group][MessageQueue(topic, broker, queue_id)] = offset
        return dict(found)

    async def listed_topics(self) -> dict[str, set[str]]:
        """The names of all topics by address of the name server that lists them (code 206).

        A name server that does not answer is left out. Raises `TransportError` when none does.
        """
        addresses = await self._running().name_servers.known()
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        answers = await asyncio.gather(*(self._ask(at, code) for at in addresses), return_exceptions=True)
        found = {
            at: set(bodies.TopicList.decode(answer).topic_list)
            for at, answer in zip(addresses, answers, strict=True)
            if isinstance(answer, bytes)
        }
        for answer in answers:
            if isinstance(answer, BaseException) and (not found or not isinstance(answer, Exception)):
                raise answer
        return found

    async def offset_at(self, queue: MessageQueue, time_ms: int) -> int:
        """The offset of a queue's first message that was stored at that time or later (code 29)."""
        return await self._running().brokers.search_offset(await self._master_of(queue), queue, time_ms)

    async def put_topic_config(self, broker: str, config: bodies.TopicConfig) -> None:
        """Make or change a topic at one broker (code 17). Raises `ClientError` for RocketMQ's own."""
        check_topic(config.topic_name)
        if is_system_topic(config.topic_name):
            raise ClientError(f"the topic {config.topic_name!r} is RocketMQ's own and is not changed")
        header = headers.CreateTopicRequest(
            topic=config.topic_name,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_filter_type=config.topic_filter_type,
            topic_sys_flag=config.topic_sys_flag,
            order=config.order,
        )
        await self._ask(await self._broker_address(broker), RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def put_group_config(self, broker: str, config: bodies.SubscriptionGroupConfig) -> None:
        """Make or change a consumer group at one broker (code 200)."""
        check_group(config.group_name)
        address, code = await self._broker_address(broker), RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        await self._running().brokers.ask(address, code, body=config.encode(), timeout=TABLE_SECONDS)

    async def clear_topic(self, broker: str, topic: str) -> None:
        """Have one broker forget a topic with messages and offsets, whether it still knows it or not (215).

        RocketMQ 4.9 keeps offsets of topics that it no longer has.
        """
        if is_system_topic(topic):
            raise ClientError(f"the topic {topic!r} is RocketMQ's own and cannot be deleted")
        header = headers.DeleteTopicRequest(topic=topic)
        await self._ask(await self._broker_address(broker), RequestCode.DELETE_TOPIC_IN_BROKER, header)

    async def unlist_topic(self, topic: str) -> None:
        """Have every name server forget a topic (code 216); brokers that have it register it again."""
        header = headers.DeleteTopicFromNamesrvRequest(topic=topic)
        names = self._running().name_servers
        for address in await names.known():
            await self._ask(address, RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
        self._running().routes.forget(topic)

    async def _table(self, broker: str, code: RequestCode) -> bytes:
        address = await self._broker_address(broker)
        return (await self._running().brokers.ask(address, code, timeout=TABLE_SECONDS)).body
