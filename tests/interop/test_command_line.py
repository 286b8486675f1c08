"""`sparrow topic`, `send`, `consume`, `cluster` and `group` against Apache's servers and against ours."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.interop.apache import ApacheCluster
from tests.interop.driver import JavaDriver
from tests.support import until_sync
from typer.testing import CliRunner

from sparrowmq.cli.main import app
from sparrowmq.core.message import Message
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.interop


class Sparrow:
    """The command line pointed at one name server."""

    def __init__(self, namesrv: str) -> None:
        self._namesrv = namesrv

    def __call__(self, *arguments: str) -> str:
        """Run a command that must succeed; what it prints."""
        done = CliRunner().invoke(app, [*arguments, "--namesrv", self._namesrv])
        assert done.exit_code == 0, (arguments, done.output)
        return done.stdout

    def rows(self, *arguments: str) -> list[dict[str, Any]]:
        """Run a command with `--json`; its rows."""
        return [json.loads(line) for line in self(*arguments, "--json").splitlines()]

    def fails(self, *arguments: str) -> str:
        """Run a command that must fail; its message."""
        done = CliRunner().invoke(app, [*arguments, "--namesrv", self._namesrv])
        assert done.exit_code == 1, (arguments, done.output)
        return done.stderr


@pytest.fixture(params=["apache", "ours"])
def cluster(request: pytest.FixtureRequest) -> ApacheCluster | LocalCluster:
    """Both kinds of servers."""
    found: ApacheCluster | LocalCluster = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def sparrow(cluster: ApacheCluster | LocalCluster) -> Sparrow:
    """The command line for that cluster."""
    return Sparrow(cluster.namesrv)


def test_the_life_of_a_topic(sparrow: Sparrow, cluster: ApacheCluster | LocalCluster, name: str) -> None:
    assert sparrow("topic", "create", name, "--queues", "3") == f"{name}: 3 queues on broker-a\n"
    assert name in sparrow("topic", "list").splitlines()
    (route,) = sparrow.rows("topic", "route", name)
    assert route["addresses"] == {"0": cluster.broker_address}
    assert (route["broker"], route["perm"]) == ("broker-a", 6)
    assert (route["read_queues"], route["write_queues"]) == (3, 3)

    (sent,) = sparrow.rows("send", name, "größer", "--tags", "t", "--keys", "k1 k2", "--property", "p=ü")
    rows = sparrow.rows("topic", "status", name)
    assert [row["queue"] for row in rows] == [0, 1, 2]
    assert [row["max"] for row in rows] == [int(queue == sent["queue"]) for queue in range(3)]
    (read,) = sparrow("consume", name, "--from", "first", "--count", "1", "--format", "json").splitlines()
    message = json.loads(read)
    assert (message["body"], message["tags"], message["properties"]["p"]) == ("größer", "t", "ü")
    assert message["message_id"] == sent["message_id"]

    assert sparrow("topic", "delete", name) == f"{name} deleted\n"
    until_sync(lambda: name not in sparrow("topic", "list").splitlines())
    assert name in sparrow.fails("topic", "route", name)


def test_the_cluster_is_listed(sparrow: Sparrow, cluster: ApacheCluster | LocalCluster) -> None:
    (row,) = sparrow.rows("cluster", "list")
    found = (row["cluster"], row["broker"], row["id"], row["address"])
    assert found == ("DefaultCluster", "broker-a", 0, cluster.broker_address)


def test_the_progress_of_a_java_group(
    sparrow: Sparrow, cluster: ApacheCluster | LocalCluster, driver: JavaDriver, name: str
) -> None:
    sparrow("topic", "create", name, "--queues", "2")
    group = f"{name}_group"
    with driver.producer(cluster.namesrv, f"{name}_p") as producer:
        producer.send([Message(name, b"%d" % number) for number in range(10)])
        with driver.consumer(cluster.namesrv, group, {name: "*"}) as consumer:
            consumer.wait(10)
        producer.send([Message(name, b"%d" % number) for number in range(6)])
    assert group in sparrow("group", "list").splitlines()
    rows = sparrow.rows("group", "progress", group, "--topic", name)
    assert sum(row["broker_offset"] for row in rows) == 16
    assert sum(row["consumer_offset"] for row in rows) == 10
    assert sum(row["lag"] for row in rows) == 6
