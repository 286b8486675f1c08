"""The programs that merge a topic into Delta and Iceberg tables, each with a Spark that it fits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.spark.merging import merged_across_a_kill
from tests.spark.spark_home import QUICK_JVM
from tests.versions.conftest import ROOT, interpreter
from tests.versions.test_versions import VERSIONS

pytestmark = pytest.mark.timeout(1800)


@pytest.mark.parametrize(
    ("program", "version", "rows"),
    [("spark_merge_delta.py", "4.2.1", 2000), ("spark_merge_iceberg.py", "4.1.4", 3000)],
)
def test_no_order_is_doubled_and_none_is_missing(
    program: str, version: str, rows: int, tmp_path: Path
) -> None:
    python = interpreter(version, *VERSIONS[version])
    environ = {
        **os.environ,
        "SPARK_SUBMIT_OPTS": QUICK_JVM,
        "PYTHONPATH": str(ROOT / "src"),
        "PYSPARK_PYTHON": str(python),
    }
    environ.pop("SPARK_HOME", None)
    said = merged_across_a_kill(python, program, str(tmp_path / "table"), tmp_path, environ)
    assert said == f"{rows} orders, at {rows} places"
