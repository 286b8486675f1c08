"""The same code on `spark://`: what workers get, what the driver must have, and an executor's death."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.spark.counted import Ledger, Run, Verdict, audit, kill, read_parquet
from tests.spark.spark_home import QUICK_JVM
from tests.spark.standalone import CORES, ROOT, Standalone

import sparrowmq as mq
from sparrowmq.spark.offsets.planning import MESSAGES_PER_TASK
from sparrowmq.spark.shipping import package_zip
from sparrowmq.testing import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

SOURCE = ROOT / "src"
DRIVER_SECONDS = 600
SMALL = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_JVM,
    "spark.cores.max": "2",
    "spark.sql.shuffle.partitions": "2",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.log.level": "ERROR",
}


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with Standalone(tmp_path_factory.mktemp("standalone")) as made:
        yield made


@pytest.fixture(scope="module")
def servers() -> Iterator[LocalCluster]:
    with LocalCluster() as made:
        yield made


def said(driver: subprocess.Popen[str]) -> str:
    """What a driver printed, after it ended well."""
    try:
        text = driver.communicate(timeout=DRIVER_SECONDS)[0]
    except subprocess.TimeoutExpired:
        driver.kill()
        raise AssertionError(driver.communicate()[0]) from None
    assert driver.returncode == 0, text
    return text


def answer(text: str) -> Any:
    """What a `cluster_child` answered."""
    (line,) = [line for line in text.splitlines() if line.startswith("answer ")]
    return json.loads(line.removeprefix("answer "))


@pytest.mark.proves("spark:H-03", "spark:S-31", "spark:E-03", "spark:E-04")
def test_py_files_reach_the_workers_and_an_executor_may_die(
    standalone: Standalone, servers: LocalCluster, tmp_path: Path
) -> None:
    servers.create_topic("Executor", 2)
    ledger = Ledger(servers.namesrv, "Executor")
    ledger.send(12_000, size=400)
    plan = {
        "namesrv": servers.namesrv,
        "topic": "Executor",
        "root": str(tmp_path),
        "options": {"maxOffsetsPerTrigger": "3000", "maxPartitions": "1"},
        "master": standalone.url,
        "conf": {**SMALL, "spark.submit.pyFiles": str(package_zip(tmp_path / "sparrowmq.zip"))},
    }
    driver = standalone.driver(["-m", "tests.spark.counted_child", json.dumps(plan)], SOURCE, ROOT)
    runs = [Run(None, ledger, tmp_path / name) for name in ("batches", "file_sink")]  # type: ignore[arg-type]
    try:
        for run in runs:
            run.gate.wait(lambda: driver.poll() is None)
        assert kill(standalone.executors) == 1
        for run in runs:
            run.gate.open()
        said(driver)
    finally:
        driver.kill()
        driver.communicate()
    assert runs[0].verdict() == Verdict(ledger.count)
    sink = runs[1].out
    published = [
        json.loads(line)["path"].removeprefix("file://")
        for path in sorted((sink / "_spark_metadata").glob("[0-9]*"))
        for line in path.read_text().splitlines()[1:]
    ]
    assert audit(ledger, read_parquet(published)) == Verdict(ledger.count)


@pytest.fixture
def target() -> Iterator[LocalCluster]:
    with LocalCluster() as made:
        yield made


@pytest.mark.proves("spark:H-04")
def test_an_archive_reaches_the_workers_and_pipelines_run_there(
    standalone: Standalone, servers: LocalCluster, target: LocalCluster, tmp_path: Path
) -> None:
    servers.create_topic("Archive", 2)
    packed = tmp_path / "package.tar.gz"
    with tarfile.open(packed, "w:gz", compresslevel=1) as archive:
        archive.add(SOURCE / "sparrowmq", "sparrowmq")
        for name in ("msgspec", "sortedcontainers", "lz4", "zstandard"):
            spec = find_spec(name)
            assert spec is not None and spec.submodule_search_locations is not None
            archive.add(spec.submodule_search_locations[0], name)
    plan = {
        "namesrv": servers.namesrv,
        "target": target.namesrv,
        "topic": "Archive",
        "root": str(tmp_path),
        "rows": 500,
        "master": standalone.url,
        "conf": {
            **SMALL,
            "spark.archives": f"{packed}#package",
            "spark.executorEnv.PYTHONPATH": f"./package:{standalone.packages}",
        },
    }
    driver = standalone.driver(["-m", "tests.spark.cluster_child", "archive", json.dumps(plan)], SOURCE, ROOT)
    found = answer(said(driver))
    assert (found["rows"], found["sum"]) == (500, sum(range(500)))
    assert all("/package/" in place for place in found["places"])
    assert (found["mirrored"], found["audited"], found["reported"]) == (500, ["WHOLE", 500, 500], 500)


def test_the_cluster_reads_with_more_cores_than_the_driver_has(
    standalone: Standalone, servers: LocalCluster, tmp_path: Path
) -> None:
    servers.create_topic("Parallel", 8)
    with mq.Producer("filler", namesrv=servers.namesrv) as producer:
        for queue in producer.queues("Parallel"):
            for _ in range(MESSAGES_PER_TASK // 1000):
                producer.send_batch([mq.Message("Parallel", b"x")] * 1000, queue=queue)
    met = tmp_path / "met"
    met.mkdir()
    plan = {
        "namesrv": servers.namesrv,
        "topic": "Parallel",
        "root": str(met),
        "cores": CORES,
        "seconds": DRIVER_SECONDS / 4,
        "master": standalone.url,
        "conf": {
            **SMALL,
            "spark.cores.max": str(CORES),
            "spark.submit.pyFiles": str(package_zip(tmp_path / "sparrowmq.zip")),
        },
    }
    driver = standalone.driver(
        ["-m", "tests.spark.cluster_child", "parallel", json.dumps(plan)], SOURCE, ROOT
    )
    os.sched_setaffinity(driver.pid, {min(os.sched_getaffinity(0))})
    found = answer(said(driver))
    assert found["driver"] == 1
    assert found["rows"] == [MESSAGES_PER_TASK] * 8, "a task for each queue"
    assert found["met"] >= CORES, "as many tasks at once as the cluster has cores"


@pytest.mark.proves("spark:H-01", "spark:H-03")
def test_a_driver_without_the_package_is_told(standalone: Standalone, tmp_path: Path) -> None:
    zipped = package_zip(tmp_path / "sparrowmq.zip")
    plan = {"master": "local[1]", "conf": SMALL}
    submit = {"PYSPARK_SUBMIT_ARGS": f"--py-files {zipped} pyspark-shell"}
    driver = standalone.driver(
        ["-m", "tests.spark.cluster_child", "without", json.dumps(plan)], ROOT, more=submit
    )
    found = answer(said(driver))
    assert "DATA_SOURCE_NOT_FOUND" in found["by name"]
    assert "rocketmq" in found["by name"]
    assert found["registered"].startswith("SettingsError: the driver has sparrowmq only from --py-files")
    assert "pip install 'sparrowmq[spark]'" in found["registered"]
