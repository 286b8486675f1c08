"""Custom state per key, stored in the checkpoint: finds gaps in the numbers that machines count up.

    python examples/spark_state.py 127.0.0.1:9876

`transformWithState` calls the processor with the rows of one key at a time; its state survives restarts.
It needs Spark 4.1, the RocksDB state store and the packages protobuf and pandas:
pip install 'sparrowmq[spark-state]'.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

import sparrowmq as mq
from sparrowmq.spark.sessions import builder

TOPIC = "ExampleMachines"
REPORTS = {"press": [1, 2, 3, 5], "lathe": [1, 2], "drill": [1, 4]}
LATER = {"press": [6], "lathe": [3, 7]}
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Gaps(StatefulProcessor):
    """Keeps each machine's last number; gives a row for every missing number."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """One value for each key."""
        self.last = handle.getValueState("last", "number long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timer_values: Any) -> Iterator[Row]:
        """Handle the rows of one machine in one micro-batch, in order."""
        kept = self.last.get()
        last = kept[0] if kept else 0
        for number in sorted(row.number for row in rows):
            for missing in range(last + 1, number):
                yield Row(machine=key[0], missing=missing)
            last = max(last, number)
        self.last.update((last,))


def send(namesrv: str, reports: dict[str, list[int]]) -> None:
    """A message for each number; the machine is its key."""
    with mq.Producer("example-machines", namesrv=namesrv) as producer:
        for machine, numbers in reports.items():
            for number in numbers:
                producer.send(mq.Message(TOPIC, b"%d" % number, keys=machine, key=machine))


def main(namesrv: str) -> None:
    """Run the query twice from one checkpoint: the second run has the state of the first."""
    with mq.Admin(namesrv) as admin:
        admin.topics.create(TOPIC, queues=2)
    spark = builder("state").config("spark.sql.streaming.stateStore.providerClass", ROCKSDB).getOrCreate()
    source = spark.readStream.format("rocketmq").option("nameServer", namesrv).option("subscribe", TOPIC)
    reports = source.option("startingOffsets", "earliest").load()
    gaps = (
        reports.selectExpr("keys as machine", "cast(cast(body as string) as long) as number")
        .groupBy("machine")
        .transformWithState(Gaps(), "machine string, missing long", "Append", "None")
    )
    with tempfile.TemporaryDirectory() as directory:
        for run, sent in enumerate((REPORTS, LATER), 1):
            send(namesrv, sent)
            query = (
                gaps.writeStream.format("parquet")
                .option("checkpointLocation", f"{directory}/checkpoint")
                .trigger(availableNow=True)
                .start(f"{directory}/gaps")
            )
            query.awaitTermination()
            rows = sorted(spark.read.parquet(f"{directory}/gaps").collect())
            print(f"after run {run}:", ", ".join(f"{row.machine} {row.missing}" for row in rows))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
