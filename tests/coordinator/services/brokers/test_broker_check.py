from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import update
from tests.coordinator.services.watched import MadeUp, step
from tests.support import about

from sparrowmq.coordinator.alarms import table
from sparrowmq.coordinator.alarms.machine import AlarmState as AlarmState
from sparrowmq.coordinator.alarms.outbox import Channels
from sparrowmq.coordinator.cluster.fleet import Backlog, FleetBroker
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.database.tables import drain as table_of_drains
from sparrowmq.coordinator.leases import table as leases
from sparrowmq.coordinator.records.audit import Actor, Search, search
from sparrowmq.coordinator.services.brokers import drains
from sparrowmq.coordinator.services.brokers.broker_check import BrokerCheck
from sparrowmq.coordinator.services.brokers.drains import Drain, DrainState
from sparrowmq.core.errors import BrokerError, CoordinatorError, LeaseLostError

A = FleetBroker("c", "a", 0, "h:1")
B = FleetBroker("c", "b", 0, "h:2")
SLAVE = FleetBroker("c", "a", 1, "h:3")
ANN = Actor("ann", "new disks")


@pytest.fixture
def cluster() -> MadeUp:
    found = MadeUp()
    found.there = [A, SLAVE, B]
    return found


def check(database: Database, cluster: MadeUp, **options: int) -> dict[str, int]:
    options = {"checks": 1, "settle_seconds": 0} | options
    return step(database, BrokerCheck(cluster, Channels()), **options).counts


def firing(database: Database) -> dict[str, str]:
    with database.read() as connection:
        return {f"{one.rule} {one.key}": one.text for one in table.search(connection, [AlarmState.FIRING])}


def drain(database: Database) -> Drain:
    with database.read() as connection:
        return drains.all_drains(connection)["a"]


def ask(database: Database, *, forced: bool = False) -> None:
    with database.write() as connection:
        drains.ask(connection, "a", forced, ANN)


def entries(database: Database) -> list[tuple[str, str, str]]:
    with database.read() as connection:
        found = search(connection, Search(kind="broker"))
    return [(one.actor, one.action, one.reason) for one in reversed(found)]


@pytest.mark.proves("pmq:4")
def test_silent_or_missing_brokers_fire_once_and_resolve(database: Database, cluster: MadeUp) -> None:
    assert check(database, cluster)["brokers"] == 3
    assert firing(database) == {}
    cluster.there = [replace(A, error="timed out"), SLAVE]
    assert check(database, cluster, checks=2)["broker-unreachable fired"] == 0
    assert check(database, cluster, checks=2)["broker-unreachable fired"] == 2
    assert check(database, cluster, checks=2)["broker-unreachable fired"] == 0
    assert firing(database) == {
        "broker-unreachable a 0": "the master of broker a at h:1 does not answer: timed out",
        "broker-unreachable b 0": "the master of broker b at h:2 does not answer: "
        "it is not registered at the name servers",
    }
    cluster.there = [A, B]
    check(database, cluster)
    assert list(firing(database)) == ["broker-unreachable a 1"]


def test_broker_that_refuses_the_coordinators_account_is_reported_so(
    database: Database, cluster: MadeUp
) -> None:
    error = str(BrokerError(16, "User:watch has no permission", address="h:1"))
    cluster.there = [replace(A, error=error), SLAVE, B]
    check(database, cluster, checks=1)
    text = firing(database)["broker-unreachable a 0"]
    assert "answers, but refuses the account of this coordinator" in text
    assert "grant the account Get on the cluster" in text and "does not answer" not in text
    assert error in text


def test_two_brokers_with_one_name_fire(database: Database, cluster: MadeUp) -> None:
    cluster.there = [replace(A, rival="h:9"), SLAVE, B]
    assert check(database, cluster)["broker-same-name fired"] == 1
    assert firing(database) == {
        "broker-same-name a 0": "two brokers claim the name a and the id 0: h:1 and h:9; clients see one of "
        "them at a time. Give one another brokerName or brokerId"
    }
    cluster.there = [A, SLAVE, B]
    assert check(database, cluster)["broker-same-name resolved"] == 1


