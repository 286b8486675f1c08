"""Spark sessions: `session` for programs, `builder` for the demo, `sparrow pipe` and tests."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from sparrowmq.spark.home import use_quick_home
from sparrowmq.spark.interpreter import is_local
from sparrowmq.spark.source import register

FAST: Final = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
}
"""What makes the source fast in any session (spark:S-40)."""
SETTINGS: Final = FAST | {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
}
"""Quiet, on the loopback address, few and fast tasks (spark:T-01, S-40). For one machine."""
LOCAL_ONLY: Final = ("spark.driver.host", "spark.driver.bindAddress")
"""Settings that machines of a cluster must not get, because they could not find the driver."""
_GATEWAY: Final = "PYSPARK_GATEWAY_PORT"
"""In the environment of programs that `spark-submit` and `pyspark` start."""
_STREAMING: Final = "org.apache.spark.sql.execution.streaming"


def settings(master: str) -> dict[str, str]:
    """`SETTINGS` for a master; on a cluster without those for a single machine."""
    return {name: value for name, value in SETTINGS.items() if is_local(master) or name not in LOCAL_ONLY}


def session(
    app: str = "sparrowmq", master: str = "", config: Mapping[str, str] | None = None
) -> SparkSession:
    """A Spark session that knows the source `rocketmq`: the active one, or a new one that makes it fast.

    A new session has the fast settings of the Spark guide. `master` is `local[*]` by default. A program that
    `spark-submit` or `pyspark` started, or that uses Spark Connect, keeps the master and the settings given
    there. `config` has more settings, such as `{"spark.sql.shuffle.partitions": "8"}`; they go over others,
    and an active session refuses those that must be set before Spark starts. Raises `SettingsError` as
    `register` does.
    """
    found = SparkSession.getActiveSession()
    if found is None:
        found = _new_builder(app, master, config or {}).getOrCreate()
    else:
        for name, value in (config or {}).items():
            found.conf.set(name, value)
    register(found)
    return found


def _new_builder(app: str, master: str, config: Mapping[str, str]) -> SparkSession.Builder:
    if not is_remote() and _GATEWAY not in os.environ:
        return _builder(app, master or "local[*]", {**FAST, **config})
    made = SparkSession.builder.appName(app)
    return _with(made.master(master) if master else made, config)


def builder(app: str, master: str = "local[2]") -> SparkSession.Builder:
    """A session builder with `settings(master)`; on one machine with fast checkpoints (spark:S-41).

    `getOrCreate()` starts the session. Python workers use this interpreter; on one machine they start with
    byte code (`home`), unless `SPARK_HOME` is set.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return _builder(app, master, settings(master))


def _builder(app: str, master: str, config: Mapping[str, str]) -> SparkSession.Builder:
    made = SparkSession.builder.appName(app).master(master)
    if is_local(master):
        use_quick_home()
        package = "" if pyspark.__version__.startswith("4.0.") else "checkpointing."
        manager = f"{_STREAMING}.{package}FileSystemBasedCheckpointFileManager"
        made = made.config("spark.sql.streaming.checkpointFileManagerClass", manager)
    return _with(made, config)


def _with(made: SparkSession.Builder, config: Mapping[str, str]) -> SparkSession.Builder:
    for name, value in config.items():
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
