"""Alarms in the database. `tests/databases` runs the same tests on PostgreSQL and MariaDB."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select, update

from sparrowmq.coordinator.alarms import outbox, table
from sparrowmq.coordinator.alarms.machine import AlarmPolicy, AlarmState
from sparrowmq.coordinator.alarms.outbox import Channels
from sparrowmq.coordinator.alarms.table import AlarmCheck, Condition
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.database.tables import alarm, notice
from sparrowmq.coordinator.records import audit
from sparrowmq.coordinator.records.audit import Actor
from sparrowmq.coordinator.users import people
from sparrowmq.coordinator.users.people import PersonUpdate
from sparrowmq.core.errors import RefusedError

SERVICE, PERSON = Actor("service:lag-alarm", generation=7), Actor("ann", "on it")
NOWHERE = Channels()
BAD = Condition("g t", "g is 5 behind", "g", "t")
OTHER = Condition("h t", "h is 9 behind", "h", "t")
ONCE = AlarmPolicy(reminder_ms=0)


def observe(
    database: Database, *found: Condition, unknown: tuple[str, ...] = (), **options: Any
) -> dict[str, int]:
    check = AlarmCheck("lag", options.get("policy", ONCE), found, unknown)
    with database.write() as connection:
        return table.observe(connection, check, SERVICE, options.get("channels", NOWHERE))


def alarms(database: Database) -> dict[str, table.AlarmRow]:
    with database.read() as connection:
        return {row.key: row for row in table.search(connection, AlarmState)}


def notices(database: Database) -> list[tuple[str, str, str]]:
    with database.read() as connection:
        rows = connection.execute(select(notice).order_by(notice.c.id)).mappings().all()
    return [(row["kind"], row["channel"], row["target"]) for row in rows]


def entries(database: Database) -> list[audit.AuditEntry]:
    with database.read() as connection:
        return list(reversed(audit.search(connection, audit.Search())))


@pytest.mark.proves("pmq:T3")
def test_check_fires_keeps_and_resolves_an_alarm(database: Database) -> None:
    assert observe(database, BAD, OTHER) == {"seen": 2, "fired": 2, "resolved": 0}
    assert observe(database, BAD, OTHER) == {"seen": 2, "fired": 0, "resolved": 0}
    assert observe(database, OTHER) == {"seen": 1, "fired": 0, "resolved": 1}
    found = alarms(database)
    assert (found["g t"].alarm.state, found["h t"].alarm.state) == (AlarmState.RESOLVED, AlarmState.FIRING)
    assert [kind for kind, _, _ in notices(database)] == ["firing", "firing", "resolved"]
    told = [(one.actor, one.action, one.object, one.generation) for one in entries(database)]
    assert told == [
        ("service:lag-alarm", "alarm.firing", "lag g t", 7),
        ("service:lag-alarm", "alarm.firing", "lag h t", 7),
        ("service:lag-alarm", "alarm.resolved", "lag g t", 7),
    ]


def test_text_is_that_of_the_last_check(database: Database) -> None:
    observe(database, BAD)
    observe(database, Condition("g t", "g is 6 behind", "g", "t"))
    assert alarms(database)["g t"].text == "g is 6 behind"


@pytest.mark.proves("pmq:T6")
def test_alarms_of_unchecked_groups_stay(database: Database) -> None:
    observe(database, BAD, OTHER)
    assert observe(database, unknown=("g",)) == {"seen": 0, "fired": 0, "resolved": 1}
    assert alarms(database)["g t"].alarm.state is AlarmState.FIRING


def many(count: int) -> list[Condition]:
    return [Condition(f"q{number:05}", f"queue {number}", "g", "t") for number in range(count)]


def test_thousands_of_conditions_are_few_alarms_and_one_with_the_remaining_count(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "ALARMS_MAX", 5)
    assert observe(database, *many(3)) == {"seen": 3, "fired": 3, "resolved": 0}
    late = [Condition("a", "an early name", "g", "t"), *many(1000)]
    assert observe(database, *late) == {"seen": 1001, "fired": 3, "resolved": 0}
    found = alarms(database)
    assert found.keys() == {"q00000", "q00001", "q00002", "a", "q00003", table.MORE}
    assert found[table.MORE].text == (
        "996 more alarms of the rule lag are not reported individually; the first of them: queue 4"
    )
    assert observe(database, *late[1:])["resolved"] == 1, "the one that is gone"
    assert observe(database, *many(4)) == {"seen": 4, "fired": 0, "resolved": 2}
    assert observe(database)["resolved"] == 4


def test_names_of_any_length_and_bytes_are_distinguished(database: Database) -> None:
    long = "c" * 700
    bad = [Condition(long + end, f"the client {long}\0{end}", "g" * 300, "t\0") for end in ("1", "2", "\0")]
    assert observe(database, *bad)["fired"] == 3
    assert observe(database, *bad) == {"seen": 3, "fired": 0, "resolved": 0}
    for key, row in alarms(database).items():
        assert len(key) <= 600 and len(row.text) <= 1000 and len(row.group) <= 255
        assert "\0" not in key + row.text + row.topic
    assert observe(database, bad[0], bad[0]) == {"seen": 1, "fired": 0, "resolved": 2}


def test_alarms_continued_by_another_leader_are_not_reported_again(database: Database) -> None:
    hourly = AlarmPolicy(reminder_ms=3_600_000)
    observe(database, BAD, policy=hourly)
    with database.write() as connection:
        after = Actor("service:lag-alarm", generation=8)
        table.observe(connection, AlarmCheck("lag", hourly, (BAD,)), after, NOWHERE)
        connection.execute(update(alarm).values(noticed_at=alarm.c.noticed_at - 3_600_000))
        table.observe(connection, AlarmCheck("lag", hourly, (BAD,)), after, NOWHERE)
        table.observe(connection, AlarmCheck("lag", hourly, (BAD,)), SERVICE, NOWHERE)
    assert [kind for kind, _, _ in notices(database)] == ["firing", "reminder"]


def test_resolved_alarm_keeps_its_assignee(database: Database) -> None:
    calm = AlarmPolicy(reminder_ms=0, calm_checks=2)
    observe(database, BAD, policy=calm)
    with database.write() as connection:
        table.acknowledge(connection, alarms(database)["g t"].id, PERSON, NOWHERE)
    assert observe(database, policy=calm)["resolved"] == 0
    found = alarms(database)["g t"]
    assert (found.alarm.state, found.changed_by) == (AlarmState.ACKNOWLEDGED, "ann")
    assert observe(database, policy=calm)["resolved"] == 1


def test_rules_do_not_affect_each_others_alarms(database: Database) -> None:
    observe(database, BAD)
    with database.write() as connection:
        table.observe(connection, AlarmCheck("another", ONCE, ()), SERVICE, NOWHERE)
    assert alarms(database)["g t"].alarm.state is AlarmState.FIRING


def test_users_acknowledge_silence_and_wake_with_their_reasons(database: Database) -> None:
    observe(database, BAD)
    number = alarms(database)["g t"].id
    with database.write() as connection:
        assert table.silence(connection, number, 30, PERSON, NOWHERE).alarm.state is AlarmState.SILENCED
        table.silence(connection, number, 60, PERSON, NOWHERE)
        table.wake(connection, number, PERSON, NOWHERE)
        found = table.acknowledge(connection, number, PERSON, NOWHERE)
    assert (found.alarm.state, found.changed_by) == (AlarmState.ACKNOWLEDGED, "ann")
    assert [kind for kind, _, _ in notices(database)] == ["firing", "silenced", "firing", "acknowledged"]
    by_ann = [(one.action, one.reason) for one in entries(database) if one.actor == "ann"]
    assert by_ann == [
        ("alarm.silenced", "on it"),
        ("alarm.silenced", "on it"),
        ("alarm.firing", "on it"),
        ("alarm.acknowledged", "on it"),
    ]
    observe(database)
    assert alarms(database)["g t"].changed_by == "service:lag-alarm"


@pytest.mark.parametrize(
    ("call", "status"),
    [
        (lambda c, n: table.acknowledge(c, n + 1, PERSON, NOWHERE), 404),
        (lambda c, n: table.one(c, n + 1), 404),
        (lambda c, n: table.wake(c, n, PERSON, NOWHERE), 409),
        (lambda c, n: table.silence(c, n, 0, PERSON, NOWHERE), 422),
        (lambda c, n: table.silence(c, n, 43_201, PERSON, NOWHERE), 422),
    ],
)
def test_invalid_changes_are_refused_and_leave_no_audit_entry(
    database: Database, call: Any, status: int
) -> None:
    observe(database, BAD)
    number, before = alarms(database)["g t"].id, len(entries(database))
    with pytest.raises(RefusedError) as caught, database.write() as connection:
        call(connection, number)
    assert caught.value.status == status
    assert len(entries(database)) == before


def test_alarm_and_its_notices_are_stored_together_or_not_at_all(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(table, "post", broken)
    with pytest.raises(RuntimeError):
        observe(database, BAD)
    assert alarms(database) == {}
    assert entries(database) == []


def test_notices_go_to_all_channels_and_to_enabled_owners(database: Database) -> None:
    with database.write() as connection:
        for name, email in (("ann", "ann@x.org"), ("bob", "bob@x.org"), ("eve", "eve@x.org"), ("joe", "")):
            people.add(connection, name, "h", PersonUpdate(role="admin", email=email), PERSON)
        people.grant(connection, "ann", ("group", "g"), "owner", PERSON)
        people.grant(connection, "bob", ("topic", "t"), "owner", PERSON)
        people.grant(connection, "eve", ("group", "g"), "viewer", PERSON)
        people.grant(connection, "joe", ("group", "g"), "owner", PERSON)
    observe(database, BAD, channels=Channels("http://hook", True, ("all@x.org", "ann@x.org")))
    assert notices(database) == [
        ("firing", "log", ""),
        ("firing", "webhook", "http://hook"),
        ("firing", "email", "all@x.org"),
        ("firing", "email", "ann@x.org"),
        ("firing", "email", "bob@x.org"),
    ]


def test_alarms_are_searched_by_state_rule_and_group(database: Database) -> None:
    observe(database, BAD, OTHER)
    observe(database, OTHER)

    def keys(*states: AlarmState, **options: str) -> list[str]:
        with database.read() as connection:
            return [row.key for row in table.search(connection, states, **options)]

    assert keys(AlarmState.FIRING) == ["h t"]
    assert keys(*AlarmState, group="g") == ["g t"]
    assert keys(*AlarmState, rule="' OR 1=1 --") == []


def test_notice_is_due_until_it_is_sent_or_abandoned(database: Database) -> None:
    observe(database, BAD)
    with database.write() as connection:
        (first,) = outbox.take(connection)
        assert outbox.take(connection) == [], "whoever took it is about to send it"
        outbox.settle(connection, first, "refused")
        assert outbox.take(connection) == []
        row = connection.execute(select(notice)).mappings().one()
        assert (row["attempts"], row["error"], row["ended_at"]) == (1, "refused", 0)
        assert row["next_try_at"] >= row["created_at"] + outbox.RETRY_MS
        last = outbox.Notice(first.id, first.channel, "", {}, outbox.ATTEMPTS_MAX)
        outbox.settle(connection, last, "refused")
        assert connection.execute(select(notice.c.ended_at)).scalar_one() > 0


def test_sent_notice_is_not_sent_again_and_deleted_later(database: Database) -> None:
    observe(database, BAD)
    with database.write() as connection:
        (first,) = outbox.take(connection)
        outbox.settle(connection, first, None)
        assert outbox.take(connection) == []
        now = database.now(connection)
        assert outbox.delete_before(connection, now - 60_000, 10) == 0
        assert outbox.delete_before(connection, now + 60_000, 10) == 1


def test_postponed_notice_loses_no_attempt_and_a_clock_set_back_delays_none(
    database: Database,
) -> None:
    observe(database, BAD)
    with database.write() as connection:
        (first,) = outbox.take(connection)
        outbox.put_off(connection, [first])
        row = connection.execute(select(notice)).mappings().one()
        assert (row["attempts"], row["next_try_at"] >= row["created_at"] + outbox.RETRY_MS) == (0, True)
        assert outbox.take(connection) == []
        later = database.now(connection) + 3_600_000
        connection.execute(update(notice).values(next_try_at=later))
        assert outbox.take(connection) == [first]


def test_delays_between_attempts_grow() -> None:
    waits = [outbox.retry_ms(number) for number in range(outbox.ATTEMPTS_MAX)]
    assert waits[:3] == [5_000, 10_000, 20_000]
    assert waits[-1] == outbox.RETRY_MS_MAX
