"""`sparrow dlq` on Apache's broker and ours: what is sent again reaches Java's consumers of the group."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.interop.apache import ApacheCluster
from tests.interop.driver import JavaDriver
from tests.interop.ours import OurClients
from tests.support import until_sync
from typer.testing import CliRunner

from sparrowmq import aio
from sparrowmq.cli.main import app
from sparrowmq.client.base.settings import ConsumerSettings
from sparrowmq.core.message import Message, ReceivedMessage
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.interop


def dlq(namesrv: str, *arguments: str) -> list[Any]:
    """What a command that must succeed prints: its JSON values, or its lines."""
    done = CliRunner().invoke(app, ["dlq", *arguments, "--namesrv", namesrv])
    assert done.exit_code == 0, (arguments, done.output)
    return [json.loads(line) if line.startswith("{") else line for line in done.stdout.splitlines()]


@pytest.mark.parametrize("servers", ["apache", "ours"])
@pytest.mark.proves("broker:7")
def test_dead_letters_are_listed_and_sent_again(
    servers: str, request: pytest.FixtureRequest, driver: JavaDriver, our_clients: OurClients, name: str
) -> None:
    cluster: ApacheCluster | LocalCluster = request.getfixturevalue(servers)
    driver.admin(cluster.namesrv).create_topic(cluster.broker_address, name, 1)
    group = f"{name}_g"
    messages = [Message(name, b"one", tags="T", keys=["k"], properties={"mine": "1"}), Message(name, b"two")]
    with our_clients.producer(cluster.namesrv, f"{name}_p") as producer:
        one, _ = producer.send(messages)

    def fail(message: ReceivedMessage) -> None:
        raise ValueError("it fails")

    settings = ConsumerSettings(consume_from="first", max_reconsume_times=0)
    consumer = aio.PushConsumer(group, namesrv=cluster.namesrv, settings=settings)
    consumer.subscribe(name, "*", fail)
    our_clients.run(consumer.start())
    try:
        until_sync(lambda: {"group": group, "messages": 2} in dlq(cluster.namesrv, "list", "--json"))
    finally:
        our_clients.run(consumer.close())
    letters = {letter["message_id"]: letter for letter in dlq(cluster.namesrv, "show", group, "--json")}
    assert (letters[one.msg_id]["topic"], letters[one.msg_id]["keys"]) == (name, ["k"])
    assert len(dlq(cluster.namesrv, "export", group)) == 2
    assert dlq(cluster.namesrv, "resend", group, one.msg_id) == [f"1 sent again to group {group}"]
    with driver.consumer(cluster.namesrv, group, {name: "*"}) as java:
        (got,) = java.wait(1)
    assert (got.topic, got.body, got.tags, got.keys) == (name, b"one", "T", "k")
    assert (got.properties["mine"], got.msg_id, got.reconsume_times) == ("1", one.msg_id, 0)
