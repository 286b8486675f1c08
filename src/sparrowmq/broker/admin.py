"""Administration: topics, groups, statistics and connections for tools (remoting:2.7, broker:16.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrowmq.broker.progress import answer, refusal
from sparrowmq.core.errors import InvalidNameError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import check_group, check_topic, retry_topic
from sparrowmq.protocol.bodies import Connection as ConnectionBody
from sparrowmq.protocol.bodies import (
    ConsumerConnection,
    ConsumeStats,
    GroupList,
    OffsetWrapper,
    ProducerConnection,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicConfig,
    TopicConfigList,
    TopicConfigTable,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers import (
    CreateTopicRequest,
    DeleteSubscriptionGroupRequest,
    DeleteTopicRequest,
    GetConsumerConnectionListRequest,
    GetConsumeStatsRequest,
    GetProducerConnectionListRequest,
    GetSubscriptionGroupConfigRequest,
    GetTopicConfigRequest,
    GetTopicStatsInfoRequest,
    QueryTopicConsumeByWhoRequest,
    QueryTopicsByConsumerRequest,
    from_ext,
)

if TYPE_CHECKING:
    from sparrowmq.broker.clients import ClientTable, Member
    from sparrowmq.broker.groups import GroupTable
    from sparrowmq.broker.pulling import PullPath
    from sparrowmq.broker.registration import Registration
    from sparrowmq.broker.stats import BrokerStats
    from sparrowmq.broker.topics import TopicTable
    from sparrowmq.core.settings import BrokerSettings
    from sparrowmq.protocol.frame import Command
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.offsets import ConsumerOffsets
    from sparrowmq.transport.connection import Connection

QUEUES_MAX = 65_536
PERM_MAX = 7


def _connections(members: dict[Connection, Member]) -> list[ConnectionBody]:
    return [
        ConnectionBody(
            client_id=member.client_id,
            client_addr=connection.address,
            language=member.language,
            version=member.version,
        )
        for connection, member in members.items()
    ]


class TopicAdmin:
    """Creating, deleting and looking at topics."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        topics: TopicTable,
        offsets: ConsumerOffsets,
        pulling: PullPath,
        registration: Registration,
        stats: BrokerStats,
    ) -> None:
        self._stats = stats
        self._settings = settings
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._pulling = pulling
        self._registration = registration

    async def create(self, connection: Connection, command: Command) -> Command:
        """17: create or change a topic; answered once the name servers know it."""
        request = from_ext(CreateTopicRequest, command.ext)
        problem = self._problem(request)
        if problem is not None:
            return refusal(command, ResponseCode.INVALID_PARAMETER, problem)
        config = TopicConfig(
            topic_name=request.topic,
            read_queue_nums=request.read_queue_nums,
            write_queue_nums=request.write_queue_nums,
            perm=request.perm,
            topic_filter_type=request.topic_filter_type or "SINGLE_TAG",
            topic_sys_flag=request.topic_sys_flag or 0,
            order=request.order,
        )
        changed = self._topics.put_soon(config)
        await self._topics.kept([config.topic_name])
        if changed:
            await self._registration.changed()
        return answer(command)

    async def create_all(self, connection: Connection, command: Command) -> Command:
        """18: create or change several topics; all of them, or none when one is against the rules."""
        changed = False
        configs = TopicConfigList.decode(command.body).topic_config_list
        for config in configs:
            request = CreateTopicRequest(
                topic=config.topic_name,
                read_queue_nums=config.read_queue_nums,
                write_queue_nums=config.write_queue_nums,
                perm=config.perm,
            )
            problem = self._problem(request)
            if problem is not None:
                return refusal(command, ResponseCode.INVALID_PARAMETER, problem)
        for config in configs:
            changed |= self._topics.put_soon(config)
        await self._topics.kept([config.topic_name for config in configs])
        if changed:
            await self._registration.changed()
        return answer(command)

    def _problem(self, request: CreateTopicRequest) -> str | None:
        name = request.topic
        try:
            check_topic(name)
        except InvalidNameError as error:
            return str(error)
        if self._topics.is_reserved(name):
            return f"The topic[{name}] is conflict with system topic."
        if self._topics.is_going(name):
            return f"The topic[{name}] is being deleted; create it again in a moment."
        for what, number in (("read", request.read_queue_nums), ("write", request.write_queue_nums)):
            if not 0 <= number <= QUEUES_MAX:
                return f"a topic takes 0 to {QUEUES_MAX} {what} queues, not {number}"
        if request.read_queue_nums == request.write_queue_nums == 0:
            return "a topic needs at least one queue"
        if not 0 <= request.perm <= PERM_MAX:
            return f"perm is the sum of 4 (read), 2 (write) and 1 (inherit), not {request.perm}"
        return None

    async def delete(self, connection: Connection, command: Command) -> Command:
        """215: delete a topic, its queues and what groups consumed of it."""
        name = from_ext(DeleteTopicRequest, command.ext).topic
        if self._topics.is_reserved(name):
            remark = f"The topic[{name}] is conflict with system topic."
            return refusal(command, ResponseCode.INVALID_PARAMETER, remark)
        if await self._topics.delete(name):
            self._pulling.release(name)
            self._store.delete_topic(name)
            self._offsets.forget_topic(name)
            await self._registration.changed()
        elif name not in self._topics.configs:
            self._offsets.forget_topic(name)  # a store of RocketMQ 4.9 keeps those of topics that are gone
        return answer(command)

    def config(self, connection: Connection, command: Command) -> Command:
        """351: one topic's configuration."""
        name = from_ext(GetTopicConfigRequest, command.ext).topic
        config = self._topics.configs.get(name)
        if config is None:
            remark = f"No topic in this broker. topic: {name}"
            return refusal(command, ResponseCode.TOPIC_NOT_EXIST, remark)
        return answer(command, body=config.encode())

    def all_configs(self, connection: Connection, command: Command) -> Command:
        """21: every topic's configuration."""
        table = TopicConfigTable(topic_config_table=self._topics.configs, data_version=self._topics.version)
        return answer(command, body=table.encode())

    def stats(self, connection: Connection, command: Command) -> Command:
        """202: offsets and last store time of each queue."""
        name = from_ext(GetTopicStatsInfoRequest, command.ext).topic
        topic = self._topics.get(name)
        if topic is None:
            remark = f"topic[{name}] not exist"
            return refusal(command, ResponseCode.TOPIC_NOT_EXIST, remark)
        table = {}
        for queue in topic.queues[: topic.config.write_queue_nums]:
            last = self._store.store_time(queue, queue.max_offset - 1)
            table[MessageQueue(name, self._settings.broker_name, queue.queue_id)] = TopicOffset(
                min_offset=queue.min_offset, max_offset=queue.max_offset, last_update_timestamp=last or 0
            )
        rate = self._stats.minute_rate("TOPIC_PUT_NUMS", name)
        return answer(command, body=TopicStatsTable(offset_table=table, topic_put_tps=rate).encode())

    def system_topics(self, connection: Connection, command: Command) -> Command:
        """305: the names this broker keeps for itself."""
        names = sorted(name for name in self._topics.names() if self._topics.is_reserved(name))
        return answer(command, body=TopicList(topic_list=names).encode())


