"""A relay between a client of the gRPC API and its proxy that keeps every message of both sides.

Messages pass as they are, but for addresses: clients would go to the proxy itself. What is kept has the
proxy's.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Final, Self

import grpc
import grpc.aio
from tests.interop.apache import free_port

from sparrowmq.proxy.definition.messages import SERVICE, Method, methods

CALL_SECONDS: Final = 20.0
BYTES_MAX: Final = 16 * 1024 * 1024
KEPT_METADATA: Final = ("x-mq-client-id", "x-mq-language", "x-mq-client-version", "x-mq-protocol")
OPTIONS: Final = (
    ("grpc.max_receive_message_length", BYTES_MAX),
    ("grpc.max_send_message_length", BYTES_MAX),
)


@dataclass(slots=True)
class Exchange:
    """One call: its method, who made it, and the messages of both sides as bytes.

    `status` is gRPC's, by name: OK, or what ended the call.
    """

    method: str
    metadata: dict[str, str]
    requests: list[bytes] = field(default_factory=list)
    responses: list[bytes] = field(default_factory=list)
    status: str = "OK"


def readdressed(method: Method, response: bytes, address: str) -> bytes:
    """A response whose queues are at `address`, so that clients go on through the relay."""
    if method.name not in ("QueryRoute", "QueryAssignment"):
        return response
    found = method.response.FromString(response)
    queues = (
        found.message_queues
        if method.name == "QueryRoute"
        else [one.message_queue for one in found.assignments]
    )
    host, port = address.rsplit(":", 1)
    for queue in queues:
        for one in queue.broker.endpoints.addresses:
            one.host, one.port = host, int(port)
    readdressed_bytes: bytes = found.SerializeToString()
    return readdressed_bytes


class Relay:
    """A relay on a loop of its own: `with Relay(endpoints) as relay:`; clients connect to `relay.address`."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay", daemon=True)
        self._exchanges: list[Exchange] = []
        self.address = f"127.0.0.1:{free_port()}"

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._start())
        return self

    def __exit__(self, *exc: object) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def take(self) -> list[Exchange]:
        """What was exchanged since the last time, by its end; streams of both sides when they began."""

        async def swap() -> list[Exchange]:
            found, self._exchanges = self._exchanges, []
            return found

        taken: list[Exchange] = self._call(swap())
        return taken

    def _call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_SECONDS)

    async def _start(self) -> None:
        self._channel = grpc.aio.insecure_channel(self._upstream, options=OPTIONS)
        self._server = grpc.aio.server(options=OPTIONS)
        handlers = {method.name: self._handler(method) for method in methods()}
        generic = grpc.method_handlers_generic_handler(SERVICE, handlers)
        self._server.add_generic_rpc_handlers((generic,))
        self._server.add_insecure_port(self.address)
        await self._server.start()

    async def _close(self) -> None:
        await self._server.stop(1.0)
        await self._channel.close()

    def _begin(self, method: Method, context: Any) -> tuple[Exchange, list[tuple[str, Any]]]:
        metadata = [(name, value) for name, value in context.invocation_metadata() or ()]
        passed = [
            (name, value) for name, value in metadata if name.startswith("x-mq-") or name == "authorization"
        ]
        kept = {name: value for name, value in passed if name in KEPT_METADATA}
        return Exchange(method.name, kept), passed

    def _handler(self, method: Method) -> Any:
        path = f"/{SERVICE}/{method.name}"
        if method.request_stream:
            return grpc.stream_stream_rpc_method_handler(self._both_streams(method, path))
        if method.response_stream:
            return grpc.unary_stream_rpc_method_handler(self._response_stream(method, path))
        return grpc.unary_unary_rpc_method_handler(self._unary(method, path))

    def _unary(self, method: Method, path: str) -> Any:
        async def answer(request: bytes, context: Any) -> bytes:
            exchange, metadata = self._begin(method, context)
            exchange.requests.append(request)
            call = self._channel.unary_unary(path)
            try:
                response: bytes = await call(request, metadata=metadata, timeout=context.time_remaining())
            except grpc.aio.AioRpcError as error:
                await self._failed(exchange, error, context)
                raise
            finally:
                self._exchanges.append(exchange)
            exchange.responses.append(response)
            return readdressed(method, response, self.address)

        return answer

    def _response_stream(self, method: Method, path: str) -> Any:
        async def answer(request: bytes, context: Any) -> AsyncIterator[bytes]:
            exchange, metadata = self._begin(method, context)
            exchange.requests.append(request)
            call = self._channel.unary_stream(path)
            try:
                async for response in call(request, metadata=metadata, timeout=context.time_remaining()):
                    exchange.responses.append(response)
                    yield response
            except grpc.aio.AioRpcError as error:
                await self._failed(exchange, error, context)
            except BaseException:
                exchange.status = "CANCELLED"
                raise
            finally:
                self._exchanges.append(exchange)

        return answer

    def _both_streams(self, method: Method, path: str) -> Any:
        async def answer(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
            exchange, metadata = self._begin(method, context)
            self._exchanges.append(exchange)

            async def noted() -> AsyncIterator[bytes]:
                async for request in requests:
                    exchange.requests.append(request)
                    yield request

            try:
                async for response in self._channel.stream_stream(path)(noted(), metadata=metadata):
                    exchange.responses.append(response)
                    yield response
            except grpc.aio.AioRpcError as error:
                await self._failed(exchange, error, context)

        return answer

    async def _failed(self, exchange: Exchange, error: Any, context: Any) -> None:
        exchange.status = error.code().name
        await context.abort(error.code(), error.details())
