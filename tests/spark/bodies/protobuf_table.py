"""Protobuf bodies and the values that Spark's `from_protobuf` reads from them.

The values are written down from Spark's `ProtobufDeserializer` and `SchemaConverters`, with the options
`emit.default.values` and `upcast.unsigned.ints`. Bodies are written by Google's own library: numbers packed
by proto3 and one by one by proto2, and each is read by messages of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from google.protobuf import descriptor_pb2, duration_pb2, message_factory, timestamp_pb2
from google.protobuf.descriptor_pool import DescriptorPool

Field = descriptor_pb2.FieldDescriptorProto

BAD: Final = "a bad body"
"""The value of a field whose body cannot be read."""
NAN: Final = float("nan")
INTS: Final = [0, 1, -1, 2**31 - 1, -(2**31)]
LONGS: Final = [*INTS, 2**31, 2**63 - 1, -(2**63)]
EDGES: Final[dict[str, list[Any]]] = {
    "double": [0.0, -0.0, 0.1, NAN, float("inf"), float("-inf"), 5e-324, 1.7976931348623157e308],
    "float": [0.0, -0.0, 0.5, NAN, float("inf"), float("-inf"), 2.0**-149, 2.0**127],
    "int32": INTS,
    "int64": LONGS,
    "uint32": [0, 1, 2**31, 2**32 - 1],
    "uint64": [Decimal(one) for one in (0, 1, 2**63, 2**64 - 1)],
    "sint32": INTS,
    "sint64": LONGS,
    "fixed32": [0, 1, 2**31 - 1],
    "fixed64": [Decimal(one) for one in (0, 1, 2**63 - 1)],
    "sfixed32": INTS,
    "sfixed64": LONGS,
    "bool": [False, True],
    "string": ["", "a", "größe 😀", "\x00", "a\nb"],
    "bytes": [b"", b"\x00\xff", b"a"],
}
SCALARS: Final = {
    "double": "double",
    "float": "float",
    "int32": "int",
    "int64": "bigint",
    "uint32": "bigint",
    "uint64": "decimal(20,0)",
    "sint32": "int",
    "sint64": "bigint",
    "fixed32": "bigint",  # Spark: int
    "fixed64": "decimal(20,0)",  # Spark: bigint
    "sfixed32": "int",
    "sfixed64": "bigint",
    "bool": "boolean",
    "string": "string",
    "bytes": "binary",
}
_LINE_DDL: Final = "struct<`sku`: string, `count`: int>"
TYPES: Final = {
    **SCALARS,
    **{f"many_{name}": f"array<{kind}>" for name, kind in SCALARS.items()},
    "state": "string",
    "many_state": "array<string>",
    "line": _LINE_DDL,
    "many_line": f"array<{_LINE_DDL}>",
    "counts": "map<string, int>",
    "lines": f"map<bigint, {_LINE_DDL}>",
    "states": "map<boolean, string>",
    "at": "timestamp",
    "lasts": "struct<`seconds`: bigint, `nanos`: int>",  # Spark: interval day to second
    "empty": "struct<>",  # Spark: no field
    "one": "int",
    "other": "string",
}
"""The types of the fields of `Order`."""
DEFAULTS: Final = {"seven": 7, "text": "x", "paid": "PAID"}
"""Fields of proto2 with defaults of their own."""


@dataclass(frozen=True)
class Case:
    """A body of message `read_as`, a field of it, and Spark's value of this field; `ours` where we differ."""

    read_as: str
    body: bytes
    field: str
    spark: Any
    ours: Any

    def __str__(self) -> str:
        return f"{self.read_as} {self.field} {self.body.hex()[:40]}"


def _field(message: Any, name: str, kind: str, *, repeated: bool = False, **more: Any) -> Any:
    """A field of a scalar type, or of a message or enum by name, with the next number."""
    found = message.field.add(name=name, number=len(message.field) + 1, **more)
    found.label = Field.LABEL_REPEATED if repeated else Field.LABEL_OPTIONAL
    if kind in SCALARS:
        found.type = Field.Type.Value(f"TYPE_{kind.upper()}")
    else:
        found.type_name = kind
    return found


def _map(message: Any, name: str, key: str, value: str, full_name: str) -> None:
    entry = message.nested_type.add(name=f"{name.capitalize()}Entry")
    entry.options.map_entry = True
    _field(entry, "key", key)
    _field(entry, "value", value)
    _field(message, name, f".{full_name}.{entry.name}", repeated=True)


