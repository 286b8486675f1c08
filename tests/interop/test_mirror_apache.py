"""Mirrors between our clusters and Apache's, both ways: order, ids, Java consumers, groups that follow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.interop.apache import ApacheCluster
from tests.interop.driver import JavaDriver, Received

import sparrowmq as mq
from sparrowmq.spark import MirrorSettings, mirror, plan_mirror
from sparrowmq.spark.pipelines.mirror_rows import CHAIN
from sparrowmq.spark.session import builder
from sparrowmq.testing import LocalCluster

pytestmark = [pytest.mark.interop, pytest.mark.spark]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A small session; one that runs already is used and left alone."""
    running = SparkSession.getActiveSession()
    session = running or builder("interop").getOrCreate()
    yield session
    if running is None:
        session.stop()


def messages(topic: str, first: int, last: int) -> list[mq.Message]:
    return [
        mq.Message(topic, f"body {n} ü".encode(), tags=f"t{n % 3}", keys=[f"k{n}"], properties={"n": str(n)})
        for n in range(first, last)
    ]


def in_order(found: list[Received]) -> list[tuple[object, ...]]:
    ordered = sorted(found, key=lambda one: (one.queue_id, one.queue_offset))
    return [
        (one.queue_id, one.queue_offset, one.msg_id, one.body, one.tags, one.keys, one.properties["n"])
        for one in ordered
    ]


@pytest.mark.parametrize("way", ["from Apache's", "to Apache's"])
def test_a_topic_and_a_group(
    spark: SparkSession,
    apache: ApacheCluster,
    ours: LocalCluster,
    driver: JavaDriver,
    name: str,
    way: str,
    tmp_path: Path,
) -> None:
    names = {"apache": apache.namesrv, "ours": ours.namesrv}
    source, target = ("apache", "ours") if way == "from Apache's" else ("ours", "apache")
    settings = MirrorSettings(
        directory=tmp_path / "mirror",
        source=source,
        target=target,
        name_server=names[source],
        target_name_server=names[target],
        topics=(name,),
        groups=(f"{name}_g",),
    )
    with mq.Admin(names[source]) as admin, mq.Admin(names[target]) as there:
        queues = admin.create_topic(name, queues=2).subscribe_queues(name)
        with driver.producer(names[source], f"{name}_p") as producer:
            producer.send(messages(name, 0, 200), "async")
            promise = "exactly once" if target == "ours" else "at least once, with stable message ids"
            assert promise in str(plan_mirror(settings))
            assert mirror(spark, settings).rows == 200
            producer.send(messages(name, 200, 250), "async")
        admin.create_group(f"{name}_g")
        places = {queue: 10 + 25 * queue.queue_id for queue in queues}
        for queue, offset in places.items():
            admin.commit(f"{name}_g", queue, offset)
        assert mirror(spark, settings).rows == 50
        found = {
            queue: there.committed(f"{name}_g", queue)
            for queue in there.create_topic(name, queues=2).subscribe_queues(name)
        }
    assert {queue.queue_id: offset for queue, offset in found.items()} == {
        queue.queue_id: offset for queue, offset in places.items()
    }
    stored = driver.dump(names[target], name)
    assert in_order(stored) == in_order(driver.dump(names[source], name))
    assert {message.properties[CHAIN] for message in stored} == {source}
