"""Fake brokers that obey a coordinator, without a network."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import msgspec

from sparrowmq.core.errors import BrokerError, ConnectError
from sparrowmq.protocol.bodies.replicas import EpochStart, ReplicaOrders, ReplicaState


@dataclass
class MadeUpBrokers:
    """Fake brokers; those in `down` do not answer. `log` has their actions in order."""

    states: dict[str, ReplicaState] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    log: list[str] = field(default_factory=list)
    stamp: int = 0
    orders: Counter[str] = field(default_factory=Counter)

    def add(self, address: str, role: str) -> None:
        self.states[address] = ReplicaState(
            cluster_name="c",
            broker_name="g",
            broker_id=0,
            address=address,
            ha_address=f"{address}-ha",
            role=role,
            state="SERVING" if role == "MASTER" else "FOLLOWING",
            epochs=[EpochStart(0, 0)],
            max_offset=100,
            confirmed_offset=100,
            wanted=[address] if role == "MASTER" else None,
            run=f"run-{address}",
            store=f"store-{address}",
        )

    def change(self, address: str, **values: object) -> None:
        self.states[address] = msgspec.structs.replace(self.states[address], **values)

    async def of_group(self, name: str) -> list[str]:
        return sorted(self.states)

    async def state(self, address: str, seconds: float) -> ReplicaState:
        if address in self.down:
            raise ConnectError(f"{address} is down")
        self.stamp += 1
        self.change(address, stamp=self.stamp)
        return self.states[address]

    async def order(self, address: str, orders: ReplicaOrders, seconds: float) -> ReplicaState:
        if address in self.down:
            raise ConnectError(f"{address} is down")
        self.orders[address] += 1
        if orders.pause_ms:
            self.log.append(f"pause {address} {orders.pause_ms}")
            self.change(address, paused_left_ms=orders.pause_ms)
            return self.states[address]
        if orders.epoch < self.states[address].epoch:
            raise BrokerError(90021, "outdated")
        if orders.epoch > self.states[address].epoch or not orders.lease_ms:
            self.log.append(f"order {address} {orders.role} {orders.epoch} {orders.lease_ms}")
        is_master = orders.role == "MASTER"
        self.change(
            address,
            role=orders.role,
            state="SERVING" if is_master else "FOLLOWING",
            epoch=orders.epoch,
            in_sync=orders.in_sync,
            in_sync_number=orders.in_sync_number,
            wanted=orders.in_sync if is_master else None,
            master_address="" if is_master else orders.master_address,
            is_managed=orders.lease_ms > 0,
            paused_left_ms=0
            if orders.epoch > self.states[address].epoch
            else self.states[address].paused_left_ms,
        )
        return self.states[address]

    async def close(self) -> None:
        pass
