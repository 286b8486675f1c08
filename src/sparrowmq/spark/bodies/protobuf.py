"""Protobuf bodies by Google's library: each body is one message of type `protobufMessage` from the given
descriptors.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from importlib import import_module
from typing import Any, Final

import pyarrow as pa

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.bodies.codecs import RowCodec, short
from sparrowmq.spark.bodies.ddl import quoted

_TIMESTAMP: Final = "google.protobuf.Timestamp"
_SCALAR: Final = {
    1: "double",
    2: "float",
    3: "bigint",  # int64
    4: "decimal(20,0)",  # uint64
    5: "int",  # int32
    6: "decimal(20,0)",  # fixed64
    7: "bigint",  # fixed32
    8: "boolean",
    9: "string",
    12: "binary",
    13: "bigint",  # uint32
    14: "string",  # enum, by name
    15: "int",  # sfixed32
    16: "bigint",  # sfixed64
    17: "int",  # sint32
    18: "bigint",  # sint64
}
"""Spark's type for a field's type number."""
_ENUM: Final = 14
_UNSIGNED_64: Final = (4, 6)

Descriptor = Any
Getter = Callable[[Any], Any]


def protobuf_codec(descriptors: bytes, name: str, kind: pa.DataType) -> RowCodec:
    """Reads messages `name` as Arrow type `kind`. Raises `SettingsError`."""
    return RowCodec(protobuf_read(descriptors, name, kind), kind)


def protobuf_read(descriptors: bytes, name: str, kind: pa.DataType) -> Callable[[bytes], Any]:
    """The function that decodes messages `name` to Arrow type `kind`. Raises `SettingsError`."""
    if not pa.types.is_struct(kind):
        raise SettingsError("bodyFormat=protobuf needs a body of type struct<…> in the schema", what="body")
    descriptor = _descriptor(descriptors, name)
    new = import_module("google.protobuf.message_factory").GetMessageClass(descriptor)
    wanted = frozenset(kind.field(i).name for i in range(kind.num_fields))
    value_of = _message(descriptor, wanted)

    def read(body: bytes) -> Any:
        message = new()
        message.ParseFromString(body)
        if not message.IsInitialized():
            raise ValueError(f"required fields are missing: {', '.join(message.FindInitializationErrors())}")
        return value_of(message)

    return read


def protobuf_ddl(descriptors: bytes, name: str) -> str:
    """Spark's type for message `name`. Raises `SettingsError` for types without an equivalent."""
    return _struct(_descriptor(descriptors, name), ())


def _descriptor(descriptors: bytes, name: str) -> Descriptor:
    """Find the message's descriptor in a `FileDescriptorSet`."""
    try:
        descriptor_pb2 = import_module("google.protobuf.descriptor_pb2")
        pools = import_module("google.protobuf.descriptor_pool")
    except ImportError:
        text = "bodyFormat=protobuf needs protobuf: pip install 'sparrowmq[protobuf]'"
        raise SettingsError(text, "bodyFormat", "protobuf", what="protobuf") from None
    files = descriptor_pb2.FileDescriptorSet()
    pool = pools.DescriptorPool()
    try:
        files.ParseFromString(descriptors)
        for file in files.file:
            pool.Add(file)
        return pool.FindMessageTypeByName(name)
    except KeyError:
        known = sorted(
            f"{file.package}.{m.name}".lstrip(".") for file in files.file for m in file.message_type
        )
        raise SettingsError(
            f"option protobufMessage={name!r}: protobufDescriptor has {', '.join(known) or 'no messages'}",
            "protobufMessage",
            name,
        ) from None
    except Exception as error:  # the class depends on the implementation
        raise SettingsError(
            f"option protobufDescriptor: not a descriptor set ({short(error)}); make one with protoc "
            "--include_imports --descriptor_set_out=FILE",
            "protobufDescriptor",
        ) from None


def _repeated(field: Any) -> bool:
    found: bool = field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED
    return found


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _struct(descriptor: Descriptor, within: tuple[str, ...]) -> str:
    if descriptor.full_name in within:
        raise SettingsError(
            f"option protobufMessage: {descriptor.full_name} is recursive, which Spark's types do not "
            "support",
            "protobufMessage",
            descriptor.full_name,
        )
    inner = (*within, descriptor.full_name)
    fields = []
    for field in descriptor.fields:
        if _is_map(field):
            key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
            ddl = f"map<{_one(key, inner)}, {_one(value, inner)}>"
        else:
            ddl = f"array<{_one(field, inner)}>" if _repeated(field) else _one(field, inner)
        fields.append(f"{quoted(field.name)}: {ddl}")
    return f"struct<{', '.join(fields)}>"


def _one(field: Any, within: tuple[str, ...]) -> str:
    if field.message_type is None:
        return _SCALAR[field.type]
    return "timestamp" if field.message_type.full_name == _TIMESTAMP else _struct(field.message_type, within)


def _message(descriptor: Descriptor, wanted: frozenset[str] | None = None) -> Getter:
    """A function that converts a message to a dictionary, built once."""
    getters = [
        (field.name, _field(field)) for field in descriptor.fields if wanted is None or field.name in wanted
    ]
    return lambda message: {name: get(message) for name, get in getters}


def _field(field: Any) -> Getter:
    name = field.name
    if _is_map(field):
        of_value = _value(field.message_type.fields_by_name["value"])
        return lambda message: {key: of_value(value) for key, value in getattr(message, name).items()}
    of_one = _value(field)
    if _repeated(field):
        return lambda message: [of_one(value) for value in getattr(message, name)]
    if field.has_presence and not field.has_default_value:  # a default of its own is the value, as in Spark
        return lambda message: of_one(getattr(message, name)) if message.HasField(name) else None
    return lambda message: of_one(getattr(message, name))


def _value(field: Any) -> Getter:
    if field.message_type is not None:
        return _micros if field.message_type.full_name == _TIMESTAMP else _message(field.message_type)
    if field.type == _ENUM:
        # reversed, so that a number with several names has the first one, as in Java
        names = {value.number: value.name for value in reversed([*field.enum_type.values])}
        return lambda number: names.get(number, str(number))
    if field.type in _UNSIGNED_64:
        return Decimal
    return _same


def _micros(time: Any) -> int:
    """Not a `datetime`, which has no years beyond 9999."""
    return int(time.seconds) * 1_000_000 + int(time.nanos / 1000)


def _same(value: Any) -> Any:
    return value
