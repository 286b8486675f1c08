"""The proxy's requests to name servers and brokers, over one client instance.

Errors are those of our client: `BrokerError`, `TransportError`, `NoRouteError`. Settings of topics and groups
are kept for some seconds, so a change takes effect soon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from sparrowmq.client.cluster.broker_api import PullAnswer, check, command, decode_pull, pull_request
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.client.cluster.security import ACTING
from sparrowmq.core.clock import Clock
from sparrowmq.core.errors import BrokerError, NoRouteError, ProxyRefusal, SparrowError, TransportError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import TEMPLATE_TOPIC
from sparrowmq.core.route import TopicRoute
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.protocol import bodies, call_headers, headers
from sparrowmq.protocol.call_headers import EndTransactionRequest
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.pop.headers import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    ChangeInvisibleTimeResponse,
    PollingInfoRequest,
    PopMessageRequest,
)
from sparrowmq.protocol.pop.receipts import Receipt, pop_retry_topic, retry_flag
from sparrowmq.proxy.base.handles import ReceiptHandle
from sparrowmq.proxy.base.limits import CALL_SECONDS
from sparrowmq.proxy.cluster.fresh import Fresh
from sparrowmq.proxy.cluster.pop import Received, decode_pop
from sparrowmq.proxy.definition.messages import Code

KEPT_SECONDS: Final = 20.0
"""How long routes, and settings of topics and groups, are kept."""
QUEUES_KEPT: Final = 1_000
"""Topics whose queues for sends are kept as a list."""
MESSAGE_TYPE: Final = "message.type"
UNTYPED: Final = "NORMAL"
"""The type of topics without the attribute."""
_FROM_LAST: Final = 1
"""A new group begins POP at the end."""
_POLL_SLACK_SECONDS: Final = 2.0
"""How much longer than the hold time a broker may take for a POP request."""
_ANY_QUEUE: Final = -1
_NO_QUEUE: Final = 2**31 - 1
"""A queue that no topic has."""
_PULL_SYS_FLAG: Final = 2 | 4
_EMPTY: Final = frozenset(
    {ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_RETRY_IMMEDIATELY}
)


_MOVED: Final = frozenset(
    {ResponseCode.SYSTEM_ERROR, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SLAVE_NOT_AVAILABLE}
)
"""What a broker answers that is no master any longer."""


def is_moved(error: Exception) -> bool:
    """Whether another broker may be the master now: this one did not answer, or as a slave does. Pure."""
    return isinstance(error, TransportError) or (isinstance(error, BrokerError) and error.code in _MOVED)


class Brokers:
    """Requests to the brokers behind the proxy."""

    def __init__(self, instance: ClientInstance, clock: Clock) -> None:
        self.instance = instance
        self._clock = clock
        self._routes: Fresh[TopicRoute | None] = Fresh(instance.update_route, clock, seconds=KEPT_SECONDS)
        self._listed: Fresh[frozenset[str]] = Fresh(self._fetch_listed, clock, seconds=KEPT_SECONDS)
        self._types: Fresh[str] = Fresh(self._fetch_type, clock, seconds=KEPT_SECONDS)
        self._groups: Fresh[bodies.SubscriptionGroupConfig | None] = Fresh(
            self._fetch_group, clock, seconds=KEPT_SECONDS
        )
        self._queues: dict[str, tuple[TopicRoute, list[MessageQueue]]] = {}

    # Topics and groups

    async def route(self, topic: str) -> TopicRoute:
        """The route of a topic. Raises `NoRouteError` when no broker has it."""
        found = await self._routes.get(topic)
        if found is None:
            self._routes.forget(topic)  # it may be created at any moment
            raise NoRouteError(
                f"no broker has the topic {topic!r}; create it with `sparrow topic create {topic}`",
                topic=topic,
            )
        return found

    async def publish_queues(self, topic: str) -> Sequence[MessageQueue]:
        """The queues that messages of a topic may go to. Refuses a topic without one."""
        return self._queues_of(topic, await self.route(topic))

    def known_queues(self, topic: str) -> Sequence[MessageQueue] | None:
        """The same; None when the route of the topic must be asked for first."""
        route = self._routes.known(topic)
        return None if route is None else self._queues_of(topic, route)

    def _queues_of(self, topic: str, route: TopicRoute) -> Sequence[MessageQueue]:
        kept = self._queues.get(topic)
        if kept is None or kept[0] is not route:
            if len(self._queues) >= QUEUES_KEPT:
                self._queues.clear()
            kept = self._queues[topic] = (route, route.publish_queues(topic))
        if not kept[1]:
            raise ProxyRefusal(Code.FORBIDDEN, f"the topic {topic!r} has no writable queue")
        return kept[1]

    def known_type(self, topic: str) -> str | None:
        """What `message_type` would give; None when it must be asked for first."""
        return self._types.known(topic)

    async def message_type(self, topic: str) -> str:
        """Which messages a topic accepts: its attribute `message.type`."""
        return await self._types.get(topic)

    async def _fetch_type(self, topic: str) -> str:
        await self.route(topic)
        address = self.instance.routes.any_broker(topic, self.instance.rng)
        if address is None:
            raise NoRouteError(f"the topic {topic!r} has no broker that can be reached now", topic=topic)
        header = headers.GetTopicConfigRequest(topic=topic)
        try:
            answer = await self.instance.brokers.ask(
                address, RequestCode.GET_TOPIC_CONFIG, header, timeout=CALL_SECONDS
            )
        except BrokerError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            return "MIXED"  # a broker of 4.x, whose topics accept everything
        return bodies.TopicConfig.decode(answer.body).attributes.get(MESSAGE_TYPE, UNTYPED)

    async def group(self, name: str) -> bodies.SubscriptionGroupConfig | None:
        """A consumer group's settings at one of the brokers; None for a group that is not known there."""
        return await self._groups.get(name)

    async def _fetch_group(self, name: str) -> bodies.SubscriptionGroupConfig | None:
        for address in self.instance.routes.masters():
            header = headers.GetSubscriptionGroupConfigRequest(group=name)
            try:
                answer = await self.instance.brokers.ask(
                    address, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header, timeout=CALL_SECONDS
                )
            except BrokerError:
                continue
            return bodies.SubscriptionGroupConfig.decode(answer.body)
        return None

    def master(self, broker_name: str) -> str:
        """The address of a broker's master. Refuses names of brokers that no route has."""
        found = self.instance.routes.master(broker_name)
        if found is None:
            raise ProxyRefusal(Code.BAD_REQUEST, f"there is no broker {broker_name[:80]!r}")
        return found

    def known_master(self, broker_name: str) -> str | None:
        """The address of a broker's master; None for names of brokers that no route has."""
        return self.instance.routes.master(broker_name)

    async def master_for(self, broker_name: str, topic: str) -> str:
        """The same; the route of `topic` is looked up first if the name is not known yet."""
        if self.instance.routes.master(broker_name) is None:
            await self.route(topic)
        return self.master(broker_name)

    def masters(self) -> list[str]:
        """The addresses of all masters that are known from routes."""
        return self.instance.routes.masters()

    def on_lost(self, call: Callable[[str], None]) -> None:
        """Call it with the address of each broker whose connection is lost."""
        self.instance.on_lost.append(call)

    async def ask(
        self, address: str, code: RequestCode, header: headers.Header, *, body: bytes = b""
    ) -> Command:
        """A broker's answer to one of the proxy's own requests. Raises `BrokerError` for its refusal."""
        return await self.instance.brokers.ask(address, code, header, body=body, timeout=CALL_SECONDS)

    # Requests that are made elsewhere

    def begin(self, address: str, asked: Command) -> asyncio.Future[Command] | None:
        """Send a request now; None when that needs a wait, for a connection for example (see `call`)."""
        return self.instance.remoting.call_nowait(address, asked, CALL_SECONDS)

    async def call(self, address: str, asked: Command) -> Command:
        """The answer to a request."""
        return await self.instance.remoting.call(address, asked, CALL_SECONDS)

    async def may_use(self, topic: str) -> bool:
        """Whether the caller's account may send to a topic, receive from it, or look at it; True without
        accounts. Apache's brokers do not know the question; there everybody may look.
        """
        header = call_headers.CheckTopicRightRequest(topic=topic)
        return await self._is_permitted(topic, command(RequestCode.CHECK_TOPIC_RIGHT, header))

    async def may_receive(self, topic: str, group: str) -> bool:
        """Whether the caller's account may receive from a topic for a group; True without accounts."""
        header = PollingInfoRequest(consumer_group=group, topic=topic, queue_id=_ANY_QUEUE)
        return await self._is_permitted(topic, command(RequestCode.POLLING_INFO, header))

    async def _is_permitted(self, topic: str, asked: Command) -> bool:
        """Whether a broker of the topic answers a request that changes nothing, or refuses it for lack of
        rights. Raises `TransportError`.
        """
        if ACTING.get() is None:
            return True
        await self.route(topic)
        address = self.instance.routes.any_broker(topic, self.instance.rng)
        if address is None:
            raise NoRouteError(f"the topic {topic!r} has no broker that can be reached now", topic=topic)
        answer = await self.call(address, asked)
        return answer.code != ResponseCode.NO_PERMISSION

    async def listed(self) -> frozenset[str]:
        """The topics that the name servers have."""
        return await self._listed.get("")

    async def _fetch_listed(self, key: str) -> frozenset[str]:
        asked = command(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        answer = check(await self.instance.name_servers.call(asked, CALL_SECONDS), "", asked.code)
        return frozenset(bodies.TopicList.decode(answer.body).topic_list)

    async def may_publish(self, topic: str) -> bool:
        """Whether the caller's account may send to a topic; True without accounts.

        A broker decides that before it looks at the queue, so a send to a queue that cannot exist shows it
        and stores nothing.
        """
        header = headers.SendMessageRequest(
            producer_group=topic,
            topic=topic,
            default_topic=TEMPLATE_TOPIC,
            default_topic_queue_nums=1,
            queue_id=_NO_QUEUE,
            sys_flag=0,
            born_timestamp=self._clock.now_ms(),
            flag=0,
            properties="",
            batch=False,
        )
        asked = Command(RequestCode.SEND_MESSAGE_V2, ext=headers.send_v2_to_ext(header), body=b"?")
        return await self._is_permitted(topic, asked)

    async def end_transaction(self, address: str, header: EndTransactionRequest) -> None:
        """Commit or roll back a half message."""
        await self.instance.remoting.notify(address, command(RequestCode.END_TRANSACTION, header))

    async def recall(self, address: str, header: headers.RecallMessageRequest) -> str:
        """Recall a timed message; returns its id."""
        answer = await self.instance.brokers.ask(
            address, RequestCode.RECALL_MESSAGE, header, timeout=CALL_SECONDS
        )
        return headers.from_ext(headers.RecallMessageResponse, answer.ext).msg_id

    # Receives

    async def pop(self, address: str, broker_name: str, header: PopMessageRequest) -> list[Received] | None:
        """Messages that a broker hands out; None when too many requests wait there already."""
        timeout = header.poll_time / 1000 + _POLL_SLACK_SECONDS
        asked = command(RequestCode.POP_MESSAGE, header)
        with self._doubting(header.topic):
            answer = await self.instance.remoting.call(address, asked, timeout)
            if answer.code == ResponseCode.POLLING_FULL:
                return None
            if answer.code in _EMPTY:
                return []
            check(answer, address, RequestCode.POP_MESSAGE)
        return decode_pop(answer, broker_name, ordered=header.order)

    def pop_request(
        self,
        topic: str,
        group: str,
        *,
        count: int,
        invisible_ms: int,
        poll_ms: int,
        subscription: SubscriptionData,
        ordered: bool,
        attempt_id: str | None,
    ) -> PopMessageRequest:
        """The request for messages of all queues of a broker."""
        return PopMessageRequest(
            consumer_group=group,
            topic=topic,
            queue_id=-1,
            max_msg_nums=count,
            invisible_time=invisible_ms,
            poll_time=poll_ms,
            init_mode=_FROM_LAST,
            exp_type=subscription.expression_type,
            exp=subscription.expression,
            order=ordered,
            attempt_id=attempt_id,
        )

    @contextmanager
    def _doubting(self, topic: str) -> Iterator[None]:
        """After an error of a broker that may no longer be the master, get the route of `topic` again."""
        try:
            yield
        except SparrowError as error:
            self.failed(topic, error)
            raise

    def failed(self, topic: str, error: Exception) -> None:
        """The master of a queue of `topic` refused or did not answer: get the route again, soon and seldom,
        if another broker may be the master now.
        """
        if is_moved(error):
            self._routes.forget(topic)
            self.instance.doubt_route(topic)

    async def ack(self, address: str, topic: str, group: str, handle: ReceiptHandle) -> None:
        """Acknowledge a message."""
        asked = ack_request(topic, group, handle)
        with self._doubting(topic):
            check(await self.call(address, asked), address, RequestCode.ACK_MESSAGE)

    async def change_invisible(
        self, address: str, topic: str, group: str, handle: ReceiptHandle, invisible_ms: int
    ) -> ReceiptHandle:
        """Hide a message for a time; returns its new handle."""
        receipt = handle.receipt
        stored_in = handle.topic(topic, group)
        header = ChangeInvisibleTimeRequest(
            consumer_group=group,
            topic=stored_in,
            queue_id=receipt.queue_id,
            extra_info=receipt.encode(),
            offset=receipt.offset,
            invisible_time=invisible_ms,
        )
        code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        with self._doubting(topic):
            answer = await self.instance.brokers.ask(address, code, header, timeout=CALL_SECONDS)
        told = headers.from_ext(ChangeInvisibleTimeResponse, answer.ext)
        changed = Receipt(
            receipt.offset,
            told.pop_time,
            told.invisible_time,
            told.revive_qid,
            retry_flag(stored_in),
            receipt.broker_name,
            receipt.queue_id,
            receipt.offset,
        )
        return ReceiptHandle(changed, handle.physical_offset)

    async def to_dead_letters(
        self, address: str, topic: str, group: str, handle: ReceiptHandle, message_id: str
    ) -> None:
        """Store a message among the group's dead letters; this does not acknowledge it."""
        header = headers.ConsumerSendMsgBackRequest(
            offset=handle.physical_offset,
            group=group,
            delay_level=-1,
            origin_msg_id=message_id,
            origin_topic=pop_retry_topic(group, topic),
            max_reconsume_times=0,
        )
        code = RequestCode.CONSUMER_SEND_MSG_BACK
        with self._doubting(topic):
            await self.instance.brokers.ask(address, code, header, timeout=CALL_SECONDS)

    async def pull(
        self,
        address: str,
        group: str,
        queue: MessageQueue,
        offset: int,
        *,
        count: int,
        bytes_max: int,
        hold: float,
        subscription: SubscriptionData,
    ) -> PullAnswer:
        """StoredForm messages of a queue from `offset`, held up to `hold` seconds while there is none."""
        asked = pull_request(
            group=group,
            queue=queue,
            offset=offset,
            max_messages=count,
            max_bytes=bytes_max,
            hold=hold,
            subscription=subscription,
            sys_flag=_PULL_SYS_FLAG,
        )
        answer = await self.instance.remoting.call(address, asked, hold + _POLL_SLACK_SECONDS)
        return decode_pull(answer, address, queue)


def ack_request(topic: str, group: str, handle: ReceiptHandle) -> Command:
    """The request that acknowledges a message."""
    receipt = handle.receipt
    header = AckMessageRequest(
        consumer_group=group,
        topic=handle.topic(topic, group),
        queue_id=receipt.queue_id,
        extra_info=receipt.encode(),
        offset=receipt.offset,
    )
    return command(RequestCode.ACK_MESSAGE, header)
