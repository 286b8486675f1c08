"""Moving, cloning and questioning groups of Java's consumers and ours, on our broker and Apache's."""

from __future__ import annotations

import json
import os
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.interop.apache import ApacheCluster
from tests.interop.driver import JavaDriver
from tests.interop.ours import OurClients
from tests.support import until_sync
from typer.testing import CliRunner

import sparrowmq as mq
from sparrowmq.cli.main import app
from sparrowmq.core.message import Message, MessageQueue
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.interop

FAR = timedelta(hours=1)


@pytest.fixture(params=["apache", "ours"])
def cluster(request: pytest.FixtureRequest) -> ApacheCluster | LocalCluster:
    """The servers that keep offsets."""
    found: ApacheCluster | LocalCluster = request.getfixturevalue(request.param)
    return found


def consumed(
    cluster: ApacheCluster | LocalCluster, clients: JavaDriver | OurClients, name: str
) -> MessageQueue:
    """Have group `name` consume 6 messages of a topic with one queue, and leave."""
    with mq.Admin(namesrv=cluster.namesrv) as admin:
        admin.topics.create(name, 1)
        (queue,) = (status.queue for status in admin.topics.status(name))
    with mq.Producer("movers", namesrv=cluster.namesrv) as producer:
        for number in range(6):
            producer.send(Message(name, b"%d" % number))
    consume(cluster, clients, name, queue)
    return queue


def consume(
    cluster: ApacheCluster | LocalCluster, clients: JavaDriver | OurClients, name: str, queue: MessageQueue
) -> None:
    """Let a member come, consume 6 messages, tell so when it is asked, and go; its offset is stored."""

    def at(offset: int) -> bool:
        (member,) = admin.groups.status(name)
        return member.info is not None and member.info.queues[queue].commit_offset == offset

    with mq.Admin(namesrv=cluster.namesrv) as admin:
        with clients.consumer(cluster.namesrv, name, {name: "*"}) as consumer:
            assert sorted(message.body for message in consumer.wait(6)) == [b"%d" % n for n in range(6)]
            until_sync(lambda: at(6))
        until_sync(lambda: admin.groups.committed(name, queue) == 6)


@pytest.mark.proves("client:F-04")
@pytest.mark.parametrize("clients", ["driver", "our_clients"])
def test_a_group_that_is_offline_is_moved_by_time(
    request: pytest.FixtureRequest, cluster: ApacheCluster | LocalCluster, clients: str, name: str
) -> None:
    queue = consumed(cluster, request.getfixturevalue(clients), name)
    with mq.Admin(namesrv=cluster.namesrv) as admin:
        assert admin.groups.reset(name, name, "first") == {queue: 0}
        consume(cluster, request.getfixturevalue(clients), name, queue)
        assert admin.groups.reset(name, name, datetime.now(UTC) - FAR) == {queue: 0}
        assert admin.groups.reset(name, name, "last") == {queue: 6}


def test_offsets_are_cloned(
    request: pytest.FixtureRequest, cluster: ApacheCluster | LocalCluster, name: str
) -> None:
    queue = consumed(cluster, request.getfixturevalue("our_clients"), name)
    with mq.Admin(namesrv=cluster.namesrv) as admin:
        assert admin.groups.clone_offsets(name, f"{name}_2", name) == {queue: 6}
        assert admin.groups.committed(f"{name}_2", queue) == 6


@pytest.mark.parametrize("clients", ["driver", "our_clients"])
def test_members_are_named_with_what_they_subscribe_to(
    request: pytest.FixtureRequest, cluster: ApacheCluster | LocalCluster, clients: str, name: str
) -> None:
    with mq.Admin(namesrv=cluster.namesrv) as admin:
        admin.topics.create(name, 1)
        with request.getfixturevalue(clients).consumer(cluster.namesrv, name, {name: "a"}):
            until_sync(lambda: admin.groups.connections(name))
            found = admin.groups.connections(name)
            assert found is not None
            assert found.subscriptions[name].expression == "a"
            assert [member.language for member in found.members] == [
                {"driver": "JAVA", "our_clients": "PYTHON"}[clients]
            ]
        until_sync(lambda: admin.groups.connections(name) is None)


def test_groups_and_values(cluster: ApacheCluster | LocalCluster, name: str) -> None:
    with mq.Admin(namesrv=cluster.namesrv) as admin:
        admin.groups.create(name, retries=3)
        assert [config.retry_max_times for config in admin.groups.config(name).values()] == [3]
        admin.groups.delete(name)
        assert admin.groups.config(name) == {}
        admin.name_servers.set_value("space", name, "1")
        assert admin.name_servers.value("space", name) == "1"
        assert admin.name_servers.values("space")[name] == "1"
        admin.name_servers.delete_value("space", name)
        assert admin.name_servers.value("space", name) is None


def test_a_broker_takes_no_more_messages_for_a_while(
    cluster: ApacheCluster | LocalCluster, name: str
) -> None:
    with mq.Admin(namesrv=cluster.namesrv) as admin:
        admin.topics.create(name, 1)
        (broker,) = admin.brokers.list()
        assert admin.name_servers.wipe_write_perm(broker.broker_name) > 0
        try:
            assert [queues.perm for queues in admin.topics.route(name).queues] == [4]
        finally:
            assert admin.name_servers.add_write_perm(broker.broker_name) > 0
        assert [queues.perm for queues in admin.topics.route(name).queues] == [6]
        assert admin.topics.set_perm(name, 4) == [broker.broker_name]
        until_sync(lambda: [queues.perm for queues in admin.topics.route(name).queues] == [4])


