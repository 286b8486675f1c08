"""What is asked of the brokers of single queues: messages from an offset on, and questions about offsets.

Offsets are the master's; messages come from the broker that the queue's last answer suggested (broker:5.4). A
broker that is not known, or did not answer, may have moved: the route is asked for before the next request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar, get_args

from sparrowmq.client.instance import ClientInstance
from sparrowmq.client.requests import (
    PULL_SUBSCRIPTION,
    PULL_SUSPEND,
    BrokerRequests,
    PullAnswer,
    decode_pull,
    need_address,
    pull_request,
)
from sparrowmq.client.settings import check_range
from sparrowmq.core.errors import SettingsError, SparrowError, TransportError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.results import ReadFrom
from sparrowmq.core.route import MASTER_ID
from sparrowmq.core.subscription import Expression
from sparrowmq.protocol.filter import parse_expression
from sparrowmq.protocol.headers import BULK_BYTES_MAX

T = TypeVar("T")

DEFAULT_GROUP: Final = "TOOLS_CONSUMER"
"""Group named in pulls of a consumer that was given none; it never has offsets."""
MESSAGES_MAX: Final = 2**31 - 1
HOLD_MARGIN: Final = 10.0
"""Seconds the client waits longer than the broker may hold a pull (client:E.1)."""


@dataclass(frozen=True, slots=True)
class PullWish:
    """What one pull asks for; `wait` and `timeout` in seconds, no `timeout` is `wait` and 10 s.

    `read_from` None is the broker that the queue's last answer suggested.
    """

    max_bytes: int = BULK_BYTES_MAX
    max_messages: int = MESSAGES_MAX
    expression: Expression = "*"
    wait: float = 0.0
    timeout: float | None = None
    read_from: ReadFrom | None = None

    def check(self) -> None:
        """Raise `SettingsError` for what is out of range."""
        check_range("max_bytes", self.max_bytes, 1, BULK_BYTES_MAX, "bytes")
        check_range("max_messages", self.max_messages, 1, MESSAGES_MAX)
        check_range("wait", self.wait, 0, 3600, "seconds")
        if self.read_from not in (None, *get_args(ReadFrom)):
            raise SettingsError(f"read_from={self.read_from!r}: it takes 'master', 'slave' or None")

    @property
    def seconds(self) -> float:
        """How long the answer may take."""
        return self.wait + HOLD_MARGIN if self.timeout is None else self.timeout


class QueueReader:
    """Requests about queues through the client that `running` gives, which raises while there is none."""

    def __init__(self, running: Callable[[], ClientInstance], group: str | None) -> None:
        self._running = running
        self._group = group or DEFAULT_GROUP
        self._suggested: dict[MessageQueue, int] = {}
        self._silent: set[str] = set()
        self.generation_of: Callable[[MessageQueue], int | None] = lambda queue: None
        """What pulls carry in a managed group."""

    async def ask(self, queue: MessageQueue, question: Callable[[BrokerRequests, str], Awaitable[T]]) -> T:
        """What the master of `queue`, whose address `question` is given, answers.

        Raises `NoRouteError`, `BrokerError` or `TransportError`.
        """
        routes = self._running().routes
        await self._learn(queue, routes.master(queue.broker_name))
        address = need_address(routes.master(queue.broker_name), queue, "master")
        with self._noting_silence(queue):
            return await question(self._running().brokers, address)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's committed offset; None when it has none. Raises as `ask`."""
        return await self.ask(queue, lambda brokers, at: brokers.query_offset(at, self._group, queue))

    async def pull(self, queue: MessageQueue, offset: int, wish: PullWish) -> PullAnswer:
        """What a broker gives from `offset` on. Raises as `ask`, and `InvalidExpressionError`."""
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
            generation=self.generation_of(queue),
        )
        with self._noting_silence(queue):
            answer = decode_pull(await instance.remoting.call(address, request, wish.seconds), address, queue)
        self._suggested[queue] = answer.suggested_broker_id
        return answer

    def _source(self, queue: MessageQueue, read_from: ReadFrom | None) -> str | None:
        """The address to pull from; a slave that is wished and not there leaves the master."""
        routes = self._running().routes
        if read_from == "master":
            return routes.master(queue.broker_name)
        slave = routes.slave(queue.broker_name) if read_from == "slave" else None
        return slave or routes.readable(queue.broker_name, self._suggested.get(queue, MASTER_ID))

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
