from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType
from tests.spark.bodies.test_avro import SCHEMA
from tests.spark.bodies.test_protobuf import DESCRIPTORS
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.bodies.decoding import BadBodyError, Shape, body_ddl
from sparrowmq.spark.bodies.schema import read_shape, source_ddl
from sparrowmq.spark.options.table import BodyOptions, ReadOptions

QUEUE = MessageQueue("t", "broker-a", 2)
ORDER = StructType([StructField("id", LongType())])
CORRUPT = StructField("_corrupt_record", BinaryType())


def _options(**more: str) -> ReadOptions:
    return ReadOptions.parse({"nameServer": "a:1", "subscribe": "t", **more}, None, {})


def _shape(fields: list[StructField], **more: str) -> Shape:
    return read_shape(StructType(fields), _options(bodyFormat="json", **more))


def _fit(shape: Shape, *bodies: bytes) -> pa.RecordBatch:
    columns: dict[str, Any] = {
        "queue_offset": pa.array(range(100, 100 + len(bodies)), pa.int64()),
        "body": pa.array(bodies, pa.binary()),
    }
    stored = pa.RecordBatch.from_arrays([columns[name] for name in shape.stored.names], schema=shape.stored)
    fitted = shape.fit(stored, QUEUE)
    assert fitted.schema == shape.given
    return fitted


BODIES = (b'{"id":1}', b"bad", b'{"id":3}')


def test_permissive_keeps_bad_bodies_beside_null() -> None:
    shape = _shape([StructField("queue_offset", LongType()), StructField("body", ORDER), CORRUPT])
    assert shape.stored.names == ["queue_offset", "body"]
    assert _fit(shape, *BODIES).to_pylist() == [
        {"queue_offset": 100, "body": {"id": 1}, "_corrupt_record": None},
        {"queue_offset": 101, "body": None, "_corrupt_record": b"bad"},
        {"queue_offset": 102, "body": {"id": 3}, "_corrupt_record": None},
    ]
    assert _fit(shape, b"{}").to_pylist() == [
        {"queue_offset": 100, "body": {"id": None}, "_corrupt_record": None}
    ]
    assert _fit(shape).num_rows == 0


def test_the_column_of_bad_bodies_may_be_left_out_or_renamed() -> None:
    without = _shape([StructField("body", ORDER)])
    assert _fit(without, *BODIES)["body"].to_pylist() == [{"id": 1}, None, {"id": 3}]
    renamed = _shape(
        [StructField("bad", BinaryType()), StructField("body", ORDER)], columnNameOfCorruptRecord="bad"
    )
    assert _fit(renamed, *BODIES)["bad"].to_pylist() == [None, b"bad", None]


REASON = StructField("_corrupt_reason", StringType())


def test_each_bad_body_has_its_own_reason() -> None:
    shape = _shape([StructField("body", ORDER), CORRUPT, REASON])
    assert shape.stored.names == ["body"]
    reasons = _fit(shape, b"bad", b'{"id":1}', b'{"id":"x"}')["_corrupt_reason"].to_pylist()
    assert [reason is None for reason in reasons] == [False, True, False]
    assert "Invalid value" in reasons[0] and "id" in reasons[2]
    assert _fit(shape, b'{"id":1}')["_corrupt_reason"].to_pylist() == [None]
    renamed = _shape(
        [StructField("why", StringType()), StructField("body", ORDER)], columnNameOfCorruptReason="why"
    )
    assert [why is None for why in _fit(renamed, *BODIES)["why"].to_pylist()] == [True, False, True]


def test_without_a_schema_reasons_are_there_when_they_are_asked_for() -> None:
    plain = _options(bodyFormat="text")
    asked = _options(bodyFormat="text", columnNameOfCorruptReason="why")
    assert source_ddl(plain).endswith("body string, `_corrupt_record` binary")
    assert source_ddl(asked).endswith("body string, `_corrupt_record` binary, `why` string")
    strict = _options(bodyFormat="text", columnNameOfCorruptReason="why", mode="DROPMALFORMED")
    assert source_ddl(strict).endswith("body string")
    binary = _options(mode="PERMISSIVE", columnNameOfCorruptReason="why")
    assert source_ddl(binary).endswith("body binary, `_corrupt_record` binary, `why` string")
    assert source_ddl(_options(mode="PERMISSIVE")).endswith("body binary")


@pytest.mark.parametrize("name", ["tags", "_corrupt_record"])
def test_the_column_of_reasons_has_a_name_of_its_own(name: str) -> None:
    with pytest.raises(SettingsError, check=about(value=name)):
        _shape([StructField("body", ORDER)], columnNameOfCorruptReason=name)


def test_dropmalformed_leaves_bad_bodies_out() -> None:
    shape = _shape(
        [StructField("body", ORDER), StructField("queue_offset", LongType())], mode="DROPMALFORMED"
    )
    assert _fit(shape, *BODIES).to_pylist() == [
        {"body": {"id": 1}, "queue_offset": 100},
        {"body": {"id": 3}, "queue_offset": 102},
    ]


def test_failfast_names_the_message_and_the_way_out() -> None:
    shape = _shape([StructField("body", ORDER)], mode="FAILFAST")
    assert shape.stored.names == ["body", "queue_offset"]
    assert _fit(shape, BODIES[0], BODIES[2]).to_pylist() == [{"body": {"id": 1}}, {"body": {"id": 3}}]
    with pytest.raises(
        BadBodyError,
        match=r"queue t/broker-a/2: the body at offset 101 cannot be decoded as json with this schema: JSON.*"
        "mode=PERMISSIVE keeps such bodies in column _corrupt_record",
    ):
        _fit(shape, *BODIES)


