"""Avro and protobuf bodies as JSON: with bounds for any input, and only with bounded schemas."""

from __future__ import annotations

import json
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st
from tests.support import about

from sparrowmq.coordinator.cluster.bodies import body_schemas
from sparrowmq.coordinator.cluster.bodies.body_schemas import BodySchemas
from sparrowmq.core.errors import SettingsError

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "data", "type": "bytes"},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "by", "type": {"type": "map", "values": {"type": "fixed", "name": "F", "size": 2}}},
    ],
}
VALUE = {
    "id": 7,
    "note": "<b>",
    "data": b"\x00\xff",
    "total": Decimal("1.50"),
    "tags": ["a"],
    "by": {"x": b"ab"},
}


def datum(value: Any, schema: Any = ORDER) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def descriptors() -> bytes:
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="bills.proto", package="shop", syntax="proto3")
    bill = file.message_type.add(name="Bill")
    kinds = descriptor_pb2.FieldDescriptorProto
    bill.field.add(name="bill_id", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    bill.field.add(
        name="inner", number=2, type=kinds.TYPE_MESSAGE, type_name=".shop.Bill", label=kinds.LABEL_OPTIONAL
    )
    return files.SerializeToString()


def written(home: Path, text: str, avro: Any = ORDER) -> Path:
    (home / "order.avsc").write_text(json.dumps(avro))
    (home / "bills.desc").write_bytes(descriptors())
    path = home / "bodies.toml"
    path.write_text(text)
    return path


BOTH = """
[Orders]
avro = "order.avsc"
[Framed]
avro = "order.avsc"
skip = 5
[Bills]
protobuf = "bills.desc"
message = "shop.Bill"
"""


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> BodySchemas:
    return BodySchemas.read(written(tmp_path_factory.mktemp("bodies"), BOTH))


def test_avro_value_is_shown_as_json(schemas: BodySchemas) -> None:
    found = schemas.decoded("Orders", datum(VALUE))
    assert found is not None and (found.codec, found.name, found.error) == ("avro", "shop.Order", "")
    assert json.loads(found.text) == {
        "id": 7, "note": "<b>", "data": "00ff", "total": "1.50", "tags": ["a"], "by": {"x": "6162"},
    }  # fmt: skip
    framed = schemas.decoded("Framed", b"\x00\x00\x00\x00\x07" + datum(VALUE))
    assert framed is not None and framed.text == found.text
    assert schemas.decoded("Other", b"x") is None
    assert BodySchemas.read(None).decoded("Orders", b"x") is None


def test_protobuf_message_is_shown_as_json(schemas: BodySchemas) -> None:
    found = schemas.decoded("Bills", b"\x08\x07\x12\x02\x08\x08")
    assert found is not None and json.loads(found.text) == {"bill_id": "7", "inner": {"bill_id": "8"}}


@pytest.mark.parametrize(
    ("topic", "body", "says"),
    [
        ("Orders", b"", "Error"),
        ("Orders", datum(VALUE) + b"x", "1 bytes are left"),
        ("Orders", b"\xff" * 20, "Error"),
        ("Orders", b"x" * 65_537, "at most 65536 are decoded"),
        ("Framed", b"abc", "fewer than the 5 to skip"),
        ("Bills", b"\xff\xff", "Error"),
        ("Bills", b"\x12\x80\x80\x80\x80\x08", "Error"),
    ],
)
def test_undecodable_body_is_explained(schemas: BodySchemas, topic: str, body: bytes, says: str) -> None:
    found = schemas.decoded(topic, body)
    assert found is not None and found.text == "" and says in found.error and len(found.error) <= 300


def test_json_size_is_limited(schemas: BodySchemas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_schemas, "JSON_CHARS_MAX", 50)
    found = schemas.decoded("Orders", datum(VALUE))
    assert found is not None and found.text == "" and "more than 50 characters" in found.error


def test_nesting_of_messages_is_limited(schemas: BodySchemas) -> None:
    body = b""
    for _ in range(5000):
        size, length = len(body), b""
        while True:
            size, low = size >> 7, size & 127
            length += bytes([low | (128 if size else 0)])
            if not size:
                break
        body = b"\x12" + length + body
    found = schemas.decoded("Bills", body)
    assert found is not None and found.error and found.text == ""


@given(st.sampled_from(["Orders", "Framed", "Bills"]), st.binary(max_size=200))
def test_any_body_has_a_result(schemas: BodySchemas, topic: str, body: bytes) -> None:
    found = schemas.decoded(topic, body)
    assert found is not None and bool(found.text) != bool(found.error)


NULLS = {"type": "array", "items": "null"}
EMPTY = {"type": "array", "items": {"type": "record", "name": "E", "fields": []}}
NONE_WIDE = {"type": "array", "items": {"type": "fixed", "name": "Z", "size": 0}}
LIST = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (NULLS, "take no bytes"), (EMPTY, "take no bytes"), (NONE_WIDE, "take no bytes"),
        ({"type": "map", "values": NULLS}, "take no bytes"), (["null", NULLS], "take no bytes"),
        (LIST, "recursive"), ({"type": "array", "items": LIST}, "recursive"),
        ({"type": "nothing"}, "not an Avro"),
    ],
)  # fmt: skip
def test_schemas_without_a_bound_are_refused(tmp_path: Path, schema: Any, says: str) -> None:
    path = written(tmp_path, '[T]\navro = "order.avsc"', schema)
    with pytest.raises(SettingsError, match=rf"\[T\].*{says}"):
        BodySchemas.read(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[T", "cannot be read"), ("[T]", "give one of avro and protobuf"), ("T = 1", "give one of"),
        ('[T]\navro = "a"\nprotobuf = "b"', "give one of"), ('[T]\navro = "none.avsc"', "No such file"),
        ('[T]\navro = "order.avsc"\nskip = -1', "skip must be"),
        ('[T]\navro = "order.avsc"\nskip = true', "skip must be"),
        ('[T]\navro = "order.avsc"\nkind = 1', "unknown: kind"),
        ('[T]\nprotobuf = "bills.desc"\nmessage = "Nothing"', "the file has shop.Bill"),
        ('[T]\nprotobuf = "order.avsc"\nmessage = "x"', "not a descriptor set"),
    ],
)  # fmt: skip
def test_error_for_an_invalid_file_explains_the_reason(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        BodySchemas.read(written(tmp_path, text))
    with pytest.raises(SettingsError, check=about(setting="bodySchemas")):
        BodySchemas.read(tmp_path / "nowhere.toml")
