"""Spark sessions that SparrowMQ itself makes: for the demo, for `sparrow pipe` and for tests.

Users' own sessions are their business; the one setting worth copying is
`spark.python.unix.domain.socket.enabled=true`, which saves 41 ms a task (spark:S-40).
"""

from __future__ import annotations

import os
import sys
from typing import Final

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
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""Quiet, on the loopback address, few and fast tasks (spark:T-01, S-40, S-41). For one machine."""


def builder(app: str, master: str = "local[2]") -> SparkSession.Builder:
    """A session builder with `SETTINGS`; `getOrCreate()` starts it. Python workers use this interpreter."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    made = SparkSession.builder.appName(app).master(master)
    for name, value in SETTINGS.items():
        made = made.config(name, value)
    return made
