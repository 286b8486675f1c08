"""What tools ask and change about groups beyond `GroupAdmin` (remoting:2.7, broker:16.3)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.progress import answer, refusal
from sparrowmq.core.errors import InvalidNameError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import check_group
from sparrowmq.protocol.bodies import (
    BrokerConsumeStats,
    ConsumeStats,
    ConsumeTimeSpans,
    CorrectionOffsets,
    GroupForbidden,
    GroupSubscription,
    OffsetWrapper,
    ProducerInfo,
    ProducerTable,
    SubscriptionGroupList,
    time_span,
)
from sparrowmq.protocol.call_headers import (
    CloneGroupOffsetRequest,
    GetBrokerConsumeStatsRequest,
    QueryConsumeTimeSpanRequest,
    QueryCorrectionOffsetRequest,
    QuerySubscriptionByConsumerRequest,
    UpdateGroupForbiddenRequest,
)
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers import from_ext

if TYPE_CHECKING:
    from sparrowmq.broker.clients import ClientTable
    from sparrowmq.broker.groups import GroupTable
    from sparrowmq.broker.topics import Topic, TopicTable
    from sparrowmq.core.clock import Clock
    from sparrowmq.core.settings import BrokerSettings
    from sparrowmq.protocol.frame import Command
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.offsets import ConsumerOffsets
    from sparrowmq.transport.connection import Connection

LONG_MAX: Final = 2**63 - 1


class GroupTools:
    """Handlers for the tools' view of groups and producers."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        clients: ClientTable,
        offsets: ConsumerOffsets,
        clock: Clock,
        *,
        address: str,
    ) -> None:
        self._settings = settings
        self._store = store
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._offsets = offsets
        self._clock = clock
        self._address = address

    async def put_all(self, connection: Connection, command: Command) -> Command:
        """225: create or change several groups; none when one of them is illegal."""
        configs = SubscriptionGroupList.decode(command.body).group_config_list
        for config in configs:
            try:
                check_group(config.group_name)
            except InvalidNameError as error:
                return refusal(command, ResponseCode.INVALID_PARAMETER, str(error))
        await self._groups.put(configs)
        return answer(command)

    def time_spans(self, connection: Connection, command: Command) -> Command:
        """303: store times of the first, last and last consumed message of each queue, and the delay."""
        request = from_ext(QueryConsumeTimeSpanRequest, command.ext)
        topic = self._topics.get(request.topic)
        if topic is None:
            return refusal(command, ResponseCode.TOPIC_NOT_EXIST, f"topic[{request.topic}] not exist")
        spans = []
        now, store_time = self._clock.now_ms(), self._store.store_time
        for queue in topic.queues[: topic.config.write_queue_nums]:
            consumed = max(0, self._offsets.query(request.topic, request.group, queue.queue_id) or 0)
            first = store_time(queue, queue.min_offset)
            last = store_time(queue, queue.max_offset - 1)
            at = store_time(queue, consumed - 1) if consumed > 0 else first
            following = store_time(queue, consumed) if consumed < queue.max_offset else None
            delay = 0 if following is None else now - following
            key = MessageQueue(request.topic, self._settings.broker_name, queue.queue_id)
            first, last, at = (-1 if one is None else one for one in (first, last, at))
            spans.append(time_span(key, first, last, at, delay))
        return answer(command, body=ConsumeTimeSpans(spans).encode())

    def corrections(self, connection: Connection, command: Command) -> Command:
        """308: the lowest offsets that other groups have of a topic, against those of one group.

        The reference forgets the filtered groups' offsets on the way; here they stay.
        """
        request = from_ext(QueryCorrectionOffsetRequest, command.ext)
        left_out = set(filter(None, (request.filter_groups or "").split(",")))
        lowest: dict[int, int] = {}
        compared: dict[int, int] = {}
        for topic, group, queue_id, offset in self._offsets.items():
            if topic != request.topic:
                continue
            if group == request.compare_group:
                compared[queue_id] = offset
            if group in left_out:
                continue
            queue = self._store.find_queue(topic, queue_id)
            if offset >= (0 if queue is None else queue.min_offset):
                lowest[queue_id] = min(offset, lowest.get(queue_id, LONG_MAX))
        for queue_id, offset in compared.items():
            if lowest.get(queue_id, LONG_MAX) > offset:
                lowest[queue_id] = LONG_MAX
        return answer(command, body=CorrectionOffsets(lowest).encode())

    def clone(self, connection: Connection, command: Command) -> Command:
        """314: give one group the offsets of another, of one topic or of all it has consumed."""
        request = from_ext(CloneGroupOffsetRequest, command.ext)
        wanted = [request.topic] if request.topic else self._offsets.topics_of(request.src_group)
        online = None if request.offline else self._clients.consumers.get(request.src_group)
        for topic in wanted:
            if topic not in self._topics.configs or (online and topic not in online.subscriptions):
                continue
            self._offsets.clone(topic, request.src_group, request.dest_group)
        return answer(command)

    def stats_of_all(self, connection: Connection, command: Command) -> Command:
        """317: how far every group is behind, topic by topic."""
        ordered = from_ext(GetBrokerConsumeStatsRequest, command.ext).is_order
        groups: dict[str, list[ConsumeStats]] = {}
        for name in self._groups.configs:
            online = self._clients.consumers.get(name)
            groups[name] = [
                self._stats(name, topic)
                for topic in map(self._topics.get, self._offsets.topics_of(name))
                if topic is not None
                and (topic.config.order or not ordered)
                and (online is None or topic.config.topic_name in online.subscriptions)
            ]
        return answer(command, body=BrokerConsumeStats(self._address, groups).encode())

    def _stats(self, group: str, topic: Topic) -> ConsumeStats:
        name = topic.config.topic_name
        table = {}
        for queue in topic.queues[: topic.config.write_queue_nums]:
            consumed = max(0, self._offsets.query(name, group, queue.queue_id) or 0)
            key = MessageQueue(name, self._settings.broker_name, queue.queue_id)
            table[key] = OffsetWrapper(
                broker_offset=queue.max_offset,
                consumer_offset=consumed,
                pull_offset=consumed,
                last_timestamp=self._store.store_time(queue, consumed - 1) or 0,
            )
        return ConsumeStats(table)

    def producers(self, connection: Connection, command: Command) -> Command:
        """328: every producer that is connected, by group."""
        now_ms, now = self._clock.now_ms(), time.monotonic()
        data = {
            group: [
                ProducerInfo(
                    client_id=member.client_id,
                    remote_ip=f"/{one.address}",
                    language=member.language,
                    version=member.version,
                    last_update_timestamp=now_ms - int((now - member.last_seen) * 1000),
                )
                for one, member in members.items()
            ]
            for group, members in self._clients.producers.items()
        }
        return answer(command, body=ProducerTable(data).encode())

    def subscription(self, connection: Connection, command: Command) -> Command:
        """345: what a group subscribes of a topic; left out when it is not online."""
        request = from_ext(QuerySubscriptionByConsumerRequest, command.ext)
        online = self._clients.consumers.get(request.group)
        data = None if online is None else online.subscriptions.get(request.topic)
        return answer(command, body=GroupSubscription(request.group, request.topic, data).encode())

    async def forbidden(self, connection: Connection, command: Command) -> Command:
        """353: allow or forbid a group to pull a topic, and say which it is."""
        request = from_ext(UpdateGroupForbiddenRequest, command.ext)
        group, topic = request.group, request.topic
        if request.readable is not None:
            await self._groups.forbid(group, topic, forbidden=not request.readable)
        body = GroupForbidden(group, topic, not self._groups.is_forbidden(group, topic))
        return answer(command, body=body.encode())
