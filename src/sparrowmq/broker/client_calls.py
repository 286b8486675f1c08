"""What the broker asks its clients on behalf of tools: 222, 223, 307 and 309 (remoting:2.6, 2.7).

Callbacks go to the clients' own heartbeat connections. Several clients are asked at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.progress import answer, refusal
from sparrowmq.core.errors import JavaJsonError, ProtocolError, RecordError, RequestTimeoutError, SparrowError
from sparrowmq.core.ids import parse_offset_message_id
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.bodies import ConsumerStatusBody, ResetOffsetBody
from sparrowmq.protocol.call_headers import (
    ConsumeMessageDirectlyRequest,
    GetConsumerRunningInfoRequest,
    GetConsumerStatusRequest,
    ResetOffsetRequest,
)
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command
from sparrowmq.protocol.headers import from_ext, to_ext

if TYPE_CHECKING:
    from sparrowmq.broker.clients import ClientTable
    from sparrowmq.broker.groups import GroupTable
    from sparrowmq.broker.topics import Topic, TopicTable
    from sparrowmq.core.settings import BrokerSettings
    from sparrowmq.store.consume_queue import ConsumeQueue
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.offsets import ConsumerOffsets
    from sparrowmq.transport.connection import Connection

CALL_SECONDS_MAX: Final = 10.0
STATUS_SECONDS_MAX: Final = 5.0
TO_THE_END: Final = -1


class ClientCalls:
    """Handlers that reach through to consumers.

    `wake` is told topic, group and queue id of each offset that was reset, so that a held pull is answered.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        clients: ClientTable,
        offsets: ConsumerOffsets,
        *,
        wake: Callable[[str, str, int], None],
    ) -> None:
        self._settings = settings
        self._store = store
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._offsets = offsets
        self._wake = wake

    # Offsets

    def reset(self, connection: Connection, command: Command) -> Command:
        """222: set a group's offsets of a topic by time; on the broker (5.x) or in its clients (4.9)."""
        request = from_ext(ResetOffsetRequest, command.ext)
        topic = self._topics.get(request.topic)
        if topic is None:
            remark = f"Topic {request.topic} does not exist"
            return refusal(command, ResponseCode.TOPIC_NOT_EXIST, remark)
        if self._settings.use_server_side_reset_offset:
            return self._reset_here(command, request, topic)
        return self._reset_in_clients(command, request, topic)

    def _reset_here(self, command: Command, request: ResetOffsetRequest, topic: Topic) -> Command:
        """The next pull of each queue is told where to go on (21)."""
        if request.group not in self._groups.configs:
            remark = f"Group {request.group} does not exist"
            return refusal(command, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        wanted = topic.queues[: topic.config.read_queue_nums]
        if request.queue_id >= 0:
            wanted = wanted[request.queue_id : request.queue_id + 1]
        if not wanted:
            remark = f"no queues to reset: {request.topic} has {topic.config.read_queue_nums} to read from"
            return refusal(command, ResponseCode.SYSTEM_ERROR, remark)
        table: dict[int, int] = {}
        for queue in wanted:
            offset = request.offset
            if request.queue_id < 0 or offset is None or offset == TO_THE_END:
                offset = self._offset_at(queue, request.timestamp)
            elif not queue.min_offset <= offset <= queue.max_offset:
                remark = (
                    f"Target offset {offset} not in consume queue range "
                    f"[{queue.min_offset}-{queue.max_offset}]"
                )
                return refusal(command, ResponseCode.SYSTEM_ERROR, remark)
            table[queue.queue_id] = offset
        for queue_id, offset in table.items():
            self._offsets.reset(request.topic, request.group, queue_id, offset)
            self._wake(request.topic, request.group, queue_id)
        return answer(command, body=self._reset_body(request.topic, table).encode())

    def _reset_in_clients(self, command: Command, request: ResetOffsetRequest, topic: Topic) -> Command:
        """Tell every member (220); offsets only go back unless forced."""
        table: dict[int, int] = {}
        for queue in topic.queues[: topic.config.write_queue_nums]:
            consumed = self._offsets.query(request.topic, request.group, queue.queue_id)
            if consumed is None:
                remark = f"THe consumer group <{request.group}> not exist"
                return refusal(command, ResponseCode.SYSTEM_ERROR, remark)
            target = self._offset_at(queue, request.timestamp)
            table[queue.queue_id] = target if request.is_force else min(target, consumed)
        group = self._clients.consumers.get(request.group)
        if group is None:
            remark = (
                f"Consumer not online, so can not reset offset, Group: {request.group} "
                f"Topic: {request.topic} Timestamp: {request.timestamp}"
            )
            return refusal(command, ResponseCode.CONSUMER_NOT_ONLINE, remark)
        body = self._reset_body(request.topic, table)
        told = ResetOffsetRequest(topic=request.topic, group=request.group, timestamp=request.timestamp)
        for member_connection, member in list(group.members.items()):
            data = body.encode(as_list=member.language == "CPP")
            code = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
            member_connection.notify(Command(code, ext=to_ext(told), body=data))
        return answer(command, body=body.encode())

    def _offset_at(self, queue: ConsumeQueue, timestamp: int) -> int:
        return queue.max_offset if timestamp < 0 else self._store.offset_by_time(queue, timestamp)

    def _reset_body(self, topic: str, table: dict[int, int]) -> ResetOffsetBody:
        name = self._settings.broker_name
        return ResetOffsetBody({MessageQueue(topic, name, queue): offset for queue, offset in table.items()})

    async def status(self, connection: Connection, command: Command) -> Command:
        """223: the offsets in the memory of a group's members, or of the one named."""
        request = from_ext(GetConsumerStatusRequest, command.ext)
        group = self._clients.consumers.get(request.group)
        if group is None:
            remark = f"No Any Consumer online in the consumer group: [{request.group}]"
            return refusal(command, ResponseCode.SYSTEM_ERROR, remark)
        wanted = {
            member.client_id: member_connection
            for member_connection, member in group.members.items()
            if request.client_addr in (None, "", member.client_id)
        }
        asked = GetConsumerStatusRequest(topic=request.topic, group=request.group)
        tables = await asyncio.gather(*(self._ask_status(one, asked) for one in wanted.values()))
        clients = {name: table for name, table in zip(wanted, tables, strict=True) if table is not None}
        return answer(command, body=ConsumerStatusBody(clients=clients).encode())

    async def _ask_status(
        self, client: Connection, request: GetConsumerStatusRequest
    ) -> dict[MessageQueue, int] | None:
        """One client's offsets; None when it does not tell in time."""
        call = Command(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, ext=to_ext(request))
        try:
            told = await client.call(call, STATUS_SECONDS_MAX)
            if told.code != ResponseCode.SUCCESS or not told.body:
                return None
            return ConsumerStatusBody.decode(told.body).queues
        except (SparrowError, ProtocolError, JavaJsonError):
            return None

    # Passed through

    async def running_info(self, connection: Connection, command: Command) -> Command:
        """307: what a consumer is doing, as it tells itself."""
        request = from_ext(GetConsumerRunningInfoRequest, command.ext)
        return await self._pass(command, request.consumer_group, request.client_id, command.body)

    async def consume_directly(self, connection: Connection, command: Command) -> Command:
        """309: let a consumer take one stored message at once, out of turn; its result."""
        request = from_ext(ConsumeMessageDirectlyRequest, command.ext)
        group, client_id = request.consumer_group, request.client_id
        if not client_id:
            online = self._clients.consumers.get(group)
            client_id = "" if online is None else online.client_ids[0]
        try:
            physical = parse_offset_message_id(request.msg_id or "")[2]
        except RecordError as error:
            return refusal(command, ResponseCode.SYSTEM_ERROR, str(error))
        record = self._store.read_record(physical)
        if record is None:
            remark = f"there is no message {request.msg_id} on this broker"
            return refusal(command, ResponseCode.SYSTEM_ERROR, remark)
        request.client_id = client_id
        request.broker_name = self._settings.broker_name
        topic = self._topics.configs.get(request.topic or "")
        config = self._groups.configs.get(group)
        request.topic_sys_flag = 0 if topic is None else topic.topic_sys_flag
        request.group_sys_flag = 0 if config is None else config.group_sys_flag
        asked = Command(command.code, command.opaque, ext=to_ext(request))
        return await self._pass(asked, group, client_id, record)

    async def _pass(self, command: Command, group: str, client_id: str, body: bytes) -> Command:
        client = self._clients.consumer(group, client_id)
        if client is None:
            remark = f"The Consumer <{group}> <{client_id}> not online"
            return refusal(command, ResponseCode.SYSTEM_ERROR, remark)
        try:
            told = await client.call(
                Command(command.code, ext=dict(command.ext), body=body), CALL_SECONDS_MAX
            )
        except RequestTimeoutError as error:
            remark = f"consumer <{group}> <{client_id}> Timeout: {error}"
            return refusal(command, ResponseCode.CONSUME_MSG_TIMEOUT, remark)
        except SparrowError as error:
            return refusal(command, ResponseCode.SYSTEM_ERROR, f"consumer <{group}> <{client_id}>: {error}")
        return Command(told.code, command.opaque, FLAG_RESPONSE, told.ext, told.body, remark=told.remark)