def mqadmin(driver: JavaDriver, cluster: ApacheCluster | LocalCluster, *arguments: str) -> str:
    """What a command of mqadmin prints."""
    printed: str = driver.call("Lookups.mqadmin", arguments=[*arguments, "-n", cluster.namesrv])
    return printed


@pytest.mark.proves("client:F-02", "client:F-04", "client:A-89", "client:D-81")
def test_mqadmin_sees_and_moves_our_consumers(
    driver: JavaDriver, our_clients: OurClients, cluster: ApacheCluster | LocalCluster, name: str
) -> None:
    with mq.Admin(namesrv=cluster.namesrv) as admin:
        admin.topics.create(name, 1)
    with mq.Producer("movers", namesrv=cluster.namesrv) as producer:
        for number in range(6):
            producer.send(Message(name, b"%d" % number))
    with our_clients.consumer(cluster.namesrv, name, {name: "*"}) as consumer:
        consumer.wait(6)
        who = mqadmin(driver, cluster, "consumerConnection", "-g", name)
        assert "PYTHON" in who and name in who and "CONSUME_PASSIVELY" in who
        mine = f"@{os.getpid()}#"
        assert mine in who and mine in mqadmin(driver, cluster, "consumerStatus", "-g", name)

        def lag() -> list[str]:
            lines = mqadmin(driver, cluster, "consumerProgress", "-g", name, "-t", name).splitlines()
            return [line for line in lines if line.startswith("Consume Diff Total")]

        until_sync(lambda: lag() == ["Consume Diff Total: 0"])
        moved = mqadmin(driver, cluster, "resetOffsetByTime", "-g", name, "-t", name, "-s", "0")
        assert name in moved
        with mq.Producer("movers", namesrv=cluster.namesrv) as producer:
            producer.send(Message(name, b"6"))  # ends a pull that Apache's broker holds, and does not answer

        def came() -> Counter[bytes]:
            return Counter(message.body for message in consumer.received())

        again = [b"%d" % number for number in range(6)]
        until_sync(lambda: [came()[body] for body in again] == [2] * 6 and came()[b"6"])
        until_sync(lambda: lag() == ["Consume Diff Total: 0"])


def cli(cluster: ApacheCluster | LocalCluster, *arguments: str, status: int = 0) -> str:
    """What `sparrow group …` prints."""
    done = CliRunner().invoke(app, ["group", *arguments, "--namesrv", cluster.namesrv])
    assert done.exit_code == status, (arguments, done.output)
    return done.stdout if status == 0 else done.stderr


def test_the_command_line_moves_groups(
    request: pytest.FixtureRequest, cluster: ApacheCluster | LocalCluster, name: str
) -> None:
    consumed(cluster, request.getfixturevalue("our_clients"), name)
    target = f"{name}_2"
    assert cli(cluster, "reset", name, "--topic", name, "--to", "first").split()[-4:] == [
        name,
        "broker-a",
        "0",
        "0",
    ]
    back = cli(cluster, "reset", name, "--topic", name, "--to", "last", "--only-back")
    assert back == f"no queue of {name} was moved\n", "it would have gone forward"
    (place,) = map(json.loads, cli(cluster, "progress", name, "--topic", name, "--json").splitlines())
    assert (place["consumer_offset"], place["lag"]) == (0, 6)
    assert cli(cluster, "reset", name, "--topic", name, "--to", "2100-01-01").split()[-1] == "6"
    assert cli(cluster, "clone", name, target, "--topic", name).split()[-1] == "6"
    assert target in cli(cluster, "list").splitlines()
    assert "no member of group" in cli(cluster, "status", target, status=1)
    assert "no member of group" in cli(cluster, "connections", target, status=1)
    assert cli(cluster, "delete", target) == f"{target} deleted\n"
    assert "no broker knows group" in cli(cluster, "progress", target, status=1)
    unknown = cli(cluster, "reset", target, "--topic", name, "--to", "first", status=1)
    assert f"Group {target}" in unknown and "not exist" in unknown
    assert f"group '{target}' has no offsets" in cli(cluster, "clone", target, name, status=1)
    assert "no broker serves topic" in cli(cluster, "reset", name, "--topic", "NoSuch", status=1)


def test_the_command_line_tells_what_members_do(
    request: pytest.FixtureRequest, cluster: ApacheCluster | LocalCluster, driver: JavaDriver, name: str
) -> None:
    queue = consumed(cluster, request.getfixturevalue("our_clients"), name)
    with driver.consumer(cluster.namesrv, name, {name: "a || b"}):
        until_sync(lambda: cli_rows(cluster, "status", name)[0]["queues"])
        (told,) = cli_rows(cluster, "status", name)
        assert [one["committed"] for one in told["queues"] if one["topic"] == name] == [6]
        stacks = cli(cluster, "status", name, "--stacks")
        assert "ConsumeMessage" in stacks or "PullMessageService" in stacks
        (found,) = cli_rows(cluster, "connections", name)
        assert [member["language"] for member in found["members"]] == ["JAVA"]
        assert found["subscriptions"][name] == "a || b"
        source = f"{name}_2"
        cli(cluster, "clone", name, source)
        assert "stop them before" in cli(cluster, "clone", source, name, status=1)
        assert "stop them before" in cli(cluster, "clone", source, name, "--topic", queue.topic, status=1)
        assert "source and target are the same group" in cli(cluster, "clone", name, name, status=1)


def cli_rows(cluster: ApacheCluster | LocalCluster, *arguments: str) -> list[dict[str, Any]]:
    """Rows of a command that may not have anything to say yet."""
    done = CliRunner().invoke(app, ["group", *arguments, "--json", "--namesrv", cluster.namesrv])
    return [json.loads(line) for line in done.stdout.splitlines()] or [{"queues": []}]
