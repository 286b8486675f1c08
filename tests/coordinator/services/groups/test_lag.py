from __future__ import annotations

import pytest
from tests.coordinator.services.watched import MadeUp, place, step
from tests.support import about

from sparrowmq.coordinator.alarms import table
from sparrowmq.coordinator.alarms.machine import AlarmState
from sparrowmq.coordinator.alarms.outbox import Channels
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.records.audit import Actor
from sparrowmq.coordinator.services.groups import limits
from sparrowmq.coordinator.services.groups.lag import LagAlarm, conditions
from sparrowmq.coordinator.services.groups.limits import ALL_TOPICS, Limit
from sparrowmq.core.clock import SystemClock
from sparrowmq.core.errors import CoordinatorError

NOW = 1_000_000
FREE = Limit(0, 0)


@pytest.mark.parametrize(("lag", "fires"), [(0, False), (1, False), (9, False), (10, False), (11, True)])
@pytest.mark.proves("pmq:T4")
def test_lag_above_the_limit_fires(lag: int, fires: bool) -> None:
    found = conditions({"g": [place(lag)]}, {}, Limit(10, 0), NOW)
    assert bool(found) is fires


@pytest.mark.proves("pmq:T12")
def test_queues_of_a_topic_are_summed_and_topics_checked_separately() -> None:
    places = {"g": [place(6), place(6, number=1), place(9, topic="u")]}
    (found,) = conditions(places, {}, Limit(10, 0), NOW)
    assert (found.key, found.group, found.topic) == ("g t", "g", "t")
    assert found.text == "the group g on t: 12 unread messages, the limit is 10"


def test_age_is_that_of_the_oldest_unread_message() -> None:
    limit = Limit(0, 60_000)
    old, young, read = place(1, NOW - 60_001), place(1, NOW - 5, number=1), place(0, 1, number=2)
    (found,) = conditions({"g": [old, young, read]}, {}, limit, NOW)
    assert found.text == "the group g on t: the oldest unread message is 60 s old, the limit is 60 s"
    assert conditions({"g": [young, read, place(3, 0, number=3)]}, {}, limit, NOW) == []
    assert conditions({"g": [place(1, NOW + 99_999)]}, {}, limit, NOW) == []


def test_most_specific_limit_applies_and_may_be_disabled() -> None:
    places = {"g": [place(50)], "h": [place(50)], "i": [place(50)]}
    set_limits = {
        ("g", "t"): Limit(100, 0),
        ("g", ALL_TOPICS): Limit(10, 0),
        ("h", ALL_TOPICS): Limit(10, 0),
        ("i", "t"): Limit(10, 0, enabled=False),
    }
    assert [one.key for one in conditions(places, set_limits, Limit(1, 0), NOW)] == ["h t"]
    assert conditions(places, {}, FREE, NOW) == []


def test_alarm_fires_at_the_second_check_and_resolves(database: Database) -> None:
    cluster = MadeUp()
    service = LagAlarm(cluster, Channels(), SystemClock())
    cluster.seen.places["g"] = [place(50)]
    assert step(database, service, messages=10).counts["fired"] == 0
    report = step(database, service, messages=10)
    assert report.counts == {"seen": 1, "fired": 1, "resolved": 0, "groups": 1, "failed": 0}
    cluster.seen.places["g"] = [place(3)]
    assert step(database, service, messages=10).counts["resolved"] == 1


def test_limits_set_by_users_apply(database: Database) -> None:
    cluster = MadeUp()
    cluster.seen.places["g"] = [place(50)]
    with database.write() as connection:
        limits.put(connection, "g", ALL_TOPICS, Limit(10, 0), Actor("ann"))
    assert step(database, LagAlarm(cluster, Channels(), SystemClock()), checks=1).counts["fired"] == 1


@pytest.mark.proves("pmq:T6")
def test_unreadable_groups_keep_their_alarms(database: Database) -> None:
    cluster = MadeUp()
    service = LagAlarm(cluster, Channels(), SystemClock())
    cluster.seen.places.update({"g": [place(50)], "h": [place(0)]})
    step(database, service, messages=10, checks=1)
    del cluster.seen.places["g"]
    cluster.seen.failed["g"] = "its broker is gone"
    report = step(database, service, messages=10, checks=1)
    assert (report.counts["resolved"], report.counts["failed"], report.message) == (
        0,
        1,
        "its broker is gone",
    )
    with database.read() as connection:
        assert [row.key for row in table.search(connection, [AlarmState.FIRING])] == ["g t"]
    del cluster.seen.places["h"]
    with pytest.raises(CoordinatorError, check=about(what="group", value="its broker is gone")):
        step(database, service)
