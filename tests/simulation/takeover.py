"""A group of brokers with coordinators, in simulated time: everything fails, nothing acknowledged is lost.

What decides is shipped: `coordinator.replicas.decisions`, `coordinator.leases.rules`, and of a broker
`Authority`, `InSyncSet`, `Replicas`, `EpochTable` and `where_to_continue`. What carries it out is made up
here: the network, processes, clocks, disks and the database. All of it comes from a seed. A log is a list of
messages, so positions count messages.

`python -m tests.simulation.takeover --rounds 10000 --seed 1` runs as many schedules as wanted.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from tests.coordinator.leases.simulation import Table

from sparrowmq.broker.replication.authority import Authority, OrdersRefusedError, RoleRecord
from sparrowmq.broker.replication.comparison import CannotFollowError, MastersLog, OwnLog, where_to_continue
from sparrowmq.broker.replication.in_sync import InSyncSet
from sparrowmq.broker.replication.replicas import SUCCESS, Replica, Replicas
from sparrowmq.coordinator.leases import rules
from sparrowmq.coordinator.leases.rules import LeaseAction, LeaseCandidate, LeaseTimes, Owner
from sparrowmq.coordinator.replicas import decisions
from sparrowmq.coordinator.replicas.decisions import (
    MASTER,
    SLAVE,
    ElectionTimes,
    GroupChange,
    Heard,
    ReplicaGroup,
    RoleOrders,
    View,
    Wish,
    WishKind,
)
from sparrowmq.coordinator.replicas.group_watch import heard, request
from sparrowmq.protocol.bodies.replicas import EpochStart, ReplicaOrders, ReplicaState, SlaveState
from sparrowmq.store.log.commit_log import NOT_TOLD
from sparrowmq.store.tables.epochs import EpochTable

LEADER_TIMES = LeaseTimes(ttl_ms=5000, renew_ms=1500, margin_ms=1000)
TIMES = ElectionTimes()
ASK_SECONDS = 1.0
ASKED_SHARE = 0.2
"""In how many of its looks a slave asks its master up to where consumers may read."""
PATIENCE = 3.0
"""After what time a master gives up a member of the in-sync set; 15 s by default."""
DRIFT = 0.01
"""How much faster or slower the clock of a process runs."""
HEAL_SECONDS = 30.0
"""Within this time after the last fault, messages are acknowledged again."""
GROUP = "broker-a"
CLUSTER = "cluster"
DATABASE = "database"
FAULTS = ("kill", "kill", "freeze", "freeze", "cut", "cut", "cut", "leader", "jump", "wish", "power", "wipe")

T = TypeVar("T")
Message = tuple[int, int]
"""The epoch in which it was stored, and its number."""


@dataclass(frozen=True)
class Planted:
    """Faults of the code that a test plants: the simulation has to find them."""

    name: str = ""

    def __bool__(self) -> bool:
        return bool(self.name)

    def __call__(self, name: str) -> bool:
        return self.name == name


@dataclass
class Broken(AssertionError):
    """A promise was broken."""

    text: str

    def __str__(self) -> str:
        return self.text


class Process:
    """Something that runs, is frozen, dies and starts again. Events of a dead run are dropped, those of a
    frozen one wait.
    """

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.is_alive = True
        self.frozen_until = 0.0
        self.run_number = 0
        self.rate = 1 + world.random.uniform(-DRIFT, DRIFT)
        self.base = world.random.uniform(0, 1000)

    def clock(self) -> float:
        """Seconds of its clock, which goes on while it is frozen."""
        return self.base + self.world.now * self.rate

    def on(self, event: Callable[[], None], run: int | None = None) -> None:
        """Something happens in this process now, or when it is thawed."""
        run = self.run_number if run is None else run
        if not self.is_alive or run != self.run_number:
            return
        if self.world.now < self.frozen_until:
            self.world.at(self.frozen_until - self.world.now, partial(self.on, event, run))
        else:
            event()

    def later(self, seconds: float, event: Callable[[], None]) -> None:
        """Something happens in this run of the process after some seconds of its clock."""
        self.world.at(seconds / self.rate, partial(self.on, event, self.run_number))


class Link:
    """A connection of a slave to its master's HA port: bytes arrive in order, or not at all."""

    def __init__(self, world: World, slave: Broker, master: Broker) -> None:
        self.world = world
        self.slave, self.master = slave, master
        self.ends = {slave.name: slave.run_number, master.name: master.run_number}
        self.is_open = {slave.name: True, master.name: True}
        self.heard_at = {slave.name: world.now, master.name: world.now}
        self.sent_at = {slave.name: 0.0, master.name: 0.0}
        self._arrives = {slave.name: world.now, master.name: world.now}
        self.replica: Replica | None = None
        self.next = 0

    def send(self, source: Broker, target: Broker, event: Callable[[], None]) -> None:
        """What arrives later than what was sent before; during a partition it waits, as TCP sends again."""
        if not self.is_open[source.name]:
            return
        delay = self.world.delay()
        if not self.world.reaches(source.name, target.name):
            delay += self.world.random.uniform(0.5, 4.0)
        self.sent_at[source.name] = self.world.now
        at = max(self._arrives[target.name] + 1e-6, self.world.now + delay)
        self._arrives[target.name] = at
        self.world.at(at - self.world.now, partial(self._arrive, source, target, event))

    def _arrive(self, source: Broker, target: Broker, event: Callable[[], None]) -> None:
        if not self.world.reaches(source.name, target.name):
            self.send(source, target, event)
            return

        def receive() -> None:
            if self.is_open[target.name]:
                self.heard_at[target.name] = self.world.now
                event()

        target.on(receive, self.ends[target.name])

    def close(self, side: Broker) -> None:
        """One side closes it; the other one notices when it hears of it, or of nothing for too long."""
        if not self.is_open[side.name]:
            return
        self.is_open[side.name] = False
        other = self.master if side is self.slave else self.slave
        side.unlinked(self)
        if self.world.reaches(side.name, other.name):
            gone = partial(self.close, other)
            self.world.at(self.world.delay(), lambda: other.on(gone, self.ends[other.name]))


