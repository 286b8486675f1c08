"""Archives in tables, each format with the Spark that it is made for, from Maven Central."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.versions.conftest import interpreter, run
from tests.versions.test_versions import VERSIONS

from sparrowmq.testing import LocalCluster

FORMATS = {
    "delta": ("4.2.0", "io.delta:delta-spark_4.2_2.13:4.4.0"),
    "iceberg": ("4.1.4", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"),
}


@pytest.mark.timeout(2400)
@pytest.mark.parametrize("kind", FORMATS)
def test_every_message_is_in_the_table_once(kind: str, tmp_path: Path) -> None:
    version, packages = FORMATS[kind]
    python = interpreter(version, *VERSIONS.get(version, ()))
    with LocalCluster() as cluster:
        cluster.create_topic("Orders", queues=4)
        arguments = (kind, packages, cluster.namesrv, str(tmp_path))
        found = json.loads(run(python, "-m", "tests.versions.table_archive", *arguments).splitlines()[-1])
    assert found.pop("race")[0].endswith("only one run may write it; this one has ended")
    assert "another archive" in found.pop("foreign")
    assert found == {
        "version": version,
        "first": [[12, 5, 0], True, True],
        "killed": [["died before", "died after"], True],
        "checkpoint": True,
        "column": [2, True],
        "merged": [True, True],
        "others": True,
        "old": [0, 0],
    }
