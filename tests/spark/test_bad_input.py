"""What stops a query, and what it then says; what goes on all the same."""

from __future__ import annotations

import json
import os

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.spark.support import (
    Collected,
    Topics,
    load,
    numbered,
    run_available,
    stream,
)

import sparrowmq as mq
from sparrowmq.core.message import BODY_BYTES_MAX


def test_an_empty_topic_makes_an_empty_stream(
    spark: SparkSession, topics: Topics, topic: str, checkpoint: str
) -> None:
    collected = Collected()
    options = topics.options(topic, startingOffsets="earliest")
    run_available(stream(spark, options).writeStream.foreachBatch(collected), checkpoint)
    topics.send(topic, 4)
    run_available(stream(spark, options).writeStream.foreachBatch(collected), checkpoint)
    assert collected.texts == numbered(0, 4)


def test_the_largest_bodies_are_read(spark: SparkSession, topics: Topics, topic: str) -> None:
    body = os.urandom(BODY_BYTES_MAX - 64)
    settings = mq.ProducerSettings(namesrv=topics.cluster.namesrv, compress_over=2**30)
    with mq.Producer("large", settings=settings) as producer:
        queue = producer.queues(topic)[0]
        for _ in range(3):
            producer.send(mq.Message(topic, body), queue=queue)
    rows = load(spark, topics.options(topic), "queue_offset bigint, body binary").collect()
    assert [row.queue_offset for row in rows] == [0, 1, 2]
    assert all(bytes(row.body) == body for row in rows)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribe": "NoSuchTopic"}, "no broker serves topic 'NoSuchTopic'; create it first"),
        (
            {"startingOffset": "earliest"},
            "option startingoffset='earliest' is unknown .* did you mean startingOff",
        ),
        ({"kafka.bootstrap.servers": "a:1"}, "is of the Kafka source; here it is nameServer"),
        ({"secretKey": "s3cret"}, "option accessKey is missing"),
    ],
)
def test_streams_with_wrong_options_do_not_start(
    spark: SparkSession, topics: Topics, topic: str, checkpoint: str, options: dict[str, str], text: str
) -> None:
    with pytest.raises(PySparkException, match=text) as caught:
        frame = stream(spark, topics.options(topic) | {"fetchOffset.numRetries": "0"} | options)
        run_available(frame.writeStream.foreachBatch(Collected()), checkpoint)
    assert "s3cret" not in str(caught.value)


def test_offsets_outside_the_log_are_told(spark: SparkSession, topics: Topics, topic: str) -> None:
    topics.send(topic, 8)
    broker = topics.consumer.queues(topic)[0].broker_name
    for name in ("startingOffsets", "endingOffsets"):
        beyond = json.dumps({topic: {broker: {"0": 0, "1": 3, "2": 0, "3": 0}}})
        with pytest.raises(
            PySparkException, match=rf"option {name} gives offset 3 .* ends at 2; it takes 0 to 2"
        ):
            load(spark, topics.options(topic, **{name: beyond})).count()
