"""Connections of the hostile load that speak HTTP and gRPC; those of the remoting protocol are in `wire`."""

from __future__ import annotations

import http.client
from collections.abc import Sequence
from typing import Protocol

import grpc
from tests.hostile.wire import ANSWER_SECONDS, Ask

from sparrowmq.proxy.definition.messages import SERVICE

AT_ONCE = 20
"""Connections that send HTTP requests at the same time."""
CALL_SECONDS = 4.0
"""A receive without messages is answered a second before its deadline."""


class Line(Protocol):
    """A client of one server."""

    def exchange(self, code: int, asks: Sequence[Ask]) -> bool:
        """Send requests at once and read the answers; False when the server closed the connection."""

    def ping(self) -> None:
        """Ask what costs a server as little as any request can."""

    def close(self) -> None:
        """Close the connection."""


class HttpLine:
    """A caller of the coordinator's API. The fields of its requests are `method`, `target` and `token`."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._kept = self._connect()

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._address, timeout=ANSWER_SECONDS)

    def exchange(self, code: int, asks: Sequence[Ask]) -> bool:
        for at in range(0, len(asks), AT_ONCE):
            made = [(self._connect(), ask) for ask in asks[at : at + AT_ONCE]]
            for connection, ask in made:
                headers = {"Content-Type": "application/json", "Authorization": f"Bearer {ask.ext['token']}"}
                try:
                    connection.request(ask.ext["method"], ask.ext["target"], ask.body or None, headers)
                except ConnectionError:
                    connection.close()  # the request is too large; the server says so and closes
            for connection, _ in made:
                if connection.sock is not None:
                    _read(connection)
                connection.close()
        return True

    def ping(self) -> None:
        self._kept.request("GET", "/none")
        self._kept.getresponse().read()

    def close(self) -> None:
        self._kept.close()


def _read(connection: http.client.HTTPConnection) -> None:
    try:
        connection.getresponse().read()
    except (ConnectionError, http.client.HTTPException):
        return  # the server closed the connection


class GrpcLine:
    """A client of the proxy. The field of its requests is `method`; a streamed request is one call."""

    def __init__(self, address: str) -> None:
        unlimited = [("grpc.max_receive_message_length", -1), ("grpc.max_metadata_size", 1 << 20)]
        self._channel = grpc.insecure_channel(address, unlimited)

    def exchange(self, code: int, asks: Sequence[Ask]) -> bool:
        method = asks[0].ext["method"]
        if method == "Telemetry":
            calls = [self._channel.stream_stream(path(method))(iter([ask.body for ask in asks]), **_given())]
        else:
            made = self._channel.unary_stream(path(method))
            calls = [made(ask.body, **_given()) for ask in asks]
        answered = [_is_answered(call) for call in calls]
        return all(answered)

    def ping(self) -> None:
        _is_answered(self._channel.unary_stream("/none/None")(b"", timeout=ANSWER_SECONDS))

    def close(self) -> None:
        self._channel.close()


def path(method: str) -> str:
    """Where gRPC finds a method of the API."""
    return f"/{SERVICE}/{method}"


def _given() -> dict[str, object]:
    return {"metadata": (("x-mq-client-id", "hostile"),), "timeout": CALL_SECONDS}


def _is_answered(call: grpc.Call) -> bool:
    """Read a call to its end; a status of gRPC is an answer, too."""
    try:
        for _ in call:
            pass
    except grpc.RpcError as error:
        return error.code() is not grpc.StatusCode.UNAVAILABLE
    return True
