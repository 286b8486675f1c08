"""A broker's role while it runs: the orders it received, on disk, and whether it may write now.

It outlives the broker's parts, which are created again when the role changes. `config/replicaRole.json` has
the role, `epochFileCheckpoint` the reigns of the log.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.replication.authority import FOREVER, NEVER, Authority, OrdersRefusedError, RoleRecord
from sparrowmq.core.clock import uptime
from sparrowmq.core.errors import StoreCorruptError, StoreFencedError
from sparrowmq.protocol.bodies.replicas import MASTER, SLAVE
from sparrowmq.store.tables.config_file import ConfigFile
from sparrowmq.store.tables.epochs import ROLE_FILE, EpochFile, EpochTable

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from sparrowmq.core.settings.servers import BrokerSettings
    from sparrowmq.protocol.bodies.replicas import ReplicaOrders

log = logging.getLogger("sparrowmq.broker")
SYNC_MASTER: Final = "SYNC_MASTER"


def _nothing(*_: object) -> None:
    """Used by brokers whose role never changes."""


class Reign:
    """The role of one broker. `address` is its address for clients.

    `ha_address` returns its address for slaves. `changed` is called when the role is to change, or with the
    position at which the log is to be cut; `granted` when a fenced master got a lease. `clock` returns
    seconds and continues while the process is frozen. Raises `StoreCorruptError` for files that cannot be
    used.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        address: str,
        *,
        ha_address: Callable[[], str] = str,
        changed: Callable[[int | None], None] = _nothing,
        granted: Callable[[], None] = _nothing,
        clock: Callable[[], float] = uptime,
    ) -> None:
        self.address = address
        self.is_changing = False
        """Whether the role is about to change; until then nothing is written."""
        self.ha_address = ha_address
        self._pool: Executor | None = None
        self._granted = granted
        self._saving = threading.Lock()
        self._saved: RoleRecord | None = None
        self._settings = settings
        self._changed = changed
        self._clock = clock
        root = settings.store_path_root_dir
        self._file = ConfigFile(root / "config" / ROLE_FILE)
        self._epoch_file = EpochFile(root)
        self.epochs = self._epoch_file.load()
        self.authority = Authority(
            self._load(),
            cluster=settings.broker_cluster_name,
            name=settings.broker_name,
            address=address,
            run=secrets.token_hex(8),
        )

    def _load(self) -> RoleRecord:
        data = self._file.load()
        if not data:
            return RoleRecord(store=secrets.token_hex(8))
        try:
            found = RoleRecord.of(data)
        except (KeyError, TypeError, ValueError) as error:
            raise StoreCorruptError(
                f"{self._file.path} does not have a broker's role ({error!r}); restore it, or remove it: "
                f"then this broker has the role of its settings"
            ) from error
        self._saved = found
        return found

    @property
    def record(self) -> RoleRecord:
        """The role."""
        return self.authority.record

    @property
    def is_slave(self) -> bool:
        """Whether this broker copies another one's log."""
        return self.record.role == SLAVE if self.record.role else self._settings.is_slave

    @property
    def epoch(self) -> int:
        """The epoch that this broker's registration names: that of its orders, or of its log."""
        return max(self.record.epoch, self.epochs.last)

    @property
    def start(self) -> int:
        """Where in the log the newest reign began, by orders or by the settings; 0 without any."""
        return max(self.epochs.starts[-1][1] if self.epochs.starts else 0, self.record.master_from)

    @property
    def replaced_master(self) -> bool:
        """Whether this broker is a master that was a slave before."""
        return self.record.role == MASTER or self.record.master_from >= 0

    @property
    def master_from(self) -> int:
        """Where in the log this master replaced another one; without orders, where the newest reign began."""
        known = self.record.master_from
        return known if known >= 0 else self.start

    def settings(self, settings: BrokerSettings) -> BrokerSettings:
        """The settings with the current role."""
        record, configured = self.record, self._settings
        if record.role == SLAVE:
            return replace(settings, broker_role=SLAVE, broker_id=record.broker_id)
        if record.role == MASTER:
            role = (record.master_role or SYNC_MASTER) if configured.is_slave else configured.broker_role
            return replace(settings, broker_role=role, broker_id=0)
        return settings

    @property
    def would_be_sync(self) -> bool:
        """Whether sends wait for slaves when this broker is master."""
        if self._settings.is_slave:
            return (self.record.master_role or SYNC_MASTER) == SYNC_MASTER
        return self._settings.broker_role == SYNC_MASTER

    # The lease

    def now_ms(self) -> int:
        """Milliseconds of the clock of leases."""
        return int(self._clock() * 1000)

    @property
    def is_fenced(self) -> bool:
        """Whether this is a master without a lease."""
        return not self.is_slave and self._clock() * 1000 >= self.authority.lease_end

    @property
    def is_paused(self) -> bool:
        """Whether no messages are accepted for a while, because the log is being handed over."""
        return self._clock() * 1000 < self.authority.paused_until

    def check(self) -> None:
        """Raise `StoreFencedError` when nothing may be written now. It is called before each write: without a
        lease and a pause it reads no clock.
        """
        authority = self.authority
        if self.is_changing:
            raise StoreFencedError("this broker's role is changing; send to the group's master")
        if authority.paused_until != NEVER and self.is_paused:
            raise StoreFencedError("this broker hands its log over to the group's next master; send again")
        if authority.lease_end != FOREVER and self.is_fenced:
            raise StoreFencedError(
                f"this broker may no longer be the master of its group: its lease of epoch "
                f"{self.record.epoch} is over"
            )

    def may_acknowledge(self) -> bool:
        """Whether a stored message may be acknowledged now."""
        return not self.is_changing and not self.is_fenced

    # Orders

    def obey(self, orders: ReplicaOrders) -> None:
        """Obey orders, or raise `OrdersRefusedError`. Use `keep` before the role is told to anyone."""
        if orders.pause_ms and self.is_slave:
            raise OrdersRefusedError(1, "this broker is a slave: only a master can pause")
        if orders.pause_ms:
            self.authority.pause(orders, self.now_ms())
            log.warning(
                "this broker accepts no messages for %d ms: its log is being handed over", orders.pause_ms
            )
            return
        if self.is_changing and orders.epoch > self.record.epoch:
            raise OrdersRefusedError(1, "this broker's role is changing; ask for its state, then send again")
        was_fenced = self.is_fenced
        if self.authority.accept(orders, self.now_ms()):
            log.warning(
                "orders of epoch %d%s: this broker becomes %s%s",
                orders.epoch,
                ", which may lose messages" if orders.unclean else "",
                orders.role,
                f" of {orders.master_address}" if orders.master_address else "",
            )
            self.is_changing = True
            self._changed(None)
            return
        if was_fenced and not self.is_fenced:
            log.warning("this broker has a lease of epoch %d and accepts messages again", orders.epoch)
            self._granted()

    @property
    def is_kept(self) -> bool:
        """Whether the role is on disk, so that others may be told of it. A new role is written when it
        begins; the random text that identifies the store is written before.
        """
        saved, record = self._saved, self.record
        if saved is None or saved.store != record.store:
            return False
        return self.is_changing or saved == record

    async def keep(self) -> None:
        """Write the role to disk in a thread, if it is not there. Raises `StoreError`."""
        while not self.is_kept:
            await asyncio.get_running_loop().run_in_executor(self._pool, self.save)

    def write_in(self, pool: Executor) -> None:
        """Write in these threads from now on: those of the broker's current parts."""
        self._pool = pool

    def save(self) -> None:
        """Write the role to disk; any thread. Raises `StoreError`."""
        with self._saving:
            record = self.record
            self._file.save(record.content)
            self._saved = record

    def begin(self, end: int) -> None:
        """The role in force begins; `end` is that of the log, where a master's reign begins. Raises
        `StoreError`."""
        record = self.record
        if record.role == MASTER and record.epoch > self.epochs.last:
            self.keep_epochs(self.epochs.begun(record.epoch, end))
        if record.role == MASTER and record.master_from < 0:
            self.authority.note_mastership(self.start)
        elif not record.role and not self.is_slave and record.master_role:
            self.authority.note_mastership(end)
            self.save()
            log.warning("this broker was a slave; its settings make it the master from %d of the log on", end)
        if self.is_changing:
            self.save()
            self.is_changing = False

    # Damage

    def opened(self, damaged: Iterable[tuple[int, int]]) -> None:
        """The log was opened, with damage in these parts. Raises `StoreError`."""
        before, known = self.record, self.record.damaged
        found = [low for low, _ in damaged] + ([known] if known >= 0 else [])
        if found:
            self.note_damage(min(found))
        if self.record != before:
            self.save()

    def note_damage(self, position: int) -> None:
        """The log is damaged from `position` on, so that this broker lacks messages of its group. This is
        remembered until the log is cut there. For its coordinator, a slave becomes another copy, which is not
        in sync. Use `keep` then.
        """
        known = self.record.damaged
        is_new = known < 0 or position < known
        store = secrets.token_hex(8) if self.is_slave and not self.record.is_disowned else None
        if is_new or store is not None:
            self.authority.note_damage(position if is_new else known, store)

    def forget_damage(self) -> None:
        """The damaged part of the log is gone. Use `keep` then."""
        if self.record.damaged >= 0:
            self.authority.forget_damage()

    # A slave and its master

    def keep_epochs(self, table: EpochTable) -> None:
        """Save the reigns of the log, if they changed; any thread. Raises `StoreError`."""
        if table != self.epochs:
            self._epoch_file.save(table)
            self.epochs = table

    def was_cut(self, position: int) -> None:
        """The log was cut at this position, and its reigns with it; any thread. Raises `StoreError`."""
        self.epochs = self._epoch_file.load()
        if self.record.damaged >= position:
            self.forget_damage()
            self.save()

    async def learn_master(self, role: str, reigns: EpochTable) -> None:
        """The master's `brokerRole` and the reigns of its log, in case this broker replaces it; they are on
        disk when this returns. Raises `StoreError`.
        """
        if role != self.record.master_role:
            self.authority.learn_master(role)
        await self.keep()
        await asyncio.get_running_loop().run_in_executor(self._pool, self.keep_epochs, reigns)

    def cut(self, position: int) -> None:
        """The log has to be cut at this position before the master can be followed."""
        if not self.is_changing:
            self.is_changing = True
            self._changed(position)