def test_masters_are_test_written_and_refusals_fire(database: Database, cluster: MadeUp) -> None:
    cluster.failing["a"] = "disk full"
    cluster.permissions["b"] = 4
    assert check(database, cluster)["broker-not-writable fired"] == 2
    assert firing(database) == {
        "broker-not-writable a": "the broker a does not accept messages: disk full",
        "broker-not-writable b": "the broker b does not accept messages: "
        "its brokerPermission is 4; writing requires 2",
    }
    cluster.failing, cluster.permissions = {}, {}
    assert check(database, cluster)["broker-not-writable resolved"] == 2
    assert sorted(cluster.written) == ["a", "b"]
    check(database, cluster, canary=0)
    assert len(cluster.written) == 2


def test_alarms_of_brokers_stay_without_name_servers(database: Database, cluster: MadeUp) -> None:
    cluster.there = [replace(A, error="gone")]
    check(database, cluster)
    cluster.failing["*"] = "no name server answers"
    with pytest.raises(CoordinatorError, check=about(what="name servers")):
        check(database, cluster)
    assert list(firing(database)) == ["broker-unreachable name servers", "broker-unreachable a 0"]
    cluster.failing, cluster.there = {}, [A]
    assert check(database, cluster)["broker-unreachable resolved"] == 2


def test_broker_is_drained_removed_only_at_zero_and_forgotten_when_it_stops(
    database: Database, cluster: MadeUp
) -> None:
    check(database, cluster)
    cluster.permissions["a"] = 7
    cluster.left = Backlog({"g": 3, "h": 2})
    ask(database)
    assert check(database, cluster)["drains"] == 1
    found = drain(database)
    assert (found.state, found.permission, cluster.permissions["a"]) == (DrainState.DRAINING, 7, 4)
    assert (dict(found.left.groups), found.message) == (
        {"g": 3, "h": 2},
        "5 messages that 2 groups have not yet read",
    )
    cluster.permissions["a"] = 6  # it was started anew
    cluster.left, cluster.there = Backlog(), [replace(A, delayed=1), SLAVE, B]
    check(database, cluster)
    assert (drain(database).state, cluster.permissions["a"]) == (DrainState.DRAINING, 4)
    assert drain(database).message == "1 delayed messages"
    cluster.there = [A, SLAVE, B]
    check(database, cluster, settle_seconds=60)
    assert drain(database).state is DrainState.DRAINING
    check(database, cluster)
    assert drain(database).state is DrainState.DRAINED
    with database.write() as connection:
        drains.remove(connection, "a", ANN)
    cluster.left = Backlog({"g": 1})  # somebody who did not know yet
    check(database, cluster)
    assert drain(database).state is DrainState.DRAINING
    cluster.left = Backlog()
    check(database, cluster)
    with database.write() as connection:
        drains.remove(connection, "a", ANN)
    check(database, cluster)
    assert drain(database).state is DrainState.REMOVED
    assert "a" not in cluster.written[2:]
    cluster.there = [B]
    check(database, cluster)
    assert firing(database) == {}
    with database.read() as connection:
        assert drains.all_drains(connection) == {}
        assert [row.broker for row in drains.known(connection)] == ["b"]
    service = "service:broker-check"
    assert entries(database) == [
        ("ann", "broker.drain", "new disks"),
        (service, "broker.draining", "new disks"),
        (service, "broker.drained", "new disks"),
        ("ann", "broker.remove", "new disks"),
        (service, "broker.draining", "new disks"),
        (service, "broker.drained", "new disks"),
        ("ann", "broker.remove", "new disks"),
        (service, "broker.removed", "new disks"),
        (service, "broker.gone", ""),
    ]


def test_drain_that_leaves_topics_without_a_broker_is_refused_unless_forced(
    database: Database, cluster: MadeUp
) -> None:
    check(database, cluster)
    cluster.alone = [f"t{number}" for number in range(12)]
    ask(database)
    check(database, cluster)
    found = drain(database)
    assert found.state is DrainState.REFUSED
    assert found.message.startswith("12 topics have no other broker that accepts messages: t0, t1, ")
    assert found.message.endswith("t9, …; create them on another broker first, or force the drain")
    assert cluster.permissions == {}
    ask(database, forced=True)
    check(database, cluster)
    assert (drain(database).state, cluster.permissions) == (DrainState.DRAINED, {"a": 4})


