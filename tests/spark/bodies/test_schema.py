from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)
from tests.columnar.records import record
from tests.support import about

from sparrowmq.columnar.decode import decode
from sparrowmq.columnar.schema import DEFAULT_COLUMNS, TYPES
from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.bodies.schema import (
    KAFKA_COLUMNS,
    SOURCE_COLUMNS,
    SinkColumns,
    read_shape,
    sink_columns,
    source_ddl,
    source_schema,
)
from sparrowmq.spark.options.table import ReadOptions, WriteOptions

SPARK_TYPES = {
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "binary": BinaryType(),
    "timestamp": TimestampType(),
    "timestamp_ntz": TimestampNTZType(),
    "map<string,string>": MapType(StringType(), StringType()),
    "map<string,int>": MapType(StringType(), IntegerType()),
}
READ = {"nameServer": "a:1", "subscribe": "t"}


def _struct(ddl: str) -> StructType:
    """Spark's own parser needs a JVM."""
    fields = [part.split(" ") for part in ddl.split(", ")]
    return StructType([StructField(name, SPARK_TYPES[kind]) for name, kind in fields])


def test_every_column_has_exactly_sparks_arrow_type() -> None:
    schema = _struct(", ".join(f"{name} {kind}" for name, kind in SOURCE_COLUMNS.items()))
    assert source_schema(schema).equals(to_arrow_schema(schema, timezone="UTC"))
    assert {*SOURCE_COLUMNS, *KAFKA_COLUMNS.values()} == set(TYPES)


def test_the_default_schema_can_do_without_properties_and_body() -> None:
    everything = source_ddl(ReadOptions.parse(READ, None, {}))
    assert [field.name for field in _struct(everything)] == list(DEFAULT_COLUMNS)
    less = source_ddl(
        ReadOptions.parse(READ | {"includeProperties": "false", "includeBody": "false"}, None, {})
    )
    assert [field.name for field in _struct(less)] == list(DEFAULT_COLUMNS[:-2])


def test_the_columns_of_kafkas_source_are_those_that_the_sink_takes() -> None:
    options = ReadOptions.parse(READ | {"kafkaColumns": "true"}, None, {})
    names = [field.name for field in _struct(source_ddl(options))]
    assert names == ["key", *DEFAULT_COLUMNS[:-1], "value"]
    less = ReadOptions.parse(READ | {"kafkaColumns": "true", "includeBody": "false"}, None, {})
    assert "value" not in source_ddl(less)
    shape = read_shape(_struct("value binary, key string, tags string"), options)
    assert shape.stored.names == ["body", "sharding_key", "tags"]
    stored = record(0) + record(1, b"b", b"__SHARDINGKEY\x01customer 7\x02")
    batch = shape.fit(decode(stored, shape.stored), MessageQueue("t", "b", 0))
    assert batch.schema.equals(to_arrow_schema(_struct("value binary, key string, tags string")))
    assert batch.to_pylist() == [
        {"value": b"body", "key": None, "tags": "TagA"},
        {"value": b"b", "key": "customer 7", "tags": None},
    ]
    sink = sink_columns(_struct("key string, value binary"), WriteOptions(topic="t"))
    assert sink == SinkColumns(body="value", sharding_key="key")


@pytest.mark.parametrize(
    ("ddl", "facts"),
    [
        ("body binary, value binary", {"what": "body", "other": "value"}),
        ("key binary", {"what": "key", "value": "binary", "limit": "string"}),
    ],
)
def test_kafkas_columns_that_do_not_fit_say_so(ddl: str, facts: dict[str, object]) -> None:
    with pytest.raises(SettingsError, check=about(**facts)):
        read_shape(_struct(ddl), ReadOptions.parse(READ, None, {}))


