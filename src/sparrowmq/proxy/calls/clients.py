"""The clients that are connected: their settings and telemetry streams. Telemetry, Heartbeat, termination."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from sparrowmq.core.clock import Clock
from sparrowmq.core.errors import ProxyRefusal
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.proxy.base.caller import CallMemory, GrpcCaller
from sparrowmq.proxy.base.checks import group_name, subscription, topic_name
from sparrowmq.proxy.base.refusals import ok
from sparrowmq.proxy.calls.members import ProxyMembers
from sparrowmq.proxy.calls.pending import PendingAnswers
from sparrowmq.proxy.calls.settings import answer_settings
from sparrowmq.proxy.cluster.brokers import Brokers
from sparrowmq.proxy.definition.messages import ClientType, Code, v2

_log = logging.getLogger("sparrowmq.proxy")
SETTINGS_BYTES_MAX: Final = 64 * 1024
COMMANDS_MAX: Final = 1_000
"""Maximum number of commands that wait until a client reads its stream; beyond it, the stream is closed."""
COMMANDS_BYTES_MAX: Final = 4 * 1024 * 1024
"""Maximum size of these commands; beyond it, a broker's question is not passed on, and the broker
asks again.
"""
ANSWERS_MAX: Final = 16
"""Maximum number of unread answers to a client's settings."""
TOPIC_BYTES: Final = 128
"""Estimated memory for a topic of a client, without its name."""
SILENT_SECONDS: Final = 120.0
"""A client without a stream is forgotten after this time without a heartbeat."""
_SERVED: Final = (ClientType.PRODUCER, ClientType.PUSH_CONSUMER, ClientType.SIMPLE_CONSUMER)


class Stream:
    """Commands for a client's telemetry stream."""

    def __init__(self, memory: CallMemory | None = None) -> None:
        """`memory` counts the waiting commands."""
        self._commands: asyncio.Queue[Any | None] = asyncio.Queue(COMMANDS_MAX)
        self._memory = memory
        self._bytes = 0
        self.closed = False

    @property
    def waiting(self) -> int:
        """Commands that wait until the client reads."""
        return self._commands.qsize()

    def write(self, command: Any) -> bool:
        """Send a command; False if the stream is closed or full, because the client does not read it."""
        size = command.ByteSize()
        if self.closed or (self._bytes and self._bytes + size > COMMANDS_BYTES_MAX):
            return False
        try:
            self._commands.put_nowait(command)
        except asyncio.QueueFull:
            self.close()
            return False
        self._count(size)
        return True

    def _count(self, size: int) -> None:
        self._bytes += size
        if self._memory is not None:
            self._memory.hold(size)

    def close(self) -> None:
        """End the stream; waiting commands are dropped if there are many."""
        if self.closed:
            return
        self.closed = True
        if self._commands.full():
            dropped = self._commands.get_nowait()
            if dropped is not None:
                self._count(-dropped.ByteSize())
        self._commands.put_nowait(None)

    async def commands(self) -> AsyncIterator[Any]:
        """The commands, until the stream is closed."""
        while (command := await self._commands.get()) is not None:
            self._count(-command.ByteSize())
            yield command


Publishes = Callable[[str, frozenset[str], Stream], Awaitable[None]]
"""Called with the topics that a client publishes to, and its stream; without topics when the
client has left.
"""


@dataclass(slots=True)
class Client:
    """A client that has sent its settings."""

    client_id: str
    account: str
    client_type: int
    seen: float
    stream: Stream | None = None
    topics: frozenset[str] = field(default_factory=frozenset)
    """The topics that it publishes to; known while it has a stream."""
    publishes: bool = False
    """Whether it ever had such topics."""

    @property
    def connected(self) -> bool:
        """Whether commands can be sent to it."""
        return self.stream is not None and not self.stream.closed


