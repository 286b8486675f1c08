"""The asyncio simple consumer: receive messages, acknowledge each, change how long each is hidden."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Unpack

from sparrowmq.client.base.lifecycle import ClientObject, Lifecycle, State
from sparrowmq.client.base.settings import ClientSettings, check_range, settings_of
from sparrowmq.client.base.tasks import TaskGroup, run_every
from sparrowmq.client.cluster.broker_api import need_address
from sparrowmq.client.cluster.group_limits import GroupLimits
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.client.cluster.instances import shared_instance
from sparrowmq.client.cluster.pop_calls import PopCalls, PoppedMessage
from sparrowmq.core.clock import SystemClock
from sparrowmq.core.errors import (
    BrokerError,
    InvalidStateError,
    NoRouteError,
    SettingsError,
    SparrowError,
    TransportError,
)
from sparrowmq.core.message import POP_MAX
from sparrowmq.core.names import check_group, check_topic, with_namespace
from sparrowmq.core.route import MASTER_ID, PERM_READ, TopicRoute
from sparrowmq.core.subscription import Expression, SubscriptionData
from sparrowmq.protocol.filter import parse_expression
from sparrowmq.protocol.pop.receipts import pop_retry_topic
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.client.base.options import ClientOptions

log = logging.getLogger("sparrowmq.client")
INVISIBLE_MAX: Final = 3 * 86_400.0
"""Seconds; the default limit of brokers (`timerMaxDelaySec`)."""
WAIT_MAX: Final = 60.0
USUAL_MESSAGES: Final = 16
"""How many messages `receive` gets at most."""

Source = tuple[SubscriptionData, str, str]
"""Subscription, broker name and address of one broker to receive from."""


class SimpleConsumer(ClientObject):
    """Receives single messages of subscribed topics, which it then acknowledges one by one.

        async with SimpleConsumer("billing", name_server="127.0.0.1:9876") as consumer:
            consumer.subscribe("TopicTest", "TagA || TagB")
            for message in await consumer.receive(16, invisible=30.0):
                ...
                await consumer.ack(message)

    A received message is hidden from the other members of the group for its invisible time. If it is not
    acknowledged by then, it is delivered again, with `reconsume_times` one higher. There is no rebalance:
    any number of members receive from every queue. Needs brokers of RocketMQ 5 or SparrowMQ. A group uses
    either this consumer or push and pull consumers.
    """

    def __init__(
        self,
        group: str,
        *,
        consume_from_first: bool = True,
        retries: int = -1,
        max_reconsume_times: int | None = None,
        settings: ClientSettings | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        """`options` are the fields of `ClientSettings`; they override `settings`. `name_server` is
        `host:port` (several: separated by `;`), by default from the environment.

        A new group begins with the first stored message, or with the last if `consume_from_first` is false.
        A message that was delivered again `retries` times becomes a dead letter the next time. With -1 the
        group's own limit counts (`retryMaxTimes`, by default 16). `max_reconsume_times` is its other name.
        Raises `InvalidNameError` or `SettingsError`.
        """
        check_group(group)
        if max_reconsume_times is not None:
            if retries not in (-1, max_reconsume_times):
                text = f"retries={retries!r} and max_reconsume_times={max_reconsume_times!r} differ; give one"
                raise SettingsError(f"{text} of them", "retries", retries, other="max_reconsume_times")
            retries = max_reconsume_times
        check_range("retries", retries, -1, 2**31 - 1)
        self.group = group
        self.settings = settings_of(ClientSettings, settings, options)
        self._from_first = consume_from_first
        self._retries_max = retries
        self._life = Lifecycle(f"simple consumer {group!r}")
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._instance: ClientInstance | None = None
        self._calls: PopCalls | None = None
        self._limits: GroupLimits | None = None
        self._tasks: TaskGroup | None = None
        self._turn = 0
        self._missing: set[str] = set()
        """Subscribed topics that had no route at the last look."""
        self._occasional = OccasionalLog(log)

    def __repr__(self) -> str:
        return f"<SimpleConsumer {self.group!r} {self.state.value}>"

    async def start(self) -> None:
        """Start. Raises `NoNameServerError`, or `InvalidStateError` when it was started before."""
        with self._life.starting():
            instance = self._instance = shared_instance(self.settings)
            group = with_namespace(instance.namespace, self.group)
            self._calls = PopCalls(instance.remoting, group, instance.namespace, self.settings.hooks)
            self._limits = GroupLimits(instance, self.group)
            instance.start()
            self._tasks = TaskGroup(self._task_died)
            interval = self.settings.route_interval
            refreshing = run_every(interval, self._refresh, name="refreshing routes", sleep=instance.sleep)
            self._tasks.start(refreshing, "routes")

    async def close(self) -> None:
        """Disconnect. Messages that were not acknowledged are delivered to others when their time is over.
        Idempotent.
        """
        await self._life.close(self._end)

    async def _end(self) -> None:
        instance, self._instance = self._instance, None
        try:
            if self._tasks is not None:
                await self._tasks.close()
        finally:  # the caller may be cancelled meanwhile
            if instance is not None:
                await instance.close()

    def subscribe(self, topic: str, expression: Expression = "*") -> None:
        """Receive messages of `topic` that match a tag expression or SQL92 filter; replaces an earlier one.

        May be called before or after the start. Raises `InvalidNameError` or `InvalidExpressionError`.
        """
        check_topic(topic)
        self._subscriptions[topic] = parse_expression(topic, expression, SystemClock().now_ms())

    def unsubscribe(self, topic: str) -> None:
        """Receive nothing of `topic` any more; does nothing if it is not subscribed."""
        self._subscriptions.pop(topic, None)

    # Receiving

    async def receive(
        self, max_messages: int = USUAL_MESSAGES, *, invisible: float = 30.0, wait: float = 15.0
    ) -> list[PoppedMessage]:
        """Up to `max_messages` (1 to 32) messages, each hidden from other members for `invisible` seconds.

        Waits up to `wait` seconds for the first ones; empty if none came. Topics and brokers are asked in
        turn; those that fail are logged and left out. If all fail, it raises `NoRouteError`, `BrokerError`
        (for example 3 from a broker before RocketMQ 5) or `TransportError`. Raises `InvalidStateError`
        without a subscription.
        """
        check_range("max_messages", max_messages, 1, POP_MAX)
        check_range("invisible", invisible, 0.001, INVISIBLE_MAX, "seconds")
        check_range("wait", wait, 0, WAIT_MAX, "seconds")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        while True:  # until messages came or the time is over
            sources = await self._sources()
            left = max(0.0, deadline - loop.time())
            alone = len(sources) == 1
            working = []
            failure: SparrowError | None = None
            for source in sources:
                try:
                    found = await self._pop(source, max_messages, invisible, left if alone else 0.0)
                except (BrokerError, TransportError) as error:
                    failure = error
                    self._left_out(source, error, alone)
                    continue
                if found:
                    return found
                working.append(source)
            if failure is not None and not working:
                raise failure
            left = deadline - loop.time()
            if left <= 0 or (not alone and not await self._ready(working, left)):
                return []

    async def __aiter__(self) -> AsyncIterator[PoppedMessage]:
        """Receive messages one at a time, without end. Each is hidden for 30 seconds; acknowledge it within
        that time. `receive` gets several at once, which is faster if they take little time.
        """
        while self.state is State.RUNNING:
            try:
                found = await self.receive(1)
            except SparrowError:
                if self.state is not State.RUNNING:
                    return
                raise
            for message in found:
                yield message

    async def _sources(self) -> list[Source]:
        """All brokers to receive from, beginning with the next in turn. Topics without a route are left out,
        unless no other is subscribed.
        """
        instance = self._running()
        if not self._subscriptions:
            text = f"{self._life.name} has no subscription; call subscribe first"
            raise InvalidStateError(text, what="subscription")
        found: list[Source] = []
        failure: SparrowError | None = None
        for topic, data in list(self._subscriptions.items()):
            try:
                route = await _route(instance, topic)
            except (NoRouteError, BrokerError, TransportError) as error:
                failure = failure or error
                self._is_missing(topic, error)
                continue
            self._missing.discard(topic)
            wire = replace(data, topic=with_namespace(instance.namespace, topic))
            readable = {queue.broker_name for queue in route.queues if queue.perm & PERM_READ}
            found += [
                (wire, broker.broker_name, address)
                for broker in route.brokers
                if broker.broker_name in readable and (address := broker.addresses.get(MASTER_ID)) is not None
            ]
        if not found:
            raise failure or NoRouteError(
                f"no broker of {', '.join(self._subscriptions)} has a master to receive from"
            )
        self._turn += 1
        start = self._turn % len(found)
        return found[start:] + found[:start]

    def _is_missing(self, topic: str, error: SparrowError) -> None:
        """Warn about a topic without a route, once until it has one. A single topic's error is raised."""
        if topic not in self._missing and len(self._subscriptions) > 1:
            self._missing.add(topic)
            log.warning("%s goes on without topic %s: %s", self._life.name, topic, error)

    def _left_out(self, source: Source, error: SparrowError, alone: bool) -> None:
        """Warn about a broker that does not serve a topic, if there are others. Its error is raised else."""
        if not alone:
            data, broker_name, _ = source
            text = f"{self._life.name} gets no messages of {data.topic} from {broker_name}: {error}"
            self._occasional.write(logging.WARNING, f"receive {data.topic} {broker_name}", text)

    async def _pop(
        self, source: Source, max_messages: int, invisible: float, wait: float
    ) -> list[PoppedMessage]:
        """Messages of one topic from one broker, without those of other tags and without dead letters.

        One that cannot be moved or acknowledged comes again; the others are not held up by it.
        """
        data, broker_name, address = source
        messages = await self._popping.pop(
            address,
            broker_name,
            data,
            max_messages=max_messages,
            invisible=invisible,
            wait=wait,
            from_first=self._from_first,
        )
        found: list[PoppedMessage] = []
        unwanted: list[tuple[Callable[[PoppedMessage], Awaitable[None]], PoppedMessage]] = []
        for message in messages:
            if not data.matches(message.tags):
                unwanted.append((self.ack, message))  # another tag with the same hash
            elif message.reconsume_times and await self._is_dead(message, address):
                unwanted.append((self.dead_letter, message))
            else:
                found.append(message)
        await asyncio.gather(*(self._settle(how, message) for how, message in unwanted))
        return found

    async def _settle(self, how: Callable[[PoppedMessage], Awaitable[None]], message: PoppedMessage) -> None:
        """Acknowledge a message that the caller does not get, or move it; it comes again after an error."""
        try:
            await how(message)
        except SparrowError as error:
            text = f"a message of {message.queue} for group {self.group} could not be settled"
            kind = f"{how.__name__} {message.queue.broker_name}"
            self._occasional.write(logging.WARNING, kind, f"{text} ({how.__name__}); it comes again: {error}")

    async def _is_dead(self, message: PoppedMessage, address: str) -> bool:
        """Whether a message was delivered too often."""
        most: int | None = self._retries_max
        if self._retries_max < 0:
            assert self._limits is not None, "it runs"
            most = await self._limits.retries_max(address)
        return most is not None and message.reconsume_times > most

    async def _ready(self, sources: list[Source], wait: float) -> bool:
        """Wait until one of several brokers has messages; False after the time limit."""
        waiting = {asyncio.ensure_future(self._is_ready(source, wait)) for source in sources}
        try:
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if any(one.result() for one in done):
                    return True
            return False
        finally:
            for one in waiting:
                one.cancel()
            if waiting:
                await asyncio.gather(*waiting, return_exceptions=True)

    async def _is_ready(self, source: Source, wait: float) -> bool:
        """Whether one of several brokers has messages within `wait` seconds; one that fails has none."""
        data, _, address = source
        loop = asyncio.get_running_loop()
        end = loop.time() + wait
        try:
            return await self._popping.is_ready(address, data.topic, wait)
        except (BrokerError, TransportError) as error:
            self._left_out(source, error, False)
            await self._running().sleep(max(0.0, end - loop.time()))  # else callers ask without a pause
            return False

    # Settling

    async def ack(self, message: PoppedMessage) -> None:
        """Acknowledge a processed message: it is not delivered again. Raises `BrokerError` and
        `TransportError`.

        An acknowledgement after the invisible time is accepted without effect: other members may have the
        message.
        """
        await self._popping.ack(self._address(message), self._wire_topic(message), message.receipt)

    async def change_invisible(self, message: PoppedMessage, invisible: float) -> None:
        """Hide the message for `invisible` seconds from now on; 0 delivers it again at once. The message has
        a new receipt then. Raises `BrokerError` and `TransportError`.
        """
        check_range("invisible", invisible, 0, INVISIBLE_MAX, "seconds")
        receipt = await self._popping.change(
            self._address(message), self._wire_topic(message), message.receipt, invisible
        )
        message.hidden_again(receipt)

    async def dead_letter(self, message: PoppedMessage) -> None:
        """Move the message to the group's dead letters and acknowledge it. Raises `BrokerError` and
        `TransportError`; the message may then be in both places.
        """
        address = self._address(message)
        retries = pop_retry_topic(self.group, self._wire_topic(message))
        await self._running().brokers.send_back(
            address, self.group, message, delay_level=-1, max_reconsume_times=0, origin_topic=retries
        )
        await self.ack(message)

    def _address(self, message: PoppedMessage) -> str:
        name = message.receipt.broker_name
        return need_address(self._running().routes.master(name), message.queue, "master")

    def _wire_topic(self, message: PoppedMessage) -> str:
        return with_namespace(self._running().namespace, message.topic)

    # Running

    @property
    def _popping(self) -> PopCalls:
        self._life.need_running()
        assert self._calls is not None
        return self._calls

    def _running(self) -> ClientInstance:
        self._life.need_running()
        assert self._instance is not None
        return self._instance

    async def _refresh(self) -> None:
        """Ask for the routes again; an unreachable name server changes nothing."""
        for topic in list(self._subscriptions):
            try:
                await self._running().update_route(topic)
            except SparrowError as error:
                log.debug("the route of %s is not refreshed: %s", topic, error)

    def _task_died(self, name: str, error: BaseException) -> None:
        log.error("%s of %s ended: %s", name, self._life.name, error)
        if self.state is State.RUNNING:
            self._life.to(State.FAILED)


async def _route(instance: ClientInstance, topic: str) -> TopicRoute:
    """The route of a topic. Raises `NoRouteError` if there is none."""
    route = await instance.find_route(topic)
    if route is None:
        raise NoRouteError(
            f"no broker serves topic {topic!r}; create it first (`sparrow topic create {topic}`) or check "
            "the name",
            topic=topic,
        )
    return route