def test_cancelled_drain_restores_the_previous_state(database: Database, cluster: MadeUp) -> None:
    check(database, cluster)
    cluster.left = Backlog({"g": 1})
    ask(database)
    check(database, cluster)
    with database.write() as connection:
        drains.cancel(connection, "a", ANN)
    cluster.failing["a"] = "busy"
    check(database, cluster)
    assert drain(database).state is DrainState.CANCELLING
    assert drain(database).message == "will be retried: busy"
    cluster.failing = {}
    check(database, cluster)
    assert (drain(database).state, cluster.permissions["a"]) == (DrainState.CANCELLED, 6)
    written = len(cluster.written)
    assert check(database, cluster)["drains"] == 0
    assert sorted(cluster.written[written:]) == ["a", "b"]


def test_drain_waits_for_a_silent_broker_or_an_unreadable_topic(database: Database, cluster: MadeUp) -> None:
    check(database, cluster)
    ask(database)
    cluster.there = [B]
    check(database, cluster)
    found = drain(database)
    assert (found.state, found.message) == (
        DrainState.ASKED,
        "waiting, because the broker does not answer: it is not registered at the name servers",
    )
    cluster.there, cluster.left = [A, B], Backlog({}, {"t": "timed out"})
    check(database, cluster)
    assert drain(database).state is DrainState.DRAINING
    assert drain(database).message == "could not be checked: timed out"


def test_concurrent_change_by_a_user_has_precedence(database: Database, cluster: MadeUp) -> None:
    check(database, cluster)
    ask(database)

    async def cancelled(broker: str) -> Backlog:
        with database.write() as connection:
            drains.cancel(connection, "a", ANN)
        return Backlog()

    cluster.backlog = cancelled  # type: ignore[method-assign]
    check(database, cluster)
    assert drain(database).state is DrainState.CANCELLING


def test_drain_that_was_asked_for_again_without_force_is_decided_anew(
    database: Database, cluster: MadeUp
) -> None:
    check(database, cluster)
    cluster.alone = ["t"]
    ask(database, forced=True)
    permission = cluster.permission

    async def asked_again(broker: str) -> int:
        if broker == "a" and drain(database).forced:
            with database.write() as connection:
                drains.cancel(connection, "a", ANN)
                drains.ask(connection, "a", False, ANN)
        return await permission(broker)

    cluster.permission = asked_again  # type: ignore[method-assign]
    check(database, cluster)
    assert (drain(database).state, drain(database).forced) == (DrainState.ASKED, False)
    check(database, cluster)
    assert drain(database).state is DrainState.REFUSED


def test_frozen_leader_closes_no_broker_that_its_successor_opened(
    database: Database, cluster: MadeUp
) -> None:
    check(database, cluster)
    cluster.left = Backlog({"g": 1})
    ask(database)
    check(database, cluster)
    cluster.permissions["a"] = 6  # it was started anew, and the leader is about to close it again
    slow = FrozenFleet(database, cluster)
    with pytest.raises(LeaseLostError):
        check(database, slow)
    assert slow.thawed
    assert (drain(database).state, cluster.permissions["a"]) == (DrainState.CANCELLED, 6)


def test_leader_that_dies_midway_leaves_what_its_successor_needs(database: Database, cluster: MadeUp) -> None:
    check(database, cluster)
    cluster.permissions["a"] = 7
    cluster.left = Backlog({"g": 1})
    ask(database)
    cluster.failing["a"] = "the process died here"  # before anything was changed, after it was noted
    check(database, cluster)
    assert (drain(database).state, drain(database).permission) == (DrainState.DRAINING, 7)
    cluster.failing = {}
    check(database, cluster)
    assert cluster.permissions["a"] == 4
    with database.write() as connection:
        drains.cancel(connection, "a", ANN)
    cluster.permissions["a"] = 7  # given back, and died before it was noted
    check(database, cluster)
    assert (drain(database).state, cluster.permissions["a"]) == (DrainState.CANCELLED, 7)


class FrozenFleet(MadeUp):
    """While the leader reads the permission of broker `a`, another one leads and cancels the drain."""

    def __init__(self, database: Database, cluster: MadeUp) -> None:
        super().__init__()
        self._database = database
        self.there, self.left, self.permissions = cluster.there, cluster.left, cluster.permissions
        self.thawed = False

    async def permission(self, broker: str) -> int:
        found = await super().permission(broker)
        if broker == "a":
            self.thawed = True
            with self._database.write() as connection:
                leases.hand_over(connection, "broker-check", 0)
                connection.execute(update(table_of_drains).values(state=str(DrainState.CANCELLED)))
        return found
