"""Replication with Apache's brokers: its slave on our master, our slave on its master, readers of both."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from tests.interop.apache import NEW, OLD, PATIENT, ApacheBroker, ApacheNameServer, Release, ask
from tests.interop.driver import JavaDriver, JavaError
from tests.interop.ours import OurClients
from tests.support import expect_all, until_sync

from sparrowmq import Admin, Producer
from sparrowmq.core.message import Message
from sparrowmq.core.results import SendStatus
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.interop
LONG: Final = os.environ.get("SPARROW_TEST_TIER") == "long"
RELEASES = pytest.mark.parametrize(
    "release", [NEW, OLD] if LONG else [NEW], ids=["new", "old"] if LONG else ["new"]
)
FILE_BYTES = 1 << 20
SIZES = {"mappedFileSizeCommitLog": FILE_BYTES, "mappedFileSizeConsumeQueue": 6_000_000}


def max_offset(address: str, topic: str) -> int:
    """The end of queue 0 at a broker; -1 while it does not know it."""
    where = {"topic": topic, "queueId": "0"}
    return int(ask(address, Command(RequestCode.GET_MAX_OFFSET, ext=where)).ext.get("offset", -1))


def knows(address: str, topic: str) -> bool:
    """Whether a broker has the topic in its table."""
    return f'"{topic}"'.encode() in ask(address, Command(RequestCode.GET_ALL_TOPIC_CONFIG)).body


def send(namesrv: str, topic: str, start: int, count: int) -> set[SendStatus]:
    """Numbered messages of 3 KB, so that a few hundred of them fill a file; the statuses they got."""
    with Producer(f"{topic}_p", namesrv=namesrv) as producer:
        return {
            producer.send(Message(topic, b"%05d" % number + bytes(3000), tags="t")).status
            for number in range(start, start + count)
        }


def wanted(count: int) -> list[bytes]:
    return [b"%05d" % number for number in range(count)]


def log_of(directory: Path, end: int) -> bytes:
    """The first bytes of a store's log."""
    return b"".join(path.read_bytes() for path in sorted((directory / "commitlog").iterdir()))[:end]


def log_end(address: str) -> int:
    body = ask(address, Command(RequestCode.GET_BROKER_RUNTIME_INFO)).body.decode()
    return int(body.split('"commitLogMaxOffset":"')[1].split('"')[0])


@contextmanager
def stopped(server: ApacheNameServer | ApacheBroker) -> Iterator[None]:
    """Ended at the end."""
    try:
        yield
    finally:
        server.kill()


def read_all(clients: JavaDriver | OurClients, namesrv: str, group: str, topic: str, count: int) -> None:
    with clients.consumer(namesrv, group, {topic: "*"}) as consumer:
        expect_all(lambda: [one.body[:5] for one in consumer.received()], wanted(count))


@RELEASES
@pytest.mark.proves("broker:12.2", "broker:12.3")
def test_apaches_slave_on_our_master(
    release: Release, tmp_path: Path, driver: JavaDriver, our_clients: OurClients, name: str
) -> None:
    with ExitStack() as stack:
        master = stack.enter_context(
            LocalCluster(
                tmp_path / "ours",
                mapped_file_size_commit_log=FILE_BYTES,
                broker_role="SYNC_MASTER",
                slave_timeout=10_000,
            )
        )
        master.create_topic(name, 1)
        assert send(master.namesrv, name, 0, 100) == {SendStatus.SLAVE_NOT_AVAILABLE}
        slave = ApacheBroker(
            tmp_path,
            master.namesrv,
            settings={**PATIENT, **SIZES, "brokerId": 1, "brokerRole": "SLAVE", "slaveReadEnable": "true"},
            release=release,
        )
        stack.enter_context(stopped(slave))
        slave.start()
        slave.ready()
        driver.admin(master.namesrv).create_topic(slave.address, name, 1)
        until_sync(lambda: max_offset(slave.address, name) == 100)
        assert send(master.namesrv, name, 100, 600) == {SendStatus.SEND_OK}
        until_sync(lambda: max_offset(slave.address, name) == 700)
        end = log_end(master.broker_address)
        assert end > FILE_BYTES, "more than one file was copied"
        with our_clients.consumer(master.namesrv, f"{name}_c", {name: "*"}) as consumer:
            consumer.wait(700)
        master.stop_broker()
        read_all(driver, master.namesrv, f"{name}_java", name, 700)
        read_all(our_clients, master.namesrv, f"{name}_ours", name, 700)
        assert slave.store is not None
        assert log_of(slave.store, end) == log_of(tmp_path / "ours", end)


