"""Requests to clients on behalf of tools: 222, 223, 307 and 309 (remoting:2.6, 2.7).

The requests use the connections of the clients' heartbeats. Several clients are asked at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.base.offsets import answer, refusal
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
from sparrowmq.protocol.headers import Header, from_ext, to_ext
from sparrowmq.transport.slices import finished

if TYPE_CHECKING:
    from sparrowmq.broker.tables.shared_tables import SharedTables
    from sparrowmq.core.settings.servers import BrokerSettings
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.queues.consume_queue import ConsumeQueue
    from sparrowmq.transport.connection import Connection

CALL_SECONDS_MAX: Final = 10.0
STATUS_SECONDS_MAX: Final = 5.0
TO_THE_END: Final = -1


class ClientCalls:
    """Handlers that forward requests to consumers.

    `wake` is called with topic, group and queue id of each reset offset, so that held pulls are answered.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        tables: SharedTables,
        *,
        wake: Callable[[str, str, int], None],
    ) -> None:
        self._settings = settings
        self._store = store
        self._topics = tables.topics
        self._groups = tables.groups
        self._clients = tables.clients
        self._proxied = tables.proxied
        self._offsets = tables.offsets
        self._wake = wake

    # Offsets

    def reset(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """222: set a group's offsets of a topic by time; on the broker (5.x) or in its clients (4.9)."""
        request = from_ext(ResetOffsetRequest, command.ext)
        topic = self._topics.get(request.topic)
        if topic is None:
            return _no_topic(command, request.topic)
        if self._settings.use_server_side_reset_offset:
            return finished(self._reset_here(command, request, topic.config.read_queue_nums))
        return finished(self._reset_in_clients(command, request, topic.config.write_queue_nums))

    def _reset_here(
        self, command: Command, request: ResetOffsetRequest, count: int
    ) -> Generator[None, None, Command]:
        """The next pull of each queue is answered with the new offset (21)."""
        if request.group not in self._groups.configs:
            remark = f"Group {request.group} does not exist"
            return refusal(command, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        wanted = range(count)
        if request.queue_id >= 0:
            wanted = wanted[request.queue_id : request.queue_id + 1]
        if not wanted:
            remark = f"no queues to reset: {request.topic} has {count} to read from"
            return refusal(command, ResponseCode.SYSTEM_ERROR, remark)
        table: dict[int, int] = {}
        for queue_id in wanted:
            queue = self._store.find_queue(request.topic, queue_id)
            offset = request.offset
            if request.queue_id < 0 or offset is None or offset == TO_THE_END:
                offset = yield from self._offset_at(queue, request.timestamp)
            else:
                low, high = (0, 0) if queue is None else (queue.min_offset, queue.confirmed_offset)
                if not low <= offset <= high:
                    remark = f"Target offset {offset} not in consume queue range [{low}-{high}]"
                    return refusal(command, ResponseCode.SYSTEM_ERROR, remark)
            table[queue_id] = offset
            yield
        for queue_id, offset in table.items():
            if request.topic not in self._topics.configs:  # deleted meanwhile
                return _no_topic(command, request.topic)
            if not self._offsets.reset(request.topic, request.group, queue_id, offset):
                return refusal(command, ResponseCode.SYSTEM_BUSY, self._offsets.too_many)
            self._wake(request.topic, request.group, queue_id)
            yield
        return answer(command, body=(yield from self._told(request.topic, table)))

    def _reset_in_clients(
        self, command: Command, request: ResetOffsetRequest, count: int
    ) -> Generator[None, None, Command]:
        """Send the reset to every member (220); offsets only decrease unless forced."""
        table: dict[int, int] = {}
        for queue_id in range(count):
            consumed = self._offsets.query(request.topic, request.group, queue_id)
            if consumed is None:
                remark = f"THe consumer group <{request.group}> not exist"
                return refusal(command, ResponseCode.SYSTEM_ERROR, remark)
            queue = self._store.find_queue(request.topic, queue_id)
            target = yield from self._offset_at(queue, request.timestamp)
            table[queue_id] = target if request.is_force else min(target, consumed)
            yield
        group = self._clients.consumers.get(request.group)
        if group is None:
            remark = (
                f"Consumer not online, so can not reset offset, Group: {request.group} "
                f"Topic: {request.topic} Timestamp: {request.timestamp}"
            )
            return refusal(command, ResponseCode.CONSUMER_NOT_ONLINE, remark)
        as_map = yield from self._told(request.topic, table)
        as_list = yield from self._told(request.topic, table, as_list=True)
        told = ResetOffsetRequest(topic=request.topic, group=request.group, timestamp=request.timestamp)
        for member_connection, member in list(group.members.items()):
            data = as_list if member.language == "CPP" else as_map
            code = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
            member_connection.notify(Command(code, ext=to_ext(told), body=data))
            yield
        return answer(command, body=as_map)

    def _offset_at(self, queue: ConsumeQueue | None, timestamp: int) -> Generator[None, None, int]:
        if queue is None or timestamp < 0:
            return 0 if queue is None else queue.confirmed_offset
        found = yield from self._store.searching(queue, timestamp)
        return min(found, queue.confirmed_offset)

    def _told(
        self, topic: str, table: dict[int, int], *, as_list: bool = False
    ) -> Generator[None, None, bytes]:
        """The body with the new offset of each queue."""
        name = self._settings.broker_name
        rows = ((MessageQueue(topic, name, queue_id), offset) for queue_id, offset in table.items())
        return ResetOffsetBody.encoding(rows, as_list=as_list)

    async def status(self, connection: Connection, command: Command) -> Command:
        """223: the offsets in the memory of a group's members, or of the named member."""
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
        """One client's offsets; None when it does not answer in time."""
        call = Command(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, ext=to_ext(request))
        try:
            told = await client.call(call, STATUS_SECONDS_MAX)
            if told.code != ResponseCode.SUCCESS or not told.body:
                return None
            return ConsumerStatusBody.decode(told.body).queues
        except (SparrowError, ProtocolError, JavaJsonError):
            return None

    # Forwarded requests

    async def running_info(self, connection: Connection, command: Command) -> Command:
        """307: what a consumer is doing, as reported by itself."""
        request = from_ext(GetConsumerRunningInfoRequest, command.ext)
        return await self._pass(command, request, request.consumer_group, request.client_id)

    async def consume_directly(self, connection: Connection, command: Command) -> Command:
        """309: make a consumer process one stored message immediately, out of order; returns the result."""
        request = from_ext(ConsumeMessageDirectlyRequest, command.ext)
        group, client_id = request.consumer_group, request.client_id
        if not client_id:
            client_id = next(iter(self._online(group)), "")
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
        return await self._pass(command, request, group, client_id, record)

    def _online(self, group: str) -> list[str]:
        """The ids of a group's members, those at proxies last."""
        online = self._clients.consumers.get(group)
        return [
            *([] if online is None else online.client_ids),
            *(each.client_id for each in self._proxied.of_group(group)),
        ]

    def _connection(self, group: str, client_id: str) -> Connection | None:
        """The connection on which a member can be asked: its own, or that of its proxy."""
        own = self._clients.consumer(group, client_id)
        proxied = self._proxied.find(group, client_id)
        return own or (None if proxied is None else proxied.connection)

    async def _pass(
        self, command: Command, request: Header, group: str, client_id: str, body: bytes = b""
    ) -> Command:
        """Ask a client, with the fields of `request` only: other fields of `command`, above all the caller's
        signature, must not be forwarded.
        """
        client = self._connection(group, client_id)
        if client is None:
            remark = f"The Consumer <{group}> <{client_id}> not online"
            return refusal(command, ResponseCode.SYSTEM_ERROR, remark)
        try:
            told = await client.call(Command(command.code, ext=to_ext(request), body=body), CALL_SECONDS_MAX)
        except RequestTimeoutError as error:
            remark = f"consumer <{group}> <{client_id}> Timeout: {error}"
            return refusal(command, ResponseCode.CONSUME_MSG_TIMEOUT, remark)
        except SparrowError as error:
            return refusal(command, ResponseCode.SYSTEM_ERROR, f"consumer <{group}> <{client_id}>: {error}")
        return Command(told.code, command.opaque, FLAG_RESPONSE, told.ext, told.body, remark=told.remark)


def _no_topic(command: Command, topic: str) -> Command:
    return refusal(command, ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} does not exist")