class Broker(Process):
    """One broker: what it has on disk, what it knows in this run, and its part of replication."""

    def __init__(self, world: World, name: str, *, is_master: bool) -> None:
        super().__init__(world, name)
        self.is_first_master = is_master
        self.log: list[Message] = [(0, 0)]  # logs that have nothing in common are left to people
        self.on_disk = 1
        self.epochs = EpochTable()
        self.record = RoleRecord(store=f"store-{name}")
        self.wiped = 0
        self.begin_run()

    def __repr__(self) -> str:
        return f"<{self.name} {self.role} epoch={self.authority.record.epoch} end={len(self.log)}>"

    # Its life

    def begin_run(self) -> None:
        """Start the process, with what is on disk."""
        self.run_number += 1
        self.is_alive, self.is_changing = True, False
        self.frozen_until = 0.0
        self.authority = Authority(
            self.record, cluster=CLUSTER, name=GROUP, address=self.name, run=f"{self.name}-{self.run_number}"
        )
        self.links: list[Link] = []
        self.link: Link | None = None
        self.asked_at = 0.0
        self.is_flushing = False
        self.flush_waits: list[tuple[int, Callable[[], None]]] = []
        self._begin_role()
        self.later(self.world.random.uniform(0, 0.2), self._tick)

    def kill(self) -> None:
        """The process ends; the other ends of its connections notice."""
        for link in [*self.links, *([self.link] if self.link else [])]:
            link.close(self)
        self.is_alive = False

    def power_cut(self) -> None:
        """The process ends, and so does what was not flushed, or a part of it."""
        self.kill()
        del self.log[self.world.random.randint(self.on_disk, len(self.log)) :]

    def wipe(self) -> None:
        """The disk is replaced by an empty one."""
        self.kill()
        self.wiped += 1
        self.log, self.on_disk, self.epochs = [], 0, EpochTable()
        self.record = RoleRecord(store=f"store-{self.name}-{self.wiped}")
        self.is_first_master = False

    @property
    def role(self) -> str:
        return self.authority.record.role or (MASTER if self.is_first_master else SLAVE)

    @property
    def now_ms(self) -> float:
        seconds = self.clock()
        if self.world.planted("wall clock"):
            seconds += self.world.jumps.get(self.name, 0.0)
        return seconds * 1000

    @property
    def may_write(self) -> bool:
        if self.is_changing or self.role != MASTER:
            return False
        return self.world.planted("no lease") or self.authority.may_write(self.now_ms)

    # Requests

    def state(self) -> ReplicaState:
        record = self.authority.record
        is_master = self.role == MASTER
        return ReplicaState(
            cluster_name=CLUSTER,
            broker_name=GROUP,
            broker_id=record.broker_id,
            address=self.name,
            ha_address=f"{self.name}-ha",
            role=self.role,
            state="CHANGING" if self.is_changing else "SERVING" if self.may_write else "FENCED",
            is_sync=True,
            is_managed=record.is_managed,
            epoch=record.epoch,
            epochs=[EpochStart(*one) for one in self.epochs.starts],
            max_offset=len(self.log),
            confirmed_offset=self.replicas.acknowledged_end if is_master else len(self.log),
            master_address=record.master,
            in_sync=list(record.in_sync),
            in_sync_number=record.number,
            slaves=[SlaveState(one.name, one.position, 0, one.store) for one in self.replicas.all],
            wanted=list(self.members.wanted) if is_master and not self.is_changing else None,
            paused_left_ms=self.authority.paused_left(self.now_ms),
            run=self.authority.run,
            store=record.store,
            stamp=int(self.now_ms),
        )

    def obey(self, orders: ReplicaOrders) -> ReplicaState:
        """Orders of a coordinator; raises `OrdersRefusedError`."""
        if self.is_changing:
            raise OrdersRefusedError(1, "its role is changing")
        if orders.pause_ms:
            self.authority.pause(orders, self.now_ms)
            return self.state()
        if self.world.planted("lease from arrival"):
            orders = replace_lease(orders, int(self.now_ms), self.authority.run)
        if self.authority.accept(orders, self.now_ms):
            self._drop_links()
            self.is_changing = True
            self.later(self.world.random.uniform(0.005, 0.1), self._changed)
        else:
            self.record = self.authority.record
            if self.role == MASTER:
                self.members.ordered(orders.in_sync, orders.in_sync_number, self.clock())
                self._settle()
        return self.state()

    def _changed(self) -> None:
        self.is_changing = False
        self.record = self.authority.record
        if self.record.role == MASTER and self.record.epoch > self.epochs.last:
            self.epochs = self.epochs.begun(self.record.epoch, len(self.log))
            self.world.reigns(self, self.record.epoch)
        self._begin_role()

    def _begin_role(self) -> None:
        record = self.authority.record
        self.members = InSyncSet(self.name, patience=PATIENCE)
        if record.role == MASTER:
            self.members.ordered(record.in_sync, record.number, self.clock())
        self.replicas = self._replicas()
        self.readable: int | None = NOT_TOLD if record.role else None
        if record.role == MASTER:
            self._settle()

    def _replicas(self) -> Replicas:
        members = self.members if self.authority.record.role else None
        if self.world.planted("no union") and members is not None:
            members = _WithoutUnion(members)
        return Replicas(
            needed=1, needed_before=1, gap_max=10**9, timeout=2.0, begun=len(self.log), members=members
        )

    def _drop_links(self) -> None:
        for link in [*self.links, *([self.link] if self.link else [])]:
            link.close(self)
        self.flush_waits.clear()

    def unlinked(self, link: Link) -> None:
        """A connection is closed."""
        if link is self.link:
            self.link = None
        if link in self.links:
            self.links.remove(link)
            if link.replica is not None and link.replica in self.replicas.all:
                self.replicas.leave(link.replica)

    # Messages

    def send(self, number: int, answer: Callable[[bool], None]) -> None:
        """A producer's message."""
        is_paused = self.authority.paused_left(self.now_ms) and not self.world.planted("no pause")
        if not self.may_write or is_paused:
            answer(False)
            return
        epoch = max(0, self.authority.record.epoch)
        self.log.append((epoch, number))
        self.world.taken(self, epoch)
        position, run = len(self.log), self.run_number

        def done(code: int) -> None:
            if code == SUCCESS and run == self.run_number and self.may_write:
                self.world.acknowledged(self, epoch, position, number)
                answer(True)

        self.flushed_to(position, lambda: self.replicas.after(position, self.clock(), done, 1))
        self._grown()

    def flushed_to(self, position: int, done: Callable[[], None]) -> None:
        """Call `done` when the log is on disk up to there; at once with ASYNC_FLUSH."""
        if not self.world.sync_flush:
            self.on_disk = len(self.log)
            done()
            return
        self.flush_waits.append((position, done))
        if not self.is_flushing:
            self._flush()

    def _flush(self) -> None:
        self.is_flushing = True
        slow = 20 if self.world.random.random() < 0.01 else 1
        self.later(slow * self.world.random.uniform(0.0005, 0.02), partial(self._flushed, len(self.log)))

    def _flushed(self, end: int) -> None:
        self.is_flushing = False
        self.on_disk = max(min(end, len(self.log)), self.on_disk)
        ready = [done for position, done in self.flush_waits if position <= self.on_disk]
        self.flush_waits = [one for one in self.flush_waits if one[0] > self.on_disk]
        for done in ready:
            done()
        if self.flush_waits and not self.is_flushing:
            self._flush()

    def _tell(self, waiters: Iterable[Callable[[int], None]], code: int = SUCCESS) -> None:
        for done in waiters:
            done(code)

    def read(self) -> None:
        """A consumer reads all that it may."""
        if self.is_changing:
            return
        end = self.told_readable()
        if end != NOT_TOLD:
            self.world.consumed(self, self.log[: min(end, len(self.log))])

    def told_readable(self) -> int:
        """Up to where consumers may read, as a master tells its slaves."""
        is_all = self.readable is None or self.world.planted("early reads")
        return self.on_disk if is_all else min(self.readable or 0, self.on_disk)

    # A master's part of replication

    def _settle(self) -> None:
        self._tell(self.replicas.settle())
        if self.authority.may_write(self.now_ms) and not self.is_changing:
            self.readable = self.replicas.readable(len(self.log))

    def _tick(self) -> None:
        self.later(0.2, self._tick)
        now = self.clock()
        if self.role == MASTER and not self.is_changing:
            self._tell(self.replicas.expired(now), 12)
            if self.authority.record.role:
                end = len(self.log)
                self.members.look(self.replicas.positions, end, self.replicas.promised(end), now)
                self._settle()
        for link in [*self.links, *([self.link] if self.link else [])]:
            if self.world.now - link.heard_at[self.name] > 2.0:
                link.close(self)
            elif self.world.now - link.sent_at[self.name] > 0.5:
                other = link.slave if link.master is self else link.master
                link.send(self, other, lambda: None)
        if self.role == SLAVE and not self.is_changing:
            if self.link is None:
                self._follow()
            elif self.world.readers.random() < ASKED_SHARE:
                self._ask_readable(self.link.master)

    def _grown(self) -> None:
        for link in self.links:
            piece = self.log[link.next :]
            if piece and link.replica is not None:
                link.send(self, link.slave, partial(link.slave.receive, link, link.next, piece))
                link.next = len(self.log)

    def accept(self, link: Link, position: int, epoch: int, run: int, store: str) -> None:
        """A slave introduces itself with what this run told it in this epoch."""
        record = self.authority.record
        if self.role != MASTER or self.is_changing or (record.epoch, self.run_number) != (epoch, run):
            link.close(self)
            return
        for other in [one for one in self.links if one.slave is link.slave]:
            other.close(self)
        link.replica = Replica(link.slave.name, link.slave.name)
        link.replica.store = store
        link.next = position
        self.links.append(link)
        self.replicas.join(link.replica)
        link.replica.has(position)
        self._settle()
        self._grown()

    def reported(self, link: Link, position: int) -> None:
        """A slave has the log up to there."""
        if link in self.links and link.replica is not None:
            link.replica.has(position)
            self._settle()

    # A slave's

    def _ask_readable(self, master: Broker) -> None:
        """Ask up to where consumers may read, so that they may read as far here."""
        epoch, run, dice = self.authority.record.epoch, self.run_number, self.world.readers

        def told(end: int) -> None:
            if (self.role, self.authority.record.epoch, self.run_number) == (SLAVE, epoch, run):
                self.readable = max(end, self.readable or 0) if end != NOT_TOLD else self.readable

        def asked() -> None:
            if master.role == MASTER and not master.is_changing:
                end = master.told_readable()
                self.world.travel(master, self, lambda: told(end), dice)

        self.world.travel(self, master, asked, dice)

    def _follow(self) -> None:
        master = self.world.brokers.get(self.authority.record.master)
        if master is None or self.world.now - self.asked_at < 0.5:
            return
        self.asked_at = self.world.now
        epoch = self.authority.record.epoch

        def asked() -> None:
            if master.role != MASTER or master.is_changing:
                return
            told = MastersLog(master.epochs, master.authority.record.epoch, 0, len(master.log))
            run = master.run_number
            self.world.travel(master, self, lambda: self._agree(master, told, epoch, run))

        self.world.travel(self, master, asked)

    def _agree(self, master: Broker, told: MastersLog, epoch: int, run: int) -> None:
        record = self.authority.record
        if self.is_changing or self.link is not None or (record.role, record.epoch) != (SLAVE, epoch):
            return
        try:
            position = where_to_continue(OwnLog(self.epochs, record.epoch, -1, len(self.log)), told)
        except CannotFollowError as error:
            self.world.troubles[str(error)[:40]] += 1
            return
        if position < len(self.log) and not self.world.planted("no cut"):
            position = max(0, position)
            self.world.cuts += 1
            del self.log[position:]
            self.on_disk = min(self.on_disk, position)
            self.epochs = self.epochs.cut(position)
            self.is_changing = True
            self.later(self.world.random.uniform(0.005, 0.1), self._changed)
            return
        self.epochs = told.epochs
        link = self.link = Link(self.world, self, master)
        position = len(self.log)

        def begin() -> None:
            master.accept(link, position, told.epoch, run, record.store)

        def flushed() -> None:
            link.send(self, master, begin)

        self.flushed_to(position, flushed)

    def receive(self, link: Link, position: int, piece: list[Message]) -> None:
        """A part of the master's log."""
        if link is not self.link:
            return
        if position != len(self.log):
            link.close(self)
            return
        self.log.extend(piece)
        end = len(self.log)

        def report() -> None:
            if link is self.link:
                link.send(self, link.master, partial(link.master.reported, link, end))

        self.flushed_to(end, report)