def test_bodies_that_are_not_read_are_not_decoded() -> None:
    shape = _shape([StructField("queue_offset", LongType())])
    assert shape.stored == shape.given
    assert _fit(shape, b"bad").to_pylist() == [{"queue_offset": 100}]


def test_only_what_is_asked_for_is_given() -> None:
    """The offset is read for errors of bodies; without bodies nothing needs it."""
    shape = _shape([StructField("broker", StringType())], mode="FAILFAST")
    assert shape.stored == shape.given
    tags = [StructField("body", ORDER), StructField("tags", StringType())]
    shape = _shape(tags, mode="FAILFAST")
    assert shape.stored.names == ["body", "tags", "queue_offset"]
    batch = pa.RecordBatch.from_arrays(
        [pa.array([b'{"id":1}'], pa.binary()), pa.array(["a"]), pa.array([5], pa.int64())],
        schema=shape.stored,
    )
    assert shape.fit(batch, QUEUE).to_pylist() == [{"body": {"id": 1}, "tags": "a"}]


def test_text_is_a_string() -> None:
    options = _options(bodyFormat="text")
    shape = read_shape(StructType([StructField("body", StringType()), CORRUPT]), options)
    assert _fit(shape, b"a", b"\xff").to_pylist() == [
        {"body": "a", "_corrupt_record": None},
        {"body": None, "_corrupt_record": b"\xff"},
    ]


def _body(**more: str) -> BodyOptions:
    return _options(**more).body


def test_every_format_has_a_type_in_spark(tmp_path: Any) -> None:
    (tmp_path / "d").write_bytes(DESCRIPTORS)
    protobuf = {"protobufDescriptor": str(tmp_path / "d"), "protobufMessage": "shop.Order"}
    assert body_ddl(_body()) == "binary"
    assert body_ddl(_body(bodyFormat="TEXT")) == "string"
    for inner in ("id bigint, name string", "STRUCT<id: bigint>"):
        expected = inner if inner.startswith("STRUCT") else f"struct<{inner}>"
        assert body_ddl(_body(bodyFormat="json", bodySchema=inner)) == expected
        assert body_ddl(_body(bodyFormat="avro", avroSchema="x", bodySchema=inner)) == expected
        assert body_ddl(_body(bodyFormat="protobuf", bodySchema=inner, **protobuf)) == expected
    assert body_ddl(_body(bodyFormat="avro", avroSchema=json.dumps(SCHEMA))).startswith("struct<`id`: bigint")
    assert body_ddl(_body(bodyFormat="protobuf", **protobuf)).startswith("struct<`id`: bigint")


def test_the_default_schema_has_the_decoded_body_and_the_bad_one() -> None:
    ddl = source_ddl(_options(bodyFormat="json", bodySchema="id bigint"))
    assert ddl.endswith("properties map<string,string>, body struct<id bigint>, `_corrupt_record` binary")
    assert source_ddl(_options(bodyFormat="text", mode="FAILFAST")).endswith(", body string")
    assert "body" not in source_ddl(_options(bodyFormat="text", includeBody="false"))


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        (
            {"bodyFormat": "xml"},
            {"setting": "bodyFormat", "value": "xml"},
        ),
        ({"mode": "x"}, {"setting": "mode", "value": "x"}),
        ({"bodySchema": "id int"}, {"setting": "bodySchema", "other": "bodyFormat"}),
        ({"bodyFormat": "json", "avroSchema": "{}"}, {"setting": "avroSchema", "other": "bodyFormat"}),
        ({"bodyFormat": "avro"}, {"setting": "bodyFormat", "value": "avro", "other": "avroSchema"}),
        ({"bodyFormat": "protobuf"}, {"setting": "bodyFormat", "other": "protobufDescriptor"}),
        (
            {"bodyFormat": "protobuf", "protobufDescriptor": "/no/such/file"},
            {"setting": "protobufDescriptor", "value": "/no/such/file"},
        ),
    ],
)
def test_options_that_do_not_belong_together(options: dict[str, str], facts: dict[str, str]) -> None:
    with pytest.raises(SettingsError, check=about(**facts)):
        _options(**options)


def test_schemas_that_do_not_fit() -> None:
    with pytest.raises(SettingsError, check=about(setting="bodyFormat", value="json", other="bodySchema")):
        source_ddl(_options(bodyFormat="json"))
    with pytest.raises(SettingsError, check=about(what="body")):
        _shape([StructField("body", StringType())])
    with pytest.raises(SettingsError, check=about(what="_corrupt_record", value="string", limit="binary")):
        _shape([StructField("body", ORDER), StructField("_corrupt_record", StringType())])
    with pytest.raises(SettingsError, check=about(what="_corrupt_record", other="body")):
        _shape([CORRUPT])
    with pytest.raises(SettingsError, check=about(what="queue_of")):
        _shape([StructField("body", ORDER), StructField("queue_of", LongType())])
    with pytest.raises(SettingsError, check=about(setting="columnNameOfCorruptRecord", value="tags")):
        _shape([StructField("body", ORDER)], columnNameOfCorruptRecord="tags")
    with pytest.raises(SettingsError, check=about(what="body", value="struct<id:bigint>", limit="binary")):
        read_shape(StructType([StructField("body", ORDER)]), _options())