class GroupAdmin:
    """Creating, deleting and looking at consumer groups and connections."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        clients: ClientTable,
        offsets: ConsumerOffsets,
        registration: Registration,
        stats: BrokerStats,
    ) -> None:
        self._stats = stats
        self._settings = settings
        self._store = store
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._offsets = offsets
        self._registration = registration

    async def put(self, connection: Connection, command: Command) -> Command:
        """200: create or change a group."""
        config = SubscriptionGroupConfig.decode(command.body)
        try:
            check_group(config.group_name)
        except InvalidNameError as error:
            return refusal(command, ResponseCode.INVALID_PARAMETER, str(error))
        await self._groups.put([config])
        return answer(command)

    def all_configs(self, connection: Connection, command: Command) -> Command:
        """201: every group's configuration."""
        table = SubscriptionGroupTable(
            subscription_group_table=self._groups.configs, data_version=self._groups.version
        )
        return answer(command, body=table.encode())

    def config(self, connection: Connection, command: Command) -> Command:
        """352: one group's configuration; made with defaults as a consumer's first request would."""
        name = from_ext(GetSubscriptionGroupConfigRequest, command.ext).group
        config = self._groups.get(name)
        if config is None:
            remark = f"No group in this broker. group: {name}"
            return refusal(command, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        return answer(command, body=config.encode())

    async def delete(self, connection: Connection, command: Command) -> Command:
        """207: delete a group; its retry topic and, if asked, its offsets go too."""
        request = from_ext(DeleteSubscriptionGroupRequest, command.ext)
        if await self._groups.delete(request.group_name):
            retry = retry_topic(request.group_name)
            if await self._topics.delete(retry):
                self._store.delete_topic(retry)
                self._offsets.forget_topic(retry)
                await self._registration.changed()
        if request.clean_offset or request.remove_offset:
            self._offsets.forget_group(request.group_name)
        return answer(command)

    def consumer_connections(self, connection: Connection, command: Command) -> Command:
        """203: who consumes in a group, and what."""
        name = from_ext(GetConsumerConnectionListRequest, command.ext).consumer_group
        group = self._clients.consumers.get(name)
        if group is None:
            remark = f"the consumer group[{name}] not online"
            return refusal(command, ResponseCode.CONSUMER_NOT_ONLINE, remark)
        body = ConsumerConnection(
            connections=_connections(group.members),
            subscriptions=group.subscriptions,
            consume_type=group.consume_type,
            message_model=group.message_model,
            consume_from_where=group.consume_from_where,
        )
        return answer(command, body=body.encode())

    def producer_connections(self, connection: Connection, command: Command) -> Command:
        """204: who produces in a group."""
        name = from_ext(GetProducerConnectionListRequest, command.ext).producer_group
        members = self._clients.producers.get(name)
        if members is None:
            remark = f"the producer group[{name}] not exist"
            return refusal(command, ResponseCode.SYSTEM_ERROR, remark)
        return answer(command, body=ProducerConnection(connection_set=_connections(members)).encode())

    def consume_stats(self, connection: Connection, command: Command) -> Command:
        """208: how far a group is behind, per queue (broker:16.3)."""
        request = from_ext(GetConsumeStatsRequest, command.ext)
        name = request.consumer_group
        wanted = [request.topic] if request.topic else self._topics_of(name)
        if request.topic_list:
            wanted = request.topic_list.split(";")
        table: dict[MessageQueue, OffsetWrapper] = {}
        for topic_name in wanted:
            topic = self._topics.get(topic_name)
            if topic is None:
                continue
            for queue in topic.queues[: topic.config.read_queue_nums]:
                consumed = max(0, self._offsets.query(topic_name, name, queue.queue_id) or 0)
                last = self._store.store_time(queue, consumed - 1)
                key = MessageQueue(topic_name, self._settings.broker_name, queue.queue_id)
                table[key] = OffsetWrapper(
                    broker_offset=queue.max_offset,
                    consumer_offset=consumed,
                    pull_offset=consumed,
                    last_timestamp=last or 0,
                )
        rates = [self._stats.minute_rate("GROUP_GET_NUMS", f"{topic}@{name}") for topic in wanted]
        return answer(command, body=ConsumeStats(offset_table=table, consume_tps=sum(rates)).encode())

    def _topics_of(self, group: str) -> list[str]:
        """Topics the group has offsets for; without those it no longer subscribes while it is online."""
        topics = set(self._offsets.topics_of(group))
        online = self._clients.consumers.get(group)
        if online is not None:
            topics = set(online.subscriptions)
        return sorted(topics)

    def groups_of_topic(self, connection: Connection, command: Command) -> Command:
        """300: groups that consume a topic, online or by their offsets."""
        name = from_ext(QueryTopicConsumeByWhoRequest, command.ext).topic
        groups = {*self._clients.groups_of_topic(name), *self._offsets.groups_of(name)}
        return answer(command, body=GroupList(group_list=sorted(groups)).encode())

    def topics_of_group(self, connection: Connection, command: Command) -> Command:
        """343: topics a group has consumed."""
        name = from_ext(QueryTopicsByConsumerRequest, command.ext).group
        body = TopicList(topic_list=self._topics_of(name), broker_addr=self._settings.broker_name)
        return answer(command, body=body.encode())
