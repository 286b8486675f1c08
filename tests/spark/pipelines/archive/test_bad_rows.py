"""An archive of topics with bodies that cannot be opened: no row is missing, and no bytes are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.commands.test_pipe_commands import Command
from tests.spark.commands.test_pipe_commands import command as command
from tests.spark.support import Topics
from tests.support import about

import sparrowmq as mq
from sparrowmq.core.errors import SettingsError
from sparrowmq.spark import ArchiveSettings, BadRows, TooManyBadRowsError, Watch, archive, read_archive
from sparrowmq.spark.pipelines.archive.archive import bad_rows_of, plan_archive
from sparrowmq.spark.pipelines.common.queries import PipelineError


@pytest.fixture
def poison(topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """A topic of six messages in one queue; the third and the fifth say they are compressed and are not."""
    monkeypatch.setattr(
        "sparrowmq.client.send.sender.compress", lambda body, kind, level: b"shut %d" % body[0]
    )
    settings = mq.ProducerSettings(namesrv=topics.cluster.namesrv, compress_over=100)
    bodies = [b"m0", b"m1", b"\x02" * 200, b"m3", b"\x04" * 200, b"m5"]
    with mq.Producer("poison", settings=settings) as producer:
        queue = producer.queues(topic)[0]
        for body in bodies:
            producer.send(mq.Message(topic, body), queue=queue)
    return [b"m0", b"m1", b"shut 2", b"m3", b"shut 4", b"m5"]


def _settings(topics: Topics, topic: str, where: Path, **more: Any) -> ArchiveSettings:
    return ArchiveSettings(
        directory=where, topics=(topic,), name_server=topics.cluster.namesrv, compact_batches=0, **more
    )


def _kept(spark: SparkSession, where: Path) -> list[bytes | None]:
    frame = read_archive(spark, where).orderBy("queue_offset")
    assert not {"_corrupt_record", "_corrupt_reason"} & set(frame.columns)
    return [row.body and bytes(row.body) for row in frame.collect()]


def test_bytes_go_to_a_table_and_rows_stay(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path, poison: list[bytes]
) -> None:
    where, table = tmp_path / "archive", str(tmp_path / "bad")
    with pytest.raises(PipelineError, match="body at offset 2 cannot be decompressed"):
        archive(spark, _settings(topics, topic, where))
    strict = BadRows(name=bad_rows_of(where), table=table, most=1)
    settings = _settings(topics, topic, where, bad_rows=strict)
    assert f"set aside bodies that cannot be decompressed, to {table}, at most 1 of a batch" in str(
        plan_archive(settings)
    )
    with pytest.raises(
        TooManyBadRowsError, match="2 of 6 rows of batch 0 cannot be decoded, and the limit is most=1"
    ):
        archive(spark, settings)
    watch = Watch()
    allowed = BadRows(name=bad_rows_of(where), table=table, most=2)
    done = archive(spark, _settings(topics, topic, where, bad_rows=allowed), watch)
    assert (done.rows, done.bad, done.to_json()["bad"]) == (6, 2, 2)
    assert _kept(spark, where) == [None if body.startswith(b"shut") else body for body in poison]
    rows = spark.read.parquet(table).orderBy("queue_offset").collect()
    assert [(row.queue_offset, bytes(row.body)) for row in rows] == [(2, b"shut 2"), (4, b"shut 4")]
    assert all(row.reason.startswith("a compressed body of 6 bytes") for row in rows)


def test_from_the_command_line_to_a_topic(
    command: Command, spark: SparkSession, topics: Topics, topic: str, tmp_path: Path, poison: list[bytes]
) -> None:
    aside, where = f"{topic[:90]}_bad", tmp_path / "archive"
    topics.cluster.create_topic(aside, queues=1)
    arguments = ("pipe", "archive", topic, "--to", str(where))
    said = command(*arguments, "--bad-rows-max", "5", status=1)
    assert "--bad-rows-topic or --bad-rows-to" in said
    aside_options = ("--bad-rows-topic", aside, "--bad-rows-share", "0.5", "--bad-rows-max", "5")
    printed = command(*arguments, *aside_options, "--json", "--progress", "none")
    assert json.loads(printed.splitlines()[-1])["bad"] == 2
    assert len(_kept(spark, where)) == 6
    messages = topics.read(aside)
    assert [message.body for message in messages] == [b"shut 2", b"shut 4"]
    [queue, *_] = topics.producer.queues(topic)
    places = [message.properties["SPARROW_ORIGIN"] for message in messages]
    assert places == [f"{topic}/{queue.broker_name}/{queue.queue_id}/{offset}" for offset in (2, 4)]


def test_an_archive_without_bodies_has_no_bad_ones() -> None:
    with pytest.raises(SettingsError, check=about(setting="bad_rows", other="columns")):
        ArchiveSettings(
            directory="x", topics=("a",), columns=("tags",), bad_rows=BadRows(name="a", table="b")
        )
    assert bad_rows_of("/a/b") == bad_rows_of("/a/b/") != bad_rows_of("/a/c")
