"""`sparrow topic`, `send`, `consume`, `request`, `trace`, `cluster`, `group`: Apache's servers and ours."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.interop.apache import ApacheCluster
from tests.interop.driver import JavaDriver
from tests.support import until_sync
from typer.testing import CliRunner

from sparrowmq import Producer, ProducerSettings
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


def test_what_a_cluster_does_now(
    sparrow: Sparrow, cluster: ApacheCluster | LocalCluster, driver: JavaDriver, name: str
) -> None:
    """`top` and `group lag`: true lag, also where a broker tells offset 0 of what was never committed."""
    sparrow("topic", "create", name, "--queues", "1")
    group = f"{name}_group"
    with driver.producer(cluster.namesrv, f"{name}_p") as producer:
        producer.send([Message(name, b"%d" % number) for number in range(10)])
        with driver.consumer(cluster.namesrv, group, {name: "*"}) as consumer:
            consumer.wait(10)
        producer.send([Message(name, b"%d" % number) for number in range(6)])
    (row,) = sparrow.rows("group", "lag", group)
    assert (row["lag_messages"], row["unknown_queues"]) == (6, 0)
    assert row["lag_seconds"] > 0
    (found,) = sparrow.rows("top", "--interval", "0.2")
    (broker,) = found["brokers"]
    assert (broker["broker"], broker["error"]) == ("broker-a", None)
    assert broker["stored_per_second"] is not None and broker["disk_percent"] is not None
    (topic,) = (one for one in found["topics"] if one["topic"] == name)
    assert (topic["groups"], topic["stored_per_second"]) == (1, 0.0)
    (same,) = (one for one in found["groups"] if one["group"] == group)
    assert same["lag_messages"] == 6


def test_every_way_of_sending(
    sparrow: Sparrow, cluster: ApacheCluster | LocalCluster, driver: JavaDriver, name: str, tmp_path: Path
) -> None:
    sparrow("topic", "create", name, "--queues", "4")
    lines = tmp_path / "lines"
    lines.write_text("".join(f"{number}\n" for number in range(20)))
    assert sparrow("send", name, "--file", str(lines), "--hash-key", "order-1") == f"20 sent to {name}\n"
    sparrow("send", name, "--file", str(lines), "--rate", "500", "--tags", "paced")
    sparrow("send", name, "by level", "--delay-level", "1")
    sparrow("send", name, "after", "--delay", "1")
    sparrow("send", name, "at", "--at", "2020-05-01T12:00")
    (sent,) = sparrow.rows("send", name, "found", "--tags", "t", "--keys", f"{name}_a {name}_b")
    until_sync(lambda: len(driver.dump(cluster.namesrv, name)) == 44)
    found = driver.dump(cluster.namesrv, name)
    ordered = [one for one in found if one.queue_id == 2 and one.tags is None and one.body.isdigit()]
    assert [int(one.body) for one in ordered] == list(range(20))
    assert sorted(int(one.body) for one in found if one.tags == "paced") == list(range(20))
    assert {b"by level", b"after", b"at"} <= {one.body for one in found}
    until_sync(lambda: sparrow.rows("message", "query", name, f"{name}_b"))
    for command in (
        ("query", name, f"{name}_a"),
        ("get", name, sent["message_id"]),
        ("get", name, sent["offset_message_id"]),
    ):
        (row,) = sparrow.rows("message", *command)
        assert (row["body"], row["tags"], row["keys"]) == ("found", "t", [f"{name}_a", f"{name}_b"])


def test_requests_are_answered_by_java_and_answer_java(
    sparrow: Sparrow, cluster: ApacheCluster | LocalCluster, driver: JavaDriver, name: str
) -> None:
    namesrv = cluster.namesrv
    for topic in (name, f"{name}_2"):
        sparrow("topic", "create", topic, "--queues", "1")
    served = driver.call("Exchanges.serve", namesrv=namesrv, group=f"{name}_s", topic=name)
    try:
        assert sparrow("request", name, "ping", "--timeout", "30") == "re: ping\n"
    finally:
        driver.call("Exchanges.stop", handle=served)
    command = [sys.executable, "-m", "sparrowmq.cli.main", "serve", f"{name}_2", "--count", "1"]
    options = ["--group", f"{name}_t", "--namesrv", namesrv, "--", "tr", "a-z", "A-Z"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as server:
        try:
            asks = {"namesrv": namesrv, "group": f"{name}_r", "topic": f"{name}_2"}
            assert driver.call("Exchanges.ask", **asks, texts=["ping"]) == ["PING"]
            assert server.communicate(timeout=30)[0] == "1 answered\n"
        finally:
            server.kill()


def test_the_way_of_a_message(sparrow: Sparrow, cluster: ApacheCluster | LocalCluster, name: str) -> None:
    sparrow("topic", "create", name, "--queues", "1")
    settings = ProducerSettings(namesrv=cluster.namesrv, trace=True)
    with Producer(f"{name}_p", settings=settings) as producer:
        sent = producer.send(Message(name, b"x", tags="B", keys=f"{name}_k")).message_id
    until_sync(lambda: CliRunner().invoke(app, ["trace", sent, "--namesrv", cluster.namesrv]).exit_code == 0)
    (row,) = sparrow.rows("message", "trace", f"{name}_k")
    assert (row["record"], row["group"], row["topic"], row["tags"]) == ("Pub", f"{name}_p", name, "B")
    assert "no trace of" in sparrow.fails("trace", "0" * 32)


def test_what_operators_do_without_a_coordinator(
    sparrow: Sparrow, cluster: ApacheCluster | LocalCluster, name: str
) -> None:
    sparrow("topic", "create", name, "--queues", "2")
    (made,) = sparrow.rows("topic", "perm", name, "4")
    assert made == {"topic": name, "perm": 4, "brokers": ["broker-a"]}
    until_sync(lambda: sparrow.rows("topic", "route", name)[0]["perm"] == 4)
    sparrow("topic", "perm", name, "6")
    sparrow("topic", "order", name, "broker-a=2")
    assert sparrow.rows("topic", "order", name) == [{"topic": name, "queues": {"broker-a": 2}}]
    sparrow("topic", "order", name, "--clear")
    sparrow("kv", "put", name, "key", "value")
    assert sparrow.rows("kv", "list", name) == [{"key": "value"}]
    sparrow("kv", "delete", name, "key")

    (found,) = sparrow.rows("broker", "config", "get", "broker-a")
    kept = found["fileReservedTime"]
    assert sparrow.rows("broker", "config", "set", "broker-a", "fileReservedTime=71") == [
        {"fileReservedTime": "71"}
    ]
    sparrow("broker", "config", "set", "broker-a", f"fileReservedTime={kept}")
    assert sparrow.rows("broker", "clean", "broker-a")[0]["cleaned"] == ["files", "queues", "topics"]
    (spent,) = sparrow.rows("broker", "ping", "broker-a", "--count", "2")
    assert spent["sent"] == 2

    sparrow("group", "create", f"{name}_g", "--retries", "3")
    (config,) = sparrow.rows("group", "config", f"{name}_g")
    assert (config["broker"], config["retryMaxTimes"]) == ("broker-a", 3)
    (sent,) = sparrow.rows("send", name, "body", "--tags", "TagA")
    rows = sparrow.rows("message", "entries", name, "broker-a", str(sent["queue"]))
    assert [(row["offset"], row["tags_code"]) for row in rows] == [(sent["offset"], 2598919)]
    exported = [json.loads(line) for line in sparrow("cluster", "export").splitlines()]
    assert {row["kind"] for row in exported} == {"broker", "topic", "group"}
    assert any(row.get("topicName") == name for row in exported)
