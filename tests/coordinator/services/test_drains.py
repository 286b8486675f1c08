from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import update

from sparrowmq.coordinator.audit import Actor, Search, search
from sparrowmq.coordinator.cluster.fleet import Broker
from sparrowmq.coordinator.database import tables
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.services import drains
from sparrowmq.coordinator.services.drains import Left, State
from sparrowmq.core.errors import RefusedError

ANN = Actor("ann", "why")
A = Broker("c", "a", 0, "h:1")


@pytest.fixture(autouse=True)
def seen(database: Database) -> None:
    with database.write() as connection:
        drains.note(connection, [A, Broker("c", "b", 0, "h:2", "timed out")], {"a": "full"})


def put(database: Database, state: State) -> None:
    with database.write() as connection:
        drains.ask(connection, "a", False, ANN)
        connection.execute(update(tables.drain).values(state=str(state)))


def refused(database: Database, call: Callable[..., None], *arguments: object) -> tuple[int, str]:
    with pytest.raises(RefusedError) as caught, database.write() as connection:
        call(connection, *arguments, ANN)
    return caught.value.status, str(caught.value)


def test_what_is_noted_of_brokers(database: Database) -> None:
    with database.write() as connection:
        first, second = drains.known(connection)
        assert (first.broker, first.error, first.write_error) == ("a", "", "full")
        assert first.first_seen == first.last_seen == first.checked_at > 0
        assert (second.error, second.last_seen) == ("timed out", 0)
        moved = drains.note(connection, [Broker("c", "b", 0, "h:9")], {})
        assert [(row.address, row.error, row.write_error) for row in moved] == [
            ("h:1", drains.NOT_REGISTERED, ""),
            ("h:9", "", ""),
        ]
        assert moved == drains.known(connection)


def test_a_broker_that_nobody_saw_is_refused_with_those_there_are(database: Database) -> None:
    for call, more in ((drains.ask, (False,)), (drains.cancel, ()), (drains.remove, ()), (drains.forget, ())):
        assert refused(database, call, "'; DROP TABLE drain; --", *more) == (
            404,
            'there is no broker "\'; DROP TABLE drain; --"; there are a, b',
        )


@pytest.mark.parametrize("state", [one for one in State if one not in drains.OVER])
def test_one_that_is_under_way_is_not_begun_again(database: Database, state: State) -> None:
    put(database, state)
    assert refused(database, drains.ask, "a", True) == (409, f"the broker a is {state} already")


@pytest.mark.parametrize("state", list(State))
def test_removal_is_for_drained_ones_only(database: Database, state: State) -> None:
    put(database, state)
    if state is State.DRAINED:
        with database.write() as connection:
            drains.remove(connection, "a", ANN)
            assert drains.all_drains(connection)["a"].state is State.REMOVING
    else:
        status, text = refused(database, drains.remove, "a")
        assert status == 409
        assert text.startswith(f"the broker a is {state}, not drained")
        assert ("not looked at yet" in text) == (state is State.DRAINING)
    assert refused(database, drains.remove, "b") == (409, "the broker b is not being drained")


def test_an_empty_broker_says_what_it_waits_for(database: Database) -> None:
    put(database, State.DRAINING)
    with database.write() as connection:
        before = drains.all_drains(connection)["a"]
        assert drains.move(connection, before, State.DRAINING, ANN, **drains.measured(Left()))
    assert refused(database, drains.remove, "a")[1].startswith(
        "the broker a is draining, not drained: nothing is left; it counts as drained when"
    )


@pytest.mark.parametrize("state", list(State))
def test_what_can_be_cancelled(database: Database, state: State) -> None:
    put(database, state)
    if state in (*drains.OVER, State.REMOVED):
        assert refused(database, drains.cancel, "a")[0] == 409
        return
    with database.write() as connection:
        drains.cancel(connection, "a", ANN)
        becomes = drains.all_drains(connection)["a"].state
    assert becomes is (State.CANCELLED if state is State.ASKED else State.CANCELLING)


def test_only_a_broker_that_does_not_answer_is_forgotten(database: Database) -> None:
    assert refused(database, drains.forget, "a") == (
        409,
        "the broker a answers; empty it first: sparrow broker drain a",
    )
    with database.write() as connection:
        drains.forget(connection, "b", ANN)
        assert [row.broker for row in drains.known(connection)] == ["a"]
        (entry,) = search(connection, Search(kind="broker"))
    assert (entry.actor, entry.action, entry.object) == ("ann", "broker.forget", "b")
    assert entry.before == {"processes": ["0 at h:2"], "last_seen": 0}


def test_the_groups_with_most_are_kept_and_all_are_summed(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drains, "GROUPS_SHOWN", 2)
    put(database, State.DRAINING)
    left = Left({"a": 1, "b": 5, "c": 3}, 2, "u")
    with database.write() as connection:
        before = drains.all_drains(connection)["a"]
        assert drains.move(connection, before, State.DRAINING, ANN, **drains.measured(left))
        found = drains.all_drains(connection)["a"]
    assert found.left == Left({"b": 5, "c": 3}, 2, "u")
    assert found.message == (
        "9 messages that 3 groups have not read, 2 messages that wait for their time, what could not be "
        "looked at: u"
    )
    assert Left().nothing
    assert not any(one.nothing for one in (Left({"g": 1}), Left(delayed=1), Left(unknown="x")))
