"""A proxy on the test's loop, and a gRPC client that speaks the API's messages."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio

from sparrowmq.client.base.settings import ClientSettings
from sparrowmq.core.settings.servers import ProxySettings
from sparrowmq.loops.event_loop import new_event_loop
from sparrowmq.proxy.definition.messages import SERVICE, ClientType, MessageType, methods, v2
from sparrowmq.proxy.server import Proxy

METHODS = {method.name: method for method in methods()}
CALL_SECONDS = 20.0


class ApiClient:
    """A client of the API with an id; `telemetry` opens its stream."""

    def __init__(self, channel: Any, client_id: str, metadata: dict[str, str] | None = None) -> None:
        self._channel = channel
        self.client_id = client_id
        given = {"x-mq-client-id": client_id, **(metadata or {})}
        self.metadata = tuple((name, value) for name, value in given.items() if value)

    async def call(self, name: str, request: Any, *, seconds: float = CALL_SECONDS) -> Any:
        """The response of a unary method."""
        method = METHODS[name]
        call = self._channel.unary_unary(
            f"/{SERVICE}/{name}",
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        return await call(request, metadata=self.metadata, timeout=seconds)

    def stream(self, name: str, request: Any, *, seconds: float | None = CALL_SECONDS) -> Any:
        """The call of a method with a streamed response."""
        method = METHODS[name]
        call = self._channel.unary_stream(
            f"/{SERVICE}/{name}",
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        return call(request, metadata=self.metadata, timeout=seconds)

    async def receive(self, group: str, topic: str, **fields: Any) -> tuple[int, list[Any]]:
        """The code and the messages of one receive."""
        request = v2.ReceiveMessageRequest(**{"batch_size": 32, **fields})
        request.group.name, request.message_queue.topic.name = group, topic
        if not request.auto_renew and not request.HasField("invisible_duration"):
            request.invisible_duration.seconds = 30
        answers = [one async for one in self.stream("ReceiveMessage", request)]
        assert answers[-1].WhichOneof("content") == "delivery_timestamp"
        code = next(one.status.code for one in answers if one.WhichOneof("content") == "status")
        return code, [one.message for one in answers if one.WhichOneof("content") == "message"]

    async def send(self, *messages: Any) -> Any:
        """The response to a send."""
        return await self.call("SendMessage", v2.SendMessageRequest(messages=messages))

    def telemetry(self) -> Any:
        """The telemetry stream: `write` and `read`."""
        method = METHODS["Telemetry"]
        call = self._channel.stream_stream(
            f"/{SERVICE}/Telemetry",
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        return call(metadata=self.metadata)

    async def introduce(self, settings: Any) -> tuple[Any, Any]:
        """An open telemetry stream, and the settings that answer `settings`."""
        stream = self.telemetry()
        await stream.write(v2.TelemetryCommand(settings=settings))
        answer = await stream.read()
        return stream, answer


def message(topic: str, body: bytes = b"body", *, number: int = 0, **system: Any) -> Any:
    """A message to send; `system` are fields of its system properties."""
    made = v2.Message(body=body)
    made.topic.name = topic
    made.system_properties.message_id = f"0102FC0000000000000000000000{number:06X}"
    made.system_properties.message_type = MessageType.NORMAL
    made.system_properties.born_timestamp.seconds = 1_700_000_000
    for name, value in system.items():
        field = getattr(made.system_properties, name)
        if isinstance(value, list):
            field.extend(value)
        elif hasattr(field, "CopyFrom"):
            field.CopyFrom(value)
        else:
            setattr(made.system_properties, name, value)
    return made


def publishing(*topics: str) -> Any:
    """Settings of a producer."""
    settings = v2.Settings(client_type=ClientType.PRODUCER)
    settings.publishing.SetInParent()
    for topic in topics:
        settings.publishing.topics.add(name=topic)
    return settings


def subscribing(group: str, *topics: str) -> Any:
    """Settings of a simple consumer."""
    settings = v2.Settings(client_type=ClientType.SIMPLE_CONSUMER)
    settings.subscription.group.name = group
    for topic in topics:
        settings.subscription.subscriptions.add().topic.name = topic
    return settings


@asynccontextmanager
async def running(namesrv: str, **options: Any) -> AsyncIterator[Proxy]:
    """A proxy in front of a cluster."""
    client = options.pop("client", None) or ClientSettings(namesrv=namesrv)
    proxy = Proxy(ProxySettings(**{"listen_port": 0, "namesrv_addr": namesrv, **options}), client=client)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.close()


@asynccontextmanager
async def connected(address: str, client_id: str = "c1", **metadata: str) -> AsyncIterator[ApiClient]:
    """A client of the proxy at `address`."""
    async with grpc.aio.insecure_channel(address) as channel:
        yield ApiClient(channel, client_id, metadata)
        await asyncio.sleep(0)


class ThreadedProxy:
    """A proxy on its own loop, for clients in other processes: `with ThreadedProxy(namesrv) as …`."""

    def __init__(self, namesrv: str, **options: Any) -> None:
        self.namesrv = namesrv
        self._options = options
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self.address = ""

    def __enter__(self) -> ThreadedProxy:
        self._thread.start()
        self._running = running(self.namesrv, **self._options)
        self.address = self._call(self._running.__aenter__()).address
        return self

    def __exit__(self, *exc: object) -> None:
        self._call(self._running.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_SECONDS)
