from __future__ import annotations

from typing import Any

import pytest
from tests.coordinator.services.watched import MadeUp, member, queue, step
from tests.support import about

from sparrowmq.coordinator.alarms import table
from sparrowmq.coordinator.alarms.machine import AlarmState
from sparrowmq.coordinator.alarms.outbox import Channels
from sparrowmq.coordinator.cluster.member_reports import MemberAnswers
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.services.groups.handlers import (
    HandlerAlarm,
    Heads,
    failing,
    head,
    many,
    slow_on_average,
)
from sparrowmq.core.errors import CoordinatorError
from sparrowmq.protocol.bodies import ConsumeStatus, ProcessQueueInfo
from sparrowmq.protocol.failing import FAILING_PROPERTY, FailingQueue, failing_text


def held(first: int, count: int = 1, **more: Any) -> ProcessQueueInfo:
    return ProcessQueueInfo(cached_msg_count=count, cached_msg_min_offset=first, **more)


def fails(failed: float, ok: float = 0.0, rt: float = 0.0) -> ConsumeStatus:
    return ConsumeStatus(consume_failed_tps=failed, consume_ok_tps=ok, consume_rt=rt)


def test_oldest_message_in_processing_is_tracked() -> None:
    assert head(ProcessQueueInfo()) is None
    assert head(held(5)) == 5
    assert head(held(5, transaction_msg_count=1, transaction_msg_min_offset=3)) == 3
    assert head(ProcessQueueInfo(transaction_msg_count=1, transaction_msg_min_offset=3)) == 3
    assert head(held(5, dropped=True)) is None


@pytest.mark.proves("pmq:4", "pmq:T11")
def test_too_long_processing_raises_one_alarm_that_resolves(database: Database) -> None:
    cluster = MadeUp()
    service = HandlerAlarm(cluster, Channels())
    stuck = {queue(number=0): held(5), queue(number=1): held(9)}
    cluster.groups["g"] = [member("a@1", queues=stuck), member("b@2", queues={queue(number=2): held(1)})]

    def counts() -> tuple[int, int]:
        found = step(database, service, slow_seconds=300).counts
        return found["slow-handler fired"], found["slow-handler resolved"]

    assert counts() == (0, 0)
    cluster.at += 299
    assert counts() == (0, 0)
    cluster.groups["g"][1] = member("b@2", queues={queue(number=2): held(2)})  # it goes on, if slowly
    cluster.at += 13
    assert counts() == (1, 0)
    cluster.at += 10
    assert counts() == (0, 0)
    with database.read() as connection:
        (found,) = table.search(connection, [AlarmState.FIRING])
    assert (found.key, found.group, found.topic) == ("g t a@1", "g", "t")
    assert found.text == (
        "the member a@1 of group g has the message at offset 5 of queue 0 of t on broker-a in hand for "
        "322 s, the limit is 300 s, and so it is in 1 more of its queues"
    )
    cluster.groups["g"][0] = member("a@1", error="no answer")
    assert counts() == (0, 0)  # it may be as slow as before
    cluster.groups["g"][0] = member("a@1", queues={queue(number=0): held(6)})
    assert counts() == (0, 1)


def test_new_leader_knows_nothing_yet_and_keeps_alarms_unchanged(database: Database) -> None:
    cluster = MadeUp()
    service = HandlerAlarm(cluster, Channels())
    cluster.groups["g"] = [member("a@1", queues={queue(): held(5)})]
    step(database, service, slow_seconds=5)
    cluster.at += 5
    assert step(database, service, slow_seconds=5).counts["slow-handler fired"] == 1
    other = HandlerAlarm(cluster, Channels())
    assert step(database, other, slow_seconds=5).counts["slow-handler resolved"] == 0
    cluster.at += 5
    cluster.groups["g"] = [member("a@1")]
    assert step(database, other, slow_seconds=5).counts["slow-handler resolved"] == 1


def test_removed_members_and_groups_are_forgotten() -> None:
    heads, there = Heads(), {"g": [member("a", queues={queue(): held(5)})]}
    heads.look(MemberAnswers(there, at=1.0))
    assert heads.look(MemberAnswers({}, at=10.0)) == []
    assert heads.young(100) == frozenset()
    (found,) = heads.look(MemberAnswers(there, at=10.0))
    assert (found.seconds, heads.young(1)) == (0, {"g"})


def test_shared_sample_counts_once() -> None:
    heads, told = Heads(), MemberAnswers({"g": [member("a", queues={queue(): held(5)})]}, at=7.0)
    assert [one.seconds for one in (*heads.look(told), *heads.look(told))] == [0, 0]


