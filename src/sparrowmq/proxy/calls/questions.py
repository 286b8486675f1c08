"""What tools ask a consumer of the proxy by way of its broker: its running info (307), and to consume one
message at once (309). Clients answer on their telemetry stream.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from sparrowmq.core.clock import Clock
from sparrowmq.core.errors import BrokerError, RequestTimeoutError
from sparrowmq.core.message import PROPERTY_RETRY_TOPIC, ReceivedMessage
from sparrowmq.core.outside import one_line
from sparrowmq.protocol.bodies import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from sparrowmq.protocol.call_headers import ConsumeMessageDirectlyRequest, GetConsumerRunningInfoRequest
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command
from sparrowmq.protocol.headers import from_ext
from sparrowmq.protocol.pop.receipts import normal_topic
from sparrowmq.protocol.record import decode_records
from sparrowmq.protocol.record import to_message as to_received
from sparrowmq.proxy.base.converting import resource
from sparrowmq.proxy.calls.answers import MessageAnswers
from sparrowmq.proxy.calls.clients import Stream
from sparrowmq.proxy.calls.members import ProxyMember, ProxyMembers
from sparrowmq.proxy.calls.pending import PendingAnswers
from sparrowmq.proxy.cluster.brokers import Brokers
from sparrowmq.proxy.definition.messages import Code, v2

ANSWER_SECONDS: Final = 8.0
"""A broker waits 10 s for the answer."""
STACKS_CHARS_MAX: Final = 1024 * 1024
"""Characters of a stack trace that are passed on."""
REMARK: Final = "from gRPC client"
_RESULTS: Final = {
    Code.OK: "CR_SUCCESS",
    Code.FAILED_TO_CONSUME_MESSAGE: "CR_LATER",
    Code.MESSAGE_CORRUPTED: "CR_RETURN_NULL",
}


class ClientQuestions:
    """Answers brokers' requests about the proxy's consumers."""

    def __init__(
        self,
        members: ProxyMembers,
        pending: PendingAnswers,
        stream_of: Callable[[str], Stream | None],
        clock: Clock,
        answers: MessageAnswers,
    ) -> None:
        self._members = members
        self._pending = pending
        self._stream_of = stream_of
        self._clock = clock
        self._answers = answers

    def serve(self, brokers: Brokers) -> None:
        """Register the handlers for requests of brokers."""
        brokers.instance.on_request[RequestCode.GET_CONSUMER_RUNNING_INFO] = self.running_info
        brokers.instance.on_request[RequestCode.CONSUME_MESSAGE_DIRECTLY] = self.consume_directly

    async def running_info(self, address: str, request: Command) -> Command:
        """307: what is known of a consumer; with `jstackEnable` also the stacks of its threads, which it is
        asked for. Raises `BrokerError` when it gives no stacks, and `RequestTimeoutError`.
        """
        asked = from_ext(GetConsumerRunningInfoRequest, request.ext)
        member = self._member(asked.consumer_group, asked.client_id)
        stacks = await self._stacks(member) if asked.jstack_enable else None
        info = ConsumerRunningInfo(properties_of(member), member.subscriptions, jstack=stacks)
        return _answer(info.encode())

    async def _stacks(self, member: ProxyMember) -> str:
        nonce = uuid.uuid4().hex
        question = v2.PrintThreadStackTraceCommand(nonce=nonce)
        told = await self._ask(member, nonce, v2.TelemetryCommand(print_thread_stack_trace_command=question))
        if told.status.code != Code.OK:
            raise _refused(member, told.status)
        text: str = told.thread_stack_trace.thread_stack_trace
        return text[:STACKS_CHARS_MAX]

    async def consume_directly(self, address: str, request: Command) -> Command:
        """309: let a consumer consume the message in the body at once. Raises as `running_info`."""
        asked = from_ext(ConsumeMessageDirectlyRequest, request.ext)
        member = self._member(asked.consumer_group, asked.client_id or "")
        records = decode_records(request.body)
        if len(records) != 1:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"the body has {len(records)} messages, not one")
        message = to_received(records[0], asked.broker_name or "", decompress=False)
        topic = topic_of(message, member.group)
        nonce = uuid.uuid4().hex
        kind = partial(v2.VerifyMessageCommand, nonce=nonce)
        question = await self._answers.of(kind, message, resource(topic))
        began = self._clock.monotonic()
        told = await self._ask(member, nonce, v2.TelemetryCommand(verify_message_command=question))
        result = _RESULTS.get(told.status.code)
        if result is None:
            raise _refused(member, told.status)
        spent = int((self._clock.monotonic() - began) * 1000)
        found = ConsumeMessageDirectlyResult(consume_result=result, remark=REMARK, spent_time_mills=spent)
        return _answer(found.encode())

    def _member(self, group: str, client_id: str) -> ProxyMember:
        member = self._members.get(client_id)
        if member is None or member.group != group:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR, f"the consumer <{group}> <{client_id[:255]}> has left the proxy"
            )
        return member

    async def _ask(self, member: ProxyMember, nonce: str, command: Any) -> Any:
        """What a client answers to the command with this nonce."""
        stream = self._stream_of(member.client_id)
        with self._pending.waiting(member.client_id, nonce) as answer:
            if stream is None or not stream.write(command):
                raise BrokerError(
                    ResponseCode.SYSTEM_ERROR, f"the client {member.client_id} does not read its commands"
                )
            try:
                return await asyncio.wait_for(answer, ANSWER_SECONDS)
            except TimeoutError:
                raise RequestTimeoutError(
                    f"the client {member.client_id} did not answer within {ANSWER_SECONDS:g} s"
                ) from None


def properties_of(member: ProxyMember) -> dict[str, str]:
    """The general part of the running info, under the names that tools read. Pure."""
    return {
        "PROP_CONSUME_TYPE": member.consume_type.value,
        "PROP_CONSUMER_START_TIMESTAMP": str(member.since_ms),
        "PROP_CLIENT_VERSION": str(member.version),
        "PROP_CONSUMEORDERLY": "false",
        "PROP_THREADPOOL_CORE_SIZE": "-1",
        "PROP_NAMESERVER_ADDR": "",
        "clientAddress": member.address,
        "language": member.language,
    }


def topic_of(message: ReceivedMessage, group: str) -> str:
    """The topic that a consumer knows a message by: that of a retry is in a property or in the name. Pure."""
    return message.properties.get(PROPERTY_RETRY_TOPIC) or normal_topic(message.topic, group)


def _refused(member: ProxyMember, status: Any) -> BrokerError:
    unsupported = status.code == Code.VERIFY_FIFO_MESSAGE_UNSUPPORTED
    code = ResponseCode.NO_PERMISSION if unsupported else ResponseCode.SYSTEM_ERROR
    text = one_line(status.message[:500])
    return BrokerError(code, f"the client {member.client_id} answered {Code.name(status.code)}: {text}")


def _answer(body: bytes) -> Command:
    return Command(ResponseCode.SUCCESS, flag=FLAG_RESPONSE, body=body)
