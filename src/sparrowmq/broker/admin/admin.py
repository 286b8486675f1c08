"""Administration: topics, groups, statistics and connections for tools (remoting:2.7, broker:16.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from sparrowmq.broker.base.long_answers import LongAnswers
from sparrowmq.broker.base.offsets import answer, refusal
from sparrowmq.broker.tables.topic_attributes import altered, parse
from sparrowmq.core.errors import InvalidNameError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import check_group, check_topic, retry_topic
from sparrowmq.protocol.bodies import (
    ConnectionInfo,
    ConsumerConnection,
    ConsumeStats,
    GroupList,
    MasterTopicTable,
    OffsetWrapper,
    ProducerConnection,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicConfig,
    TopicConfigList,
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
from sparrowmq.protocol.refusals import Refused
from sparrowmq.transport.slices import shared

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator

    from sparrowmq.broker.admin.deletions import Deletions
    from sparrowmq.broker.admin.progress import ConsumerProgress
    from sparrowmq.broker.admin.shrinking import Shrinking
    from sparrowmq.broker.admin.stats import BrokerStats
    from sparrowmq.broker.base.registration import Announcements
    from sparrowmq.broker.tables.clients import ConnectedMember
    from sparrowmq.broker.tables.proxied import ProxiedMember
    from sparrowmq.broker.tables.shared_tables import SharedTables
    from sparrowmq.broker.tables.topics import TopicTable
    from sparrowmq.core.settings.servers import BrokerSettings
    from sparrowmq.protocol.frame import Command
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.transport.connection import Connection

QUEUES_MAX = 65_536
PERM_MAX = 7


def _connections(members: dict[Connection, ConnectedMember]) -> list[ConnectionInfo]:
    return [
        ConnectionInfo(
            client_id=member.client_id,
            client_addr=connection.address,
            language=member.language,
            version=member.version,
        )
        for connection, member in members.items()
    ]


def _at_proxies(members: list[ProxiedMember]) -> ConsumerConnection:
    """A group whose members are all at proxies; its type is that of the latest."""
    found = ConsumerConnection(
        connections=[
            ConnectionInfo(
                client_id=member.client_id,
                client_addr=member.address,
                language=member.language,
                version=member.version,
            )
            for member in members
        ],
        subscriptions={one.topic: one for member in members for one in member.subscriptions},
    )
    return replace(found, consume_type=members[-1].consume_type) if members else found


class TopicRequests:
    """Creating, deleting and looking at topics."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        topics: TopicTable,
        deletions: Deletions,
        registration: Announcements,
        stats: BrokerStats,
        shrinking: Shrinking,
    ) -> None:
        self._long = LongAnswers()
        self._stats = stats
        self._shrinking = shrinking
        self._settings = settings
        self._store = store
        self._topics = topics
        self._deletions = deletions
        self._registration = registration

    async def create(self, connection: Connection, command: Command) -> Command:
        """17: create or change a topic; answered once the name servers know it. Attributes that are not named
        stay unchanged. Fewer queues to read are refused while the others have unread messages, unless forced.
        """
        request = from_ext(CreateTopicRequest, command.ext)
        problem = self._problem(request)
        if problem is not None:
            return refusal(command, ResponseCode.INVALID_PARAMETER, problem)
        try:
            attributes = self._attributes(request.topic, parse(request.attributes or ""))
        except Refused as refused:
            return refused.answer(command.opaque)
        config = TopicConfig(
            attributes=attributes,
            topic_name=request.topic,
            read_queue_nums=request.read_queue_nums,
            write_queue_nums=request.write_queue_nums,
            perm=request.perm,
            topic_filter_type=request.topic_filter_type or "SINGLE_TAG",
            topic_sys_flag=request.topic_sys_flag or 0,
            order=request.order,
        )
        if not request.sparrow_force and (problem := await self._hides(config)) is not None:
            return refusal(command, ResponseCode.INVALID_PARAMETER, problem)
        self._topics.put_soon(config)
        await self._topics.kept([config.topic_name])
        # Also when nothing changed: a send may have created the topic while it was deleted at name servers.
        await self._registration.changed()
        return answer(command)

    async def create_all(self, connection: Connection, command: Command) -> Command:
        """18: create or change several topics; none is changed if one is invalid. Attributes have the form of
        17, by key with its sign.
        """
        configs = []
        for config in TopicConfigList.decode_request(command.body).topic_config_list:
            request = CreateTopicRequest(
                topic=config.topic_name,
                read_queue_nums=config.read_queue_nums,
                write_queue_nums=config.write_queue_nums,
                perm=config.perm,
            )
            problem = self._problem(request)
            if problem is not None:
                return refusal(command, ResponseCode.INVALID_PARAMETER, problem)
            try:
                attributes = self._attributes(config.topic_name, config.attributes)
            except Refused as refused:
                return refusal(command, refused.code, f"{config.topic_name}: {refused.remark}")
            configs.append(replace(config, attributes=attributes))
        for config in configs:
            if (problem := await self._hides(config)) is not None:
                return refusal(command, ResponseCode.INVALID_PARAMETER, problem)
        self._topics.check_room(configs)
        for config in configs:
            self._topics.put_soon(config)
        await self._topics.kept([config.topic_name for config in configs])
        await self._registration.changed()
        return answer(command)

    async def _hides(self, config: TopicConfig) -> str | None:
        """Why a change would hide messages, or None."""
        before = self._topics.configs.get(config.topic_name)
        return await shared().result(self._shrinking.problem(before, config))

    def _attributes(self, name: str, changes: Mapping[str, str]) -> dict[str, str]:
        """The attributes of a topic after a change. Raises `Refused`."""
        current = self._topics.configs.get(name)
        return altered(None if current is None else current.attributes, changes)

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
        """215: delete a topic, its queues and the groups' offsets in it."""
        name = from_ext(DeleteTopicRequest, command.ext).topic
        if self._topics.is_reserved(name):
            remark = f"The topic[{name}] is conflict with system topic."
            return refusal(command, ResponseCode.INVALID_PARAMETER, remark)
        if await self._deletions.topic(name):
            self._stats.forget(name)
            await self._registration.changed()
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
        topics = self._topics
        table = MasterTopicTable(
            topic_config_table=topics.configs, data_version=topics.version, births=topics.births
        )
        return answer(command, body=table.encode())

    def stats(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """202: offsets and last store time of each queue."""
        return self._long.begin(connection, self._stats_of(command))

    def _stats_of(self, command: Command) -> Generator[None, None, Command]:
        name = from_ext(GetTopicStatsInfoRequest, command.ext).topic
        topic = self._topics.get(name)
        if topic is None:
            remark = f"topic[{name}] not exist"
            return refusal(command, ResponseCode.TOPIC_NOT_EXIST, remark)
        table = {}
        for queue in map(topic.queues.__getitem__, range(topic.queue_count)):
            end = queue.confirmed_offset
            last = self._store.store_time(queue, end - 1)
            table[MessageQueue(name, self._settings.broker_name, queue.queue_id)] = TopicOffset(
                min_offset=queue.min_offset, max_offset=end, last_update_timestamp=last or 0
            )
            yield
        rate = self._stats.minute_rate("TOPIC_PUT_NUMS", name)
        return answer(command, body=TopicStatsTable(offset_table=table, topic_put_tps=rate).encode())

    def system_topics(self, connection: Connection, command: Command) -> Command:
        """305: the names that this broker reserves."""
        names = sorted(name for name in self._topics.names() if self._topics.is_reserved(name))
        return answer(command, body=TopicList(topic_list=names).encode())


class GroupRequests:
    """Creating, deleting and looking at consumer groups and connections."""

    def __init__(
        self,
        settings: BrokerSettings,
        tables: SharedTables,
        deletions: Deletions,
        registration: Announcements,
        stats: BrokerStats,
        progress: ConsumerProgress,
    ) -> None:
        self._long = LongAnswers()
        self._stats = stats
        self._settings = settings
        self._progress = progress
        self._proxied = tables.proxied
        self._topics = tables.topics
        self._deletions = deletions
        self._groups = tables.groups
        self._clients = tables.clients
        self._offsets = tables.offsets
        self._registration = registration

    async def put(self, connection: Connection, command: Command) -> Command:
        """200: create or change a group."""
        config = SubscriptionGroupConfig.decode_request(command.body)
        try:
            check_group(config.group_name)
        except InvalidNameError as error:
            return refusal(command, ResponseCode.INVALID_PARAMETER, str(error))
        await self._groups.put([config])
        return answer(command)

    def all_configs(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """201: every group's configuration."""
        return self._long.begin(connection, self._all_configs(command))

    def _all_configs(self, command: Command) -> Generator[None, None, Command]:
        table = SubscriptionGroupTable(
            subscription_group_table=dict(self._groups.configs),
            forbidden_table=self._groups.bans,
            data_version=self._groups.version,
        )
        return answer(command, body=(yield from table.encoding()))

    def config(self, connection: Connection, command: Command) -> Command:
        """352: one group's configuration; created with defaults as by a consumer's first request."""
        name = from_ext(GetSubscriptionGroupConfigRequest, command.ext).group
        config = self._groups.get(name)
        if config is None:
            remark = f"No group in this broker. group: {name}"
            return refusal(command, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        return answer(command, body=config.encode())

    async def delete(self, connection: Connection, command: Command) -> Command:
        """207: delete a group and its retry topic, and on request its offsets."""
        request = from_ext(DeleteSubscriptionGroupRequest, command.ext)
        if await self._groups.delete(request.group_name):
            self._stats.forget(request.group_name, retry_topic(request.group_name))
        if await self._deletions.topic(retry_topic(request.group_name)):
            await self._registration.changed()
        if request.clean_offset or request.remove_offset:
            await self._deletions.offsets_of_group(request.group_name)
        return answer(command)

    def consumer_connections(self, connection: Connection, command: Command) -> Command:
        """203: the members of a consumer group, also those at proxies, and their subscriptions."""
        name = from_ext(GetConsumerConnectionListRequest, command.ext).consumer_group
        group, proxied = self._clients.consumers.get(name), self._proxied.of_group(name)
        if group is None and not proxied:
            remark = f"the consumer group[{name}] not online"
            return refusal(command, ResponseCode.CONSUMER_NOT_ONLINE, remark)
        body = _at_proxies(proxied)
        if group is not None:
            body = ConsumerConnection(
                connections=_connections(group.members) + body.connections,
                subscriptions=body.subscriptions | group.subscriptions,
                consume_type=group.consume_type,
                message_model=group.message_model,
                consume_from_where=group.consume_from_where,
            )
        return answer(command, body=body.encode())

    def producer_connections(self, connection: Connection, command: Command) -> Command:
        """204: the producers of a group."""
        name = from_ext(GetProducerConnectionListRequest, command.ext).producer_group
        members = self._clients.producers.get(name)
        if members is None:
            remark = f"the producer group[{name}] not exist"
            return refusal(command, ResponseCode.SYSTEM_ERROR, remark)
        return answer(command, body=ProducerConnection(connection_set=_connections(members)).encode())

    def consume_stats(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """208: how far a group is behind, per queue (broker:16.3)."""
        return self._long.begin(connection, self._consume_stats(command))

    def _consume_stats(self, command: Command) -> Generator[None, None, Command]:
        request = from_ext(GetConsumeStatsRequest, command.ext)
        name = request.consumer_group
        wanted = [request.topic] if request.topic else self._progress.topics_of(name)
        if request.topic_list:
            wanted = request.topic_list.split(";")
        table: dict[MessageQueue, OffsetWrapper] = {}
        for topic_name in wanted:
            topic = self._topics.get(topic_name)
            if topic is None:
                continue
            invisible = self._progress.invisible(topic_name, name)
            for queue in map(topic.queues.__getitem__, range(topic.config.read_queue_nums)):
                key = MessageQueue(topic_name, self._settings.broker_name, queue.queue_id)
                pulled = self._stats.pulled(queue, name) or 0
                table[key] = self._progress.row(queue, name, invisible, pulled)
                yield
        rates = [self._stats.minute_rate("GROUP_GET_NUMS", f"{topic}@{name}") for topic in wanted]
        return answer(command, body=ConsumeStats(offset_table=table, consume_tps=sum(rates)).encode())

    def groups_of_topic(self, connection: Connection, command: Command) -> Command:
        """300: groups that consume a topic: online ones, and those with offsets."""
        name = from_ext(QueryTopicConsumeByWhoRequest, command.ext).topic
        groups = {*self._clients.groups_of_topic(name), *self._offsets.groups_of(name)}
        return answer(command, body=GroupList(group_list=sorted(groups)).encode())

    def topics_of_group(self, connection: Connection, command: Command) -> Command:
        """343: topics a group has consumed."""
        name = from_ext(QueryTopicsByConsumerRequest, command.ext).group
        body = TopicList(topic_list=self._progress.topics_of(name), broker_addr=self._settings.broker_name)
        return answer(command, body=body.encode())
