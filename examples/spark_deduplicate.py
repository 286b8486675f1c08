"""Messages that are stored twice are read once: Spark drops those whose id it has seen within an hour.

    python examples/spark_deduplicate.py 127.0.0.1:9876

A sender that got no response sends again, with the same ids. The watermark limits how many ids Spark stores.
The ids are part of the checkpoint, so duplicates are also detected after a restart.
"""

from __future__ import annotations

import sys
import tempfile

import pyarrow as pa

import sparrowmq as mq
from sparrowmq.columnar.encode import MessageColumns, encode_batches
from sparrowmq.columnar.ids import UniqueIdColumns
from sparrowmq.spark.sessions import builder

TOPIC = "ExampleTwice"
READINGS = 50


def send_twice(namesrv: str) -> None:
    """Send the same batch twice, as if the response to the first send had been lost."""
    bodies = pa.array([b"%d" % number for number in range(READINGS)], pa.binary())
    columns = MessageColumns(body=bodies, ids=UniqueIdColumns("127.0.0.1").next(READINGS))
    (batch,) = encode_batches(columns, bytes_max=1 << 20)
    with mq.Producer("example-sensors", namesrv=namesrv) as producer:
        for _ in range(2):
            producer.send_encoded_batch(TOPIC, batch.body, batch.count)


def main(namesrv: str) -> None:
    """Send everything twice, read it once, in two runs of one query."""
    with mq.Admin(namesrv) as admin:
        admin.topics.create(TOPIC, queues=2)
    spark = builder("deduplicate").getOrCreate()
    source = spark.readStream.format("rocketmq").option("nameServer", namesrv).option("subscribe", TOPIC)
    once = (
        source.option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", READINGS)
        .schema("msg_id string, store_timestamp timestamp, body binary")
        .load()
        .withWatermark("store_timestamp", "1 hour")
        .dropDuplicatesWithinWatermark(["msg_id"])
    )
    send_twice(namesrv)
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            once.writeStream.format("memory")
            .queryName("example_once")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        stored = sum(progress.numInputRows for progress in query.recentProgress)
    print(f"{stored} stored, {spark.table('example_once').count()} read")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
