"""Reads through a registry: without Spark, and in Spark as batch and stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from tests.spark.bodies.registry.rig import Registry, avro, confluent, rocketmq_avro
from tests.spark.bodies.registry.test_protobuf_schemas import order_file
from tests.spark.bodies.test_protobuf import DESCRIPTORS, order
from tests.spark.support import Topics, load, run_available, stream, to_table
from tests.support import about, free_port

import sparrowmq as mq
from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.bodies.registry.client import RegistryError
from sparrowmq.spark.bodies.registry.reading import settled
from sparrowmq.spark.bodies.schema import read_shape, source_ddl
from sparrowmq.spark.options.table import ReadOptions

V1: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "old", "type": "string"}],
}
V2: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "new", "type": "string", "default": "none yet"},
        {"name": "renamed", "type": ["null", "string"], "aliases": ["old"], "default": None},
    ],
}
QUEUE = MessageQueue("orders", "b", 0)


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as made:
        yield made


def parsed(registry: Registry, **more: str) -> ReadOptions:
    options = {"nameServer": "a:1", "subscribe": "orders", "schemaRegistry": registry.address, **more}
    return ReadOptions.parse(options, None, {})


def decoded(options: ReadOptions, *bodies: bytes) -> tuple[list[Any], list[bytes | None]]:
    """Bodies, and the bytes of the bad ones, as a read without a schema of its own gives them."""
    options = settled(options)
    names = source_ddl(options)
    body = names[names.index("body ") :]
    shape = read_shape(StructType.fromDDL(body), options)
    batch = shape.fit(pa.RecordBatch.from_pydict({"body": pa.array(bodies, pa.binary())}), QUEUE)
    return batch["body"].to_pylist(), batch["_corrupt_record"].to_pylist()


@pytest.mark.usefixtures("spark")
def test_avro_of_all_versions_is_read_as_the_newest(registry: Registry) -> None:
    first = registry.register("orders-value", V1)
    second = registry.register("orders-value", V2, version=2)
    old = confluent(first, avro(V1, {"id": 1, "old": "x"}))
    new = confluent(second, avro(V2, {"id": 2, "new": "y", "renamed": None}))
    headless = avro(V1, {"id": 3, "old": "z"})
    values, bad = decoded(parsed(registry, bodyFormat="avro"), old, new, headless, old)
    renamed = {"id": 1, "new": "none yet", "renamed": "x"}
    assert values == [renamed, {"id": 2, "new": "y", "renamed": None}, None, renamed]
    assert bad == [None, None, headless, None]


@pytest.mark.usefixtures("spark")
def test_avro_is_read_as_a_schema_of_ones_own(registry: Registry) -> None:
    first = registry.register("somebody", V1)
    own = parsed(registry, bodyFormat="avro", avroSchema=json.dumps(V2))
    values, _ = decoded(own, confluent(first, avro(V1, {"id": 1, "old": "x"})))
    assert values == [{"id": 1, "new": "none yet", "renamed": "x"}]
    assert registry.asked == [f"/schemas/ids/{first}"]


@pytest.mark.usefixtures("spark")
def test_writers_that_do_not_fit_the_reader_are_bad(registry: Registry) -> None:
    other = registry.register("other", {"type": "record", "name": "Order", "fields": []})
    broken = registry.register("broken", {"type": "record"})
    proto = registry.register("proto", order_file())
    registry.register("orders-value", V1)
    bodies = [confluent(number, b"\x02\x02x") for number in (other, broken, proto, 99)]
    values, bad = decoded(parsed(registry, bodyFormat="avro"), *bodies)
    assert values == [None] * 4
    assert bad == bodies


@pytest.mark.usefixtures("spark")
def test_rocketmqs_avro(registry: Registry) -> None:
    first = registry.register_rocketmq("orders", V1, 1 << 40 | 1)
    second = registry.register_rocketmq("orders", V2, 1 << 40 | 2)
    options = parsed(registry, bodyFormat="avro", schemaRegistryType="rocketmq")
    values, bad = decoded(
        options,
        rocketmq_avro(first, avro(V1, {"id": 1, "old": "x"})),
        rocketmq_avro(second, avro(V2, {"id": 2, "new": "y", "renamed": None}), first_release=True),
        b"\x10",
    )
    assert [value and value["id"] for value in values] == [1, 2, None]
    assert bad == [None, None, b"\x10"]


@pytest.mark.usefixtures("spark")
def test_protobuf_is_read_as_the_newest(registry: Registry) -> None:
    number = registry.register("orders-value", order_file())
    body = order(id=7, counts={"x": 1}, lines=[{"sku": "a"}])
    line, tree = confluent(number, b"", b"\x00"), confluent(number, b"", b"\x02\x02")
    options = parsed(registry, bodyFormat="protobuf", protobufMessage="shop.Order")
    place = order_place()
    good = confluent(number, body, bytes([2, place * 2]))
    values, bad = decoded(options, good, line, tree, confluent(number, b"\xff", bytes([2, place * 2])), good)
    assert [value and (value["id"], value["lines"]) for value in values] == [
        (7, [{"sku": "a"}]),
        None,
        None,
        None,
        (7, [{"sku": "a"}]),
    ]
    assert [one is None for one in bad] == [True, False, False, False, True]
    assert {path.partition("?")[2] for path in registry.asked} == {"format=serialized"}
    first = settled(parsed(registry, bodyFormat="protobuf"))
    assert first.protobuf_message == "shop.Line", "without a name the first of the file"


def order_place() -> int:
    """Where `shop.Order` stands in its file."""
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto.FromString(order_file())
    return [message.name for message in file.message_type].index("Order")


@pytest.mark.usefixtures("spark")
def test_protobuf_of_rocketmqs_registry_needs_a_descriptor(registry: Registry, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="needs the option protobufDescriptor"):
        parsed(registry, bodyFormat="protobuf", schemaRegistryType="rocketmq")
    (tmp_path / "order.desc").write_bytes(DESCRIPTORS)
    options = parsed(
        registry,
        bodyFormat="protobuf",
        schemaRegistryType="rocketmq",
        protobufDescriptor=str(tmp_path / "order.desc"),
        protobufMessage="shop.Order",
    )
    values, bad = decoded(options, bytes(8) + order(id=7), b"short")
    assert [value and value["id"] for value in values] == [7, None]
    assert bad == [None, b"short"]
    assert registry.asked == []


def test_which_subject(registry: Registry) -> None:
    def subject(**more: str) -> str:
        found = parsed(registry, bodyFormat="avro", **more).body.registry
        assert found is not None
        return found.subject

    assert subject() == "orders-value"
    assert subject(schemaRegistrySubject="mine") == "mine"
    assert subject(schemaRegistryType="rocketmq") == "orders"
    assert subject(subscribe="a,b") == ""
    with pytest.raises(SettingsError, match="need schemaRegistrySubject or avroSchema"):
        settled(parsed(registry, bodyFormat="avro", subscribe="a,b"))
    with pytest.raises(
        SettingsError, match=r"the subject schemaRegistrySubject='orders-value' does not exist"
    ):
        settled(parsed(registry, bodyFormat="avro"))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"bodyFormat": "text"}, "schemaRegistry is for bodyFormat=avro, protobuf or json, not text"),
        ({}, "schemaRegistry is for bodyFormat=avro, protobuf or json, not binary"),
        ({"bodyFormat": "avro", "schemaRegistryUser": "u"}, "must be given together"),
        ({"bodyFormat": "avro", "schemaRegistryType": "other"}, "confluent or rocketmq"),
        ({"bodyFormat": "protobuf", "protobufDescriptor": __file__}, "needs the option protobufMessage"),
    ],
)
def test_wrong_options_say_so(registry: Registry, options: dict[str, str], text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        parsed(registry, **options)


def test_options_of_a_registry_need_one_and_are_not_shown() -> None:
    common = {"nameServer": "a:1", "subscribe": "orders", "bodyFormat": "json"}
    with pytest.raises(SettingsError, check=about(setting="schemaRegistryToken")) as error:
        ReadOptions.parse({**common, "schemaRegistryToken": "hidden"}, None, {})
    assert "hidden" not in str(error.value)
    given = {"schemaRegistry": "http://x", "schemaRegistryUser": "u", "schemaRegistryPassword": "hidden"}
    options = ReadOptions.parse(common | given, None, {})
    assert "hidden" not in repr(options) + repr(options.body)


@pytest.mark.usefixtures("spark")
def test_a_registry_that_is_away_ends_no_decoding_as_bad(registry: Registry) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    options = parsed(
        registry, bodyFormat="avro", avroSchema=json.dumps(V1), schemaRegistry=nobody, mode="DROPMALFORMED"
    )
    body = StructType.fromDDL("body struct<id: int>")
    shape = read_shape(body, replace(options, registry_timeout=0.1))
    batch = pa.RecordBatch.from_pydict({"body": pa.array([confluent(1, b"x")], pa.binary())})
    with pytest.raises(RegistryError, match="does not answer"):
        shape.fit(batch, QUEUE)


def test_evolution_in_batches_and_streams(
    spark: SparkSession, topics: Topics, topic: str, registry: Registry, checkpoint: str
) -> None:
    registry.credentials = "Basic dXNlcjpwYXNzLXdvcmQ="
    first = registry.register(f"{topic}-value", V1)
    [queue, *_] = topics.producer.queues(topic)
    old = confluent(first, avro(V1, {"id": 1, "old": "x"}))
    topics.producer.send_batch([mq.Message(topic, old), mq.Message(topic, b"none")], queue=queue)
    options = topics.options(
        topic,
        bodyFormat="avro",
        schemaRegistry=registry.address,
        schemaRegistryUser="user",
        schemaRegistryPassword="pass-word",
        columnNameOfCorruptReason="why",
        startingOffsets="earliest",
    )
    rows = load(spark, options).select("body.id", "body.old", "why").collect()
    assert [(row.id, row.old) for row in rows] == [(1, "x"), (None, None)]
    assert "begins with byte 110" in rows[1].why
    second = registry.register(f"{topic}-value", V2, version=2)
    new = confluent(second, avro(V2, {"id": 2**40, "new": "y", "renamed": None}))
    topics.producer.send_batch([mq.Message(topic, new)], queue=queue)
    frame = stream(spark, options).where("body IS NOT NULL").select("body.*")
    run_available(to_table(frame, "evolved"), checkpoint)
    assert [tuple(row) for row in spark.table("evolved").collect()] == [
        (1, "none yet", "x"),
        (2**40, "y", None),
    ]
    with pytest.raises(PySparkException, match="HTTP 401") as error:
        load(spark, options | {"schemaRegistryPassword": "wrong-word"}).count()
    assert "wrong-word" not in str(error.value)
