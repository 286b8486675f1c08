"""What all JSON bodies share: conversion to typed values, nulls and errors."""

from __future__ import annotations

from typing import Annotated, Any, Self, TypeVar

import msgspec

from sparrowmq.core.errors import BodyError
from sparrowmq.protocol.java_json import dumps, loads

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
T = TypeVar("T")


def without_nulls(value: Any) -> Any:
    """The value without members that are null: Java leaves them out, other peers write them."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value if item is not None]
    return value


def convert(value: Any, type_: type[T]) -> T:
    """The plain `value` as `type_`, members that are null left out; raises `BodyError` naming the type."""
    try:
        return msgspec.convert(without_nulls(value), type_, strict=False, str_keys=True)
    except (msgspec.ValidationError, RecursionError) as error:
        name = getattr(type_, "__name__", str(type_)).strip("_")
        raise BodyError(f"a body cannot be read as {name}: {error}") from None


class Body(msgspec.Struct, frozen=True, rename="camel"):
    """Base of bodies whose members map one to one."""

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """The body in JSON `data`; raises `JavaJsonError` or `BodyError`."""
        return convert(loads(data), cls)

    def encode(self) -> bytes:
        """Compact JSON; None is left out."""
        return dumps(without_nulls(msgspec.to_builtins(self)))
