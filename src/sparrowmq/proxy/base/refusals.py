"""Refusals with the gRPC API's codes, and the code for each error of brokers and of our client."""

from __future__ import annotations

from typing import Any, Final

from sparrowmq.core.errors import (
    BrokerError,
    HeaderError,
    InvalidExpressionError,
    NoRoomError,
    NoRouteError,
    ProxyRefusal,
    RequestTimeoutError,
    SparrowError,
)
from sparrowmq.core.outside import one_line
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.proxy.definition.messages import Code, v2

_OF_BROKERS: Final = {
    int(ResponseCode.SYSTEM_BUSY): Code.TOO_MANY_REQUESTS,
    int(ResponseCode.FLOW_CONTROL): Code.TOO_MANY_REQUESTS,
    int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED): Code.NOT_IMPLEMENTED,
    int(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST): Code.CONSUMER_GROUP_NOT_FOUND,
    int(ResponseCode.TOPIC_NOT_EXIST): Code.TOPIC_NOT_FOUND,
    int(ResponseCode.NO_PERMISSION): Code.FORBIDDEN,
    int(ResponseCode.MESSAGE_ILLEGAL): Code.BAD_REQUEST,
    int(ResponseCode.SUBSCRIPTION_PARSE_FAILED): Code.ILLEGAL_FILTER_EXPRESSION,
}
"""Codes for brokers' answers; Apache's proxy uses INTERNAL_SERVER_ERROR for the last three."""


def status(code: int, message: str = "") -> Any:
    """A status message; without a text it has the code's name, as with Apache's proxy."""
    return v2.Status(code=code, message=message or Code.name(code))


def ok() -> Any:
    """The status of success."""
    return status(Code.OK)


def status_of(error: SparrowError) -> Any:
    """The status for an error that a call ended with."""
    text = one_line(str(error))
    if isinstance(error, ProxyRefusal):
        return status(error.code, text)
    if isinstance(error, BrokerError):
        return status(_OF_BROKERS.get(error.code, Code.INTERNAL_SERVER_ERROR), text)
    if isinstance(error, NoRouteError):
        return status(Code.TOPIC_NOT_FOUND, text)
    if isinstance(error, RequestTimeoutError):
        return status(Code.PROXY_TIMEOUT, text)
    if isinstance(error, NoRoomError):
        return status(Code.TOO_MANY_REQUESTS, text)
    if isinstance(error, InvalidExpressionError):
        return status(Code.ILLEGAL_FILTER_EXPRESSION, text)
    if isinstance(error, HeaderError):
        return status(Code.BAD_REQUEST, text)
    return status(Code.INTERNAL_SERVER_ERROR, text)


def status_of_all(entries: Any) -> Any:
    """The status of a response with several entries: theirs if all are equal, otherwise MULTIPLE_RESULTS."""
    codes = {entry.status.code for entry in entries}
    if not codes:
        return status(Code.INTERNAL_SERVER_ERROR, "there are no entries")
    return status(codes.pop() if len(codes) == 1 else Code.MULTIPLE_RESULTS)
