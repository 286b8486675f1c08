"""The DAG under examples/airflow in Airflow itself, in an environment of its own: requirements differ."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.versions.conftest import CACHE, ROOT, environment, run

import sparrowmq as mq
from sparrowmq.testing import LocalCluster

AIRFLOW = "apache-airflow==3.3.2"
DAGS = ROOT / "examples" / "airflow"
CHILD = ROOT / "tests" / "versions" / "airflow_child.py"

pytestmark = pytest.mark.timeout(2400)


def test_the_sensor_waits_and_the_operator_archives_what_is_there(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    python = environment(CACHE.parent / "airflow", AIRFLOW)
    sparrow = tmp_path / "sparrow"
    sparrow.write_text(
        f"#!/bin/sh\nPYTHONPATH={ROOT / 'src'} PYSPARK_PYTHON={sys.executable} "
        f'exec {sys.executable} -m sparrowmq.cli.main "$@"\n'
    )
    sparrow.chmod(0o755)
    environ = {
        **os.environ,
        "AIRFLOW_HOME": str(tmp_path / "home"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
        "PYTHONPATH": str(DAGS),
        "SPARROW": str(sparrow),
        "SPARROW_NAMESRV": cluster.namesrv,
        "ARCHIVE": str(tmp_path / "archive"),
    }
    run(python, "-m", "airflow", "db", "migrate", environ=environ)

    def of_a_run() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(run(python, str(CHILD), environ=environ).splitlines()[-1])
        return found

    cluster.create_topic("Orders", queues=2)
    with mq.Producer("orders", namesrv=cluster.namesrv) as producer:
        for _ in range(3):
            producer.send_batch([mq.Message("Orders", b"x") for _ in range(500)])
    first = of_a_run()
    assert (first["state"], first["tasks"]) == ("success", {"enough": "success", "archive": "success"})
    result = first["values"]["archive"]
    assert (result["pipeline"], result["rows"], result["stopped"]) == ("archive", 1500, False)
