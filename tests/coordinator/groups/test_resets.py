"""Requested offset changes in the database. `tests/databases` runs the same tests on PostgreSQL and
MariaDB."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import update
from tests.support import about

from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.database.tables import group_reset
from sparrowmq.coordinator.groups import dynamic_settings, resets
from sparrowmq.coordinator.groups.resets import ResetState, ResetTarget
from sparrowmq.coordinator.records import audit
from sparrowmq.coordinator.records.audit import Actor
from sparrowmq.core.dynamic_settings import SettingPlace
from sparrowmq.core.errors import RefusedError

ANN = Actor("ann", "a bad deploy")
ORDERS = SettingPlace("Orders", 1)
FIRST = ResetTarget("first")


def ask(database: Database, place: SettingPlace = ORDERS, target: ResetTarget = FIRST) -> int:
    with database.write() as connection:
        return resets.ask(connection, "billing", place, target, ANN)


def waiting(database: Database) -> list[resets.ResetRow]:
    with database.read() as connection:
        return resets.waiting(connection)


def entries(database: Database) -> list[audit.AuditEntry]:
    with database.read() as connection:
        return audit.search(connection, audit.Search(kind="group", object="billing"))[::-1]


def test_request_waits_until_it_is_executed_with_both_offsets_in_the_audit_log(database: Database) -> None:
    number = ask(database, target=ResetTarget("offset", 7))
    (wish,) = waiting(database)
    assert (wish.id, wish.group, wish.place, wish.target) == (
        number,
        "billing",
        ORDERS,
        ResetTarget("offset", 7),
    )
    assert (wish.asked_by, wish.reason, wish.state) == ("ann", "a bad deploy", ResetState.WAITING)
    with database.write() as connection:
        before, after = {"Orders/b/1": 40}, {"Orders/b/1": 7}
        resets.end(connection, wish, before=before, after=after, generation=3)
        resets.end(connection, wish, problem="too late")
    assert waiting(database) == []
    with database.read() as connection:
        (ended,) = resets.of(connection, "billing")
    assert (ended.state, ended.before, ended.after) == (ResetState.DONE, before, after)
    assert ended.ended_at >= ended.asked_at > 0
    asked, done = entries(database)
    assert (asked.action, asked.after) == (
        "group.reset", {"reset": number, "place": "Orders/1", "to": "offset:7"},
    )  # fmt: skip
    assert (done.action, done.actor, done.reason, done.generation) == (
        "group.reset.done", "ann", "a bad deploy", 3,
    )  # fmt: skip
    assert (done.before["Orders/b/1"], done.after["Orders/b/1"]) == (40, 7)


def test_failed_request_has_a_reason(database: Database) -> None:
    ask(database)
    with database.write() as connection:
        resets.end(connection, resets.waiting(connection)[0], problem="no such queue")
    with database.read() as connection:
        (ended,) = resets.of(connection, "billing")
    assert (ended.state, ended.message) == (ResetState.FAILED, "no such queue")
    assert entries(database)[-1].after["problem"] == "no such queue"


def ended(database: Database, before: dict[str, int], **result: Any) -> int:
    """A reset that has ended."""
    number = ask(database)
    with database.write() as connection:
        resets.end(connection, resets.waiting(connection)[0], before=before, **result)
    return number


def undo(database: Database, number: int) -> int:
    with database.write() as connection:
        return resets.undo(connection, "billing", number, Actor("bob", "too early"))


def test_undo_restores_the_offsets_from_before_the_last_reset(database: Database) -> None:
    ended(database, {"Orders/b/1": 40}, after={"Orders/b/1": 7})
    number = ended(database, {"Orders/b/1": 9, "Orders/b/2": -1}, after={"Orders/b/1": 0, "Orders/b/2": 0})
    ended(database, {"Orders/b/1": 1}, problem="no route")
    asked = undo(database, number)
    (wish,) = waiting(database)
    assert (wish.id, wish.place, str(wish.target)) == (asked, ORDERS, f"undo:{number}")
    assert wish.target.offsets == {"Orders/b/1": 9}, "a queue without an offset before keeps its own"
    assert [wish.target.covers(queue) for queue in ("Orders/b/1", "Orders/b/2")] == [True, False]
    last = entries(database)[-1]
    assert (last.action, last.actor, last.reason) == ("group.reset", "bob", "too early")
    assert last.after == {"reset": asked, "place": "Orders/1", "to": f"undo:{number}"}
    with database.write() as connection:
        resets.end(connection, wish, before={"Orders/b/1": 3}, after={"Orders/b/1": 9})
    undo(database, asked)
    assert waiting(database)[0].target.offsets == {"Orders/b/1": 3}, "an undo can be undone"


def test_only_the_last_reset_that_was_carried_out_is_undone(database: Database) -> None:
    def refused(number: int) -> RefusedError:
        with pytest.raises(RefusedError) as caught:
            undo(database, number)
        return caught.value

    none = refused(1)
    assert (none.status, str(none)) == (404, "no reset of group billing was carried out in the last 30 days")
    first = ended(database, {"Orders/b/1": 40}, after={"Orders/b/1": 7})
    second = ended(database, {"Orders/b/1": -1}, after={"Orders/b/1": 7})
    assert (refused(second).status, "nothing to restore" in str(refused(second))) == (409, True)
    third = ended(database, {"Orders/b/1": 7}, after={"Orders/b/1": 8})
    assert str(refused(first)) == f"the last reset of group billing is {third}, not {first}; look again"
    ask(database)
    assert (refused(third).status, "still waits" in str(refused(third))) == (409, True)


def test_whole_group_and_too_many_requests_are_refused(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RefusedError, check=about(status=422, what="place")):
        ask(database, SettingPlace())
    monkeypatch.setattr(resets, "WAITING_MAX", 1)
    ask(database)
    with pytest.raises(RefusedError, check=about(status=409, limit=1)):
        ask(database)
    with database.read() as connection:
        assert dynamic_settings.revision(connection, "billing") == 1, "what is refused changes nothing"


def test_old_requests_are_deleted_and_open_ones_kept(database: Database) -> None:
    for _ in range(2):
        ask(database)
    with database.write() as connection:
        resets.end(connection, resets.waiting(connection)[0])
        assert resets.delete_old(connection) == 0
        connection.execute(update(group_reset).where(group_reset.c.ended_at > 0).values(ended_at=1))
        assert resets.delete_old(connection) == 1
    assert len(waiting(database)) == 1


@pytest.mark.parametrize(
    ("to", "offset", "time_ms", "text"),
    [("first", None, None, "first"), ("last", None, None, "last"), (None, 0, None, "offset:0"),
     (None, None, 5, "time:5")],
)  # fmt: skip
def test_targets_are_written_and_read(
    to: str | None, offset: int | None, time_ms: int | None, text: str
) -> None:
    found = ResetTarget.of(to, offset, time_ms)
    assert (str(found), ResetTarget.parse(text)) == (text, found)


@pytest.mark.parametrize(
    ("to", "offset", "time_ms", "what"),
    [(None, None, None, "target"), ("first", 5, None, "target"), ("middle", None, None, "target"),
     (None, -1, None, "offset"), (None, 2**63, None, "offset"), (None, None, -1, "time_ms"),
     (None, None, 10**15, "time_ms"), (None, 1, 1, "target")],
)  # fmt: skip
def test_invalid_targets_are_refused(
    to: str | None, offset: int | None, time_ms: int | None, what: str
) -> None:
    with pytest.raises(RefusedError, check=about(status=422, what=what)):
        ResetTarget.of(to, offset, time_ms)