def _file(syntax: str) -> Any:
    """The same messages in either syntax."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{syntax}.proto", package=syntax, syntax=syntax)
    file.dependency.extend([timestamp_pb2.DESCRIPTOR.name, duration_pb2.DESCRIPTOR.name])
    state = file.enum_type.add(name="State")
    state.options.allow_alias = True
    for name, number in (("NEW", 0), ("PAID", 1), ("SETTLED", 1)):
        state.value.add(name=name, number=number)
    file.message_type.add(name="Empty")
    line = file.message_type.add(name="Line")
    _field(line, "sku", "string")
    _field(line, "count", "int32")
    order = file.message_type.add(name="Order")
    for name in SCALARS:
        _field(order, name, name)
    for name in SCALARS:
        _field(order, f"many_{name}", name, repeated=True)
    _field(order, "state", f".{syntax}.State")
    _field(order, "many_state", f".{syntax}.State", repeated=True)
    _field(order, "line", f".{syntax}.Line")
    _field(order, "many_line", f".{syntax}.Line", repeated=True)
    _map(order, "counts", "string", "int32", f"{syntax}.Order")
    _map(order, "lines", "int64", f".{syntax}.Line", f"{syntax}.Order")
    _map(order, "states", "bool", f".{syntax}.State", f"{syntax}.Order")
    _field(order, "at", ".google.protobuf.Timestamp")
    _field(order, "lasts", ".google.protobuf.Duration")
    _field(order, "empty", f".{syntax}.Empty")
    order.oneof_decl.add(name="either")
    _field(order, "one", "int32", oneof_index=0)
    _field(order, "other", "string", oneof_index=0)
    tree = file.message_type.add(name="Tree")
    _field(tree, "children", f".{syntax}.Tree", repeated=True)
    if syntax == "proto2":
        old = file.message_type.add(name="Old")
        _field(old, "seven", "int32", default_value="7")
        _field(old, "text", "string", default_value="x")
        _field(old, "paid", ".proto2.State", default_value="PAID")
        _field(file.message_type.add(name="Needed"), "id", "int32").label = Field.LABEL_REQUIRED
    return file


def _descriptors() -> Any:
    files = descriptor_pb2.FileDescriptorSet()
    for known in (timestamp_pb2, duration_pb2):
        known.DESCRIPTOR.CopyToProto(files.file.add())
    files.file.extend([_file("proto2"), _file("proto3")])
    return files


_FILES: Final = _descriptors()
DESCRIPTORS: Final[bytes] = _FILES.SerializeToString()
_POOL: Final = DescriptorPool()
for _one in _FILES.file:
    _POOL.Add(_one)


def written(message: str, *, lines: Mapping[int, Mapping[str, Any]] | None = None, **values: Any) -> bytes:
    """The bytes of a message, by Google's library."""
    plain = {
        name: [*map(_number, value)] if isinstance(value, list) else _number(value)
        for name, value in values.items()
    }
    made = message_factory.GetMessageClass(_POOL.FindMessageTypeByName(message))(**plain)
    for key, line in (lines or {}).items():
        for name, value in line.items():
            setattr(made.lines[key], name, value)
    body: bytes = made.SerializeToString()
    return body


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, Decimal) else value


def _text(number: int, value: bytes) -> bytes:
    """A field of fewer than 128 bytes with a number below 16."""
    return bytes([number << 3 | 2, len(value)]) + value


def cases() -> Iterator[Case]:
    """Each type with its edges, each way to write and to read it."""
    for read_as in ("proto2", "proto3"):
        for written_as in ("proto2", "proto3"):
            for field, values, spark, *ours in _values(written_as):
                body = written(f"{written_as}.Order", **values)
                yield Case(f"{read_as}.Order", body, field, spark, *(ours or [spark]))
        for field, values, spark, *ours in _by_syntax(read_as):
            body = values if isinstance(values, bytes) else written("proto3.Order", **values)
            yield Case(f"{read_as}.Order", body, field, spark, *(ours or [spark]))
    for field, default in DEFAULTS.items():
        yield Case("proto2.Old", b"", field, default, default)
    yield Case("proto2.Old", b"\x08\x00", "seven", 0, 0)
    yield Case("proto2.Old", b"\x18\x09", "paid", "PAID", "PAID")
    yield Case("google.protobuf.Timestamp", b"\x08\x01", "seconds", 1, 1)
    yield Case("proto2.Needed", b"\x08\x00", "id", 0, 0)
    yield Case("proto2.Needed", b"", "id", BAD, BAD)


