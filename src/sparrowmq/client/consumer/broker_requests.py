"""Requests from brokers to consumers: 220, 221, 307 and 309 (client:A-88 to A-91, D.14 to D.16).

All consumers report their offsets and state. Only push consumers can be reset and receive single messages.
"""

from __future__ import annotations

import asyncio
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields
from typing import Final

from sparrowmq.client.base.settings import ClientSettings
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.client.consumer.process_queue import ProcessQueue
from sparrowmq.core.errors import BodyError, BrokerError, HeaderError
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.protocol.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ConsumerStatusBody,
    ConsumeType,
    ProcessQueueInfo,
    ResetOffsetBody,
)
from sparrowmq.protocol.codes import VERSION, RequestCode, ResponseCode
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command
from sparrowmq.transport.stall_names import thread_frames

REMARK_CHARACTERS: Final = 1000
MIB: Final = 1024 * 1024
STACKS_MAX: Final = 2000
"""Maximum number of tasks in a stack dump."""
_NOT_SHOWN: Final = frozenset({"offset_store", "queue_listener", "hooks", "allocate"})


class QueryableMember(ABC):
    """What brokers can ask of a consumer's member."""

    @abstractmethod
    def offsets(self, topic: str) -> dict[MessageQueue, int]:
        """The offsets in memory for the queues of `topic`."""

    @abstractmethod
    def running_info(self) -> ConsumerRunningInfo:
        """The running info of the member."""


class CommandableMember(ABC):
    """What brokers can also ask of a push consumer's member."""

    @abstractmethod
    async def reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue from these offsets."""

    @abstractmethod
    async def consume_directly(self, body: bytes, broker_name: str) -> ConsumeMessageDirectlyResult:
        """Pass one stored message to the handler, outside of all queues."""


def serve(instance: ClientInstance) -> None:
    """Register the handlers for requests of brokers. Calling it twice does no harm."""

    def find(group: str) -> CommandableMember:
        member = instance.consumer(group)
        if not isinstance(member, CommandableMember):
            raise unknown(group)
        return member

    def telling(group: str) -> QueryableMember:
        member = instance.consumer(group)
        if not isinstance(member, QueryableMember):
            raise unknown(group)
        return member

    def unknown(group: str) -> BrokerError:
        text = f"the consumer group <{group}> is not in client {instance.client_id}"
        return BrokerError(ResponseCode.SYSTEM_ERROR, text)

    async def reset(address: str, request: Command) -> None:
        await find(_field(request, "group")).reset_offsets(ResetOffsetBody.decode(request.body).offset_table)

    def status(address: str, request: Command) -> Command:
        table = telling(_field(request, "group")).offsets(_field(request, "topic"))
        return _answer(ConsumerStatusBody(table).encode())

    def running_info(address: str, request: Command) -> Command:
        info = telling(_field(request, "consumerGroup")).running_info()
        if request.ext.get("jstackEnable") == "true":
            info = ConsumerRunningInfo(
                info.properties, info.subscriptions, info.queues, info.statuses, stacks(asyncio.all_tasks())
            )
        return _answer(info.encode())

    async def directly(address: str, request: Command) -> Command:
        member = find(_field(request, "consumerGroup"))
        return _answer(
            (await member.consume_directly(request.body, request.ext.get("brokerName", ""))).encode()
        )

    instance.on_request[RequestCode.RESET_CONSUMER_CLIENT_OFFSET] = reset
    instance.on_request[RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT] = status
    instance.on_request[RequestCode.GET_CONSUMER_RUNNING_INFO] = running_info
    instance.on_request[RequestCode.CONSUME_MESSAGE_DIRECTLY] = directly


def _field(request: Command, name: str) -> str:
    value = request.ext.get(name)
    if not value:
        raise HeaderError(f"the required field {name!r} is missing")
    return value


def _answer(body: bytes) -> Command:
    return Command(ResponseCode.SUCCESS, flag=FLAG_RESPONSE, body=body)


def properties_of(
    settings: ClientSettings,
    instance: ClientInstance,
    group: str,
    consume_type: ConsumeType,
    started_ms: int,
    **more: str,
) -> dict[str, str]:
    """Settings as text, without secrets, and the other general fields of the running info (client:D-86)."""
    shown = {
        field.name: str(getattr(settings, field.name))
        for field in fields(settings)
        if field.repr and field.name not in _NOT_SHOWN  # hide secrets, as `repr` does
    }
    return {
        **shown,
        **more,
        "consumerGroup": group,
        "PROP_CONSUMER_START_TIMESTAMP": str(started_ms),
        "PROP_NAMESERVER_ADDR": ";".join(instance.name_servers.addresses),
        "PROP_CONSUME_TYPE": consume_type.value,
        "PROP_CLIENT_VERSION": f"V{VERSION}",
    }


def queue_info(held: ProcessQueue, committed: int | None, now: float, now_ms: int) -> ProcessQueueInfo:
    """One queue for running info (client:D-45). `now` is monotonic, `now_ms` the same moment's epoch time."""

    def epoch(moment: float) -> int:
        return now_ms - round((now - moment) * 1000) if moment else 0

    waiting, taken = held.waiting_offsets, [message.queue_offset for message in held.taken]
    return ProcessQueueInfo(
        cached_msg_count=len(waiting),
        cached_msg_min_offset=waiting[0] if waiting else 0,
        cached_msg_max_offset=waiting[-1] if waiting else 0,
        cached_msg_size_in_mib=held.bytes // MIB,
        commit_offset=-1 if committed is None else committed,
        dropped=held.dropped,
        last_consume_timestamp=epoch(held.last_consume),
        last_lock_timestamp=epoch(held.last_lock),
        last_pull_timestamp=epoch(held.last_pull),
        locked=held.locked,
        transaction_msg_count=len(taken),
        transaction_msg_min_offset=taken[0] if taken else 0,
        transaction_msg_max_offset=taken[-1] if taken else 0,
        try_unlock_times=held.unlock_tries,
    )


def stacks(tasks: set[asyncio.Task[object]]) -> str:
    """The stacks of all threads and tasks of this process, as text (client:D-87)."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = [
        f"thread {names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in thread_frames().items()
    ]
    for task in sorted(tasks, key=lambda task: task.get_name())[:STACKS_MAX]:
        frames = "".join(
            line for frame in task.get_stack() for line in traceback.format_stack(frame, limit=1)
        )
        parts.append(f"task {task.get_name()}\n{frames}")
    return "\n".join(parts)


def direct_result(
    error: BaseException | None, result: str, *, ordered: bool, auto_commit: bool, seconds: float
) -> ConsumeMessageDirectlyResult:
    """The result of a handler for a message from a tool (client:D-88); `seconds` is its duration."""
    remark = None if error is None else f"{type(error).__name__}: {error}"[:REMARK_CHARACTERS]
    return ConsumeMessageDirectlyResult(
        auto_commit=auto_commit,
        consume_result=result,
        order=ordered,
        remark=remark,
        spent_time_mills=round(seconds * 1000),
    )


def one_message(messages: list[ReceivedMessage]) -> ReceivedMessage:
    """The single message of a 309 request. Raises `BodyError`."""
    if len(messages) != 1:
        raise BodyError(f"the body has {len(messages)} messages; it must have one")
    return messages[0]
