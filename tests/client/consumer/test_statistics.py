"""Sums and samples of a consumer's work."""

from __future__ import annotations

import pytest

from sparrowmq.client.consumer.statistics import HOUR_SECONDS, SAMPLE_SECONDS, ConsumeStatistics
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.bodies import ConsumeStatus
from sparrowmq.protocol.failing import FailingQueue

QUEUE, OTHER = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)


class Hand:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def pass_time(statistics: ConsumeStatistics, clock: Hand, seconds: float) -> None:
    for _ in range(round(seconds / SAMPLE_SECONDS)):
        clock.now += SAMPLE_SECONDS
        statistics.sample()


@pytest.mark.proves("client:D-89", "A-38")
def test_rates_cover_the_last_minute() -> None:
    clock = Hand()
    statistics = ConsumeStatistics("g", clock)
    assert statistics.status("T") == ConsumeStatus()
    for _ in range(6):
        statistics.pulled("T", 60, 0.1)
        statistics.consumed("T", 50, 10, 0.2, QUEUE)
        pass_time(statistics, clock, SAMPLE_SECONDS)
    status = statistics.status("T")
    assert (status.pull_tps, status.consume_ok_tps, status.consume_failed_tps) == (6.0, 5.0, 1.0)
    assert (status.pull_rt, status.consume_rt) == pytest.approx((100, 200))
    assert status.consume_failed_msgs == 60
    pass_time(statistics, clock, 60)
    assert statistics.status("T").consume_ok_tps == 0


@pytest.mark.proves("client:D-89")
def test_call_time_falls_back_to_the_last_hour() -> None:
    clock = Hand()
    statistics = ConsumeStatistics("g", clock)
    statistics.consumed("T", 1, 1, 0.5, QUEUE)
    pass_time(statistics, clock, HOUR_SECONDS + SAMPLE_SECONDS)
    status = statistics.status("T")
    assert status.consume_rt == 500
    assert status.consume_failed_msgs == 1
    pass_time(statistics, clock, 2 * 3600)
    assert statistics.status("T").consume_rt == 0
    assert statistics.totals("T").ok == 1


def test_queue_fails_from_its_first_failure_to_its_next_success_or_a_quiet_minute() -> None:
    clock = Hand()
    statistics = ConsumeStatistics("g", clock)
    statistics.consumed("T", 1, 0, 0.1, OTHER)
    statistics.consumed("T", 0, 2, 0.1, QUEUE)
    clock.now += 50
    statistics.consumed("T", 0, 1, 0.1, QUEUE)
    statistics.consumed("T", 1, 1, 0.1, OTHER)
    assert statistics.failing() == [FailingQueue(QUEUE, 3, 50)], "another queue that goes on changes nothing"
    statistics.consumed("T", 1, 0, 0.1, QUEUE)
    assert statistics.failing() == []
    statistics.consumed("T", 0, 1, 0.1, QUEUE)
    pass_time(statistics, clock, 60)
    assert statistics.failing() == [FailingQueue(QUEUE, 1, 60)]
    pass_time(statistics, clock, SAMPLE_SECONDS)
    assert statistics.failing() == []
