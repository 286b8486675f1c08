"""A broker changes or stands still under Java's clients: no message is early, and sends go on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop.driver import JavaDriver
from tests.support import until_sync

from sparrowmq.runtime.child import ChildServers
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.interop
TRY_MS = 2000
"""Far above what a send takes at a broker that runs."""
SENDS = 8


def test_a_delayed_message_is_not_early_when_its_level_gets_shorter(
    driver: JavaDriver, name: str, tmp_path: Path
) -> None:
    """It waits as long as its level said when it was sent; one that is sent later waits as long as it says
    then, and so does a level that gets longer.
    """

    def send(cluster: LocalCluster, *bodies: str) -> None:
        messages = [{"body": body, "level": level} for level, body in enumerate(bodies, 1)]
        driver.call("Delays.send", namesrv=cluster.namesrv, topic=name, messages=messages)

    with LocalCluster(tmp_path, message_delay_level="1s 6s") as first:
        driver.admin(first.namesrv).create_topic(first.broker_address, name, 1)
        send(first, "1000", "6000")
    with LocalCluster(tmp_path, message_delay_level="3s 2s") as second:
        send(second, "3000", "2000")
        until_sync(lambda: len(driver.dump(second.namesrv, name)) == 4)
        for message in driver.dump(second.namesrv, name):
            waited = message.store_timestamp - message.born_timestamp
            assert waited >= int(message.body), message.body


@pytest.fixture
def two_brokers(tmp_path: Path) -> Iterator[tuple[LocalCluster, ChildServers]]:
    """Our servers with `broker-a`, and `broker-b` in a process of its own."""
    with LocalCluster() as cluster:
        settings = {"brokerName": "broker-b", "listenPort": "0", "namesrvAddr": cluster.namesrv}
        with ChildServers({**settings, "storePathRootDir": str(tmp_path / "b")}) as child:
            yield cluster, child


def test_sends_go_on_while_one_of_two_brokers_is_frozen(
    driver: JavaDriver, two_brokers: tuple[LocalCluster, ChildServers], name: str
) -> None:
    """Java's producer must have a time limit for each try (`sendMsgMaxTimeoutPerRequest`): without it, the
    client waits all of `sendMsgTimeout` for the frozen broker, and the send fails although the other broker
    would take it.
    """
    cluster, child = two_brokers
    admin = driver.admin(cluster.namesrv)
    for address in (cluster.broker_address, child.broker_address):
        admin.call("create_topic", broker_addr=address, topic=name, queues=2)
    until_sync(lambda: admin.queues(name) == 4)
    handle = driver.call(
        "Faults.start", namesrv=cluster.namesrv, group=f"{name}_p", try_ms=TRY_MS, plain=True
    )
    try:
        with driver.consumer(cluster.namesrv, f"{name}_c", {name: "*"}) as consumer:

            def send(count: int) -> list[str]:
                taken: list[str] = driver.call("Faults.send", handle=handle, topic=name, count=count)
                return taken

            taken = send(SENDS)
            assert set(taken) == {"broker-a", "broker-b"}
            consumer.wait(SENDS)
            os.kill(child.pid, signal.SIGSTOP)
            try:
                assert send(SENDS) == ["broker-a"] * SENDS
                got = [one.broker for one in consumer.wait(2 * SENDS)]
                assert got.count("broker-a") >= taken.count("broker-a") + SENDS
            finally:
                os.kill(child.pid, signal.SIGCONT)
            until_sync(lambda: "broker-b" in send(2))
    finally:
        driver.call("Faults.stop", handle=handle)