def test_averages_are_computed() -> None:
    groups = {"g": [member("a", statuses={"t": fails(0, 1, 70.4), "u": fails(0, 1, 50)})]}
    (found,) = slow_on_average(groups, 50)
    assert found.text == (
        "a call of the handler of t takes the member a of group g 70 ms on average, the limit is 50 ms"
    )
    assert slow_on_average(groups, 0) == slow_on_average({"g": [member("a", error="x")]}, 1) == []


def test_always_failing_members_are_found() -> None:
    statuses = {"t": fails(0.5), "u": fails(0.5, 0.1), "v": fails(0)}
    queues = {queue(number=1): held(0), queue(number=0): held(0)}
    (found,) = failing({"g": [member("a", statuses=statuses, queues=queues)]})
    assert (found.key, found.topic) == ("g t a", "t")
    assert found.text == (
        "the member a of group g fails with every message of t, 30 in the last minute; it has the queues "
        "broker-a 0, broker-a 1"
    )
    (found,) = failing({"g": [member("a", statuses={"t": fails(1)})]})
    assert found.text.endswith("60 in the last minute")
    assert failing({"g": [member("a", error="x")]}) == []


def test_queues_known_to_members_are_listed_one_by_one() -> None:
    told = failing_text([FailingQueue(queue(number=number), 7, 90) for number in (3, 1)])
    statuses = {"t": fails(1), "u": fails(1)}
    ours = member("a", statuses=statuses, properties={FAILING_PROPERTY: told})
    java = member("j", statuses={"v": fails(1)})
    one, two, other = failing({"g": [ours, java]})
    assert (one.key, two.key, other.key) == ("g t broker-a 1", "g t broker-a 3", "g v j")
    assert (one.group, one.topic) == ("g", "t")
    assert one.text == (
        "the member a of group g fails with every message of queue 1 of t on broker-a, 7 in 90 s"
    )
    well = member("a", statuses=statuses, properties={FAILING_PROPERTY: "[]"})
    assert failing({"g": [well]}) == [], "in each of its queues some are handled"
    both = member("b", properties={FAILING_PROPERTY: told})
    assert len(failing({"g": [ours, both]})) == 2, "a queue on its way between two is one"


@pytest.mark.proves("pmq:T4")
def test_count_limits_are_inclusive_and_zero_means_none() -> None:
    grown = {"g": 3, "h": 2, "i": 0}
    assert [one.key for one in many(grown, 3, "%DLQ%", "x")] == ["g"]
    assert [one.key for one in many(grown, 1, "%DLQ%", "x")] == ["g", "h"]
    assert many(grown, 0, "%DLQ%", "x") == []


def test_failing_members_retries_and_dead_letters_fire_and_resolve(database: Database) -> None:
    cluster = MadeUp()
    service = HandlerAlarm(cluster, Channels())
    cluster.groups["g"] = [member("a", statuses={"t": fails(1)})]
    cluster.ends = {"%RETRY%g": 10, "%DLQ%g": 5, "t": 99}

    def counts(**options: int) -> dict[str, int]:
        return step(database, service, retries=20, **options).counts

    assert counts()["failing-queue fired"] == 0
    first = counts(failing_seconds=0)
    assert (first["failing-queue fired"], first["retries seen"], first["dead-letters seen"]) == (1, 0, 0)
    cluster.ends = {"%RETRY%g": 30, "%DLQ%g": 7}
    second = counts()
    assert (second["retries fired"], second["dead-letters fired"]) == (1, 1)
    with database.read() as connection:
        texts = {one.rule: one.text for one in table.search(connection, [AlarmState.FIRING])}
    assert texts["retries"] == "20 messages of group g were sent back for a retry"
    assert texts["dead-letters"] == "2 messages of group g became dead letters"
    cluster.ends_failed = {"%DLQ%g"}
    cluster.groups["g"] = [member("a", statuses={"t": fails(1, 1)})]
    del cluster.ends["%DLQ%g"]
    third = counts()
    assert (third["failing-queue resolved"], third["dead-letters resolved"]) == (1, 0)
    cluster.ends_failed, cluster.ends["%DLQ%g"] = set(), 7
    counts()
    with database.write() as connection:
        connection.exec_driver_sql("UPDATE growth SET grown_at = grown_at - 600000")
    assert counts()["dead-letters resolved"] == 1


def test_unreadable_groups_keep_their_alarms(database: Database) -> None:
    cluster = MadeUp()
    service = HandlerAlarm(cluster, Channels())
    cluster.groups["g"] = [member("a", statuses={"t": fails(1)})]
    step(database, service, failing_seconds=0)
    cluster.groups, cluster.groups_failed = {"h": []}, {"g": "timed out"}
    report = step(database, service)
    assert (report.counts["failing-queue resolved"], report.counts["failed"]) == (0, 1)
    assert report.message == "timed out"
    cluster.groups = {}
    with pytest.raises(CoordinatorError, check=about(what="group", value="timed out")):
        step(database, service)