def _values(written_as: str) -> Iterator[tuple[Any, ...]]:
    """A field, the values that are written, and what is read by both syntaxes."""
    for name, edges in EDGES.items():
        yield f"many_{name}", {f"many_{name}": edges}, edges
        for value in edges:
            if written_as == "proto2":  # proto3 does not write 0
                yield name, {name: value}, value
    yield "many_fixed32", {"many_fixed32": [2**32 - 1]}, [-1], [2**32 - 1]
    yield "many_fixed64", {"many_fixed64": [2**64 - 1]}, [Decimal(-1)], [Decimal(2**64 - 1)]
    yield "state", {"state": 1}, "PAID"
    yield "many_state", {"many_state": [1, 0, 1]}, ["PAID", "NEW", "PAID"]
    line = {"sku": "a", "count": 2}
    yield "line", {"line": line}, line
    yield "many_line", {"many_line": [line, line]}, [line, line]
    yield "counts", {"counts": {"a": 1, "": -1}}, [("", -1), ("a", 1)]
    yield "lines", {"lines": {-1: line}}, [(-1, line)]
    yield "states", {"states": {True: 1, False: 0}}, [(False, "NEW"), (True, "PAID")]
    yield "empty", {"empty": {}}, None, {}
    yield "lasts", {"lasts": {"seconds": 1, "nanos": 5}}, None, {"seconds": 1, "nanos": 5}
    yield "one", {"one": 0}, 0
    yield "other", {"one": 0}, None
    yield "other", {"other": ""}, ""
    for seconds, nanos in ((1, 5000), (-1, 999_999_999), (-62_135_596_800, 0), (253_402_300_799, 999)):
        yield "at", {"at": {"seconds": seconds, "nanos": nanos}}, seconds * 1_000_000 + nanos // 1000
    for seconds in (-62_135_596_801, 253_402_300_800, 9_223_372_036_854):
        yield "at", {"at": {"seconds": seconds}}, seconds * 1_000_000
    yield "at", {"at": {"seconds": 9_223_372_036_855}}, BAD


def _by_syntax(read_as: str) -> Iterator[tuple[Any, ...]]:
    """A field, the body or the values that proto3 writes, and what this syntax reads."""
    open_enum, numbers = read_as == "proto3", {name: n for n, name in enumerate(TYPES, 1)}
    for name, edges in EDGES.items():
        yield name, {}, edges[0] if open_enum else None
        yield f"many_{name}", {}, []
    for name in ("line", "at", "lasts", "one", "other"):
        yield name, {}, None
    for name in ("many_state", "many_line", "counts", "lines", "states"):
        yield name, {}, []
    yield "state", {}, "NEW" if open_enum else None
    unknown = "UNKNOWN_ENUM_VALUE_State_9"
    yield "state", {"state": 9}, unknown if open_enum else None, "9" if open_enum else None
    known = ["PAID"]
    yield (
        "many_state",
        {"many_state": [9, 1]},
        [unknown, *known] if open_enum else known,
        (["9", *known] if open_enum else known),
    )
    fixed = b"\xff" * 4
    yield "fixed32", bytes([numbers["fixed32"] << 3 | 5]) + fixed, -1, 2**32 - 1
    yield "fixed64", bytes([numbers["fixed64"] << 3 | 1]) + 2 * fixed, Decimal(-1), Decimal(2**64 - 1)
    yield "string", _text(numbers["string"], b"\xff"), BAD if open_enum else "\ufffd", BAD
    twice = written("proto3.Order", counts={"a": 1}) + written("proto3.Order", counts={"a": 2})
    yield "counts", twice, [("a", 1), ("a", 2)], [("a", 2)]
    merged = written("proto3.Order", line={"sku": "a"}) + written("proto3.Order", line={"count": 2})
    yield "line", merged, {"sku": "a", "count": 2}
    yield "one", written("proto3.Order", one=1) + written("proto3.Order", other="a"), None
    yield "int32", written("proto3.Order", int32=1) + written("proto3.Order", int32=2), 2
    yield "int32", bytes([numbers["int32"] << 3]) + b"\xff\xff\xff\xff\x1f", -1
    yield "int32", _text(numbers["int32"], b""), 0 if open_enum else None
    yield "int32", written("proto3.Order", int32=1)[:-1], BAD
    yield "int32", b"\x00\x00", BAD
