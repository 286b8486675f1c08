"""The coordinator's services at Apache's broker, and what they see of Java's members at both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.coordinator.cluster.asked import observed
from tests.coordinator.services.watched import Once, step
from tests.interop.apache import ApacheCluster
from tests.interop.driver import JavaDriver
from tests.support import run, sqlite_url, until_sync

import sparrowmq as mq
from sparrowmq.coordinator.alarms import table
from sparrowmq.coordinator.alarms.machine import AlarmState as AlarmState
from sparrowmq.coordinator.alarms.outbox import Channels
from sparrowmq.coordinator.cluster.view import ObservedCluster
from sparrowmq.coordinator.database import migrate
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.records.audit import Actor
from sparrowmq.coordinator.services.brokers import drains
from sparrowmq.coordinator.services.brokers.broker_check import BrokerCheck
from sparrowmq.coordinator.services.brokers.drains import Drain, DrainState
from sparrowmq.coordinator.services.groups import handlers, roster
from sparrowmq.coordinator.services.groups.handlers import HandlerAlarm
from sparrowmq.coordinator.services.groups.inactive import InactiveSweep
from sparrowmq.coordinator.services.groups.plans import PlanCheck
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.interop

ANN = Actor("ann", "new disks")
SECONDS = 60.0


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    found = Database(sqlite_url(tmp_path / "c.db"))
    migrate.upgrade(found)
    yield found
    found.close()


def drain(database: Database, broker: str) -> Drain:
    with database.read() as connection:
        return drains.all_drains(connection)[broker]


@contextmanager
def given_back(namesrv: str, broker: str) -> Iterator[None]:
    """Whatever happens, others find the broker writable."""
    try:
        yield
    finally:

        async def restore() -> None:
            cluster = observed(namesrv)
            try:
                await cluster.set_permission(broker, 6)
            finally:
                await cluster.close()

        run(restore())


def test_apache_s_broker_is_checked_drained_and_given_back(
    apache: ApacheCluster, database: Database, name: str
) -> None:
    service = Once(apache.namesrv, lambda cluster: BrokerCheck(cluster, Channels()))
    group = f"{name}_c"

    def check() -> None:
        step(database, service, checks=1, settle_seconds=0)

    def perm() -> int:
        return admin.topics.route(name).queues[0].perm

    with mq.Admin(apache.namesrv) as admin:
        admin.topics.create(name, queues=1)
        admin.groups.create(group)
        (broker,) = {one.broker_name for one in admin.brokers.list()}
        queue = mq.MessageQueue(name, broker, 0)
        with mq.Producer(f"{name}_p", namesrv=apache.namesrv) as producer:
            for _ in range(3):
                producer.send(mq.Message(name, b"x"), queue=queue)
        admin.groups.commit(group, queue, 0)
        check()
        with database.read() as connection:
            (seen,) = drains.known(connection)
        assert (seen.broker, seen.error, seen.write_error) == (broker, "", "")
        with given_back(apache.namesrv, broker):
            with database.write() as connection:
                drains.ask(connection, broker, False, ANN)
            check()
            assert drain(database, broker).state is DrainState.REFUSED
            assert perm() == 6
            with database.write() as connection:
                drains.ask(connection, broker, True, ANN)
            check()
            assert drain(database, broker).state is DrainState.DRAINING
            assert drain(database, broker).left.groups[group] == 3
            until_sync(lambda: perm() == 4, SECONDS)
            with database.write() as connection:
                drains.cancel(connection, broker, ANN)
            check()
            assert drain(database, broker).state is DrainState.CANCELLED
            until_sync(lambda: perm() == 6, SECONDS)
        check()
        with database.read() as connection:
            assert table.search(connection, [AlarmState.FIRING]) == []


@pytest.mark.parametrize("servers", ["apache", "ours"])
def test_java_s_members_that_hang_or_fail_are_seen(
    servers: str, request: pytest.FixtureRequest, driver: JavaDriver, database: Database, name: str
) -> None:
    cluster: ApacheCluster | LocalCluster = request.getfixturevalue(servers)
    namesrv, group = cluster.namesrv, f"{name}_c"
    alarm: list[HandlerAlarm] = []

    def watch(view: ObservedCluster) -> HandlerAlarm:
        alarm[:] = alarm or [HandlerAlarm(view, Channels())]
        alarm[0]._view = view
        return alarm[0]

    service = Once(namesrv, watch)

    def firing() -> dict[str, str]:
        step(database, service, slow_seconds=1)
        with database.read() as connection:
            found = table.search(connection, [AlarmState.FIRING], group=group)
        return {one.rule: one.text for one in found}

    with mq.Admin(namesrv) as admin:
        admin.topics.create(name, queues=2)
        (broker,) = {one.broker_name for one in admin.brokers.list()}
    with mq.Producer(f"{name}_p", namesrv=namesrv) as producer:
        producer.send(mq.Message(name, b"hang"), queue=mq.MessageQueue(name, broker, 0))
        step(database, service)
        handle = driver.call("Stuck.start", namesrv=namesrv, group=group, topic=name)
        try:
            until_sync(lambda: handlers.SLOW in firing(), SECONDS)
            assert f"has the message at offset 0 of queue 0 of {name} on {broker}" in firing()[handlers.SLOW]
            step(database, Once(namesrv, lambda view: InactiveSweep(view, Channels())))
            with database.read() as connection:
                (seen,) = roster.read(connection, group)
            assert (seen.language, "stuck-" in seen.client_id) == ("JAVA", True)
            report = step(database, Once(namesrv, lambda view: PlanCheck(view, Channels())), hold_seconds=0)
            assert report.counts["failed"] == 0
            with database.read() as connection:
                rules = {one.rule for one in table.search(connection, [AlarmState.FIRING], group=group)}
            assert rules == {handlers.SLOW}
        finally:
            driver.call("Stuck.stop", handle=handle)


def test_dead_letters_of_java_s_members_are_counted(
    ours: LocalCluster, driver: JavaDriver, database: Database, name: str
) -> None:
    group = f"{name}_c"
    ours.create_topic(name, queues=1)
    service = Once(ours.namesrv, lambda view: HandlerAlarm(view, Channels()))
    handle = driver.call("Stuck.start", namesrv=ours.namesrv, group=group, topic=name)
    try:
        with mq.Producer(f"{name}_p", namesrv=ours.namesrv) as producer, mq.Admin(ours.namesrv) as admin:

            def dead() -> int:
                return next((one.messages for one in admin.dead_letters.groups() if one.group == group), 0)

            producer.send(mq.Message(name, b"fail"))
            until_sync(lambda: dead() == 1, SECONDS)
            step(database, service)
            producer.send(mq.Message(name, b"fail"))
            until_sync(lambda: dead() == 2, SECONDS)
        step(database, service)
        with database.read() as connection:
            (found,) = table.search(connection, [AlarmState.FIRING], rule=handlers.DEAD)
        assert found.text == f"1 messages of group {group} became dead letters"
    finally:
        driver.call("Stuck.stop", handle=handle)
