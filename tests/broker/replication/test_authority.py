"""Which role orders a broker obeys, and how long it may write."""

from __future__ import annotations

from typing import Any

import pytest

from sparrowmq.broker.replication.authority import Authority, OrdersRefusedError, RoleRecord
from sparrowmq.protocol.bodies.replicas import MASTER, SLAVE, ReplicaOrders
from sparrowmq.protocol.codes import ResponseCode


def authority(**record: Any) -> Authority:
    found = RoleRecord(**({"store": "s"} | record))
    return Authority(found, cluster="c", name="b", address="h:1", run="run 1")


def orders(epoch: int, **changes: Any) -> ReplicaOrders:
    values: dict[str, Any] = {
        "cluster_name": "c",
        "broker_name": "b",
        "epoch": epoch,
        "role": MASTER,
        "broker_id": 0,
    }
    return ReplicaOrders(**(values | changes))


def lease(epoch: int, since: int, **changes: Any) -> ReplicaOrders:
    return orders(epoch, **({"lease_ms": 3000, "lease_from": since, "run": "run 1"} | changes))


def refused(one: Authority, told: ReplicaOrders, now: float = 0.0) -> int:
    before = one.record, one.lease_end
    with pytest.raises(OrdersRefusedError) as caught:
        one.accept(told, now)
    assert (one.record, one.lease_end) == before
    return caught.value.code


def test_no_lease_is_needed_without_orders_and_by_hand() -> None:
    one = authority()
    assert one.may_write(1e12) and one.lease_left(0) == 0
    assert one.accept(orders(1), 0.0) and one.may_write(1e12)
    assert not one.accept(orders(1), 0.0)
    assert one.accept(orders(2, role=SLAVE, broker_id=1, master_address="h:2"), 0.0)
    assert not one.may_write(0)
    assert one.record.master == "h:2"


def test_lease_ends_after_the_time_of_its_request_whenever_it_arrives() -> None:
    one = authority()
    assert one.accept(lease(1, 1000), 1500.0)
    assert one.lease_left(1500) == 2500 and one.may_write(3999) and not one.may_write(4000)
    assert not one.accept(lease(1, 2000), 2500.0)
    assert one.lease_left(2500) == 2500
    one.accept(lease(1, 1200), 2600.0)  # an older renewal arrives late: the lease does not get shorter
    assert one.lease_end == 5000
    assert refused(one, lease(1, 1900), 5000.0) == ResponseCode.LEASE_OUTDATED
    assert refused(one, lease(1, 9000), 5000.0) == ResponseCode.LEASE_OUTDATED
    assert refused(one, lease(1, 4900, run="run 0"), 5000.0) == ResponseCode.LEASE_OUTDATED
    assert refused(one, lease(2, 1000), 5000.0) == ResponseCode.LEASE_OUTDATED


def test_managed_master_starts_without_a_lease_and_needs_force_for_manual_orders() -> None:
    one = authority(epoch=4, role=MASTER, is_managed=True)
    assert not one.may_write(0)
    assert refused(one, orders(5)) == ResponseCode.SYSTEM_ERROR
    assert one.accept(orders(5, force=True), 0.0) and one.may_write(0) and not one.record.is_managed


def test_slave_drops_its_lease_at_once() -> None:
    one = authority()
    one.accept(lease(1, 0), 0.0)
    told = lease(2, 0, role=SLAVE, broker_id=1, master_address="h:2", run="whatever")
    assert one.accept(told, 100.0)
    assert not one.may_write(100) and one.lease_left(100) == 0 and one.record.is_managed


def test_only_lease_and_in_sync_set_change_within_an_epoch() -> None:
    one = authority(epoch=4, role=SLAVE, broker_id=2, master="h:2", number=7)
    assert refused(one, orders(3)) == ResponseCode.EPOCH_OUTDATED
    assert refused(one, orders(4)) == ResponseCode.EPOCH_OUTDATED
    slave: dict[str, Any] = {"role": SLAVE, "broker_id": 2, "in_sync_number": 7}
    assert refused(one, orders(4, master_address="h:3", **slave)) == ResponseCode.EPOCH_OUTDATED
    older = slave | {"in_sync_number": 6}
    assert refused(one, orders(4, master_address="h:2", **older)) == ResponseCode.EPOCH_OUTDATED
    assert not one.accept(orders(4, master_address="h:2", **slave), 0.0)


def test_pause_ends_by_itself_and_with_the_next_epoch() -> None:
    one = authority(epoch=2, role=MASTER)
    for told in (orders(1, pause_ms=5), orders(2, pause_ms=60_001), orders(2, broker_name="x", pause_ms=5)):
        with pytest.raises(OrdersRefusedError):
            one.pause(told, 0.0)
    one.pause(orders(2, pause_ms=500), 1000.0)
    assert one.paused_until == 1500
    one.accept(orders(3, role=SLAVE, broker_id=1, master_address="h:2"), 1100.0)
    assert one.paused_until < 0


def test_role_is_read_as_it_was_written() -> None:
    record = RoleRecord("s", 3, SLAVE, 2, "h:2", "h:3", "SYNC_MASTER", True, ("h:1", "h:2"), 9)
    assert RoleRecord.of(record.content) == record
    for damage in ({"role": "KING"}, {"epoch": "x"}, {"brokerId": 0}):
        with pytest.raises(ValueError, match=r".+"):
            RoleRecord.of(record.content | damage)
