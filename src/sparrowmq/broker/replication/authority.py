"""A broker's role in its group: which orders it obeys, and until when it may write. Pure: no I/O, no clock.

An epoch is the number of a master's reign. Orders with a lower one are refused; a higher one changes the
role. A managed master needs a lease, which lasts for a time after a stamp that this broker gave earlier. So a
message that was delayed in the socket of a frozen process gives no lease: its stamp is old.

Times are milliseconds of the clock that continues while this broker's process is frozen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from sparrowmq.core.errors import BrokerError
from sparrowmq.protocol.bodies.replicas import MASTER, REPLICAS_MAX, SLAVE, ReplicaOrders
from sparrowmq.protocol.codes import ResponseCode

FOREVER: Final = float("inf")
NEVER: Final = float("-inf")
LEASE_MS_MAX: Final = 600_000
"""A longer lease is refused, because no other broker could become master for that time."""
PAUSE_MS_MAX: Final = 60_000
"""The longest pause, during which a master accepts nothing, that one order may set."""


class OrdersRefusedError(BrokerError):
    """Orders that this broker does not obey, with the code of the answer."""


@dataclass(frozen=True, slots=True)
class RoleRecord:
    """A broker's role, as it is stored on disk.

    `store` is a random text that identifies the store: an emptied store gets another one. `epoch` is -1, and
    `role` empty, if it never got orders: then its settings decide its role. `master_role` is the `brokerRole`
    of the last master it followed. `damaged` is the first position of its log that is known to be damaged, -1
    if none is; `is_disowned`: as a slave, it got another `store` because of that. `master_from`: where the
    log ended when it became master, by orders or by its settings; -1 if it is none, or always was one without
    orders. Later reigns of the same master do not change it.
    """

    store: str = ""
    epoch: int = -1
    role: str = ""
    broker_id: int = 0
    master: str = ""
    master_ha: str = ""
    master_role: str = ""
    is_managed: bool = False
    in_sync: tuple[str, ...] = ()
    number: int = 0
    damaged: int = -1
    is_disowned: bool = False
    master_from: int = -1

    @classmethod
    def of(cls, data: dict[str, Any]) -> RoleRecord:
        """From the content of its file. Raises ValueError, TypeError or KeyError."""
        found = cls(
            store=str(data["store"]),
            epoch=int(data["epoch"]),
            role=str(data["role"]),
            broker_id=int(data["brokerId"]),
            master=str(data["master"]),
            master_ha=str(data["masterHa"]),
            master_role=str(data["masterRole"]),
            is_managed=bool(data["isManaged"]),
            in_sync=tuple(str(one) for one in data["inSync"]),
            number=int(data["inSyncNumber"]),
            damaged=int(data.get("damagedAt", -1)),
            is_disowned=bool(data.get("isDisowned", False)),
            master_from=int(data.get("masterFrom", -1)),
        )
        if found.role not in ("", MASTER, SLAVE) or (found.role == SLAVE) != (found.broker_id > 0):
            raise ValueError(f"role {found.role!r} with broker id {found.broker_id}")
        return found

    @property
    def content(self) -> dict[str, Any]:
        """The content of its file."""
        return {
            "store": self.store,
            "epoch": self.epoch,
            "role": self.role,
            "brokerId": self.broker_id,
            "master": self.master,
            "masterHa": self.master_ha,
            "masterRole": self.master_role,
            "isManaged": self.is_managed,
            "inSync": list(self.in_sync),
            "inSyncNumber": self.number,
            "damagedAt": self.damaged,
            "isDisowned": self.is_disowned,
            "masterFrom": self.master_from,
        }


class Authority:
    """Whether one run of a broker may write, by the orders it got. `run` differs after each start."""

    def __init__(self, record: RoleRecord, *, cluster: str, name: str, address: str, run: str) -> None:
        self.record = record
        self.run = run
        self._cluster = cluster
        self._name = name
        self._address = address
        self.lease_end = NEVER if record.is_managed else FOREVER
        """Until when a master may write."""
        self.paused_until = NEVER
        """Until when a master accepts nothing, because its log is being handed over."""

    def may_write(self, now: float) -> bool:
        """Whether a message may be stored or acknowledged now."""
        return now < self.lease_end and self.record.role != SLAVE

    def lease_left(self, now: float) -> int:
        """Milliseconds until the lease ends; 0 without one."""
        if not self.record.is_managed:
            return 0
        return max(0, int(self.lease_end - now)) if self.lease_end > now else 0

    def paused_left(self, now: float) -> int:
        """Milliseconds for which nothing is taken because the log is handed over; 0 otherwise."""
        return max(0, int(self.paused_until - now)) if self.paused_until > now else 0

    def accept(self, orders: ReplicaOrders, now: float) -> bool:
        """Obey orders; returns whether the role changes, so that the broker has to be set up anew.

        The new `record` applies immediately; save it before you report it to anyone. Raises
        `OrdersRefusedError`; then nothing has changed.
        """
        self._check(orders)
        record = self.record
        is_new = orders.epoch > record.epoch
        if not is_new:
            self._check_same_reign(orders)
        lease_end = self._lease_end(orders, now)
        members = tuple(dict.fromkeys(orders.in_sync))
        is_master = orders.role == MASTER
        self.record = replace(
            record,
            epoch=orders.epoch,
            role=orders.role,
            broker_id=orders.broker_id,
            master="" if is_master else orders.master_address,
            master_ha="" if is_master else orders.master_ha_address,
            is_managed=orders.lease_ms > 0,
            in_sync=members,
            number=orders.in_sync_number,
            master_from=record.master_from if is_master else -1,
        )
        if is_new:
            self.paused_until = NEVER
        if is_new or not orders.lease_ms:
            self.lease_end = lease_end
        else:
            self.lease_end = max(self.lease_end, lease_end)
        return is_new

    def learn_master(self, role: str) -> None:
        """The `brokerRole` of the master that is followed."""
        self.record = replace(self.record, master_role=role, master_from=-1)

    def note_mastership(self, position: int) -> None:
        """This broker became master when its log ended at `position`, by orders or by its settings. With the
        latter, the role of the master that it followed no longer counts.
        """
        record = self.record
        master_role = record.master_role if record.role else ""
        self.record = replace(record, master_role=master_role, master_from=position)

    def note_damage(self, position: int, store: str | None) -> None:
        """The log is damaged from `position` on; `store` is the text of another copy, if it now counts as
        one."""
        self.record = replace(self.record, damaged=position)
        if store is not None:
            self.record = replace(self.record, store=store, is_disowned=True)

    def forget_damage(self) -> None:
        """The damaged part of the log is gone."""
        self.record = replace(self.record, damaged=-1, is_disowned=False)

    def pause(self, orders: ReplicaOrders, now: float) -> None:
        """Accept nothing for a while. Raises `OrdersRefusedError`, for a slave and for another epoch."""
        self._check_name(orders)
        if self.record.role == SLAVE or orders.epoch != self.record.epoch:
            raise _outdated(
                f"only the master of epoch {orders.epoch} can pause; this broker is "
                f"{self.record.role or 'what its settings say'} in epoch {self.record.epoch}"
            )
        if not 0 < orders.pause_ms <= PAUSE_MS_MAX:
            raise _refused(f"pauseMs={orders.pause_ms}: must be 1 to {PAUSE_MS_MAX}")
        self.paused_until = now + orders.pause_ms

    def _check_name(self, orders: ReplicaOrders) -> None:
        if (orders.cluster_name, orders.broker_name) != (self._cluster, self._name):
            raise _refused(
                f"the orders are for {orders.broker_name} of cluster {orders.cluster_name}; this broker is "
                f"{self._name} of {self._cluster}"
            )

    def _check(self, orders: ReplicaOrders) -> None:
        self._check_name(orders)
        record = self.record
        if orders.store and orders.store != record.store:
            raise _refused(
                f"the orders are for the store {orders.store}, this broker's is {record.store}: it was "
                "emptied or replaced"
            )
        if orders.role not in (MASTER, SLAVE) or (orders.role == SLAVE) != (orders.broker_id > 0):
            raise _refused(
                f"role {orders.role} with brokerId {orders.broker_id}: a MASTER has 0, a SLAVE 1 or more"
            )
        if orders.role == SLAVE and (not orders.master_address or orders.master_address == self._address):
            raise _refused(f"masterAddress={orders.master_address}: a slave needs another broker's address")
        if len(orders.in_sync) > REPLICAS_MAX:
            raise _refused(f"{len(orders.in_sync)} replicas in the in-sync set, at most {REPLICAS_MAX}")
        if not 0 <= orders.lease_ms <= LEASE_MS_MAX:
            raise _refused(f"leaseMs={orders.lease_ms}: must be 0 to {LEASE_MS_MAX}")
        if orders.epoch < record.epoch:
            raise _outdated(f"epoch {orders.epoch} is over; this broker obeys epoch {record.epoch}")
        if record.is_managed and not orders.lease_ms and not orders.force:
            raise _refused(
                "a coordinator manages this broker's role; let it elect, or give `force` to take the broker "
                "away from it"
            )

    def _check_same_reign(self, orders: ReplicaOrders) -> None:
        """Orders of the epoch in force only renew it."""
        record = self.record
        if orders.role != record.role or (orders.role == SLAVE and orders.master_address != record.master):
            raise _outdated(
                f"in epoch {record.epoch} this broker is {record.role}"
                f"{f' of {record.master}' if record.master else ''}; another role needs a higher epoch"
            )
        if orders.in_sync_number < record.number:
            raise _outdated(
                f"the in-sync set {orders.in_sync_number} is over; this broker knows {record.number}"
            )

    def _lease_end(self, orders: ReplicaOrders, now: float) -> float:
        if not orders.lease_ms:
            return FOREVER
        if orders.role == SLAVE:
            return NEVER
        end = orders.lease_from + orders.lease_ms
        if orders.run != self.run or orders.lease_from > now or end <= now:
            raise OrdersRefusedError(
                ResponseCode.LEASE_OUTDATED,
                f"the lease has expired or is not for this run of the broker: run {orders.run!r} from "
                f"{orders.lease_from} for {orders.lease_ms} ms; this is run {self.run!r} at {int(now)}; ask "
                "for its state and send it again",
            )
        return end


def _refused(text: str) -> OrdersRefusedError:
    return OrdersRefusedError(ResponseCode.SYSTEM_ERROR, text)


def _outdated(text: str) -> OrdersRefusedError:
    return OrdersRefusedError(ResponseCode.EPOCH_OUTDATED, text)
