"""Two looks at a cluster, as rows."""

from __future__ import annotations

import pytest

from sparrowmq.aio import BrokerStatus, GroupMemberInfo
from sparrowmq.cli.cluster.cluster_rows import ClusterLook, TopPlace, TopQueue, inside_of, rows_of
from sparrowmq.core.figures.lag import LagSum, QueueLag
from sparrowmq.core.message import MessageQueue

A, B = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-b", 0)


def status(name: str, broker_id: int, error: str | None = None, **told: str) -> BrokerStatus:
    return BrokerStatus("C", name, broker_id, f"{name}:{broker_id}", told, error)


def lag(*queues: tuple[QueueLag | None, int | None]) -> LagSum:
    whole = LagSum(queues=len(queues))
    for one, age in queues:
        whole.add(one, age)
    return whole


def test_rates_are_of_the_time_between_two_looks() -> None:
    before = ClusterLook(10.0, ends={A: 100}, offsets={"g": {A: 50}}, lags={"g": lag((None, None))})
    now = ClusterLook(
        14.0,
        topics=["Idle"],
        ends={A: 300},
        offsets={"g": {A: 60}},
        lags={"g": lag((QueueLag(240, 60), 1500))},
    )
    rows = rows_of(before, now)
    assert [(one.topic, one.stored_per_second, one.groups) for one in rows.topics] == [
        ("Idle", None, 0),
        ("T", 50.0, 1),
    ]
    (group,) = rows.groups
    assert (group.lag_messages, group.lag_seconds, group.consumed_per_second) == (240, 1.5, 2.5)


def test_the_first_look_has_no_rates() -> None:
    now = ClusterLook(14.0, ends={A: 300}, offsets={"g": {A: 60}}, lags={"g": lag((QueueLag(240, 60), 0))})
    rows = rows_of(None, now)
    assert (rows.topics[0].stored_per_second, rows.groups[0].consumed_per_second) == (None, None)
    assert rows.groups[0].lag_messages == 240


def test_a_broker_that_comes_and_goes_makes_no_rate() -> None:
    """Its queues are compared only when both looks have them; one that went back did not store."""
    one = ClusterLook(0.0, ends={A: 100, B: 5000}, offsets={"g": {A: 1, B: 9}})
    other = ClusterLook(1.0, ends={A: 90}, offsets={"g": {A: 1}}, failed={"broker-b": "gone"})
    assert rows_of(one, other).topics[0].stored_per_second == 0
    back = rows_of(other, ClusterLook(2.0, topics=["T"], ends={B: 5000}))
    assert back.topics[0].stored_per_second is None, "nothing to compare with"


def test_unknown_lag_is_none_and_counted() -> None:
    now = ClusterLook(
        0.0,
        offsets={"none": {A: 0}, "some": {A: 3, B: 0}},
        lags={"none": lag((None, None)), "some": lag((QueueLag(2, 3), None), (None, None))},
    )
    none, some = rows_of(None, now).groups
    assert (none.lag_messages, none.lag_seconds, none.unknown_queues) == (None, None, 1)
    assert (some.lag_messages, some.lag_seconds, some.unknown_queues) == (2, None, 1)


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        (
            {"putTps": "1.234 5 6", "getTransferredTps": " 7 8", "commitLogDiskRatio": "0.126"},
            (1.23, 7.0, 13),
        ),
        ({"putTps": "", "getTransferredTps": "x", "commitLogDiskRatio": "-1"}, (None, None, None)),
        ({"putTps": "nan", "getTransferredTps": "inf", "commitLogDiskRatio": ""}, (None, None, None)),
        ({}, (None, None, None)),
    ],
)
def test_figures_of_brokers_that_they_may_not_tell(
    told: dict[str, str], wanted: tuple[float | None, ...]
) -> None:
    (row,) = rows_of(None, ClusterLook(0.0, [status("broker-a", 0, **told)])).brokers
    assert (row.stored_per_second, row.delivered_per_second, row.disk_percent) == wanted
    assert row.stalls is None and row.behind_bytes is None


def test_a_slave_is_behind_its_own_master() -> None:
    rows = rows_of(
        None,
        ClusterLook(
            0.0,
            [
                status("broker-a", 0, commitLogMaxOffset="1000", loopStalls="2", loopStallMillisMax="70.5"),
                status("broker-a", 1, commitLogMaxOffset="400"),
                status("broker-a", 2, "it is gone"),
                status("broker-b", 0, commitLogMaxOffset="9000"),
                status("broker-c", 1, commitLogMaxOffset="400"),
            ],
        ),
    ).brokers
    assert [row.behind_bytes for row in rows] == [None, 600, None, None, None]
    assert (rows[0].stalls, rows[0].longest_stall_ms, rows[2].error) == (2, 70.5, "it is gone")


def test_inside_are_the_queues_with_the_groups_that_read_them() -> None:
    other = MessageQueue("Other", "broker-a", 3)
    member = GroupMemberInfo("c1", "10.0.0.7:5", "JAVA", 1)
    before = ClusterLook(10.0, ends={A: 100, B: 5}, committed={("g", A): 50})
    now = ClusterLook(
        14.0,
        ends={A: 300, B: 5, other: 7},
        offsets={"g": {A: 60, B: 0}, "h": {A: 0}},
        committed={("g", A): 60, ("h", A): 0},
        members={"g": [member]},
    )
    first = TopQueue("T", "broker-a", 0, 50.0, "g", 240, 2.5)
    unknown = TopQueue("T", "broker-b", 0, 0.0, "g", None, None)
    topic = inside_of(before, now, TopPlace("topic", "T"))
    assert topic.queues == [first, TopQueue("T", "broker-a", 0, 50.0, "h", 300, None), unknown]
    assert topic.members is None
    group = inside_of(before, now, TopPlace("group", "g"))
    assert (group.queues, group.members) == ([first, unknown], [member])
    broker = inside_of(None, now, TopPlace("broker", "broker-a"))
    assert broker.queues[-1] == TopQueue("Other", "broker-a", 3, None), "no group reads it"
    assert inside_of(before, now, TopPlace("group", "gone")).queues == []
    assert inside_of(before, now, TopPlace("group", "h")).members is None, "they are not known yet"
