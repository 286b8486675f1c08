"""Java's clients live through a restart of our broker, and through one of our name server and broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.interop.driver import JavaDriver
from tests.support import expect_all

from sparrowmq.core.message import Message
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.interop


def _bodies(name: str, first: int, last: int) -> list[bytes]:
    return sorted(f"{name} {number}".encode() for number in range(first, last))


def test_clients_go_on_when_the_broker_comes_back(driver: JavaDriver, name: str) -> None:
    with LocalCluster() as cluster:
        driver.admin(cluster.namesrv).create_topic(cluster.broker_address, name, 3)
        with (
            driver.producer(cluster.namesrv, f"{name}_p") as producer,
            driver.consumer(cluster.namesrv, f"{name}_c", {name: "*"}) as consumer,
        ):
            for start in (0, 20, 40):
                producer.send([Message(name, body) for body in _bodies(name, start, start + 20)])
                expect_all(lambda: [one.body for one in consumer.received()], _bodies(name, 0, start + 20))
                cluster.restart_broker()


def test_offsets_outlive_the_cluster(driver: JavaDriver, name: str, tmp_path: Path) -> None:
    for start in (0, 20):
        with LocalCluster(tmp_path) as cluster:
            if start == 0:
                driver.admin(cluster.namesrv).create_topic(cluster.broker_address, name, 3)
            with driver.producer(cluster.namesrv, f"{name}_p") as producer:
                producer.send([Message(name, body) for body in _bodies(name, start, start + 20)])
            with driver.consumer(cluster.namesrv, f"{name}_c", {name: "*"}) as consumer:
                expect_all(
                    lambda: [one.body for one in consumer.received()], _bodies(name, start, start + 20)
                )
