"""Shared by all JSON bodies: conversion to typed values, nulls and errors."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Self, TypeVar

import msgspec

from sparrowmq.core.errors import BodyError
from sparrowmq.protocol.java_json import dumps, loads

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
T = TypeVar("T")
_NONE_MEMBER: Final = re.compile(rb',"\w+":null')
"""A null member that is not the first. Inside a string all quotes have a backslash."""

REQUEST_BYTES_MAX: Final = 256 * 1024
"""The longest JSON request body that a server reads: some thousand groups or subscriptions. A longer one
would block other clients.
"""
LENIENT_BYTES_MAX: Final = 64 * 1024
"""The longest body with members that are null or of another type; reading it takes ten times as long."""
DIALECT_BYTES_MAX: Final = 8 * 1024
"""The longest body that is not plain JSON; reading it takes a hundred times as long. Clients never send such
keys in requests; they occur in servers' responses and in files.
"""


def without_nulls(value: Any) -> Any:
    """The value without null members: Java omits them, other peers write them."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value if item is not None]
    return value


def convert(value: Any, type_: type[T]) -> T:
    """The plain `value` as `type_`, without null members; raises `BodyError` naming the type."""
    try:
        return msgspec.convert(without_nulls(value), type_, strict=False, str_keys=True)
    except (msgspec.ValidationError, RecursionError) as error:
        name = getattr(type_, "__name__", str(type_)).strip("_")
        raise BodyError(f"a body cannot be read as {name}: {error}") from None


def read_request(data: bytes, type_: type[T], *, bytes_max: int = REQUEST_BYTES_MAX) -> T:
    """The JSON body of a request as `type_`, in bounded time for any content.

    For servers, where other clients wait. Raises `JavaJsonError` or `BodyError`, also for a body above
    `bytes_max`, or above the lower limits for bodies that are not plain JSON.
    """
    name = getattr(type_, "__name__", str(type_)).strip("_")
    if len(data) > bytes_max:
        raise BodyError(
            f"the body has {len(data)} bytes, the limit for {name} is {bytes_max}; send less at once",
            what=name,
            value=len(data),
            limit=bytes_max,
        )
    try:
        return msgspec.json.decode(data, type=type_, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if len(data) > LENIENT_BYTES_MAX:
            raise BodyError(
                f"a body of {len(data)} bytes cannot be read as {name}: {error}; above {LENIENT_BYTES_MAX} "
                "bytes it has to be plain JSON without nulls",
                what=name,
                value=len(data),
                limit=LENIENT_BYTES_MAX,
            ) from None
    return convert(loads(data, dialect_max=DIALECT_BYTES_MAX), type_)


class Body(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Base of bodies whose members map one to one. Bodies cannot form cycles, so the garbage collector
    ignores them.
    """

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """The body in JSON `data`; raises `JavaJsonError` or `BodyError`."""
        return convert(loads(data), cls)

    @classmethod
    def decode_request(cls, data: bytes) -> Self:
        """The same for untrusted requests at a server, up to `REQUEST_BYTES_MAX`."""
        return read_request(data, cls)

    def encode(self) -> bytes:
        """Compact JSON; None is omitted.

        Large tables delay other clients, so they are written in one call. Only values with None in unusual
        places are converted first, which takes twenty times as long.
        """
        data = dumps(self)
        if b"null" in data:
            data = _NONE_MEMBER.sub(b"", data)
            if b"null" in data:
                return dumps(without_nulls(msgspec.to_builtins(self)))
        return data
