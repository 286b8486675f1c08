"""The example project under `spark-pipelines` itself, with a catalog that lasts from run to run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyarrow.parquet as parquet
import pyspark
import pytest
from tests.spark.declarative import Project
from tests.versions.conftest import interpreter
from tests.versions.test_versions import VERSIONS

from sparrowmq.testing import LocalCluster

OWN = pyspark.__version__


@pytest.mark.proves("spark:L-04", "spark:L-05")
@pytest.mark.parametrize("version", ["4.1.4", "4.2.1", OWN])
def test_each_run_goes_on_where_the_last_one_ended(version: str, tmp_path: Path) -> None:
    python = Path(sys.executable) if version == OWN else interpreter(version, *VERSIONS[version])
    with LocalCluster() as cluster:
        project = Project.copied(tmp_path / "project", cluster.namesrv)
        project.create_topics()
        environ = {
            "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
            "SPARK_CONF_DIR": str(project.directory / "conf"),
        }
        for run in (1, 2):
            project.send(20)
            project.run([python.parent / "spark-pipelines", "run"], **environ)
            assert project.large() == project.expected_large
            warehouse = project.directory / "home" / "warehouse"
            assert parquet.read_table(warehouse / "orders").num_rows == 20 * run
            assert parquet.read_table(warehouse / "audit").column("missing").to_pylist() == [0, 0]
