"""Requests of tools about groups that are not in `GroupAdmin` (remoting:2.7, broker:16.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparrowmq.broker.base.long_answers import LongAnswers
from sparrowmq.broker.base.offsets import answer, refusal
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
    from collections.abc import Awaitable, Generator

    from sparrowmq.broker.admin.progress import ConsumerProgress
    from sparrowmq.broker.tables.shared_tables import SharedTables
    from sparrowmq.broker.tables.topics import Topic
    from sparrowmq.core.clock import Clock
    from sparrowmq.core.settings.servers import BrokerSettings
    from sparrowmq.protocol.frame import Command
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.transport.connection import Connection

LONG_MAX: Final = 2**63 - 1


class GroupTools:
    """Handlers for the tools' view of groups and producers."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        tables: SharedTables,
        progress: ConsumerProgress,
        clock: Clock,
        *,
        address: str,
    ) -> None:
        self._long = LongAnswers()
        self._settings = settings
        self._store = store
        self._topics = tables.topics
        self._groups = tables.groups
        self._clients = tables.clients
        self._offsets = tables.offsets
        self._progress = progress
        self._clock = clock
        self._address = address

    async def put_all(self, connection: Connection, command: Command) -> Command:
        """225: create or change several groups; none is changed when one is invalid."""
        configs = SubscriptionGroupList.decode_request(command.body).group_config_list
        for config in configs:
            try:
                check_group(config.group_name)
            except InvalidNameError as error:
                return refusal(command, ResponseCode.INVALID_PARAMETER, str(error))
        await self._groups.put(configs)
        return answer(command)

    def time_spans(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """303: store times of the first, last and last consumed message of each queue, and the delay."""
        return self._long.begin(connection, self._time_spans(command))

    def _time_spans(self, command: Command) -> Generator[None, None, Command]:
        request = from_ext(QueryConsumeTimeSpanRequest, command.ext)
        topic = self._topics.get(request.topic)
        if topic is None:
            return refusal(command, ResponseCode.TOPIC_NOT_EXIST, f"topic[{request.topic}] not exist")
        spans = []
        now, store_time = self._clock.now_ms(), self._store.store_time
        for queue in map(topic.queues.__getitem__, range(topic.config.read_queue_nums)):
            consumed = max(0, self._offsets.query(request.topic, request.group, queue.queue_id) or 0)
            first = store_time(queue, queue.min_offset)
            last = store_time(queue, queue.max_offset - 1)
            at = store_time(queue, consumed - 1) if consumed > 0 else first
            following = store_time(queue, consumed) if consumed < queue.max_offset else None
            delay = 0 if following is None else now - following
            key = MessageQueue(request.topic, self._settings.broker_name, queue.queue_id)
            first, last, at = (-1 if one is None else one for one in (first, last, at))
            spans.append(time_span(key, first, last, at, delay))
            yield
        return answer(command, body=ConsumeTimeSpans(spans).encode())

    def corrections(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """308: the lowest offsets of other groups in a topic, compared with those of one group.

        The reference deletes the filtered groups' offsets in the process; this broker keeps them.
        """
        return self._long.begin(connection, self._corrections(command))

    def _corrections(self, command: Command) -> Generator[None, None, Command]:
        request = from_ext(QueryCorrectionOffsetRequest, command.ext)
        left_out = set(filter(None, (request.filter_groups or "").split(",")))
        lowest: dict[int, int] = {}
        compared: dict[int, int] = {}
        for topic, group, queue_id, offset in self._offsets.of_topic(request.topic):
            yield
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

    def clone(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """314: copy the offsets of one group to another, for one topic or all topics it has consumed."""
        request = from_ext(CloneGroupOffsetRequest, command.ext)
        try:
            check_group(request.dest_group)
        except InvalidNameError as error:
            return refusal(command, ResponseCode.INVALID_PARAMETER, str(error))
        return self._long.begin(connection, self._clone(command, request))

    def _clone(self, command: Command, request: CloneGroupOffsetRequest) -> Generator[None, None, Command]:
        check_group(request.dest_group)
        wanted = [request.topic] if request.topic else self._offsets.topics_of(request.src_group)
        online = None if request.offline else self._clients.consumers.get(request.src_group)
        for topic in wanted:
            yield
            if topic not in self._topics.configs or (online and topic not in online.subscriptions):
                continue
            if not self._offsets.clone(topic, request.src_group, request.dest_group):
                return refusal(command, ResponseCode.SYSTEM_BUSY, self._offsets.too_many)
        return answer(command)

    def stats_of_all(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """317: the lag of every group, topic by topic."""
        return self._long.begin(connection, self._stats_of_all(command))

    def _stats_of_all(self, command: Command) -> Generator[None, None, Command]:
        ordered = from_ext(GetBrokerConsumeStatsRequest, command.ext).is_order
        groups: dict[str, list[ConsumeStats]] = {}
        topics = self._offsets.topics_by_group()
        for name in list(self._groups.configs):
            groups[name] = found = []
            yield
            for topic in map(self._topics.get, topics.get(name, ())):
                if topic is None or (ordered and not topic.config.order):
                    continue
                if self._progress.is_read(name, topic.config.topic_name):
                    found.append((yield from self._stats(name, topic)))
        body = yield from BrokerConsumeStats(self._address, groups).encode_in_steps()
        return answer(command, body=body)

    def _stats(self, group: str, topic: Topic) -> Generator[None, None, ConsumeStats]:
        name = topic.config.topic_name
        table = {}
        invisible = self._progress.invisible(name, group)
        for queue in map(topic.queues.__getitem__, range(topic.config.read_queue_nums)):
            key = MessageQueue(name, self._settings.broker_name, queue.queue_id)
            table[key] = self._progress.row(queue, group, invisible)
            yield
        return ConsumeStats(table)

    def producers(self, connection: Connection, command: Command) -> Command:
        """328: all connected producers, by group."""
        now_ms, now = self._clock.now_ms(), self._clock.monotonic()
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
        """345: a group's subscription to a topic; omitted when the group is offline."""
        request = from_ext(QuerySubscriptionByConsumerRequest, command.ext)
        online = self._clients.consumers.get(request.group)
        data = None if online is None else online.subscriptions.get(request.topic)
        return answer(command, body=GroupSubscription(request.group, request.topic, data).encode())

    async def forbidden(self, connection: Connection, command: Command) -> Command:
        """353: allow or forbid a group to pull a topic; answers with the resulting state."""
        request = from_ext(UpdateGroupForbiddenRequest, command.ext)
        group, topic = request.group, request.topic
        if request.readable is not None:
            await self._groups.forbid(group, topic, forbidden=not request.readable)
        body = GroupForbidden(group, topic, not self._groups.is_forbidden(group, topic))
        return answer(command, body=body.encode())
