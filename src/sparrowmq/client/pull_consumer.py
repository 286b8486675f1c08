"""The asyncio pull consumer: reads queues by offset, with no group membership of its own (client:E.1).

`fetch_raw` is the bulk path: stored records as bytes. Our brokers answer with up to 8 MiB; Apache's give 32
messages at most (broker:5.2), so a fast reader keeps several pulls in flight. Calls may overlap freely.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Final, Self, TypeVar

from sparrowmq.client.decoding import decode_messages
from sparrowmq.client.instance import ClientInstance
from sparrowmq.client.instances import shared_instance
from sparrowmq.client.lifecycle import Lifecycle, State
from sparrowmq.client.requests import (
    PULL_SUBSCRIPTION,
    PULL_SUSPEND,
    PullAnswer,
    decode_pull,
    need_address,
    pull_request,
)
from sparrowmq.client.settings import ClientSettings, check_range
from sparrowmq.core.errors import ClientError, NoRouteError, SparrowError, TransportError
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.core.names import check_group, check_topic
from sparrowmq.core.results import PullResult, PullStatus, RawBatch
from sparrowmq.core.route import MASTER_ID
from sparrowmq.protocol.filter import parse_tags
from sparrowmq.protocol.headers import BULK_BYTES_MAX

T = TypeVar("T")

DEFAULT_GROUP: Final = "SPARROW_PULL"
"""Group named in pulls of a consumer that was given none; it never has offsets."""
MESSAGES_MAX: Final = 2**31 - 1
_HOLD_MARGIN: Final = 10.0
"""Seconds the client waits longer than the broker may hold a pull (client:E.1)."""


class PullConsumer:
    """Reads queues by offset.

        async with PullConsumer(namesrv="127.0.0.1:9876") as consumer:
            for queue in await consumer.queues("TopicTest"):
                batch = await consumer.fetch_raw(queue, await consumer.min_offset(queue))

    Offsets are queue offsets; a committed offset is the next one to read. With a `group` offsets can be
    committed, so that the group's lag shows.
    """

    def __init__(
        self, group: str | None = None, *, namesrv: str | None = None, settings: ClientSettings | None = None
    ) -> None:
        """`namesrv` is `host:port` (several: separated by `;`), by default from the environment.

        Raises `InvalidNameError` or `SettingsError`.
        """
        if group is not None:
            check_group(group)
        self.group = group
        self.settings = settings or ClientSettings()
        if namesrv is not None:
            self.settings = replace(self.settings, namesrv=namesrv)
        self._life = Lifecycle(f"pull consumer {group!r}" if group else "pull consumer")
        self._instance: ClientInstance | None = None
        self._suggested: dict[MessageQueue, int] = {}
        self._silent: set[str] = set()

    def __repr__(self) -> str:
        return f"<PullConsumer {self.group!r} {self.state.value}>"

    @property
    def state(self) -> State:
        """Where the consumer is in its life."""
        return self._life.state

    async def start(self) -> None:
        """Begin. Raises `NoNameServerError`, or `InvalidStateError` when it was started before."""
        self._life.to(State.STARTING)
        try:
            self._instance = shared_instance(self.settings, stream=True)
            self._instance.start()
        except BaseException:
            self._life.to(State.FAILED)
            raise
        self._life.to(State.RUNNING)

    async def close(self) -> None:
        """Close the connections; calls in flight fail. Idempotent."""
        if self.state in (State.CREATED, State.FAILED):
            self._life.to(State.CLOSED)
        if self.state is State.RUNNING:
            instance = self._running()
            self._life.to(State.CLOSING)
            await instance.close()
            self._life.to(State.CLOSED)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of `topic`, sorted; asks a name server each time. Raises `NoRouteError`."""
        instance = self._running()
        check_topic(topic)
        route = await instance.update_route(topic)
        if route is None:
            raise NoRouteError(
                f"no broker serves topic {topic!r}; create it first (`sparrow topic create {topic}`) or "
                "check the name"
            )
        return route.subscribe_queues(topic)

    async def fetch_raw(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_bytes: int = BULK_BYTES_MAX,
        max_messages: int = MESSAGES_MAX,
        expression: str = "*",
        wait: float = 0.0,
        timeout: float | None = None,
    ) -> RawBatch:
        """Stored records from `offset` on, as the broker sent them: what one pull gives.

        At most `max_bytes` (up to 8 MiB; Apache's brokers stop at 256 KiB and 32 messages) and
        `max_messages`, but always one whole record if there is one. `expression` filters by tag hash at the
        broker: compare tags again when they matter. With `wait` the broker may hold the pull so many
        seconds until messages come. `timeout` defaults to `wait` and 10 s.

        An offset that is not stored gives status OFFSET_ILLEGAL with the offset to go on from. Raises
        `NoRouteError`, `BrokerError` or `TransportError`.
        """
        check_range("max_bytes", max_bytes, 1, BULK_BYTES_MAX, "bytes")
        answer = await self._pull(queue, offset, max_bytes, max_messages, expression, wait, timeout)
        body = answer.body if answer.status is PullStatus.FOUND else b""
        return RawBatch(answer.status, body, answer.next_offset, answer.min_offset, answer.max_offset)

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_messages: int = 32,
        expression: str = "*",
        wait: float = 0.0,
        timeout: float | None = None,
    ) -> PullResult:
        """Messages from `offset` on, decoded and filtered by the text of tags. Otherwise as `fetch_raw`."""
        answer = await self._pull(queue, offset, BULK_BYTES_MAX, max_messages, expression, wait, timeout)
        messages: list[ReceivedMessage] = []
        if answer.status is PullStatus.FOUND:
            tags = parse_tags(queue.topic, expression, 0).tags
            messages = decode_messages(
                answer.body, queue, ReceivedMessage, tags, answer.min_offset, answer.max_offset
            )
        return PullResult(answer.status, messages, answer.next_offset, answer.min_offset, answer.max_offset)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The smallest offset that is stored."""
        return await self._ask(queue, lambda at: self._running().brokers.min_offset(at, queue))

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset the next message will get."""
        return await self._ask(queue, lambda at: self._running().brokers.max_offset(at, queue))

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at or after `timestamp_ms` (epoch milliseconds)."""
        return await self._ask(
            queue, lambda at: self._running().brokers.search_offset(at, queue, timestamp_ms)
        )

    async def earliest_time(self, queue: MessageQueue) -> int | None:
        """Epoch milliseconds of the oldest stored message; None when there is none."""
        found = await self._ask(queue, lambda at: self._running().brokers.earliest_store_time(at, queue))
        return None if found < 0 else found

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's committed offset, None when it has none. Needs a `group`."""
        group = self._need_group()
        return await self._ask(queue, lambda at: self._running().brokers.query_offset(at, group, queue))

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Store the next offset the group will read; confirmed by the broker. Needs a `group`."""
        check_range("offset", offset, 0, 2**63 - 1)
        group = self._need_group()
        await self._ask(
            queue,
            lambda at: self._running().brokers.update_offset(at, group, queue, offset, oneway=False),
        )

    def _running(self) -> ClientInstance:
        self._life.need_running()
        assert self._instance is not None
        return self._instance

    def _need_group(self) -> str:
        if self.group is None:
            raise ClientError("this pull consumer has no group: make it with PullConsumer('my-group', …)")
        return self.group

    async def _ask(self, queue: MessageQueue, ask: Callable[[str], Awaitable[T]]) -> T:
        """What the master of `queue` answers."""
        routes = self._running().routes
        await self._learn(queue, routes.master(queue.broker_name))
        address = need_address(routes.master(queue.broker_name), queue, "master")
        with self._noting_silence(queue):
            return await ask(address)

    async def _learn(self, queue: MessageQueue, known: str | None) -> None:
        """Ask for the route when no address is known, or the last call failed: the broker may have moved."""
        if known is not None and queue.broker_name not in self._silent:
            return
        try:
            await self._running().update_route(queue.topic)
        except SparrowError:
            if known is None:
                raise
        self._silent.discard(queue.broker_name)

    @contextmanager
    def _noting_silence(self, queue: MessageQueue) -> Iterator[None]:
        try:
            yield
        except TransportError:
            self._silent.add(queue.broker_name)
            self._suggested.pop(queue, None)
            raise

    async def _pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_bytes: int,
        max_messages: int,
        expression: str,
        wait: float,
        timeout: float | None,
    ) -> PullAnswer:
        instance = self._running()
        routes = instance.routes
        check_range("offset", offset, 0, 2**63 - 1)
        check_range("max_messages", max_messages, 1, MESSAGES_MAX)
        check_range("wait", wait, 0, 3600, "seconds")
        await self._learn(queue, routes.readable(queue.broker_name))
        address = routes.readable(queue.broker_name, self._suggested.get(queue, MASTER_ID))
        address = need_address(address, queue, "broker")
        request = pull_request(
            group=self.group or DEFAULT_GROUP,
            queue=queue,
            offset=offset,
            max_messages=max_messages,
            max_bytes=max_bytes,
            hold=wait,
            subscription=parse_tags(queue.topic, expression, 0),
            sys_flag=PULL_SUBSCRIPTION | (PULL_SUSPEND if wait > 0 else 0),
            bulk_bytes=max_bytes,
        )
        limit = wait + _HOLD_MARGIN if timeout is None else timeout
        with self._noting_silence(queue):
            answer = decode_pull(await instance.remoting.call(address, request, limit), address, queue)
        self._suggested[queue] = answer.suggested_broker_id
        return answer