def test_a_value_is_decoded_as_a_body_is() -> None:
    options = ReadOptions.parse(READ | {"kafkaColumns": "true", "bodyFormat": "text"}, None, {})
    assert "value string" in source_ddl(options)
    shape = read_shape(_struct("queue_offset bigint, value string"), options)
    batch = shape.fit(decode(record(3), shape.stored), MessageQueue("t", "b", 0))
    assert batch.to_pylist() == [{"queue_offset": 3, "value": "body"}]


def test_a_users_schema_chooses_columns_in_its_order() -> None:
    schema = StructType([StructField("topic", StringType(), False), StructField("queue_id", IntegerType())])
    expected = pa.schema([pa.field("topic", pa.string(), nullable=False), pa.field("queue_id", pa.int32())])
    assert source_schema(schema).equals(expected)


def test_unknown_and_wrong_columns_are_told() -> None:
    with pytest.raises(SettingsError, check=about(what="offset")):
        source_schema(_struct("offset bigint"))
    with pytest.raises(SettingsError, check=about(what="queue_id", value="bigint", limit="int")):
        source_schema(_struct("queue_id bigint"))
    with pytest.raises(SettingsError, check=about(what="born_timestamp", value="timestamp_ntz")):
        source_schema(_struct("born_timestamp timestamp_ntz"))


def _sink(ddl: str, topic: str = "t") -> SinkColumns:
    return sink_columns(_struct(ddl), WriteOptions(name_server="a:1", topic=topic))


def test_sink_columns_and_their_other_names() -> None:
    assert _sink("body binary") == SinkColumns(body="body")
    assert _sink("value string, key string") == SinkColumns(body="value", sharding_key="key")
    assert _sink("value binary, key binary, keys string") == SinkColumns(
        body="value", keys="keys", sharding_key="key"
    )
    everything = "body binary, topic string, tags string, keys string, properties map<string,string>, "
    everything += "queue_id int, broker string, sharding_key string, msg_id string"
    names = ("body", "topic", "tags", "keys", "properties", "queue_id", "broker", "sharding_key")
    assert _sink(everything, topic="") == SinkColumns(*names, msg_id="msg_id")


def test_sink_columns_are_found_in_any_case() -> None:
    options = WriteOptions(name_server="a:1", topic="", idempotence_key="id")
    assert sink_columns(_struct("Value string, KEY binary, Topic string, ID bigint"), options) == SinkColumns(
        body="Value", topic="Topic", sharding_key="KEY", idempotence_key="ID"
    )


def test_the_topic_option_wins_over_the_column() -> None:
    assert _sink("body binary, topic string", topic="t").topic is None
    assert _sink("body binary, topic string", topic="").topic == "topic"


@pytest.mark.parametrize(
    ("ddl", "text"),
    [
        ("tags string", "needs a column body"),
        ("body int", "column 'body' has type int; it must be binary or string"),
        ("body binary, tags int", "column 'tags' has type int; it must be string"),
        (
            "body binary, delay int",
            "column 'delay' is unknown to the rocketmq sink; known are body, value, topic",
        ),
        ("body binary, value string", "columns 'body' and 'value' mean the same"),
        ("body binary, sharding_key string, key string", "columns 'sharding_key' and 'key' mean the same"),
        ("body binary, Tags string, TAGS string", "columns 'Tags' and 'TAGS' differ only in case"),
        ("BODY binary, Value string", "columns 'BODY' and 'Value' mean the same"),
        ("body binary, key int", "column 'key' has type int; it must be binary or string"),
        ("body binary, queue_id int", "a queue needs both columns queue_id and broker"),
        ("body binary, broker string", "a queue needs both columns queue_id and broker"),
        (
            "body binary, properties map<string,int>",
            "has type map<string,int>; it must be map<string,string>",
        ),
    ],
)
def test_frames_that_cannot_be_sent(ddl: str, text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        _sink(ddl)


def test_a_topic_is_needed() -> None:
    with pytest.raises(SettingsError, check=about(setting="topic")):
        _sink("body binary", topic="")
