"""The contents of a revive queue, in any order of reading."""

from __future__ import annotations

import pytest

from sparrowmq.broker.pop import check_points
from sparrowmq.broker.pop.check_points import CheckPoints
from sparrowmq.protocol.pop.records import Ack, CheckPoint, read_ack, read_check_point


def point(start: int = 10, *, pop_time: int = 1000, place: int = 0, count: int = 3) -> CheckPoint:
    return CheckPoint(
        broker_name="b",
        group="g",
        differences=list(range(count)),
        invisible_time=500,
        count=count,
        pop_time=pop_time,
        queue_id=0,
        revive_offset=place,
        start_offset=start,
        topic="T",
    )


def ack(of: CheckPoint, *offsets: int) -> Ack:
    return Ack(
        ack_offsets=list(offsets),
        broker_name="b",
        group="g",
        pop_time=of.pop_time,
        queue_id=0,
        start_offset=of.start_offset,
        topic="T",
    )


def test_check_point_is_settled_when_its_time_is_over() -> None:
    points, one, two = CheckPoints(), point(place=4), point(20, pop_time=900, place=5)
    points.add(one)
    points.add(two)
    points.acknowledge(ack(one, 11, 77), 6, 1500)
    assert (points.first_place, points.next_time) == (4, 1400)
    assert points.settled(1499, 10) == [two] and points.first_place == 4
    (settled,) = points.settled(1500, 10)
    assert settled.missing == [10, 12] and points.first_place is None and points.next_time is None


def test_acknowledgement_before_its_check_point_counts() -> None:
    points, one = CheckPoints(), point(place=9)
    points.acknowledge(ack(one, 10, 12), 3, 1500)
    assert (points.first_place, points.next_time, len(points)) == (3, 1500, 0)
    points.forget_early(1499)
    points.add(one)
    assert points.first_place == 9
    assert points.settled(1500, 1)[0].missing == [11]


def test_acknowledgement_without_a_check_point_is_dropped() -> None:
    points, one = CheckPoints(), point()
    points.acknowledge(ack(one, 10), 3, 1500)
    points.forget_early(1500)
    assert points.first_place is None and points.next_time is None
    points.add(one)
    assert points.settled(1500, 1)[0].missing == [10, 11, 12]


def test_number_of_early_acknowledgements_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_points, "EARLY_MAX", 2)
    points = CheckPoints()
    for start in (10, 20, 30):
        points.acknowledge(ack(point(start), start), start, 1500)
    assert points.first_place == 20


def test_check_points_that_are_put_back_come_again() -> None:
    points, one = CheckPoints(), point(place=2)
    points.add(one)
    found = points.settled(2000, 10)
    points.put_back(found)
    assert points.first_place == 2 and points.settled(2000, 10) == [one]


def test_bodies_of_apaches_brokers_are_read() -> None:
    """5.5 writes more members; old brokers write no differences, and long names in acknowledgements."""
    body = (
        b'{"bm":0,"bn":"broker-a","c":"G","d":[0,2],"it":8000,"n":2,"pt":1700000000000,"q":1,'
        b'"reviveTime":1700000008000,"ro":0,"so":5,"sp":false,"t":"T"}'
    )
    found = read_check_point(body, 77)
    assert (found.offsets, found.revive_time, found.revive_offset) == ([5, 7], 1_700_000_008_000, 77)
    old = b'{"bm":3,"c":"G","it":8000,"n":3,"pt":1,"q":1,"ro":0,"so":5,"t":"T"}'
    assert read_check_point(old, 0).missing == [5, 6, 7]
    long = (
        b'{"ackOffset":6,"brokerName":"","consumerGroup":"G","popTime":1,"queueId":1,"startOffset":5,'
        b'"topic":"T"}'
    )
    assert read_ack(long, "broker-a").key == ("T", "G", 1, 5, 1, "broker-a")
    assert read_ack(long, "broker-a").offsets == [6]
    assert point().encode() == (
        b'{"bm":0,"bn":"b","c":"g","d":[0,1,2],"it":500,"n":3,"pt":1000,"q":0,"ro":0,"so":10,"t":"T"}'
    )
