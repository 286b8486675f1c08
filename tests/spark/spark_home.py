"""Spark's home with its Python code compiled: a worker then starts in a third of the time (spark:T-07).

Workers import PySpark from a zip of sources, which Python compiles anew in each of them. This home is the
installed one by symbolic links, but for that zip. It is made once into `.cache/`.
"""

from __future__ import annotations

import os
import py_compile
import shutil
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path
from typing import Final

import pyspark
from tests.conftest import LONG

CACHE: Final = Path(__file__).resolve().parents[2] / ".cache"
INSTALLED: Final = Path(pyspark.__file__).resolve().parent
ZIP: Final = Path("python/lib/pyspark.zip")
QUICK_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java that is soon ready and never at its best: right for tests, wrong for everything else (spark:T-03)."""
INTERPRETED: Final = "-Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN"
"""No Java is compiled for a query: for a few rows that takes longer than all else. Not in the long tier."""


def compiled_spark_home() -> Path:
    """The directory to set SPARK_HOME to, made when it is not there yet."""
    tag = sys.implementation.cache_tag
    target = CACHE / f"spark-home-{pyspark.__version__}-{tag}"
    if not target.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix="spark-home-", dir=CACHE))
        _link_all_but(INSTALLED, made, ZIP)
        _compile(INSTALLED / ZIP, made / ZIP)
        try:
            made.rename(target)
        except OSError:  # another process was first
            shutil.rmtree(made)
    return target


def quick_environment() -> dict[str, str]:
    """What tests set for every process that starts Spark: the compiled home, and JVMs that are soon ready."""
    return {
        "SPARK_HOME": str(compiled_spark_home()),
        "SPARK_SUBMIT_OPTS": QUICK_JVM if LONG else f"{QUICK_JVM} {INTERPRETED}",
        "SPARK_LAUNCHER_OPTS": QUICK_JVM,
    }


def _link_all_but(source: Path, target: Path, left_out: Path) -> None:
    """Links to everything in `source`; directories on the way to `left_out` are made."""
    target.mkdir(exist_ok=True)
    for path in source.iterdir():
        if path.name != left_out.parts[0]:
            (target / path.name).symlink_to(path)
        elif len(left_out.parts) > 1:
            _link_all_but(path, target / path.name, Path(*left_out.parts[1:]))


def _compile(source: Path, target: Path) -> None:
    """The zip with a compiled file beside each Python file."""
    with zipfile.ZipFile(source) as sources, zipfile.ZipFile(target, "w") as compiled:
        for name in sources.namelist():
            content = sources.read(name)
            compiled.writestr(name, content)
            if name.endswith(".py") and "/tests/" not in name:
                compiled.writestr(f"{name}c", _bytecode(content, f"{source}/{name}"))


def _bytecode(content: bytes, name: str) -> bytes:
    handle, path = tempfile.mkstemp(suffix=".py")
    try:
        os.write(handle, content)
        os.close(handle)
        # not checked against its source: zipimport would compare times that a zip rounds
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        with warnings.catch_warnings(action="ignore"):
            made = py_compile.compile(path, f"{path}c", name, doraise=True, invalidation_mode=mode)
        assert made is not None
        return Path(made).read_bytes()
    finally:
        for leftover in (path, f"{path}c"):
            Path(leftover).unlink(missing_ok=True)