@RELEASES
@pytest.mark.proves("broker:12.2", "broker:12.4")
def test_our_slave_on_apaches_master(
    release: Release, tmp_path: Path, driver: JavaDriver, our_clients: OurClients, name: str
) -> None:
    settings: dict[str, Any] = {**PATIENT, **SIZES, "brokerIP2": "127.0.0.1", "brokerRole": "SYNC_MASTER"}
    settings["slaveTimeout"] = 1000
    if release is NEW:
        settings["inSyncReplicas"] = 2
    with ExitStack() as stack:
        names = ApacheNameServer(tmp_path, release=release)
        stack.enter_context(stopped(names))
        names.start()
        names.ready()
        master = ApacheBroker(tmp_path, names.address, settings=settings, release=release)
        stack.enter_context(stopped(master))
        master.start()
        master.ready()
        driver.admin(names.address).create_topic(master.address, name, 1)
        slave = stack.enter_context(
            LocalCluster(
                tmp_path / "ours",
                namesrv_addr=names.address,
                broker_role="SLAVE",
                broker_id=1,
                slave_read_enable=True,
                mapped_file_size_commit_log=FILE_BYTES,
            )
        )
        until_sync(lambda: knows(slave.broker_address, name))
        until_sync(lambda: send(names.address, f"{name}_first", 0, 1) == {SendStatus.SEND_OK})
        assert send(names.address, name, 0, 700) == {SendStatus.SEND_OK}
        assert max_offset(slave.broker_address, name) == 700
        end = log_end(master.address)
        assert end > FILE_BYTES, "more than one file was copied"
        with our_clients.consumer(names.address, f"{name}_c", {name: "*"}) as consumer:
            consumer.wait(700)
        until_sync(lambda: log_end(slave.broker_address) >= end)
        master.stop()
        brokers = driver.admin(names.address).call
        until_sync(lambda: brokers("cluster")["brokerAddrTable"]["broker-a"]["brokerAddrs"].keys() == {"1"})
        read_all(driver, names.address, f"{name}_java", name, 700)
        read_all(our_clients, names.address, f"{name}_ours", name, 700)
        assert master.store is not None
        assert log_of(tmp_path / "ours", end) == log_of(master.store, end)


def test_javas_clients_go_on_at_a_slave_that_became_master(
    tmp_path: Path, driver: JavaDriver, name: str
) -> None:
    with ExitStack() as stack:
        common: dict[str, Any] = {"mapped_file_size_commit_log": FILE_BYTES, "slave_timeout": 10_000}
        master = stack.enter_context(LocalCluster(tmp_path / "a", broker_role="SYNC_MASTER", **common))
        master.create_topic(name, 1)
        slave = stack.enter_context(
            LocalCluster(
                tmp_path / "b", namesrv_addr=master.namesrv, broker_role="SLAVE", broker_id=1, **common
            )
        )
        until_sync(lambda: send(master.namesrv, name, 0, 1) == {SendStatus.SEND_OK})
        consumer = stack.enter_context(driver.consumer(master.namesrv, f"{name}_c", {name: "*"}))
        producer = stack.enter_context(driver.producer(master.namesrv, f"{name}_j"))

        def sent(number: int) -> bool:
            """Whether Java's producer says so; it learns of the new master with its next route."""
            try:
                [one] = producer.send([Message(name, b"%05d" % number)])
            except JavaError:
                return False
            return one.status == "SEND_OK"

        for number in range(1, 50):
            assert sent(number)
        with Admin(namesrv=master.namesrv) as admin:
            plan = admin.replicas.promote(slave.broker_address)
        assert (plan.lost_bytes, plan.doubts) == (0, ())
        for number in range(50, 100):
            until_sync(lambda number=number: sent(number))
        assert max_offset(slave.broker_address, name) >= 100
        # Messages consumed in the last seconds come again: offsets are copied every 10 s.
        until_sync(lambda: {one.body[:5] for one in consumer.received()} == set(wanted(100)))
