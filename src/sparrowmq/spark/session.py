"""Spark sessions that SparrowMQ itself makes: for the demo, for `sparrow pipe` and for tests.

Users' own sessions are their business; the one setting worth copying is
`spark.python.unix.domain.socket.enabled=true`, which saves 41 ms a task (spark:S-40).
"""

from __future__ import annotations

import os
import sys
from typing import Final

import pyspark
from pyspark.sql import SparkSession

SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.log.level": "ERROR",
}
"""Quiet, on the loopback address, few and fast tasks (spark:T-01, S-40). For one machine."""
_STREAMING: Final = "org.apache.spark.sql.execution.streaming"


def builder(app: str, master: str = "local[2]") -> SparkSession.Builder:
    """A session builder with `SETTINGS` and fast checkpoints for local file systems (spark:S-41).

    `getOrCreate()` starts the session. Python workers use this interpreter.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    package = "" if pyspark.__version__.startswith("4.0.") else "checkpointing."
    manager = f"{_STREAMING}.{package}FileSystemBasedCheckpointFileManager"
    made = SparkSession.builder.appName(app).master(master)
    made = made.config("spark.sql.streaming.checkpointFileManagerClass", manager)
    for name, value in SETTINGS.items():
        made = made.config(name, value)
    return made
