"""One method per request to brokers and name servers. Each takes header fields, returns a value, and raises
errors.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from sparrowmq.client.base.offset_store_protocol import Births
from sparrowmq.core.errors import BrokerError, ClientError, InvalidExpressionError, ProtocolError
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.core.results import PullStatus
from sparrowmq.core.route import TopicRoute
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.protocol import bodies, headers
from sparrowmq.protocol.codes import RequestCode, ResponseCode, request_name
from sparrowmq.protocol.frame import Command

log = logging.getLogger("sparrowmq.client")

PULL_COMMIT: Final = 1
PULL_SUSPEND: Final = 2
PULL_SUBSCRIPTION: Final = 4
PULL_LITE: Final = 16
"""Bits of a pull's system flag (remoting:2.4)."""

PULL_STATUS: Final = {
    int(ResponseCode.SUCCESS): PullStatus.FOUND,
    int(ResponseCode.PULL_NOT_FOUND): PullStatus.NO_NEW_MESSAGE,
    int(ResponseCode.PULL_RETRY_IMMEDIATELY): PullStatus.NO_MATCHED_MESSAGE,
    int(ResponseCode.PULL_OFFSET_MOVED): PullStatus.OFFSET_ILLEGAL,
}
OFFSET_TIMEOUT: Final = 5.0
QUERY_TIMEOUT: Final = 6.0
"""Seconds for min, max and searched offsets (client:E.5)."""
SEND_BACK_TIMEOUT: Final = 5.0

GenerationOf = Callable[[MessageQueue], int | None]
"""The generation for requests about a queue; None in a group that no coordinator manages."""


def no_generation(queue: MessageQueue) -> int | None:
    """The generation in a group that no coordinator manages: None."""
    return None


class Remoting(Protocol):
    """The required methods of the transport."""

    async def call(self, addr: str, command: Command, timeout: float) -> Command:
        """Send a request and return the response, whatever its code."""

    async def notify(self, addr: str, command: Command) -> None:
        """Send a one-way request."""


class PullAnswer(msgspec.Struct, frozen=True, gc=False):
    """A broker's response to one pull; `body` is a sequence of complete records."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int
    body: bytes
    birth: int = 0
    """Of the topic, see `Births`; 0 unless it was asked for or is another one."""

    def stays_at(self, asked: int) -> bool:
        """Whether the requested offset must be requested again immediately.

        Slaves redirect readers to their master in this way (broker:5.4). If the master is unavailable and a
        slave is asked again, a pause is needed to avoid a busy loop.
        """
        return self.status is PullStatus.NO_MATCHED_MESSAGE and self.next_offset == asked


def check(answer: Command, address: str, code: int) -> Command:
    """Return the response, or raise its error code as `BrokerError`."""
    if answer.code != ResponseCode.SUCCESS:
        raise BrokerError(answer.code, answer.remark or "", address=address, request=request_name(code))
    return answer


def command(code: RequestCode, header: headers.Header | None = None, body: bytes = b"") -> Command:
    """A request with a typed header."""
    return Command(code, ext={} if header is None else headers.to_ext(header), body=body)


def decode_route(answer: Command, topic: str) -> TopicRoute | None:
    """The route in a name server's response; None when no broker has the topic."""
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    check(answer, "the name server", RequestCode.GET_ROUTEINFO_BY_TOPIC)
    if not answer.body:
        text = f"the name server answered the route of {topic!r} without a body"
        raise ProtocolError(text, what="route", value=topic)
    return bodies.route_from_json(answer.body)


def pull_request(
    *,
    group: str,
    queue: MessageQueue,
    offset: int,
    max_messages: int,
    max_bytes: int,
    hold: float,
    subscription: SubscriptionData,
    sys_flag: int,
    commit_offset: int = 0,
    bulk_bytes: int | None = None,
    generation: int | None = None,
    birth: int | None = None,
    code: RequestCode = RequestCode.PULL_MESSAGE,
) -> Command:
    """A pull request: code 11, which every version supports, or 361 for polling (client:E-30)."""
    with_text = sys_flag & PULL_SUBSCRIPTION
    return command(
        code,
        headers.PullMessageRequest(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=max_messages,
            sys_flag=sys_flag,
            commit_offset=commit_offset,
            suspend_timeout_millis=int(hold * 1000),
            subscription=subscription.expression if with_text else None,
            sub_version=subscription.version,
            expression_type=subscription.expression_type,
            max_msg_bytes=max_bytes,
            broker_name=queue.broker_name,
            bulk_bytes=bulk_bytes,
            generation=generation,
            birth=birth,
        ),
    )