class _WithoutUnion(InSyncSet):
    """A planted fault: proposals do not count before they are accepted."""

    def __init__(self, real: InSyncSet) -> None:
        self._real = real

    def __getattribute__(self, name: str) -> Any:
        if name != "waited_for":
            return super().__getattribute__(name)
        real = super().__getattribute__("_real")
        return real.members - {real._own}


def replace_lease(orders: ReplicaOrders, stamp: int, run: str) -> ReplicaOrders:
    """A planted fault: the lease counts from when it arrives."""
    import msgspec

    return msgspec.structs.replace(orders, lease_from=stamp, run=run) if orders.lease_ms else orders


@dataclass
class Term:
    """The time in which a coordinator leads: what `GroupWatch` keeps."""

    epoch: int
    group: ReplicaGroup
    lease_over_at: float
    heard: dict[str, Heard] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
    is_saving: bool = False
    wish: Wish | None = None


class Leader(Process):
    """One coordinator: takes part in the election of the leader, and leads the group."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.numbers = itertools.count(1)
        self.begin_run()

    def begin_run(self) -> None:
        """Start the process."""
        self.run_number += 1
        self.is_alive, self.frozen_until = True, 0.0
        self.owner = Owner(f"{self.name}-{self.run_number}", self.name)
        self.candidate = LeaseCandidate()
        self.asking = 0
        self.term: Term | None = None
        self.later(self.world.random.uniform(0, 0.3), self._turn)

    def kill(self) -> None:
        """The process ends."""
        self.is_alive = False

    @property
    def leads(self) -> bool:
        return rules.leads(self.candidate, self.clock())

    # The lease of the service

    def _turn(self) -> None:
        now = self.clock()
        action = rules.decide(self.candidate, now, enabled=True, overdue=False)
        if action is LeaseAction.STOP:
            self.candidate, self.term = rules.missed(now, LEADER_TIMES), None
        elif action in (LeaseAction.CLAIM, LeaseAction.RENEW) and not self.asking:
            self._ask_for_lease(now)
        self.later(max(0.05, min(0.5, rules.wait_seconds(self.candidate, now))), self._turn)

    def _ask_for_lease(self, sent_at: float) -> None:
        asked = self.asking = next(self.numbers)
        holding, owner, world = self.candidate.holding, self.owner.id, self.world

        def work() -> int | None:
            now = world.now * 1000
            if holding is None:
                return world.table.claim(owner, LEADER_TIMES.ttl_ms, now)
            kept = world.table.renew(owner, holding.epoch, LEADER_TIMES.ttl_ms, now)
            return holding.epoch if kept else None

        def answered(epoch: int | None) -> None:
            if self.asking != asked:
                return
            self.asking = 0
            now = self.clock()
            before = self.candidate.holding
            self.candidate = (
                rules.missed(now, LEADER_TIMES) if epoch is None else rules.won(sent_at, epoch, LEADER_TIMES)
            )
            if epoch is None or (before is not None and before.epoch != epoch):
                self.term = None
            if epoch is not None and self.term is None:
                self._load(epoch)

        def silence() -> None:
            if self.asking == asked:
                self.asking = 0
                self.candidate = rules.unanswered(self.candidate, self.clock(), LEADER_TIMES)

        world.query(self, work, answered)
        self.later(rules.answer_seconds(self.candidate, sent_at, LEADER_TIMES), silence)

    # The group

    def _load(self, epoch: int) -> None:
        def loaded(group: ReplicaGroup) -> None:
            if not self.leads or self.term is not None:
                return
            rest = 0.0 if self.world.planted("no wait") else (TIMES.lease_ms + TIMES.margin_ms) / 1000
            term = self.term = Term(epoch, group, self.clock() + rest)
            for name in self.world.brokers:
                self._poll(term, name)
            self._look(term)

        self.world.query(self, lambda: self.world.group, loaded)

        def again() -> None:
            if self.leads and self.term is None:
                self._load(epoch)

        self.later(1.0, again)

    def _look(self, term: Term) -> None:
        if term is self.term and self.leads:
            wish = self.world.wish
            if wish is None:
                term.wish = None
            elif term.wish is None or term.wish.target != wish.target:
                term.wish = replace(wish, since=self.clock())
            self._advance(term)
            self.later(0.1, partial(self._look, term))
            if self.world.random.random() < 0.1:
                self.world.query(self, lambda: self.world.group, partial(self._compare, term))

    def _compare(self, term: Term, stored: ReplicaGroup) -> None:
        """A change that seemed to have failed may have been written later."""
        is_later = (stored.epoch, stored.number) > (term.group.epoch, term.group.number)
        if is_later and term is self.term and not term.is_saving:
            term.group = stored

    def _view(self, term: Term) -> View:
        return View(self.clock(), term.heard, term.lease_over_at, term.wish)

    def _poll(self, term: Term, name: str) -> None:
        if term is not self.term or not self.leads:
            return
        number = term.asked[name] = next(self.numbers)
        world, broker = self.world, world_broker(self.world, name)

        def asked() -> None:
            state = broker.state()
            world.travel(broker, self, lambda: answered(state))

        def answered(state: ReplicaState) -> None:
            if term is self.term and term.asked[name] == number:
                one = term.heard[name] = heard(state, self.clock())
                self._advance(term)
                self._tell(term, one)

        def next_round() -> None:
            if term.asked[name] == number:
                self._poll(term, name)

        world.travel(self, broker, asked)
        known = term.heard.get(name)
        pause = 0.05 if known is not None and known.state == decisions.CHANGING else TIMES.poll_ms / 1000
        self.later(pause + world.random.uniform(0, 0.02), next_round)

    def _tell(self, term: Term, one: Heard) -> None:
        if term.is_saving and not self.world.planted("told while unsure"):
            return  # what is being written may end this master's reign
        told = decisions.orders(term.group, one, self._view(term), TIMES)
        if told is None or not self.leads:
            return
        if told.role == MASTER and not self.world.planted("forgotten leases"):
            term.lease_over_at = max(term.lease_over_at, decisions.lease_end(one, told, TIMES))
        self._send(term, one.address, told)

    def _send(self, term: Term, name: str, told: RoleOrders) -> None:
        broker, orders = world_broker(self.world, name), request(term.group, told)

        def arrived() -> None:
            try:
                broker.obey(orders)
            except OrdersRefusedError as error:
                self.world.troubles[str(error)[:40]] += 1

        self.world.travel(self, broker, arrived)

    def _advance(self, term: Term) -> None:
        if term.is_saving or term is not self.term or not self.leads:
            return
        change = decisions.decide(term.group, self._view(term), TIMES)
        if change is None:
            return
        if self.world.planted("told before written") and change.kind is not decisions.ChangeKind.MEMBERS:
            term.group = change.group
        term.is_saving = True
        before = self.world.group if self.world.planted("told before written") else term.group
        self._save(term, before, change)

    def _save(self, term: Term, before: ReplicaGroup, change: GroupChange) -> None:
        """Write a change; whoever did not hear the answer reads the group again."""
        number = next(self.numbers)
        term.asked[DATABASE] = number

        def work() -> ReplicaGroup | None:
            world = self.world
            if not world.table.guard(self.owner.id, term.epoch, world.now * 1000):
                return None
            same = (world.group.epoch, world.group.number, world.group.members) == (
                before.epoch,
                before.number,
                before.members,
            )
            if same:
                world.write(change)
            return world.group

        def saved(group: ReplicaGroup | None) -> None:
            if term.asked[DATABASE] != number or term is not self.term:
                return
            term.is_saving = False
            if group is None:
                self.term = None
                return
            term.group = group
            if change.ends_wish:
                term.wish = None
            for name in self.world.brokers:
                self._poll(term, name)
            self._advance(term)

        def silence() -> None:
            if term.asked[DATABASE] == number:
                number_now = term.asked[DATABASE] = next(self.numbers)
                self._reload(term, number_now)

        self.world.query(self, work, saved)
        self.later(ASK_SECONDS, silence)

    def _reload(self, term: Term, number: int) -> None:
        """Nobody knows whether a change was written: read the group again before anything else."""

        def loaded(group: ReplicaGroup) -> None:
            if term is self.term and term.asked[DATABASE] == number:
                term.group, term.is_saving = group, False

        def silence() -> None:
            if term is self.term and term.is_saving and term.asked[DATABASE] == number:
                self._reload(term, number)

        self.world.query(self, lambda: self.world.group, loaded)
        self.later(ASK_SECONDS, silence)


def world_broker(world: World, name: str) -> Broker:
    """A broker by its address."""
    return world.brokers[name]


class World:
    """All of it. `run` ends after some faults; what must hold is checked all the time."""

    def __init__(self, seed: int, planted: Planted | None = None, *, faults: int = 5) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.readers = random.Random(seed)
        """Consumers have their own dice, so that they change nothing of what the others do."""
        self.planted = planted or Planted()
        self.faults = faults
        self.now = 0.0
        self._order = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self.events = 0
        self.loss = self.random.choice((0.0, 0.0, 0.02, 0.1))
        self.slow = self.random.choice((0.0, 0.01, 0.05))
        self.sync_flush = self.random.random() < 0.5
        self.cut_off: dict[tuple[str, str], float] = {}
        self.jumps: dict[str, float] = {}
        self.table = Table()
        self.group = ReplicaGroup(GROUP)
        self.wish: Wish | None = None
        self.troubles: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.cuts = 0
        self.reigned: dict[int, str] = {}
        self.taken_epoch = 0
        self.acked: list[tuple[int, Message]] = []
        self.read: list[Message] = []
        """The log as far as consumers have read it."""
        self.last_ack = 0.0
        self.numbers = itertools.count(1)
        names = ["b1", "b2", "b3"][: self.random.choice((2, 3, 3))]
        self.brokers: dict[str, Broker] = {}
        for name in names:
            self.brokers[name] = Broker(self, name, is_master=name == "b1")
        self.leaders = [Leader(self, name) for name in ("l1", "l2")]
        self.at(0.5, lambda: self._produce(self.random.choice(names)))
        self.at(0.5, self._consume)

    # Time and network

    def at(self, delay: float, event: Callable[[], None]) -> None:
        """An event after some seconds of true time."""
        heapq.heappush(self._events, (self.now + delay, next(self._order), event))

    def delay(self, dice: random.Random | None = None) -> float:
        """How long a packet takes: some are slow, which also means that later ones overtake them."""
        dice = dice or self.random
        if dice.random() < self.slow:
            return dice.uniform(0.1, 5.0)
        return dice.uniform(0.0002, 0.01)

    def reaches(self, source: str, target: str) -> bool:
        """Whether packets get through."""
        return self.cut_off.get((source, target), 0.0) <= self.now

    def travel(
        self,
        source: Process,
        target: Process,
        event: Callable[[], None],
        dice: random.Random | None = None,
    ) -> None:
        """A request or its answer, which may be lost, late, or arrive at a frozen or dead process."""
        if self.reaches(source.name, target.name) and (dice or self.random).random() >= self.loss:
            run = target.run_number
            self.at(self.delay(dice), lambda: target.on(event, run))

    def query(self, source: Process, work: Callable[[], T], answered: Callable[[T], None]) -> None:
        """A transaction of the database, done at one moment."""
        if not self.reaches(source.name, DATABASE) or self.random.random() < self.loss:
            return
        run = source.run_number

        def arrive() -> None:
            result = work()
            if self.reaches(DATABASE, source.name) and self.random.random() >= self.loss:
                self.at(self.delay(), lambda: source.on(lambda: answered(result), run))

        self.at(self.delay(), arrive)

    # What must hold

    def write(self, change: GroupChange) -> None:
        """The database has another group."""
        self.counts[str(change.kind)] += 1
        self.group = change.group
        if change.ends_wish:
            self.wish = None
        self._check_in_sync()

    def reigns(self, broker: Broker, epoch: int) -> None:
        """A broker begins to be master."""
        other = self.reigned.setdefault(epoch, broker.name)
        if other != broker.name:
            raise Broken(f"{broker.name} and {other} are masters of epoch {epoch}")
        for position, message in self.acked:
            if message[0] < epoch:
                self._check_one(broker, position, message, f"became master of epoch {epoch}")
        if broker.log[: len(self.read)] != self.read:
            raise Broken(f"{broker.name} became master of epoch {epoch} and lacks what consumers have read")

    def consumed(self, broker: Broker, messages: list[Message]) -> None:
        """Consumers read a log from its beginning on."""
        common = min(len(messages), len(self.read))
        if messages[:common] != self.read[:common]:
            raise Broken(f"{broker.name} gives consumers other messages than another broker before")
        if len(messages) > len(self.read):
            self.counts["read"] += len(messages) - len(self.read)
            self.read = messages

    def taken(self, broker: Broker, epoch: int) -> None:
        """A master took a message."""
        if epoch < self.taken_epoch:
            raise Broken(f"{broker.name} took a message in epoch {epoch} after one of {self.taken_epoch}")
        self.taken_epoch = epoch

    def acknowledged(self, broker: Broker, epoch: int, position: int, number: int) -> None:
        """A master told a producer that a message is safe."""
        if epoch < self.taken_epoch:
            raise Broken(f"{broker.name} acknowledged in epoch {epoch} after a message of {self.taken_epoch}")
        self.counts["acknowledged"] += 1
        self.last_ack = self.now
        self.acked.append((position, (epoch, number)))
        if self.group.epoch:
            for name in self.group.in_sync:
                member = self.brokers[name]
                if self.group.members[name].store == member.record.store:
                    self._check_one(member, position, (epoch, number), "is in sync")

    def _check_in_sync(self) -> None:
        for name in self.group.in_sync:
            broker = self.brokers[name]
            if self.group.members[name].store == broker.record.store:
                self._check_has(broker, f"is in sync in set {self.group.number}")

    def _check_has(self, broker: Broker, what: str) -> None:
        for position, message in self.acked:
            self._check_one(broker, position, message, what)

    def _check_one(self, broker: Broker, position: int, message: Message, what: str) -> None:
        log = broker.log
        if position > len(log) or log[position - 1] != message:
            raise Broken(f"{broker.name} {what} and lacks message {message[1]} of epoch {message[0]}")

    def _check_prefixes(self) -> None:
        brokers = list(self.brokers.values())
        for one, other in itertools.combinations(brokers, 2):
            for at in range(min(len(one.log), len(other.log)) - 1, -1, -1):
                if one.log[at][0] == other.log[at][0]:
                    if one.log[: at + 1] != other.log[: at + 1]:
                        raise Broken(f"{one.name} and {other.name} differ before {at + 1} of one epoch")
                    break

    # What happens

    def _produce(self, name: str) -> None:
        """A producer sends to the broker that took its last message, else to any one."""
        broker, number = self.brokers[name], next(self.numbers)
        producer = Process.__new__(Process)
        producer.world, producer.name, producer.is_alive = self, "producer", True
        producer.frozen_until, producer.run_number = 0.0, 0
        told = [False]

        def answered(is_safe: bool) -> None:
            told[0] |= is_safe

        self.travel(
            producer,
            broker,
            lambda: broker.send(number, lambda safe: self.travel(broker, producer, lambda: answered(safe))),
        )

        def again() -> None:
            self._produce(name if told[0] else self.random.choice(list(self.brokers)))

        self.at(self.random.uniform(0.05, 0.4), again)

    def _consume(self) -> None:
        """A consumer asks any broker."""
        broker = self.readers.choice(list(self.brokers.values()))
        broker.on(broker.read)
        self.at(self.readers.uniform(0.02, 0.2), self._consume)

    def _fault(self) -> None:
        self._check_prefixes()
        names = list(self.brokers)
        kind = self.random.choice(FAULTS)
        lasts = self.random.choice((0.3, 1.0, 3.0, 5.0, 9.0)) * self.random.uniform(0.7, 1.3)
        master = self.group.master if self.random.random() < 0.6 and self.group.master else None
        broker = self.brokers[master or self.random.choice(names)]
        self.counts[kind] += 1
        if kind == "kill" or (kind == "power" and not self.sync_flush):
            if broker.is_alive and self.now >= broker.frozen_until:
                broker.kill()
                self.at(lasts, broker.begin_run)
        elif kind == "power":
            if broker.is_alive:
                broker.power_cut()
                self.at(lasts, broker.begin_run)
        elif kind == "freeze":
            broker.frozen_until = self.now + lasts
        elif kind == "cut":
            self._partition(broker.name, lasts)
        elif kind == "leader":
            self._fault_of_leader(lasts)
        elif kind == "jump":
            self.jumps[broker.name] = self.random.choice((-3600.0, -5.0, 5.0, 3600.0))
        elif kind == "wish" and self.group.in_sync:
            self.wish = Wish(WishKind.ELECT, self.random.choice(self.group.in_sync), 0.0)
        elif kind == "wipe" and self._may_lose(broker):
            self.counts["wiped"] += 1
            broker.wipe()
            self.at(lasts, broker.begin_run)

    def _may_lose(self, broker: Broker) -> bool:
        """Whether a disk may be replaced: once, of a slave, while another broker runs that has all messages.
        The master's may have the only copy, as soon as it proposed that.
        """
        is_slave = (
            broker.name in self.group.members and broker.role == SLAVE and broker.name != self.group.master
        )
        if self.counts["wiped"] or not broker.is_alive or not is_slave:
            return False
        others = [self.brokers[name] for name in self.group.in_sync if name != broker.name]
        return any(one.is_alive and self.now >= one.frozen_until for one in others)

    def _fault_of_leader(self, lasts: float) -> None:
        leading = [one for one in self.leaders if one.term is not None and one.is_alive]
        leader = leading[0] if leading else self.random.choice(self.leaders)
        kind = self.random.choice(("kill", "freeze", "database"))
        if kind == "kill" and leader.is_alive and self.now >= leader.frozen_until:
            leader.kill()
            self.at(lasts, leader.begin_run)
        elif kind == "freeze":
            leader.frozen_until = self.now + lasts
        else:
            for pair in ((leader.name, DATABASE), (DATABASE, leader.name)):
                if self.random.random() < 0.7:
                    self.cut_off[pair] = self.now + lasts

    def _partition(self, name: str, lasts: float) -> None:
        """Cut a broker off from the others, the coordinators, the producers, or all; one way or both."""
        brokers = [one for one in self.brokers if one != name]
        leaders = [one.name for one in self.leaders]
        groups = (brokers, leaders, ["producer"])
        chosen = [group for group in groups if self.random.random() < 0.6] or [leaders]
        ways = self.random.choice(("in", "out", "both", "both"))
        for other in (one for group in chosen for one in group):
            if ways != "out":
                self.cut_off[(other, name)] = self.now + lasts
            if ways != "in":
                self.cut_off[(name, other)] = self.now + lasts

    def run(self) -> World:
        """Run the schedule. Raises `Broken`."""
        at = 3.0
        for _ in range(self.faults):
            at += self.random.choice((0.2, 1.0, 2.5, 5.0)) * self.random.uniform(0.5, 1.5)
            self.at(at, self._fault)
        self._until(at + 2.0)
        self.loss = self.slow = 0.0
        self.cut_off.clear()
        healed = self.now
        while not self._is_well(healed) and self.now < healed + HEAL_SECONDS:
            self._until(self.now + 1.0)
        self._check_prefixes()
        if self.last_ack < self.now - 5.0:
            raise Broken(f"nothing was acknowledged since {self.last_ack:.1f}; it is {self.now:.1f}")
        for broker in self.brokers.values():
            if broker.name in self.group.in_sync:
                self._check_has(broker, "is in sync at the end")
        if set(self.group.in_sync) != set(self.brokers):
            raise Broken(f"in sync are only {self.group.in_sync} at the end")
        return self

    def _is_well(self, healed: float) -> bool:
        """Whether all brokers are in sync, and messages are acknowledged."""
        all_there = all(self.now >= one.frozen_until and one.is_alive for one in self.brokers.values())
        is_served = self.last_ack > max(healed + 1.0, self.now - 1.0)
        return all_there and is_served and set(self.group.in_sync) == set(self.brokers)

    def _until(self, end: float) -> None:
        events = self._events
        while events and events[0][0] <= end:
            self.now, _, event = heapq.heappop(events)
            self.events += 1
            event()
        self.now = end


def search(seeds: Iterable[int], planted: Planted | None = None) -> tuple[Counter[str], Broken | None, int]:
    """Run schedules until one breaks a promise; returns what happened, the fault found, and its seed."""
    counts: Counter[str] = Counter()
    seed = -1
    for seed in seeds:
        world = World(seed, planted)
        try:
            world.run()
        except Broken as error:
            return counts, error, seed
        finally:
            counts += world.counts
            counts["schedules"] += 1
            counts["events"] += world.events
            counts["cuts of logs"] += world.cuts
            counts["masters"] += len(world.reigned)
    return counts, None, seed


def main() -> None:
    """Run as many schedules as wanted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--planted", default="", help="a fault of the code to plant")
    given = parser.parse_args()
    began = time.monotonic()
    counts, error, seed = search(range(given.seed, given.seed + given.rounds), Planted(given.planted))
    for name, count in sorted(counts.items()):
        sys.stdout.write(f"{count:10} {name}\n")
    sys.stdout.write(f"{time.monotonic() - began:10.1f} seconds\n")
    if error is not None:
        sys.exit(f"seed {seed}: {error}")


if __name__ == "__main__":
    main()
