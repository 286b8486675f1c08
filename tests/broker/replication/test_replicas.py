"""Which sends wait for which slaves, tested without a clock or a socket."""

from __future__ import annotations

import pytest

from sparrowmq.broker.replication.replicas import SUCCESS, WAITING_BYTES_MAX, WAITING_MAX, Replica, Replicas
from sparrowmq.protocol.codes import ResponseCode

NO_SLAVE, LATE = ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT


class Table:
    """Slaves, and the codes returned to sends."""

    def __init__(self, slaves: int, *, needed: int = 2, needed_before: int = 1, gap_max: int = 1000) -> None:
        self.replicas = Replicas(needed=needed, needed_before=needed_before, gap_max=gap_max, timeout=3.0)
        self.slaves = [Replica(f"slave {number}") for number in range(slaves)]
        for slave in self.slaves:
            self.replicas.join(slave)
        self.told: list[tuple[int, int]] = []

    def send(self, position: int, now: float = 0.0, size: int = 0) -> None:
        self.replicas.after(position, now, lambda code: self.told.append((position, int(code))), size)

    def report(self, number: int, position: int) -> None:
        for done in self.replicas.acknowledged(self.slaves[number], position):
            done(SUCCESS)

    def pass_time(self, now: float) -> None:
        for done in self.replicas.expired(now):
            done(LATE)


def test_send_waits_for_the_slave() -> None:
    table = Table(1)
    table.report(0, 0)
    table.send(100)
    table.send(200)
    assert table.told == []
    table.report(0, 150)
    assert table.told == [(100, SUCCESS)]
    table.report(0, 200)
    assert table.told == [(100, SUCCESS), (200, SUCCESS)]


def test_send_without_a_slave_is_answered_at_once() -> None:
    table = Table(0)
    table.send(100)
    assert table.told == [(100, NO_SLAVE)]


def test_slave_that_has_not_reported_does_not_count() -> None:
    table = Table(1)
    table.send(100)
    assert table.told == [(100, NO_SLAVE)]


def test_slave_that_is_far_behind_does_not_count() -> None:
    table = Table(1, gap_max=1000)
    table.report(0, 10)
    table.send(1011)
    assert table.told == [(1011, NO_SLAVE)]
    table.send(1010)
    assert table.told == [(1011, NO_SLAVE)]


def test_late_confirmation_is_a_timeout() -> None:
    table = Table(1)
    table.report(0, 0)
    table.send(100, now=5.0)
    assert table.replicas.deadline == 8.0
    table.pass_time(7.9)
    assert table.told == []
    table.pass_time(8.0)
    assert table.told == [(100, LATE)]
    table.report(0, 100)
    assert table.told == [(100, LATE)]
    assert table.replicas.deadline is None


def test_requested_number_of_slaves_must_confirm() -> None:
    table = Table(3, needed=3)
    for number in range(3):
        table.report(number, 0)
    table.send(100)
    table.report(0, 100)
    assert table.told == []
    table.report(2, 120)
    assert table.told == [(100, SUCCESS)]
    assert table.replicas.confirmed == 100


def test_one_slave_does_not_count_twice() -> None:
    table = Table(2, needed=3)
    table.report(0, 0)
    table.report(1, 0)
    table.send(100)
    table.report(0, 100)
    table.report(0, 200)
    assert table.told == []


def test_with_one_copy_no_send_waits() -> None:
    table = Table(0, needed=1)
    table.send(100)
    assert table.told == [(100, SUCCESS)]


def test_send_waiting_for_a_disconnected_slave_keeps_waiting() -> None:
    table = Table(1)
    table.report(0, 0)
    table.send(100)
    table.replicas.leave(table.slaves[0])
    assert table.told == []
    table.pass_time(3.0)
    assert table.told == [(100, LATE)]


def test_too_few_in_sync_replicas_refuse_a_send() -> None:
    table = Table(1, needed_before=2, gap_max=100)
    assert "minInSyncReplicas is 2" in (table.replicas.refusal(0) or "")
    table.report(0, 0)
    assert table.replicas.refusal(100) is None
    assert table.replicas.refusal(101) is not None


@pytest.mark.parametrize(("count", "size"), [(WAITING_MAX, 0), (1, WAITING_BYTES_MAX)])
def test_number_of_waiting_sends_is_bounded(count: int, size: int) -> None:
    table = Table(1)
    table.report(0, 0)
    assert not table.replicas.busy
    for _ in range(count):
        table.send(100, size=size)
    assert table.replicas.busy
    assert len(table.replicas.give_up()) == count
    assert not table.replicas.busy
