"""Spark sessions created by SparrowMQ: for the demo, for `sparrow pipe` and for tests.

Users configure their own sessions; the only setting worth copying is
`spark.python.unix.domain.socket.enabled=true`, which saves 41 ms per task (spark:S-40).
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyspark
from pyspark.sql import SparkSession

from sparrowmq.spark.home import use_quick_home

SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.log.level": "ERROR",
}
"""Quiet, on the loopback address, few and fast tasks (spark:T-01, S-40). For one machine."""
LOCAL_ONLY: Final = ("spark.driver.host", "spark.driver.bindAddress")
"""Settings that machines of a cluster must not get, because they could not find the driver."""
_STREAMING: Final = "org.apache.spark.sql.execution.streaming"


def is_local(master: str) -> bool:
    """Whether `master` means only this machine: `local`, `local[2]`, …; not `local-cluster`."""
    return master == "local" or master.startswith("local[")


def settings(master: str) -> dict[str, str]:
    """`SETTINGS` for a master; on a cluster without those for a single machine."""
    return {name: value for name, value in SETTINGS.items() if is_local(master) or name not in LOCAL_ONLY}


def builder(app: str, master: str = "local[2]") -> SparkSession.Builder:
    """A session builder with `settings(master)`; on one machine with fast checkpoints (spark:S-41).

    `getOrCreate()` starts the session. Python workers use this interpreter; on one machine they start with
    byte code (`home`), unless `SPARK_HOME` is set.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    made = SparkSession.builder.appName(app).master(master)
    if is_local(master):
        use_quick_home()
        package = "" if pyspark.__version__.startswith("4.0.") else "checkpointing."
        manager = f"{_STREAMING}.{package}FileSystemBasedCheckpointFileManager"
        made = made.config("spark.sql.streaming.checkpointFileManagerClass", manager)
    for name, value in settings(master).items():
        made = made.config(name, value)
    return made


@contextlib.contextmanager
def standard_error_to(log: Path) -> Iterator[None]:
    """Within the block, started processes (the JVM and Spark's workers) write standard error to the file."""
    sys.stderr.flush()
    before = os.dup(2)
    try:
        with log.open("ab") as target:
            os.dup2(target.fileno(), 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