class Clients:
    """The clients by id."""

    def __init__(
        self,
        brokers: Brokers,
        publishes: Publishes,
        members: ProxyMembers,
        pending: PendingAnswers,
        clock: Clock,
        *,
        clients_max: int,
    ) -> None:
        """`members` is told of consumers, `pending` gets what clients answer to commands."""
        self.clients_max = clients_max
        self._brokers = brokers
        self._publishes = publishes
        self._members = members
        self._pending = pending
        self._clock = clock
        self._clients: dict[str, Client] = {}

    def __len__(self) -> int:
        return len(self._clients)

    def is_connected(self, client_id: str) -> bool:
        """Whether the client has an open telemetry stream."""
        found = self._clients.get(client_id)
        return found is not None and found.connected

    def stream_of(self, client_id: str) -> Stream | None:
        """The open telemetry stream of a client."""
        found = self._clients.get(client_id)
        return found.stream if found is not None and found.connected else None

    # Telemetry

    async def telemetry(self, caller: GrpcCaller, requests: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
        """The commands for the client's stream: its settings, whenever it sends them, and others.

        Raises `ProxyRefusal` for settings that are refused.
        """
        stream = Stream(caller.memory)
        reading = asyncio.create_task(self._read(caller, requests, stream))
        reading.add_done_callback(lambda done: stream.close())
        try:
            async for command in stream.commands():
                yield command
            if reading.done() and not reading.cancelled():
                reading.result()
        finally:
            stream.close()
            reading.cancel()
            await asyncio.wait([reading])
            self._stream_ended(caller.client_id, stream)

    async def _read(self, caller: GrpcCaller, requests: AsyncIterator[Any], stream: Stream) -> None:
        async for request in requests:
            if request.WhichOneof("command") != "settings":
                self._pending.answered(caller.client_id, request)
                continue
            answer = await self._take(caller, request.settings, stream)
            if stream.waiting >= ANSWERS_MAX or not stream.write(answer):
                raise ProxyRefusal(Code.TOO_MANY_REQUESTS, "answers wait that the client does not read")

    async def _take(self, caller: GrpcCaller, settings: Any, stream: Stream) -> Any:
        """Check and keep a client's settings; the command that answers them."""
        if settings.ByteSize() > SETTINGS_BYTES_MAX:
            raise ProxyRefusal(
                Code.PAYLOAD_TOO_LARGE,
                f"the settings take {settings.ByteSize()} bytes, the limit is {SETTINGS_BYTES_MAX}",
            )
        kind = settings.WhichOneof("pub_sub")
        if kind is None:
            raise ProxyRefusal(Code.BAD_REQUEST, "there is no publishing or subscription in the settings")
        topics, group, wanted = frozenset[str](), None, list[SubscriptionData]()
        if kind == "publishing":
            topics = frozenset(topic_name(each) for each in settings.publishing.topics)
        else:
            name = group_name(settings.subscription.group)
            for entry in settings.subscription.subscriptions:
                wanted.append(subscription(topic_name(entry.topic), entry.expression))
            group = await self._brokers.group(name)
        client = self._client(caller, settings)
        if client.stream is not None and client.stream is not stream:
            client.stream.close()  # a client that reconnects has given up its old stream
            client.topics = frozenset()
        changed = client.stream is not stream or client.topics != topics
        client.stream, client.client_type = stream, settings.client_type
        client.seen = self._clock.monotonic()
        if kind == "subscription":
            self._members.joined(caller, name, settings.client_type, wanted)
        if changed and (topics or client.publishes):
            caller.memory.hold(_bytes_of(topics) - _bytes_of(client.topics))
            client.topics, client.publishes = topics, True
            await self._publishes(caller.client_id, topics, stream)
        return v2.TelemetryCommand(status=ok(), settings=answer_settings(settings, group))

    def _client(self, caller: GrpcCaller, settings: Any) -> Client:
        client_id = caller.client_id
        found = self._clients.get(client_id)
        if found is not None and found.account != caller.account:
            raise _taken(caller)
        if found is None:
            if len(self._clients) >= self.clients_max:
                raise ProxyRefusal(
                    Code.TOO_MANY_REQUESTS,
                    f"the proxy has {self.clients_max} clients, which is its limit (clientsMax)",
                )
            found = Client(client_id, caller.account, settings.client_type, self._clock.monotonic())
            self._clients[client_id] = found
        return found

    def _stream_ended(self, client_id: str, stream: Stream) -> None:
        found = self._clients.get(client_id)
        if found is not None and found.stream is stream:
            found.stream, found.topics = None, frozenset()
            self._members.left(client_id)

    # Other calls about clients

    async def heartbeat(self, caller: GrpcCaller, request: Any) -> Any:
        """A client's heartbeat; it must have sent its settings before."""
        client = self._known(caller)
        if client.client_type not in _SERVED:
            raise ProxyRefusal(
                Code.UNRECOGNIZED_CLIENT_TYPE,
                f"clients of type {client.client_type} are not served by this proxy",
            )
        if client.client_type != ClientType.PRODUCER:
            group_name(request.group)
        client.seen = self._clock.monotonic()
        self._members.seen(caller.client_id)
        return v2.HeartbeatResponse(status=ok())

    async def notify_client_termination(self, caller: GrpcCaller, request: Any) -> Any:
        """A client ends."""
        self._known(caller)
        await self._forget(caller.client_id)
        return v2.NotifyClientTerminationResponse(status=ok())

    def _known(self, caller: GrpcCaller) -> Client:
        found = self._clients.get(caller.client_id)
        if found is None:
            raise ProxyRefusal(
                Code.UNRECOGNIZED_CLIENT_TYPE,
                f"the client {caller.client_id!r} has not sent its settings by telemetry",
            )
        if found.account != caller.account:
            raise _taken(caller)
        return found

    async def _forget(self, client_id: str) -> None:
        found = self._clients.pop(client_id, None)
        if found is None:
            return
        self._members.left(client_id)
        stream = found.stream or Stream()
        stream.close()
        if found.publishes:
            await self._publishes(client_id, frozenset(), stream)

    async def forget_silent(self) -> None:
        """Forget clients without a stream and without a heartbeat for `SILENT_SECONDS`."""
        before = self._clock.monotonic() - SILENT_SECONDS
        for client_id, each in list(self._clients.items()):
            if not each.connected and each.seen < before:
                await self._forget(client_id)

    def close(self) -> None:
        """End all streams."""
        for each in self._clients.values():
            if each.stream is not None:
                each.stream.close()


def _bytes_of(topics: frozenset[str]) -> int:
    return sum(map(len, topics)) + TOPIC_BYTES * len(topics)


def _taken(caller: GrpcCaller) -> ProxyRefusal:
    return ProxyRefusal(
        Code.FORBIDDEN,
        f"the client id {caller.client_id!r} belongs to another account; choose another",
    )
