from __future__ import annotations

import json
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.bodies.avro import avro_codec, avro_ddl

LINE = {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]}
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "before", "type": ["null", "State"], "default": None},
        {"name": "lines", "type": {"type": "array", "items": LINE}},
        {"name": "first", "type": ["Line", "null"]},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        },
        {"name": "time", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "ok", "type": "boolean"},
        {"name": "f", "type": "float"},
        {"name": "d", "type": "double"},
        {"name": "raw", "type": "bytes"},
    ],
}
ORDER: dict[str, Any] = {
    "id": 7,
    "name": "größe",
    "state": "PAID",
    "before": None,
    "lines": [{"sku": "a"}, {"sku": "b"}],
    "first": {"sku": "a"},
    "counts": {"x": 1},
    "day": date(2024, 2, 29),
    "at": datetime(2024, 1, 2, 3, 4, 5, 6000, UTC),
    "local": datetime(2024, 1, 2, 3, 4, 5, 6),
    "price": Decimal("12.50"),
    "time": 1000,
    "uuid": "0190-not-checked",
    "hash": b"ab",
    "ok": True,
    "f": 0.5,
    "d": 0.25,
    "raw": b"\x00",
}
KIND = pa.struct(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("state", pa.string()),
        ("before", pa.string()),
        ("lines", pa.list_(pa.field("element", pa.struct([("sku", pa.string())])))),
        ("first", pa.struct([("sku", pa.string())])),
        ("counts", pa.map_(pa.string(), pa.int32())),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("price", pa.decimal128(10, 2)),
        ("time", pa.int32()),
        ("uuid", pa.string()),
        ("hash", pa.binary()),
        ("ok", pa.bool_()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("raw", pa.binary()),
    ]
)


def encoded(schema: Any, value: Any) -> bytes:
    """One datum."""
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def _body() -> bytes:
    plain = json.loads(json.dumps(SCHEMA))
    plain["fields"][12]["type"] = "string"
    plain["fields"][11]["type"] = "int"
    return encoded(plain, ORDER)


def test_a_record_is_a_struct() -> None:
    body = _body()
    found = avro_codec(json.dumps(SCHEMA), KIND).decode(pa.array([body, body[:-1], body + b"x", b""]))
    assert found.bad.tolist() == [False, True, True, True]
    assert found.values.type == KIND
    assert found.values[0].as_py() == ORDER | {"counts": [("x", 1)]}


def test_a_schema_may_choose_fields() -> None:
    kind = pa.struct([("name", pa.string()), ("id", pa.int64())])
    found = avro_codec(json.dumps(SCHEMA), kind).decode(pa.array([_body()]))
    assert found.values.to_pylist() == [{"name": "größe", "id": 7}]


def test_a_record_has_a_type_in_spark() -> None:
    line = "struct<`sku`: string>"
    assert avro_ddl(json.dumps(SCHEMA)) == (
        f"struct<`id`: bigint, `name`: string, `state`: string, `before`: string, `lines`: array<{line}>, "
        f"`first`: {line}, `counts`: map<string, int>, `day`: date, `at`: timestamp, `local`: timestamp_ntz, "
        "`price`: decimal(10,2), `time`: int, `uuid`: string, `hash`: binary, `ok`: boolean, `f`: float, "
        "`d`: double, `raw`: binary>"
    )


def _record(kind: Any) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "it is not valid JSON"),
        ('"string"', "it must be a record"),
        (_record(["int", "string"]), "a union may have only null and one other type"),
        (_record(["null", "R"]), "type R is recursive"),
        (_record("Nothing"), "type 'Nothing' is unknown"),
        (_record(5), "5 is not a type"),
    ],
)
def test_schemas_without_a_type_in_spark_are_refused(text: str, why: str) -> None:
    with pytest.raises(SettingsError, match=f"option avroSchema: {why}"):
        avro_ddl(text)


def _named(name: str, *fields: tuple[str, Any], **more: str) -> dict[str, Any]:
    return {"type": "record", "name": name, **more, "fields": [{"name": n, "type": k} for n, k in fields]}


@pytest.mark.parametrize(
    ("schema", "ddl"),
    [
        (
            _named("O", ("a", _named("A", ("c", "string"))), ("b", ["null", "x.A"]), namespace="x"),
            "struct<`a`: struct<`c`: string>, `b`: struct<`c`: string>>",
        ),
        (
            _named("x.O", ("a", _named("x.A", ("c", "string"))), ("b", ["null", "A"])),
            "struct<`a`: struct<`c`: string>, `b`: struct<`c`: string>>",
        ),
        (
            _named(
                "O",
                ("a", _named("M", ("n", "long"), ("unit", "string"))),
                ("b", _named("W", ("m", _named("M", ("n", "double"))), namespace="y")),
                ("c", "M"),
                namespace="x",
            ),
            "struct<`a`: struct<`n`: bigint, `unit`: string>, `b`: struct<`m`: struct<`n`: double>>, "
            "`c`: struct<`n`: bigint, `unit`: string>>",
        ),
        (_named("O", ("at", {"type": "string", "logicalType": "timestamp-millis"})), "struct<`at`: string>"),
    ],
    ids=["full name", "short name", "two types of one short name", "logical type of another type"],
)
def test_names_and_logical_types_are_those_of_avro(schema: Any, ddl: str) -> None:
    assert avro_ddl(json.dumps(schema)) == ddl


def test_what_the_library_does_not_take_is_refused() -> None:
    with pytest.raises(SettingsError, check=about(setting="avroSchema")):
        avro_codec(_record("Nothing"), KIND)
    with pytest.raises(SettingsError, check=about(what="body")):
        avro_codec(json.dumps(SCHEMA), pa.string())


def test_without_the_library_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(SettingsError, check=about(setting="bodyFormat", what="fastavro")):
        avro_codec(json.dumps(SCHEMA), KIND)
