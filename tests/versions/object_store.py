"""A program: archive, history, replay and a stream with everything on an S3 server, by Hadoop's `s3a`.

`python -m tests.versions.object_store ENDPOINT NAMESERVER` prints what it saw as one line of JSON. The bucket
`lake` must be there.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import sparrowmq as mq
from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark import (
    ArchiveSettings,
    HistorySettings,
    ReplaySettings,
    archive,
    history,
    read_archive,
    replay,
)
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.pipelines.archive.location import Draft
from sparrowmq.spark.pipelines.archive.remote import RemoteStore
from sparrowmq.spark.pipelines.common.files import HadoopFiles
from sparrowmq.spark.sessions import builder

HADOOP = "3.5.0"
SDK = "2.35.4"
"""The version that this Hadoop was built with."""
PACKAGES = (
    f"org.apache.hadoop:hadoop-aws:{HADOOP}",
    *(
        f"software.amazon.awssdk:{name}:{SDK}"
        for name in ("s3", "s3-transfer-manager", "sts", "apache-client")
    ),
)
EXCLUDED = "software.amazon.awssdk:bundle,org.slf4j:slf4j-api"
"""The whole SDK, 640 MB: the parts above are what is used of it. And what Spark has itself."""
TOPIC = "Orders"
LAKE = "s3a://lake"


def session(endpoint: str) -> SparkSession:
    """With `s3a`, which speaks to the endpoint."""
    made = builder("object store").config("spark.jars.packages", ",".join(PACKAGES))
    made = made.config("spark.jars.excludes", EXCLUDED)
    for name, value in s3a(endpoint).items():
        made = made.config(f"spark.hadoop.fs.s3a.{name}", value)
    return made.getOrCreate()


def s3a(endpoint: str) -> dict[str, str]:
    """The settings of `s3a`."""
    return {
        "endpoint": endpoint,
        "endpoint.region": "us-east-1",
        "path.style.access": "true",
        "access.key": "key",
        "secret.key": "secret",
        "attempts.maximum": "2",
    }


def numbers(frame: DataFrame) -> list[int]:
    """What the bodies say."""
    rows = frame.selectExpr("cast(cast(body as string) as int) n").collect()
    return sorted(row["n"] for row in rows)


def main(endpoint: str, namesrv: str) -> dict[str, Any]:
    """What is there after each step."""
    spark = session(endpoint)
    found: dict[str, Any] = {}
    files = HadoopFiles(f"{LAKE}/notes")
    found["made"] = [files.create("deep/a", "first"), files.create("deep/a", "second"), files.read("deep/a")]
    files.replace("deep/a", "third")
    found["listed"] = [files.names("deep"), files.read("deep/a"), files.size("deep"), files.names("none")]
    settings = ArchiveSettings(
        directory=f"{LAKE}/archive", topics=(TOPIC,), name_server=namesrv, batch_rows=10, compact_batches=2
    )
    with mq.Producer("store", namesrv=namesrv) as producer:

        def send(first: int, end: int) -> None:
            producer.send_batch([mq.Message(TOPIC, b"%d" % number) for number in range(first, end)])

        send(0, 35)
        archive(spark, settings)
        send(35, 40)
        archive(spark, replace(settings, compact_batches=0))
        found["archived"] = numbers(read_archive(spark, settings.directory)) == list(range(40))
        send(40, 45)
        both = HistorySettings(directory=settings.directory, name_server=namesrv)
        found["history"] = numbers(history(spark, both)) == list(range(45))
    again = ReplaySettings(home=f"{LAKE}/replay", to="Again", archive=settings.directory, name_server=namesrv)
    found["replayed"] = [replay(spark, again).rows, replay(spark, again).rows]
    found["taken"] = taken(spark, settings)
    found["streamed"] = [streamed(spark, endpoint, namesrv) for _ in range(2)]
    return found


def streamed(spark: SparkSession, endpoint: str, namesrv: str) -> list[object]:
    """Whether a stream has copied each message once, and which batches' queues are beside its checkpoint."""
    places = {"nameServer": namesrv, "subscribe": TOPIC, "startingOffsets": "earliest"}
    # The planning worker does not see the session's settings.
    given = {f"fs.s3a.{name}": value for name, value in s3a(endpoint).items()}
    query = (
        spark.readStream.format("rocketmq")
        .options(**places)
        .load()
        .select("body")
        .writeStream.format("rocketmq")
        .options(nameServer=namesrv, topic="Copy", checkpointLocation=f"{LAKE}/checkpoint", **given)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    copied = spark.read.format("rocketmq").options(nameServer=namesrv, subscribe="Copy").load()
    names = HadoopFiles(f"{LAKE}/checkpoint").names("sparrowmq-queues")
    return [numbers(copied) == list(range(45)), sorted(names)]


def taken(spark: SparkSession, settings: ArchiveSettings) -> str:
    """What a run is told when another has begun."""
    first, second = (RemoteStore(HadoopFiles(str(settings.directory))) for _ in range(2))
    frame = spark.sql("SELECT 'T' topic, current_date() date, 1L queue_offset")
    span = Span(MessageQueue("T", "b", 0), 0, 1)
    with first.locked(), second.locked():
        number = second.content().ledger.next_number
        draft = Draft(number=number, spans=(span,), columns={"queue_offset": "bigint"}, expected=1)
        second.publish(frame, draft)
        try:
            first.publish(frame, draft)
        except SettingsError as error:
            return str(error)
    return ""


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:3])))
