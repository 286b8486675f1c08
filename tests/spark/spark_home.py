"""What tests set so that Spark is soon ready, kept in `.cache/`: a home with byte code, and an archive of
Java's classes for short-lived JVMs.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.conftest import LONG

from sparrowmq.spark.home import quick_home

ROOT: Final = Path(__file__).resolve().parents[2]
CACHE: Final = ROOT / ".cache"
QUICK_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java that is soon ready and never at its best: right for tests, wrong for everything else (spark:T-03)."""
INTERPRETED: Final = "-Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN"
"""No Java is compiled for a query: for a few rows that takes longer than all else. Not in the long tier."""
ARCHIVE: Final = "classes.jsa"
ARCHIVE_SECONDS: Final = 600


def compiled_spark_home() -> Path:
    """The directory to set SPARK_HOME to, made when it is not there yet."""
    made = quick_home(CACHE)
    assert made is not None
    return made


def make_class_archive() -> None:
    """Make the archive of Spark's classes unless it is there, or another process is making it: one session,
    and then some 20 s of the processor. Not within a test, whose time is limited.

    With it a session starts with half the processor time. Where Java cannot make one it is empty, and Java
    ignores it.
    """
    home = compiled_spark_home()
    target = home / ARCHIVE
    with (CACHE / f"{ARCHIVE}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if not target.exists():
            _make_archive(home, target)


def _make_archive(home: Path, target: Path) -> None:
    draft = target.with_name(f"{ARCHIVE}.{os.getpid()}.draft")
    environment = {**os.environ, **_environment(home, f"-XX:ArchiveClassesAtExit={draft}")}
    command = [sys.executable, "-m", "tests.spark.archive_child"]
    subprocess.run(
        command, cwd=ROOT, env=environment, check=False, capture_output=True, timeout=ARCHIVE_SECONDS
    )
    draft.touch()
    draft.rename(target)


def _environment(home: Path, archive: str) -> dict[str, str]:
    quick = QUICK_JVM if LONG else f"{QUICK_JVM} {INTERPRETED}"
    return {
        "SPARK_HOME": str(home),
        "SPARK_SUBMIT_OPTS": f"{quick} {archive} -Xlog:disable",
        "SPARK_LAUNCHER_OPTS": QUICK_JVM,
    }


def quick_environment() -> dict[str, str]:
    """What tests set for every process that starts Spark: the compiled home, and JVMs that are soon ready."""
    home = compiled_spark_home()
    archive = home / ARCHIVE
    return _environment(home, f"-XX:SharedArchiveFile={archive}" if archive.exists() else "")
