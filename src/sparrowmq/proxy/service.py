"""Passes gRPC calls to their methods: identifies callers, turns errors into statuses, and refuses what is not
served.

A unary method answers every error with a status in its response, as Apache's proxy does; gRPC's own error
codes are used for telemetry, whose response has no field for a status, and for calls that are not requests of
the API.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final

from google.protobuf.message import DecodeError

from sparrowmq.core.errors import ProxyRefusal, SparrowError
from sparrowmq.core.outside import one_line
from sparrowmq.proxy.base.caller import CLIENT_ID, CLIENT_ID_CHARS_MAX, Answer, GrpcCaller
from sparrowmq.proxy.base.refusals import status
from sparrowmq.proxy.base.refusals import status_of as refusal_status
from sparrowmq.proxy.definition.fields import FIELDS_MAX, UNCOUNTED_BYTES, MessageFields, count_fields
from sparrowmq.proxy.definition.messages import SERVICE, Code, Method, methods
from sparrowmq.proxy.figures import CallBook
from sparrowmq.proxy.http2 import grpc
from sparrowmq.proxy.http2.calls import Call
from sparrowmq.proxy.http2.grpc import GrpcError
from sparrowmq.transport.occasional import OccasionalLog
from sparrowmq.transport.slices import shared

_log = logging.getLogger("sparrowmq.proxy")

Unary = Callable[[GrpcCaller, Any], Awaitable[Any]]
Now = Callable[[GrpcCaller, Any, Answer], bool]
"""Answers a unary call later, without a task; False, with nothing done, when it cannot."""
Streaming = Callable[[GrpcCaller, Any], AsyncGenerator[Any, None]]
Check = Callable[[GrpcCaller], Awaitable[str]]
"""Returns the user that signed a call; raises `ProxyRefusal` for a caller that may not make calls."""


class GrpcService:
    """Serves the calls of the gRPC listener."""

    def __init__(
        self,
        *,
        unary: Mapping[str, Unary],
        streaming: Mapping[str, Streaming],
        telemetry: Streaming,
        check: Check,
        book: CallBook,
        now: Mapping[str, Now] | None = None,
    ) -> None:
        """`unary` and `streaming` are methods by name; a method in neither is answered NOT_IMPLEMENTED.

        `now` are those of `unary` that can do without a task, for callers that need no check.
        """
        self._unary = unary
        self._streaming = streaming
        self._telemetry = telemetry
        self._check = check
        self.book = book
        self._methods = {f"/{SERVICE}/{method.name}": method for method in methods()}
        self._fields = {
            method.name: MessageFields(method.request.DESCRIPTOR) for method in self._methods.values()
        }
        self._now = {f"/{SERVICE}/{name}": serve for name, serve in (now or {}).items()}
        self._occasional = OccasionalLog(_log)

    def serve_now(self, call: Call) -> bool:
        """Answer one unary call without a task, now or later; False, with nothing done, when it needs one."""
        serve = self._now.get(call.path)
        message = call.first_message
        if serve is None or message is None or len(message) > UNCOUNTED_BYTES:
            return False
        method = self._methods[call.path]
        try:
            request = method.request.FromString(message)
        except DecodeError:
            return False
        answer = _LaterAnswer(self, method, call)
        try:
            if serve(caller_of(call), request, answer):
                return True
        except Exception as error:
            answer.refuse(error)
            return True
        self.book.dropped(method.name)
        return False

    async def serve(self, call: Call) -> None:
        """Answer one call. Raises `GrpcError` for calls that end with a status of gRPC."""
        method = self._methods.get(call.path)
        if method is None:
            raise GrpcError(grpc.UNIMPLEMENTED, f"there is no method {one_line(call.path[:200])}")
        with self.book.running(method.name):
            if method.request_stream:
                await self._answer_telemetry(method, call)
            elif method.response_stream:
                await self._answer_stream(method, call)
            else:
                await self._answer(method, call)

    async def _answer(self, method: Method, call: Call) -> None:
        request = await self._only_request(method, call)
        try:
            caller = await self._caller(call)
            serve = self._unary.get(method.name)
            if serve is None:
                raise _not_served(method.name)
            response = await serve(caller, request)
        except Exception as error:
            response = method.response(status=self.status_of(method.name, error))
        self.book.answered(method.name, response.status.code)
        await call.respond(response.SerializeToString())

    async def _answer_stream(self, method: Method, call: Call) -> None:
        request = await self._only_request(method, call)
        try:
            caller = await self._caller(call)
            serve = self._streaming.get(method.name)
            if serve is None:
                raise _not_served(method.name)
            async with aclosing(serve(caller, request)) as answers:
                async for one in answers:
                    if one.HasField("status"):
                        self.book.answered(method.name, one.status.code)
                    sending = call.send(one.SerializeToString())
                    del one  # the client may take long
                    await sending
        except Exception as error:
            told = self.status_of(method.name, error)
            self.book.answered(method.name, told.code)
            await call.send(method.response(status=told).SerializeToString())

    async def _answer_telemetry(self, method: Method, call: Call) -> None:
        try:
            caller = await self._caller(call)
            async with aclosing(self._telemetry(caller, self._requests(method, call))) as commands:
                async for one in commands:
                    await call.send(one.SerializeToString())
        except SparrowError as error:
            raise GrpcError(_grpc_code(error), one_line(str(error))) from None

    async def _caller(self, call: Call) -> GrpcCaller:
        caller = caller_of(call)
        account = await self._check(caller)
        call.trust()
        return replace(caller, account=account) if account else caller

    async def _requests(self, method: Method, call: Call) -> AsyncIterator[Any]:
        async for message in call.requests():
            if len(message) > UNCOUNTED_BYTES:
                await self._check_fields(method, message)
            try:
                yield method.request.FromString(message)
            except DecodeError:
                raise GrpcError(
                    grpc.INTERNAL, f"the message is not a {method.request.DESCRIPTOR.name} of the API"
                ) from None

    async def _check_fields(self, method: Method, message: bytes) -> None:
        if await shared().result(count_fields(message, self._fields[method.name])) > FIELDS_MAX:
            raise GrpcError(
                grpc.RESOURCE_EXHAUSTED, f"the message has more than {FIELDS_MAX} fields, which is the limit"
            )

    async def _only_request(self, method: Method, call: Call) -> Any:
        async for request in self._requests(method, call):
            return request
        raise GrpcError(grpc.INTERNAL, f"the call of {method.name} has no message")

    def status_of(self, name: str, error: Exception) -> Any:
        """The status for what a method raised; a fault of the proxy is logged."""
        if isinstance(error, SparrowError):
            return refusal_status(error)
        self._occasional.write(logging.ERROR, name, f"{name} failed: {error!r}", error=error)
        return status(Code.INTERNAL_SERVER_ERROR, f"{name} failed with {type(error).__name__}")


class _LaterAnswer:
    """The answer to a call that has no task."""

    __slots__ = ("_began", "_book", "_call", "_method", "_service")

    def __init__(self, service: GrpcService, method: Method, call: Call) -> None:
        self._service = service
        self._method = method
        self._call = call
        self._book = service.book
        self._began = self._book.begun(method.name)

    def respond(self, response: Any) -> None:
        """Answer with a response."""
        name = self._method.name
        self._book.answered(name, response.status.code)
        self._book.ended(name, self._began)
        self._call.answer(response.SerializeToString())

    def refuse(self, error: Exception) -> None:
        """Answer with the status of an error."""
        self.respond(self._method.response(status=self._service.status_of(self._method.name, error)))


def _not_served(name: str) -> ProxyRefusal:
    return ProxyRefusal(Code.NOT_IMPLEMENTED, f"this proxy does not serve {name}")


_BAD: Final = (Code.BAD_REQUEST, Code.INTERNAL_ERROR)
_OWN: Final = {
    Code.UNAUTHORIZED: grpc.UNAUTHENTICATED,
    Code.FORBIDDEN: grpc.PERMISSION_DENIED,
    Code.TOO_MANY_REQUESTS: grpc.RESOURCE_EXHAUSTED,
}


def _grpc_code(error: SparrowError) -> int:
    """The code that ends a telemetry stream."""
    if not isinstance(error, ProxyRefusal):
        return grpc.INTERNAL
    bad = _BAD[0] <= error.code < _BAD[1]
    return _OWN.get(error.code, grpc.INVALID_ARGUMENT if bad else grpc.INTERNAL)


def caller_of(call: Call) -> GrpcCaller:
    """Who makes a call. Refuses clients without an id."""
    client_id = call.metadata.get(CLIENT_ID, "")
    if not client_id.strip():
        raise ProxyRefusal(Code.CLIENT_ID_REQUIRED, f"the metadata have no {CLIENT_ID}")
    if len(client_id) > CLIENT_ID_CHARS_MAX:
        raise ProxyRefusal(
            Code.BAD_REQUEST,
            f"{CLIENT_ID} has {len(client_id)} characters, the limit is {CLIENT_ID_CHARS_MAX}",
        )
    return GrpcCaller(client_id, call.address, call.remaining, call.metadata, call)
