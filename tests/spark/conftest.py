"""One Spark session and one cluster for all Spark tests; a topic of its own for each test that asks."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.spark.support import Topics

_IDS = itertools.count()

PYSPARK_WARNINGS = (
    "ignore:PySpark does not yet fully support pandas:FutureWarning",
    "ignore:unclosed <socket.socket:ResourceWarning:py4j",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that use the session carry the marker `spark` and let PySpark's own warnings pass."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            for text in PYSPARK_WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(text))


def pytest_collection_finish(session: pytest.Session) -> None:
    """What takes longer than a test may is made before the first one."""
    if session.config.option.collectonly:
        return
    if any(item.get_closest_marker("spark") for item in session.items):
        from tests.spark.spark_home import make_class_archive

        make_class_archive()


@pytest.fixture(scope="session", autouse=True)
def quick_children(request: pytest.FixtureRequest) -> None:
    """Every Spark that these tests start, in whatever process, starts fast."""
    if any(item.get_closest_marker("spark") for item in request.session.items):
        from tests.spark.spark_home import quick_environment

        os.environ.update(quick_environment())


@pytest.fixture(scope="session")
def spark(quick_children: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """`local[2,3]`: two cores, three tries for each task; workers that start fast; a Connect server."""
    from sparrowmq.spark.sessions import builder

    made = (
        builder("sparrowmq-tests", "local[2,3]")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.driver.memory", "1g")
        .config("spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin")
        .config("spark.connect.grpc.binding.address", "127.0.0.1")
        .config("spark.connect.grpc.binding.port", "0")
        .getOrCreate()
    )
    yield made
    made.stop()


@pytest.fixture(scope="session")
def remote(spark: SparkSession) -> str:
    """Where clients of Spark Connect reach the session's JVM."""
    jvm: Any = spark.sparkContext._jvm
    service = getattr(jvm.org.apache.spark.sql.connect.service, "SparkConnectService$")
    return f"sc://127.0.0.1:{getattr(service, 'MODULE$').localPort()}"


@pytest.fixture(scope="session")
def topics() -> Iterator[Topics]:
    """A running cluster, to make topics in."""
    from tests.spark.support import Topics

    from sparrowmq.testing import LocalCluster

    with LocalCluster() as cluster, Topics(cluster) as made:
        yield made


@pytest.fixture
def topic(topics: Topics, request: pytest.FixtureRequest) -> str:
    """An empty topic with four queues."""
    name = f"T{next(_IDS)}_{request.node.originalname}"[:100]
    topics.cluster.create_topic(name, queues=4)
    return name


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """A directory for a query's checkpoint."""
    return str(tmp_path / "checkpoint")
