"""The clients with which one process asks the cluster: one of each, for all services and users; and the
requests that only a coordinator makes.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from sparrowmq.aio import Admin, Producer, PullConsumer
from sparrowmq.core.errors import ClientError, TransportError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import check_group, is_system_topic
from sparrowmq.protocol import bodies, headers
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command, encode

ACL_REFUSAL: Final = "AclException"
REFUSAL_SECONDS: Final = 10.0
GROUP_SECONDS: Final = 15.0
OFFSETS_INLINE_BYTES: Final = 4 * 1024
"""Larger tables of offsets are decoded in a thread: their rows take few bytes."""


@dataclass(slots=True)
class ClusterClients:
    """An admin client, a consumer without group, and producers by group, started on first use.

    Every method raises `SparrowError` if the client cannot be started.
    """

    namesrv: str
    starting: asyncio.Lock = field(default_factory=asyncio.Lock)
    made_admin: Admin | None = None
    made_reader: PullConsumer | None = None
    made_producers: dict[str, Producer] = field(default_factory=dict)

    async def admin(self) -> Admin:
        """The admin client."""
        async with self.starting:
            if self.made_admin is None:
                admin = Admin(namesrv=self.namesrv)
                await admin.start()
                self.made_admin = admin
            return self.made_admin

    async def calls(self) -> ClusterCalls:
        """The requests that only a coordinator makes, over the admin client."""
        return ClusterCalls(await self.admin())

    async def reader(self) -> PullConsumer:
        """A consumer that reads by offset and commits nothing."""
        async with self.starting:
            if self.made_reader is None:
                reader = PullConsumer(namesrv=self.namesrv)
                await reader.start()
                self.made_reader = reader
            return self.made_reader

    async def producer(self, group: str) -> Producer:
        """The producer of a group."""
        async with self.starting:
            if group not in self.made_producers:
                producer = Producer(group, namesrv=self.namesrv)
                await producer.start()
                self.made_producers[group] = producer
            return self.made_producers[group]

    async def close(self) -> None:
        """Close all of them. Idempotent; a later use starts them again."""
        producers, self.made_producers = list(self.made_producers.values()), {}
        for producer in producers:
            await producer.close()
        reader, self.made_reader = self.made_reader, None
        if reader is not None:
            await reader.close()
        admin, self.made_admin = self.made_admin, None
        if admin is not None:
            await admin.close()


class ClusterCalls:
    """Requests that only a coordinator makes, over an admin client; and those of its calls that the services
    for groups need, under the names of their protocols.
    """

    def __init__(self, admin: Admin) -> None:
        self._calls = admin.calls
        self.topic_route, self.topic_status = admin.topics.route, admin.topics.status
        self.search_offset = admin.topics.search_offset
        self.group_progress, self.group_connections = admin.groups.progress, admin.groups.connections
        self.committed, self.commit = admin.groups.committed, admin.groups.commit
        self.reset_offsets, self.reset_queue = admin.groups.reset, admin.groups.reset_queue
        self.group_policies, self.set_group_policy = admin.policies.list, admin.policies.set
        self.value, self.put_value = admin.name_servers.value, admin.name_servers.set_value
        self.delete_value = admin.name_servers.delete_value

    async def stored_offsets(self, broker: str) -> dict[str, dict[MessageQueue, int]]:
        """All committed offsets of a broker by group (code 43), including those of deleted topics.

        The queues have the broker name that was given.
        """
        code, decode = RequestCode.GET_ALL_CONSUMER_OFFSET, partial(_offsets_by_group, broker)
        return await self._calls.table(broker, code, decode, OFFSETS_INLINE_BYTES)

    async def put_group_config(self, broker: str, config: bodies.SubscriptionGroupConfig) -> None:
        """Create or change a consumer group on one broker (code 200)."""
        check_group(config.group_name)
        code, body = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, config.encode()
        address = await self._calls.broker_address(broker)
        await self._calls.running().brokers.ask(address, code, body=body, timeout=GROUP_SECONDS)

    async def clear_topic(self, broker: str, topic: str) -> None:
        """Delete a topic with its messages and offsets on one broker, even if the broker no longer knows it
        (215).

        RocketMQ 4.9 keeps the offsets of deleted topics.
        """
        if is_system_topic(topic):
            raise ClientError(f"the topic {topic!r} is RocketMQ's own and cannot be deleted")
        header = headers.DeleteTopicRequest(topic=topic)
        address = await self._calls.broker_address(broker)
        await self._calls.ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, header)

    async def unlist_topic(self, topic: str) -> None:
        """Delete a topic from every name server (code 216). Brokers that have it register it again."""
        header = headers.DeleteTopicFromNamesrvRequest(topic=topic)
        names = self._calls.running().name_servers
        for address in await names.known():
            await self._calls.ask(address, RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
        self._calls.running().routes.forget(topic)

    async def consume_refusal(self, code: int, fields: Mapping[str, str], body: bytes) -> str:
        """Why brokers do not allow the sender of a request to consume the topics that it names for the group;
        empty if they do. `code` is that of a join or a report; `fields` and `body` are those of the request,
        with its signature.

        The request is passed on as the sender signed it, so the broker checks the sender's account and
        permissions, as for a pull. Apache's brokers, which do not know such requests, are asked for the
        group's members instead, and check the permission for that. Raises `TransportError` when no broker
        answers.
        """
        error = None
        for address in (await self._calls.cluster_masters(None)).values():
            try:
                answer = await self._in_words_of(address, code, fields, body)
                if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    listed = RequestCode.GET_CONSUMER_LIST_BY_GROUP
                    answer = await self._in_words_of(address, listed, fields, body)
            except TransportError as failed:
                error = failed
                continue
            text = answer.remark or ""
            # RocketMQ 5.x has a code for it, 4.x only a text.
            is_refused = answer.code == ResponseCode.NO_PERMISSION or ACL_REFUSAL in text
            return (text or "the broker refuses it") if is_refused else ""
        raise error or ClientError("no broker is registered")

    async def _in_words_of(self, address: str, code: int, fields: Mapping[str, str], body: bytes) -> Command:
        """Pass on a request; it is encoded here, so that it is not signed with this client's account."""
        remoting = self._calls.running().remoting
        request = Command(code, remoting.next_opaque(), ext=dict(fields), body=body)
        return await remoting.call_encoded(address, request.opaque, encode(request), REFUSAL_SECONDS, code)


def _offsets_by_group(broker: str, body: bytes) -> dict[str, dict[MessageQueue, int]]:
    found: defaultdict[str, dict[MessageQueue, int]] = defaultdict(dict)
    for key, offsets in bodies.OffsetTable.decode(body).offset_table.items():
        topic, _, group = key.partition("@")
        for queue_id, offset in offsets.items():
            found[group][MessageQueue(topic, broker, queue_id)] = offset
    return dict(found)
