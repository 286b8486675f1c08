"""Rows that cannot be decoded: set aside, counted, and too many of them stop a query."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from tests.spark.support import Topics, load, run_available, stream
from tests.support import about

import sparrowmq as mq
from sparrowmq.core.errors import SettingsError
from sparrowmq.spark import BadRows, BadRowsCount, TooManyBadRowsError

FIELDS = "id bigint"
BATCH = (
    "topic string, broker string, queue_id int, queue_offset bigint, body string, tags string, keys string, "
)
BAD = "properties map<string,string>, _corrupt_record binary, _corrupt_reason string"


def _send(topics: Topics, topic: str, *bodies: bytes) -> None:
    [queue, *_] = topics.producer.queues(topic)
    messages = [
        mq.Message(topic, body, tags=f"t{place}", keys=[f"k{place}"], properties={"own": str(place)})
        for place, body in enumerate(bodies)
    ]
    topics.producer.send_batch(messages, queue=queue)


def _counted(rows: int, bad: int) -> BadRowsCount:
    return BadRowsCount("orders", 7, rows, bad, "t/b/0/17: no JSON")


@pytest.mark.parametrize(
    ("limits", "rows", "bad", "stops"),
    [
        ({}, 1000, 1000, ""),
        ({"most": 3}, 10, 3, ""),
        ({"most": 3}, 10, 4, "most=3"),
        ({"most": 0}, 10, 1, "most=0"),
        ({"share": 0.1}, 1000, 100, ""),
        ({"share": 0.1}, 1000, 101, "share=0.1"),
        ({"share": 0.1}, 99, 99, ""),
        ({"share": 0.1, "share_from": 1}, 9, 1, "share=0.1"),
        ({"most": 200, "share": 0.1}, 1000, 150, "share=0.1"),
    ],
)
def test_how_many_may_be_bad(limits: dict[str, float], rows: int, bad: int, stops: str) -> None:
    chosen = BadRows(name="orders", topic="Bad", **limits)  # type: ignore[arg-type]
    if not stops:
        chosen.judge(_counted(rows, bad))
        return
    text = rf"orders: {bad} of [\d,]+ rows of batch 7 .*, and the limit is {stops}.* no JSON.*Nothing"
    with pytest.raises(TooManyBadRowsError, match=text):
        chosen.judge(_counted(rows, bad))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"name": "a b", "topic": "Bad"}, "name='a b'"),
        ({"name": "a"}, "give either a topic or a table"),
        ({"name": "a", "topic": "Bad", "table": "dir"}, "give either a topic or a table"),
        ({"name": "a", "topic": "no topic"}, "a topic's name"),
        ({"name": "a", "table": "dir", "options": {"nameServer": "x"}}, "options apply only to bad rows"),
        ({"name": "a", "topic": "Bad", "most": -1}, "most=-1"),
        ({"name": "a", "topic": "Bad", "share": 5}, "share=5.*0 to 1"),
    ],
)
def test_wrong_settings_say_so(arguments: dict[str, object], text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        BadRows(**arguments)  # type: ignore[arg-type]
    assert "hidden" not in repr(BadRows(name="a", topic="Bad", options={"secretKey": "hidden"}))


def test_frames_that_lack_columns_say_so(spark: SparkSession) -> None:
    bad_rows = BadRows(name="orders", table="nowhere")
    frame = spark.createDataFrame([], "topic string, broker string, queue_id int, queue_offset bigint")
    with pytest.raises(SettingsError, check=about(what="_corrupt_record")), bad_rows.set_aside(frame):
        raise AssertionError


def test_bad_rows_do_not_go_where_they_come_from(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("Bad", "b", 0, 17, "x", "t", "k", {}, None, None)], BATCH + BAD)
    bad_rows = BadRows(name="orders", topic="Bad")
    with pytest.raises(SettingsError, check=about(setting="topic", value="Bad")), bad_rows.set_aside(frame):
        raise AssertionError


def _streamed(
    spark: SparkSession, topics: Topics, topic: str, bad_rows: BadRows, good: list[int], fail: list[int]
) -> Callable[[str], None]:
    options = topics.options(
        topic, bodyFormat="json", bodySchema=FIELDS, startingOffsets="earliest", maxOffsetsPerTrigger="4"
    )
    options["columnNameOfCorruptReason"] = "_corrupt_reason"

    def write(batch: DataFrame, batch_id: int) -> None:
        with bad_rows.set_aside(batch, batch_id) as rows:
            assert not {"_corrupt_record", "_corrupt_reason"} & set(rows.columns)
            found = [row.id for row in rows.select("body.id").collect()]
            if batch_id in fail:
                fail.remove(batch_id)
                raise RuntimeError("failing on purpose")
            good.extend(found)

    return lambda checkpoint: _run(stream(spark, options), write, checkpoint)


def _run(frame: DataFrame, write: Callable[[DataFrame, int], None], checkpoint: str) -> None:
    run_available(frame.writeStream.foreachBatch(write), checkpoint)


def test_a_topic_has_each_bad_row_once(
    spark: SparkSession, topics: Topics, topic: str, checkpoint: str
) -> None:
    aside = f"{topic[:90]}_bad"
    topics.cluster.create_topic(aside, queues=1)
    _send(topics, topic, b'{"id":0}', b"bad 1", b'{"id":2}', b"\xff\x01", b'{"id":4}', b"bad 5")
    counts: list[BadRowsCount] = []
    bad_rows = BadRows(
        name=topic[:50],
        topic=aside,
        options={"nameServer": topics.cluster.namesrv},
        report=counts.append,
        most=2,
    )
    good: list[int] = []
    run = _streamed(spark, topics, topic, bad_rows, good, [0])
    with pytest.raises(StreamingQueryException):
        run(checkpoint)
    assert len(topics.read(aside)) == 2, "set aside before the good rows failed"
    run(checkpoint)
    assert good == [0, 2, 4]
    assert [(count.batch, count.rows, count.bad) for count in counts] == [(0, 4, 2), (0, 4, 2), (1, 2, 1)]
    messages = topics.read(aside)
    [queue, *_] = topics.producer.queues(topic)
    assert [message.body for message in messages] == [b"bad 1", b"\xff\x01", b"bad 5"]
    for message, place in zip(messages, (1, 3, 5), strict=True):
        assert (message.tags, list(message.keys)) == (f"t{place}", [f"k{place}"])
        properties = message.properties
        assert properties["own"] == str(place)
        assert properties["SPARROW_ORIGIN"] == f"{topic}/{queue.broker_name}/{queue.queue_id}/{place}"
        assert properties["SPARROW_BAD_NAME"] == topic[:50]
        assert properties["SPARROW_BAD_REASON"]
    assert "Invalid value" in messages[0].properties["SPARROW_BAD_REASON"]
    assert "UTF8" in messages[1].properties["SPARROW_BAD_REASON"]


def test_a_table_has_each_bad_row_once_and_too_many_stop_the_query(
    spark: SparkSession, topics: Topics, topic: str, checkpoint: str, tmp_path: Path
) -> None:
    _send(topics, topic, b'{"id":0}', b"bad 1", b'{"id":2}', b'{"id":3}', b"bad 4", b"bad 5", b'{"id":6}')
    good: list[int] = []
    table = str(tmp_path / "bad")
    run = _streamed(spark, topics, topic, BadRows(name="orders", table=table, most=1), good, [])
    for _ in range(2):
        with pytest.raises(
            StreamingQueryException,
            match=r"2 of 3 rows of batch 1 cannot be decoded, and the limit is most=1",
        ):
            run(checkpoint)
    assert good == [0, 2, 3], "nothing of the batch was written"
    allowed = BadRows(name="orders", table=table, most=2)
    _streamed(spark, topics, topic, allowed, good, [])(checkpoint)
    assert good == [0, 2, 3, 6]
    rows = spark.read.parquet(table).orderBy("queue_offset").collect()
    assert [(row.batch, row.queue_offset, bytes(row.body)) for row in rows] == [
        (0, 1, b"bad 1"),
        (1, 4, b"bad 4"),
        (1, 5, b"bad 5"),
    ]
    assert {row.topic for row in rows} == {topic}
    assert all(row.reason and row.store_timestamp and row.tags for row in rows)


def test_a_batch_read_without_reasons(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    _send(topics, topic, b'{"id":0}', b"bad 1")
    frame = load(spark, topics.options(topic, bodyFormat="json", bodySchema=FIELDS))
    with BadRows(name="once", table=str(tmp_path / "bad")).set_aside(frame, cache=False) as good:
        assert [row.id for row in good.select("body.id").collect()] == [0]
    [row] = spark.read.parquet(str(tmp_path / "bad")).collect()
    assert (bytes(row.body), row.reason) == (b"bad 1", "")
