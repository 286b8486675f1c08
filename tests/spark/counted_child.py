"""A driver of its own, for tests that kill it: `python -m tests.spark.counted_child JSON`.

Two AvailableNow queries read one topic: into directories per batch, and into Spark's own file sink. Each
stops at its gate in the middle of a later batch; who asked for it kills something there or opens the gate.
It ends with status 0 when both are through.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.spark.counted import GATE_SECONDS, Gate, Ledger, Run, ToParquet

HELD_BATCH: Final = 2
ARROW_ROWS: Final = "200"


def runs(spark: SparkSession, plan: dict[str, Any]) -> tuple[Run, Run]:
    """The two queries, not started: of directories per batch, and of the file sink."""
    ledger, root = Ledger(plan["namesrv"], plan["topic"]), Path(plan["root"])
    return (
        Run(spark, ledger, root / "batches", plan["options"]),
        Run(spark, ledger, root / "file_sink", plan["options"]),
    )


def start_file_sink(run: Run) -> StreamingQuery:
    """Start the query into Spark's own Parquet sink."""
    writer = run.frame().writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(run.checkpoint)).trigger(availableNow=True)
    run.query = writer.start(str(run.out))
    return run.query


def close_in_the_middle(gate: Gate, run: Run, batch_id: int) -> None:
    """Close the gate when the file sink has `batch_id` behind it."""
    done = run.out / "_spark_metadata" / str(batch_id - 1)
    deadline = time.monotonic() + GATE_SECONDS
    while not done.exists():
        assert run.check() and time.monotonic() < deadline, f"{done} did not come"
        time.sleep(0.005)
    gate.close()


def main(plan: dict[str, Any]) -> None:
    from sparrowmq.spark.sessions import builder

    made = builder("counted", plan["master"]).config("spark.driver.memory", "512m")
    for name, value in {**plan["conf"], "spark.sql.execution.arrow.maxRecordsPerBatch": ARROW_ROWS}.items():
        made = made.config(name, value)
    spark = made.getOrCreate()
    batches, files = runs(spark, plan)

    def before(batch_id: int) -> None:
        if batch_id == HELD_BATCH:
            batches.gate.close()

    batches.sink = ToParquet(batches.out, before)
    start_file_sink(files)
    close_in_the_middle(files.gate, files, HELD_BATCH)
    batches.start(available_now=True)
    batches.finish(4 * GATE_SECONDS)
    files.finish(4 * GATE_SECONDS)
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
