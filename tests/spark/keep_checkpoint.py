"""Makes the checkpoint that later releases must go on from.

`python -m tests.spark.keep_checkpoint DIRECTORY`. Run once for a release, and never again for it;
`test_counted` says what the topic held.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from tests.spark.counted import Ledger, Run
from tests.spark.queries.test_counted import CHECKPOINT_ROWS

from sparrowmq.spark.sessions import builder
from sparrowmq.testing import LocalCluster


def keep(spark: SparkSession, target: Path) -> None:
    """Read the first messages in two batches and keep the checkpoint without Spark's checksum files."""
    with LocalCluster() as cluster, tempfile.TemporaryDirectory() as directory:
        cluster.create_topic("Checkpoint", 2)
        ledger = Ledger(cluster.namesrv, "Checkpoint")
        ledger.send(CHECKPOINT_ROWS[0])
        run = Run(spark, ledger, Path(directory), {"maxOffsetsPerTrigger": str(CHECKPOINT_ROWS[0] // 2)})
        run.start(available_now=True)
        run.finish()
        shutil.copytree(run.checkpoint, target, ignore=shutil.ignore_patterns(".*"))


if __name__ == "__main__":
    session = builder("keep-checkpoint").getOrCreate()
    keep(session, Path(sys.argv[1]))
    session.stop()
