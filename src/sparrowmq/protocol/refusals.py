"""Error responses: the one exception for them, the codes for other exceptions, and unsupported requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sparrowmq.core.errors import (
    BrokerError,
    InvalidMessageError,
    InvalidNameError,
    NoRoomError,
    NoTopicError,
    SparrowError,
    StoreBusyError,
    StoreFullError,
)
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command

_CODES: Final = (
    (InvalidMessageError, ResponseCode.MESSAGE_ILLEGAL),
    (InvalidNameError, ResponseCode.INVALID_PARAMETER),
    (StoreFullError, ResponseCode.SERVICE_NOT_AVAILABLE),
    (StoreBusyError, ResponseCode.SERVICE_NOT_AVAILABLE),
    (NoRoomError, ResponseCode.SYSTEM_BUSY),
    (NoTopicError, ResponseCode.TOPIC_NOT_EXIST),
)


class Refused(Exception):
    """A request is refused with this code and remark, and the header fields `ext`.

    Handlers, and anything they call, raise it; the dispatcher turns it into the `answer`.
    """

    def __init__(self, code: int, remark: str, ext: Mapping[str, str] | None = None) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
        self.ext = dict(ext or {})

    @classmethod
    def of(cls, error: Exception) -> Refused:
        """The refusal for an error: the error itself, or a fitting code with the error's text.

        Any error that is not a `SparrowError` is a fault of the server: code 1, with the name of its class.
        """
        if isinstance(error, Refused):
            return error
        if isinstance(error, BrokerError):
            return cls(error.code, error.remark)
        if not isinstance(error, SparrowError):
            return cls(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
        code = next((code for kind, code in _CODES if isinstance(error, kind)), ResponseCode.SYSTEM_ERROR)
        return cls(code, str(error))

    def answer(self, opaque: int = 0, ext: Mapping[str, str] | None = None) -> Command:
        """The response to request `opaque`; `ext` are fields that every response to such a request has."""
        return Command(self.code, opaque, FLAG_RESPONSE, {**(ext or {}), **self.ext}, remark=self.remark)


UNSERVED: Final = (
    (frozenset({200_052, 200_056}), "it can neither peek at messages nor roll back POPs"),
    (frozenset(range(200_070, 200_080)), "it has no lite topics"),
    (frozenset({513}), "it has no static topics, whose queues move between brokers"),
    (frozenset({902, 903, 906, 908}), "its slaves do not act as masters"),
    (frozenset(range(1001, 1014)) - {1007}, "it is no controller, and no controller manages it"),
    (frozenset({354, 355, 5001}), "it keeps queues and timers in files only, not in RocksDB"),
    (frozenset(range(2001, 2005)), "it does not limit reads of old messages"),
    (frozenset(range(3001, 3011)), "authenticationEnabled is off, so it has no users and permissions"),
    (frozenset(range(50, 54)), "it has no accounts of RocketMQ 4.x, but users and permissions of 5.x"),
)
"""Unsupported request codes, and the feature that the server lacks. One that a server does serve is not
looked up.
"""


def refusal_remark(code: int) -> str:
    """The remark of the answer to a request that a server does not serve."""
    text = f" request type {code} not supported"
    reason = next((reason for codes, reason in UNSERVED if code in codes), None)
    return text if reason is None else f"{text} by this server: {reason}"
