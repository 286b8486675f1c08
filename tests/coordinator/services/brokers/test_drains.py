from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import update

from sparrowmq.coordinator.cluster.fleet import FleetBroker
from sparrowmq.coordinator.database import tables
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.records.audit import Actor, Search, search
from sparrowmq.coordinator.services.brokers import drains
from sparrowmq.coordinator.services.brokers.drains import DrainState, Left
from sparrowmq.core.errors import RefusedError

ANN = Actor("ann", "why")
A = FleetBroker("c", "a", 0, "h:1")


@pytest.fixture(autouse=True)
def seen(database: Database) -> None:
    with database.write() as connection:
        drains.note(connection, [A, FleetBroker("c", "b", 0, "h:2", "timed out")], {"a": "full"})


def put(database: Database, state: DrainState) -> None:
    with database.write() as connection:
        drains.ask(connection, "a", False, ANN)
        connection.execute(update(tables.drain).values(state=str(state)))


def refused(database: Database, call: Callable[..., None], *arguments: object) -> tuple[int, str]:
    with pytest.raises(RefusedError) as caught, database.write() as connection:
        call(connection, *arguments, ANN)
    return caught.value.status, str(caught.value)


def test_broker_states_are_recorded(database: Database) -> None:
    with database.write() as connection:
        first, second = drains.known(connection)
        assert (first.broker, first.error, first.write_error) == ("a", "", "full")
        assert first.first_seen == first.last_seen == first.checked_at > 0
        assert (second.error, second.last_seen) == ("timed out", 0)
        moved = drains.note(connection, [FleetBroker("c", "b", 0, "h:9")], {})
        assert [(row.address, row.error, row.write_error) for row in moved] == [
            ("h:1", drains.NOT_REGISTERED, ""),
            ("h:9", "", ""),
        ]
        assert moved == drains.known(connection)


def test_unknown_broker_is_refused_with_a_list_of_the_known_ones(database: Database) -> None:
    for call, more in ((drains.ask, (False,)), (drains.cancel, ()), (drains.remove, ()), (drains.forget, ())):
        assert refused(database, call, "'; DROP TABLE drain; --", *more) == (
            404,
            'there is no broker "\'; DROP TABLE drain; --"; there are a, b',
        )


@pytest.mark.parametrize("state", [one for one in DrainState if one not in drains.OVER])
def test_running_drain_is_not_started_again(database: Database, state: DrainState) -> None:
    put(database, state)
    assert refused(database, drains.ask, "a", True) == (409, f"the broker a is already {state}")


@pytest.mark.parametrize("state", list(DrainState))
def test_only_drained_brokers_can_be_removed(database: Database, state: DrainState) -> None:
    put(database, state)
    if state is DrainState.DRAINED:
        with database.write() as connection:
            drains.remove(connection, "a", ANN)
            assert drains.all_drains(connection)["a"].state is DrainState.REMOVING
    else:
        status, text = refused(database, drains.remove, "a")
        assert status == 409
        assert text.startswith(f"the broker a is {state}, not drained")
        assert ("not been checked yet" in text) == (state is DrainState.DRAINING)
    assert refused(database, drains.remove, "b") == (409, "the broker b is not being drained")


def test_empty_broker_reports_what_it_waits_for(database: Database) -> None:
    put(database, DrainState.DRAINING)
    with database.write() as connection:
        before = drains.all_drains(connection)["a"]
        assert drains.move(connection, before, DrainState.DRAINING, ANN, **drains.measured(Left()))
    assert refused(database, drains.remove, "a")[1].startswith(
        "the broker a is draining, not drained: nothing is left; it counts as drained once"
    )


@pytest.mark.parametrize("state", list(DrainState))
def test_cancellable_drains_are_cancelled(database: Database, state: DrainState) -> None:
    put(database, state)
    if state in (*drains.OVER, DrainState.REMOVED):
        assert refused(database, drains.cancel, "a")[0] == 409
        return
    with database.write() as connection:
        drains.cancel(connection, "a", ANN)
        becomes = drains.all_drains(connection)["a"].state
    assert becomes is (DrainState.CANCELLED if state is DrainState.ASKED else DrainState.CANCELLING)


def test_only_a_silent_broker_is_forgotten(database: Database) -> None:
    assert refused(database, drains.forget, "a") == (
        409,
        "the broker a still answers; drain it first: sparrow broker drain a",
    )
    with database.write() as connection:
        drains.forget(connection, "b", ANN)
        assert [row.broker for row in drains.known(connection)] == ["a"]
        (entry,) = search(connection, Search(kind="broker"))
    assert (entry.actor, entry.action, entry.object) == ("ann", "broker.forget", "b")
    assert entry.before == {"processes": ["0 at h:2"], "last_seen": 0}


def test_broker_forgotten_by_a_person_is_not_forgotten_once_more(database: Database) -> None:
    put(database, DrainState.REMOVED)
    with database.write() as connection:
        removed = drains.all_drains(connection)["a"]
        drains.note(connection, [], {})
        drains.forget(connection, "a", ANN)
        drains.note(connection, [A], {})
        drains.end(connection, removed, Actor("service:broker-check"))
        assert [row.broker for row in drains.known(connection)] == ["a", "b"]
        found = [entry.action for entry in search(connection, Search(kind="broker"))]
    assert sorted(found) == ["broker.drain", "broker.forget"]


def test_groups_with_the_largest_backlog_are_stored_and_all_are_summed(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drains, "GROUPS_SHOWN", 2)
    put(database, DrainState.DRAINING)
    left = Left({"a": 1, "b": 5, "c": 3}, 2, "u")
    with database.write() as connection:
        before = drains.all_drains(connection)["a"]
        assert drains.move(connection, before, DrainState.DRAINING, ANN, **drains.measured(left))
        found = drains.all_drains(connection)["a"]
    assert found.left == Left({"b": 5, "c": 3}, 2, "u")
    assert found.message == (
        "9 messages that 3 groups have not yet read, 2 delayed messages, could not be checked: u"
    )
    assert Left().nothing
    assert not any(one.nothing for one in (Left({"g": 1}), Left(delayed=1), Left(unknown="x")))
