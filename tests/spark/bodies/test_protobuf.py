from __future__ import annotations

import sys
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, message_factory, timestamp_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.bodies.protobuf import protobuf_codec, protobuf_ddl

Field = descriptor_pb2.FieldDescriptorProto


def _field(message: Any, name: str, kind: int, type_name: str = "", *, repeated: bool = False) -> Any:
    return message.field.add(
        name=name,
        number=len(message.field) + 1,
        type=kind,
        type_name=type_name or None,
        label=Field.LABEL_REPEATED if repeated else Field.LABEL_OPTIONAL,
    )


def order_descriptors() -> bytes:
    """What protoc would write for a file with message `shop.Order`."""
    file = descriptor_pb2.FileDescriptorProto(
        name="order.proto",
        package="shop",
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto"],
    )
    state = file.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    state.value.add(name="PAID", number=1)
    line = file.message_type.add(name="Line")
    _field(line, "sku", Field.TYPE_STRING)
    tree = file.message_type.add(name="Tree")
    _field(tree, "child", Field.TYPE_MESSAGE, ".shop.Tree")
    order = file.message_type.add(name="Order")
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    _field(entry, "key", Field.TYPE_STRING)
    _field(entry, "value", Field.TYPE_INT32)
    _field(order, "id", Field.TYPE_INT64)
    _field(order, "big", Field.TYPE_UINT64)
    _field(order, "state", Field.TYPE_ENUM, ".shop.State")
    _field(order, "lines", Field.TYPE_MESSAGE, ".shop.Line", repeated=True)
    _field(order, "first", Field.TYPE_MESSAGE, ".shop.Line")
    _field(order, "counts", Field.TYPE_MESSAGE, ".shop.Order.CountsEntry", repeated=True)
    _field(order, "at", Field.TYPE_MESSAGE, ".google.protobuf.Timestamp")
    maybe = _field(order, "maybe", Field.TYPE_DOUBLE)
    maybe.proto3_optional = True
    maybe.oneof_index = 0
    order.oneof_decl.add(name="_maybe")
    _field(order, "raw", Field.TYPE_BYTES, repeated=True)
    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    files.file.append(file)
    return files.SerializeToString()


DESCRIPTORS = order_descriptors()
LINE = pa.struct([("sku", pa.string())])
KIND = pa.struct(
    [
        ("id", pa.int64()),
        ("big", pa.decimal128(20, 0)),
        ("state", pa.string()),
        ("lines", pa.list_(pa.field("element", LINE))),
        ("first", LINE),
        ("counts", pa.map_(pa.string(), pa.int32())),
        ("at", pa.timestamp("us", "UTC")),
        ("maybe", pa.float64()),
        ("raw", pa.list_(pa.field("element", pa.binary()))),
    ]
)


def order(**values: Any) -> bytes:
    """An order's bytes."""
    pool = DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTORS).file:
        pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))(**values)
    body: bytes = made.SerializeToString()
    return body


def test_a_message_is_a_struct() -> None:
    full = order(
        id=7,
        big=2**64 - 1,
        state=1,
        lines=[{"sku": "a"}, {"sku": "b"}],
        first={"sku": "a"},
        counts={"x": 1},
        at={"seconds": 1_700_000_000, "nanos": 5000},
        maybe=0.0,
        raw=[b"\x00"],
    )
    strange = order(state=9)
    found = protobuf_codec(DESCRIPTORS, "shop.Order", KIND).decode(pa.array([full, b"", b"\xff", strange]))
    assert found.bad.tolist() == [False, False, True, False]
    assert found.values.type == KIND
    assert found.values[0].as_py() == {
        "id": 7,
        "big": Decimal(2**64 - 1),
        "state": "PAID",
        "lines": [{"sku": "a"}, {"sku": "b"}],
        "first": {"sku": "a"},
        "counts": [("x", 1)],
        "at": datetime.fromtimestamp(1_700_000_000, UTC).replace(microsecond=5),
        "maybe": 0.0,
        "raw": [b"\x00"],
    }
    empty = found.values[1].as_py()
    assert empty == {
        "id": 0,
        "big": Decimal(0),
        "state": "NEW",
        "lines": [],
        "first": None,
        "counts": [],
        "at": None,
        "maybe": None,
        "raw": [],
    }
    assert found.values[3].as_py()["state"] == "9"


def test_an_absent_field_has_the_default_that_its_descriptor_gives() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="old.proto", package="shop", syntax="proto2")
    old = file.message_type.add(name="Old")
    _field(old, "size", Field.TYPE_INT32).default_value = "7"
    _field(old, "plain", Field.TYPE_INT32)
    kind = pa.struct([("size", pa.int32()), ("plain", pa.int32())])
    descriptors = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    found = protobuf_codec(descriptors, "shop.Old", kind).decode(pa.array([b"", b"\x08\x00"]))
    assert found.values.to_pylist() == [{"size": 7, "plain": None}, {"size": 0, "plain": None}]


def test_a_schema_may_choose_fields() -> None:
    kind = pa.struct([("state", pa.string())])
    found = protobuf_codec(DESCRIPTORS, "shop.Order", kind).decode(pa.array([order(state=1)]))
    assert found.values.to_pylist() == [{"state": "PAID"}]


def test_a_message_has_a_type_in_spark() -> None:
    line = "struct<`sku`: string>"
    assert protobuf_ddl(DESCRIPTORS, "shop.Order") == (
        "struct<`id`: bigint, `big`: decimal(20,0), `state`: string, "
        f"`lines`: array<{line}>, "
        f"`first`: {line}, `counts`: map<string, int>, `at`: timestamp, `maybe`: double, "
        "`raw`: array<binary>>"
    )


def test_what_has_no_type_in_spark_or_is_not_there_is_told() -> None:
    with pytest.raises(SettingsError, check=about(setting="protobufMessage", value="shop.Tree")):
        protobuf_ddl(DESCRIPTORS, "shop.Tree")
    with pytest.raises(
        SettingsError,
        check=about(setting="protobufMessage", value="Order"),
    ):
        protobuf_ddl(DESCRIPTORS, "Order")
    with pytest.raises(SettingsError, check=about(setting="protobufDescriptor")):
        protobuf_ddl(b"\xff\xff", "shop.Order")
    with pytest.raises(SettingsError, check=about(what="body")):
        protobuf_codec(DESCRIPTORS, "shop.Order", pa.string())


def test_without_the_library_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf.descriptor_pb2", None)
    with pytest.raises(SettingsError, check=about(setting="bodyFormat", what="protobuf")):
        protobuf_ddl(DESCRIPTORS, "shop.Order")
