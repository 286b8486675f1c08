"""Requests about single queues: pulls from an offset, and queries of offsets.

Queries of offsets go to the master. Pulls go to the broker that the queue's last response suggested
(broker:5.4). A broker that is unknown or did not answer may have moved, so the route is refreshed before the
next request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar, get_args

from sparrowmq.client.base.offset_store_protocol import Births
from sparrowmq.client.base.settings import check_range
from sparrowmq.client.cluster.broker_api import (
    PULL_SUBSCRIPTION,
    PULL_SUSPEND,
    BrokerRequests,
    GenerationOf,
    PullAnswer,
    decode_pull,
    need_address,
    pull_request,
)
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.core.errors import SettingsError, SparrowError, TransportError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.results import ReadFrom
from sparrowmq.core.route import MASTER_ID
from sparrowmq.core.subscription import Expression
from sparrowmq.protocol.filter import parse_expression
from sparrowmq.protocol.headers import BULK_BYTES_MAX

T = TypeVar("T")

DEFAULT_GROUP: Final = "TOOLS_CONSUMER"
"""Group name in pulls of a consumer without a group; it never has offsets."""
MESSAGES_MAX: Final = 2**31 - 1
USUAL_MESSAGES: Final = 32
"""Default number of messages of a pull."""
HOLD_MARGIN: Final = 10.0
"""Seconds that the client waits longer than the broker may hold a pull (client:E.1)."""


@dataclass(frozen=True, slots=True)
class PullParameters:
    """The parameters of one pull; `wait` and `timeout` in seconds. Without `timeout` it is `wait` plus 10 s.

    `read_from` None: the broker that the queue's last response suggested.
    """

    max_bytes: int = BULK_BYTES_MAX
    max_messages: int = MESSAGES_MAX
    expression: Expression = "*"
    wait: float = 0.0
    timeout: float | None = None
    read_from: ReadFrom | None = None

    def check(self) -> None:
        """Raises `SettingsError` for values out of range."""
        check_range("max_bytes", self.max_bytes, 1, BULK_BYTES_MAX, "bytes")
        check_range("max_messages", self.max_messages, 1, MESSAGES_MAX)
        check_range("wait", self.wait, 0, 3600, "seconds")
        if self.read_from not in (None, *get_args(ReadFrom)):
            raise SettingsError(
                f"read_from={self.read_from!r}: must be 'master', 'slave' or None",
                "read_from",
                self.read_from,
            )

    @property
    def seconds(self) -> float:
        """How long the response may take, in seconds."""
        return self.wait + HOLD_MARGIN if self.timeout is None else self.timeout


class QueueReader:
    """Requests about queues, sent by the client that `running` returns; it raises while there is none. In a
    managed group, pulls carry the queue's generation.
    """

    def __init__(
        self, running: Callable[[], ClientInstance], group: str | None, generation_of: GenerationOf
    ) -> None:
        self._running = running
        self._group = group or DEFAULT_GROUP
        self._suggested: dict[MessageQueue, int] = {}
        self._silent: set[str] = set()
        self.births: Births = {}
        """Of the queues that were pulled."""
        self._generation_of = generation_of

    async def ask(self, queue: MessageQueue, question: Callable[[BrokerRequests, str], Awaitable[T]]) -> T:
        """The response of the master of `queue`; `question` is called with its address.

        Raises `NoRouteError`, `BrokerError` or `TransportError`.
        """
        routes = self._running().routes
        await self._learn(queue, routes.master(queue.broker_name))
        address = need_address(routes.master(queue.broker_name), queue, "master")
        with self._noting_silence(queue):
            return await question(self._running().brokers, address)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's committed offset; None when it has none. Raises the errors of `ask`."""
        return await self.ask(queue, lambda brokers, at: brokers.query_offset(at, self._group, queue))

    async def pull(self, queue: MessageQueue, offset: int, wish: PullParameters) -> PullAnswer:
        """Pull from a broker, starting at `offset`. Raises the errors of `ask`, and
        `InvalidExpressionError`.
        """
        instance = self._running()
        routes = instance.routes
        await self._learn(queue, routes.readable(queue.broker_name))
        address = need_address(self._source(queue, wish.read_from), queue, wish.read_from or "broker")
        request = pull_request(
            group=self._group,
            queue=queue,
            offset=offset,
            max_messages=wish.max_messages,
            max_bytes=wish.max_bytes,
            hold=wish.wait,
            subscription=parse_expression(queue.topic, wish.expression, 0),
            sys_flag=PULL_SUBSCRIPTION | (PULL_SUSPEND if wish.wait > 0 else 0),
            bulk_bytes=wish.max_bytes,
            generation=self._generation_of(queue),
            birth=self.births.get(queue, 0),
        )
        with self._noting_silence(queue):
            answer = decode_pull(await instance.remoting.call(address, request, wish.seconds), address, queue)
        self._suggested[queue] = answer.suggested_broker_id
        if answer.birth:
            self.births[queue] = answer.birth
        return answer

    def _source(self, queue: MessageQueue, read_from: ReadFrom | None) -> str | None:
        """The address to pull from: the master if the wanted slave does not exist."""
        routes = self._running().routes
        if read_from == "master":
            return routes.master(queue.broker_name)
        slave = routes.slave(queue.broker_name) if read_from == "slave" else None
        return slave or routes.readable(queue.broker_name, self._suggested.get(queue, MASTER_ID))

    async def _learn(self, queue: MessageQueue, known: str | None) -> None:
        """Refresh the route when no address is known, or after a failed call: the broker may have moved."""
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