def decode_pull(answer: Command, address: str, queue: MessageQueue) -> PullAnswer:
    """Decode the response to a pull. Raises `BrokerError` on every code except the four outcomes."""
    status = PULL_STATUS.get(answer.code)
    if status is None:
        raise BrokerError(answer.code, answer.remark or "", address=address, request=f"pull of {queue}")
    header = headers.from_ext(headers.PullMessageResponse, answer.ext)
    return PullAnswer(
        status,
        header.next_begin_offset,
        header.min_offset,
        header.max_offset,
        header.suggest_which_broker_id,
        answer.body,
        header.birth or 0,
    )


class BrokerRequests:
    """Requests to brokers by address. Errors: `BrokerError`, `TransportError`, `ProtocolError`."""

    def __init__(self, remoting: Remoting) -> None:
        self._remoting = remoting
        self._confirmed: set[tuple[str, str, str]] = set()
        """Address, group and topic of confirmed offsets."""
        self._first_commits: dict[tuple[str, str, str], asyncio.Lock] = {}

    async def ask(
        self,
        address: str,
        code: RequestCode,
        header: headers.Header | None = None,
        *,
        body: bytes = b"",
        timeout: float,
    ) -> Command:
        """The response to one request; error codes are raised as `BrokerError`."""
        return check(await self._remoting.call(address, command(code, header, body), timeout), address, code)

    async def query_offset(
        self,
        address: str,
        group: str,
        queue: MessageQueue,
        *,
        stored_only: bool = False,
        births: Births | None = None,
    ) -> int | None:
        """The group's offset, or None (code 22, client:C-34). The topic's birth is put into `births`.

        Without one, brokers answer 0 for a young queue unless `stored_only`, which those of 4.9 do not know.
        """
        header = headers.QueryConsumerOffsetRequest(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=False if stored_only else None,
            birth=None if births is None else 0,
            broker_name=queue.broker_name,
        )
        code = RequestCode.QUERY_CONSUMER_OFFSET
        answer = await self._remoting.call(address, command(code, header), OFFSET_TIMEOUT)
        if births is not None and (birth := answer.ext.get("birth", "")).isdecimal():
            births[queue] = int(birth)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        check(answer, address, code)
        return headers.from_ext(headers.QueryConsumerOffsetResponse, answer.ext).offset

    async def check_filter(
        self, address: str, group: str, client_id: str, data: SubscriptionData, timeout: float
    ) -> None:
        """Ask whether the broker accepts a subscription that is not a tag expression.

        Raises `InvalidExpressionError` with the broker's message for an invalid expression.
        """
        body = bodies.check_client_body(group, client_id, data)
        try:
            await self.ask(address, RequestCode.CHECK_CLIENT_CONFIG, body=body, timeout=timeout)
        except BrokerError as error:
            if error.code != ResponseCode.SUBSCRIPTION_PARSE_FAILED:
                raise
            raise InvalidExpressionError(
                f"the broker {address} cannot read the {data.expression_type} expression for topic "
                f"{data.topic!r}: {error.remark}"
            ) from error

    async def update_offset(
        self,
        address: str,
        group: str,
        queue: MessageQueue,
        offset: int,
        *,
        oneway: bool,
        generation: int | None = None,
        birth: int | None = None,
    ) -> None:
        """Store the next offset the group will consume; without `oneway` the broker confirms it. An offset of
        an earlier topic, by its `birth`, is not stored, with a warning: those messages do not exist any more.

        The first commit of a group and topic is sent alone: Apache's broker creates the offset table without
        a lock, and of two concurrent first commits it may confirm both but keep only one.

        Raises `BrokerError`, with code 26 for a group unknown to the broker (broker:5.5).
        """
        header = headers.UpdateConsumerOffsetRequest(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            generation=generation,
            birth=birth,
            broker_name=queue.broker_name,
        )
        if oneway:
            await self._remoting.notify(address, command(RequestCode.UPDATE_CONSUMER_OFFSET, header))
            return
        place = (address, group, queue.topic)
        if place in self._confirmed:
            await self._confirm_offset(address, group, header)
            return
        async with self._first_commits.setdefault(place, asyncio.Lock()):
            await self._confirm_offset(address, group, header)
        self._confirmed.add(place)
        self._first_commits.pop(place, None)

    async def _confirm_offset(
        self, address: str, group: str, header: headers.UpdateConsumerOffsetRequest
    ) -> None:
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        try:
            await self.ask(address, code, header, timeout=OFFSET_TIMEOUT)
        except BrokerError as error:
            if error.code == ResponseCode.PULL_OFFSET_MOVED:
                log.warning("an offset of group %s is not committed: %s", group, error)
                return
            if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise
            remark = (
                f"{error.remark} (its first consumer creates it, or `sparrow group create {group}`; see "
                f"the names with `sparrow group list`)"
            )
            raise BrokerError(error.code, remark, address=address, request=request_name(code)) from error

    async def max_offset(self, address: str, queue: MessageQueue) -> int:
        """The next offset to be written."""
        header = headers.GetMaxOffsetRequest(
            topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
        )
        answer = await self.ask(address, RequestCode.GET_MAX_OFFSET, header, timeout=QUERY_TIMEOUT)
        return headers.from_ext(headers.GetMaxOffsetResponse, answer.ext).offset

    async def min_offset(self, address: str, queue: MessageQueue) -> int:
        """The smallest stored offset."""
        header = headers.GetMinOffsetRequest(
            topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
        )
        answer = await self.ask(address, RequestCode.GET_MIN_OFFSET, header, timeout=QUERY_TIMEOUT)
        return headers.from_ext(headers.GetMinOffsetResponse, answer.ext).offset

    async def search_offset(self, address: str, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at or after `timestamp_ms`."""
        header = headers.SearchOffsetRequest(
            topic=queue.topic,
            queue_id=queue.queue_id,
            timestamp=timestamp_ms,
            broker_name=queue.broker_name,
        )
        code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        answer = await self.ask(address, code, header, timeout=QUERY_TIMEOUT)
        return headers.from_ext(headers.SearchOffsetResponse, answer.ext).offset

    async def earliest_store_time(self, address: str, queue: MessageQueue) -> int:
        """Epoch milliseconds of the oldest stored message, -1 when there is none."""
        header = headers.GetEarliestMsgStoretimeRequest(
            topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
        )
        code = RequestCode.GET_EARLIEST_MSG_STORETIME
        answer = await self.ask(address, code, header, timeout=QUERY_TIMEOUT)
        return headers.from_ext(headers.GetEarliestMsgStoretimeResponse, answer.ext).timestamp

    async def consumer_ids(self, address: str, group: str, timeout: float) -> list[str]:
        """Client ids of the group's members."""
        header = headers.GetConsumerListByGroupRequest(consumer_group=group)
        code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
        answer = await self.ask(address, code, header, timeout=timeout)
        return bodies.ConsumerList.decode(answer.body).consumer_id_list

    async def query_assignment(
        self, address: str, topic: str, group: str, client_id: str, strategy: str, timeout: float
    ) -> list[tuple[MessageQueue, str]] | None:
        """The (queue, `PULL` or `POP`) pairs that the broker assigns to a member; None: keep the current ones
        (5.x).
        """
        body = bodies.AssignmentRequest(client_id, group, strategy, topic).encode()
        answer = await self.ask(address, RequestCode.QUERY_ASSIGNMENT, body=body, timeout=timeout)
        return bodies.Assignments.decode(answer.body).pairs

    async def heartbeat(self, address: str, body: bytes, timeout: float) -> Command:
        """Send a heartbeat; the response has the broker's version code."""
        return await self.ask(address, RequestCode.HEART_BEAT, body=body, timeout=timeout)

    async def unregister(
        self,
        address: str,
        client_id: str,
        *,
        producer_group: str | None = None,
        consumer_group: str | None = None,
        timeout: float,
    ) -> None:
        """Unregister a group of this client at a broker."""
        header = headers.UnregisterClientRequest(
            client_id=client_id, producer_group=producer_group, consumer_group=consumer_group
        )
        await self.ask(address, RequestCode.UNREGISTER_CLIENT, header, timeout=timeout)

    async def send_back(
        self,
        address: str,
        group: str,
        message: ReceivedMessage,
        *,
        delay_level: int,
        max_reconsume_times: int | None,
        generation: int | None = None,
        why: str = "",
        origin_topic: str | None = None,
        timeout: float = SEND_BACK_TIMEOUT,
    ) -> None:
        """Have the broker redeliver a message later (client:D-56); level 0 lets it choose the delay. Without
        `max_reconsume_times` the group's limit applies. `why` is the handler's error, for SparrowMQ's
        brokers. `origin_topic` is the group's POP retry topic if it received the message by POP.
        """
        header = headers.ConsumerSendMsgBackRequest(
            offset=message.physical_offset,
            group=group,
            delay_level=delay_level,
            origin_msg_id=message.message_id,
            origin_topic=origin_topic or message.topic,
            max_reconsume_times=max_reconsume_times,
            generation=generation,
            broker_name=message.queue.broker_name,
            sparrow_error=why or None,
        )
        await self.ask(address, RequestCode.CONSUMER_SEND_MSG_BACK, header, timeout=timeout)


def need_address(address: str | None, queue: MessageQueue, what: str) -> str:
    """Return `address`, or raise a `ClientError` that names the missing broker (client:A-55)."""
    if address is None:
        raise ClientError(
            f"the broker {queue.broker_name!r} of {queue} has no {what} in the route; check that it is "
            "running and registered with the name server",
            what="broker",
            value=queue.broker_name,
        )
    return address
