"""Which Python Spark runs the source with: on one machine the one that runs the program.

Spark starts its own Python processes: on the driver to find and plan sources, on executors to read and write.
Two settings choose that Python:

- Sources that Spark discovers run with `PYSPARK_DRIVER_PYTHON`, or `PYSPARK_PYTHON`, or `python3` of `PATH`,
  of the environment that the JVM was started in. This cannot be changed later.
- Sources that a session registers run with `SparkContext.pythonExec`, which is `PYSPARK_PYTHON` or `python3`.
  So this can still be changed in a running session. Executors prefer `spark.sql.execution.pyspark.python`.

A Python that the user chose is never replaced. On a cluster nothing is replaced: workers may have their
Python elsewhere.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from sparrowmq.core.errors import SettingsError

SPARK_DEFAULT: Final = "python3"
"""Spark's default; `bin/pyspark` itself writes it into `PYSPARK_PYTHON`."""
_PROBE: Final = "import importlib.util as u, sys; sys.exit(u.find_spec('sparrowmq') is None)"
_PROBE_SECONDS: Final = 30.0


def is_local(master: str) -> bool:
    """Whether `master` means only this machine: `local`, `local[2]`, …; not `local-cluster`."""
    return master == "local" or master.startswith("local[")


def settle(spark: SparkSession) -> None:
    """Make a session run its registered sources with a Python that has this package.

    Raises `SettingsError` if the configured Python, or that of a cluster's driver, does not have it.
    """
    context: Any = spark.sparkContext
    context.pythonExec = chosen(context.pythonExec, context.master, sys.executable)
    if reason := what_is_wrong(context.pythonExec):
        raise SettingsError(_explained(context.pythonExec, reason, context.master))


def chosen(named: str, master: str, own: str) -> str:
    """The Python for a session whose setting is `named`: `own` on one machine if the setting is the
    default.
    """
    return own if own and named == SPARK_DEFAULT and is_local(master) else named


@cache
def what_is_wrong(python: str) -> str:
    """Why Spark cannot run this package with a Python, "" if it can; checked once per interpreter.

    An interpreter that does not answer within 30 s passes: it may be slow, and Spark reports other problems.
    """
    found = shutil.which(python)
    if found is None:
        return "does not exist or is not executable"
    if Path(found).absolute() == Path(sys.executable).absolute():  # keep links of virtual environments
        return ""
    try:
        done = subprocess.run([found, "-c", _PROBE], capture_output=True, timeout=_PROBE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return ""
    except OSError as error:
        return f"cannot be started ({error.strerror or error})"
    return "has no sparrowmq" if done.returncode else ""


def _explained(python: str, reason: str, master: str) -> str:
    found = shutil.which(python)
    place = f" ({found})" if found not in (None, python) else ""
    text = (
        f"Spark runs data sources on the driver with {python}{place}, which {reason}: before Spark starts, "
        f"set PYSPARK_PYTHON={sys.executable}"
    )
    if is_local(master):
        return text
    return f"{text}; if the workers' Python has another path, set spark.sql.execution.pyspark.python to it"
