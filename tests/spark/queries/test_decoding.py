"""Bodies decoded in Spark: every format, batch and stream, bad ones in every mode."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from tests.spark.bodies.test_avro import encoded
from tests.spark.bodies.test_protobuf import DESCRIPTORS, order
from tests.spark.support import Topics, load, run_available, stream, to_table

import sparrowmq as mq

FIELDS = "id bigint, at timestamp, lines array<struct<sku: string>>"


def _send(topics: Topics, topic: str, *bodies: bytes) -> None:
    [queue, *_] = topics.producer.queues(topic)
    topics.producer.send_batch([mq.Message(topic, body) for body in bodies], queue=queue)


def _json(number: int) -> bytes:
    return json.dumps(
        {"id": number, "at": "2024-01-02T03:04:05Z", "lines": [{"sku": f"s{number}", "more": 1}]}
    ).encode()


def test_json_bodies_in_every_mode(spark: SparkSession, topics: Topics, topic: str) -> None:
    _send(topics, topic, *(_json(number) for number in range(100)), b"poison", _json(100), b"\xff")
    options = topics.options(topic, bodyFormat="json", bodySchema=FIELDS)
    frame = load(spark, options)
    assert frame.columns[-2:] == ["body", "_corrupt_record"]
    good = frame.where("body IS NOT NULL")
    assert [row[0] for row in good.select("body.id").collect()] == list(range(101))
    assert [row[0] for row in good.selectExpr("body.lines[0].sku").collect()][7] == "s7"
    assert good.selectExpr("date_format(body.at, 'HH:mm:ss')").first()[0] == "03:04:05"
    bad = frame.where("body IS NULL").select("queue_offset", "_corrupt_record").collect()
    assert [(row[0], bytes(row[1])) for row in bad] == [(100, b"poison"), (102, b"\xff")]
    assert load(spark, options | {"mode": "DROPMALFORMED"}).count() == 101
    chosen = load(spark, options | {"mode": "DROPMALFORMED"}, "queue_offset bigint, body struct<id: int>")
    assert [tuple(row) for row in chosen.where("body.id = 100").collect()] == [(101, (100,))]
    with pytest.raises(
        PySparkException, match=r"the body at offset 100 cannot be decoded as json .* mode=PERMISSIVE"
    ):
        load(spark, options | {"mode": "FAILFAST"}).count()


def test_text_bodies_are_strings(spark: SparkSession, topics: Topics, topic: str) -> None:
    _send(topics, topic, "größe".encode(), b"\xff")
    rows = load(
        spark, topics.options(topic, bodyFormat="text"), "body string, _corrupt_record binary"
    ).collect()
    assert [(row[0], row[1] and bytes(row[1])) for row in rows] == [("größe", None), (None, b"\xff")]


def test_avro_and_protobuf_bodies_are_structs(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    schema: dict[str, Any] = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "counts", "type": {"type": "map", "values": "int"}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ],
    }
    _send(topics, topic, encoded(schema, {"id": 7, "counts": {"x": 1}, "at": 1_700_000_000_000}), b"\x01")
    frame = load(spark, topics.options(topic, bodyFormat="avro", avroSchema=json.dumps(schema)))
    rows = frame.selectExpr(
        "body.id", "body.counts['x']", "unix_millis(body.at)", "_corrupt_record"
    ).collect()
    assert [tuple(row) for row in rows[:1]] == [(7, 1, 1_700_000_000_000, None)]
    assert [(row[0], bytes(row[3])) for row in rows[1:]] == [(None, b"\x01")]
    topics.cluster.create_topic(f"{topic}-p", queues=1)
    _send(topics, f"{topic}-p", order(id=7, counts={"x": 1}, lines=[{"sku": "a"}]), b"\xff")
    (tmp_path / "order.desc").write_bytes(DESCRIPTORS)
    options = {
        "bodyFormat": "protobuf",
        "protobufDescriptor": str(tmp_path / "order.desc"),
        "protobufMessage": "shop.Order",
    }
    frame = load(spark, topics.options(f"{topic}-p", **options))
    rows = frame.selectExpr("body.id", "body.counts['x']", "body.lines[0].sku", "_corrupt_record").collect()
    assert [tuple(row) for row in rows[:1]] == [(7, 1, "a", None)]
    assert [(row[0], bytes(row[3])) for row in rows[1:]] == [(None, b"\xff")]


def test_a_stream_decodes_and_keeps_bad_bodies(
    spark: SparkSession, topics: Topics, topic: str, checkpoint: str
) -> None:
    _send(topics, topic, _json(1), b"poison", _json(2))
    options = topics.options(topic, bodyFormat="json", bodySchema=FIELDS, startingOffsets="earliest")
    frame = stream(spark, options).selectExpr("body.id", "cast(_corrupt_record as string) as bad")
    run_available(to_table(frame, "decoded"), checkpoint)
    assert [tuple(row) for row in spark.table("decoded").collect()] == [
        (1, None),
        (None, "poison"),
        (2, None),
    ]
    strict = stream(spark, options | {"mode": "FAILFAST"}).select("body.id")
    with pytest.raises(
        StreamingQueryException, match="the body at offset 1 cannot be decoded as json with this schema"
    ):
        run_available(to_table(strict, "strict"), f"{checkpoint}-strict")


@pytest.mark.parametrize(
    ("options", "schema", "text"),
    [
        ({"bodyFormat": "json"}, None, "needs the option bodySchema, such as id bigint"),
        ({"bodyFormat": "json", "bodySchema": "id bogus"}, None, "(?i)bogus"),
        (
            {"bodyFormat": "json", "bodySchema": "m map<string,int>"},
            None,
            "column body.m, which has type map",
        ),
        ({"bodyFormat": "json"}, "body string", "needs a body of type struct"),
        ({}, "body struct<id: int>", "it must be binary; bodyFormat=json"),
        ({"bodyFormat": "json"}, "body struct<id: int NOT NULL>", "body.id of the schema is NOT NULL"),
    ],
)
def test_schemas_that_do_not_fit_say_so(
    spark: SparkSession, topics: Topics, topic: str, options: dict[str, str], schema: str | None, text: str
) -> None:
    with pytest.raises(PySparkException, match=text):
        load(spark, topics.options(topic, **options), schema).count()
