"""Coordinators in simulated time: leaders are killed, frozen and isolated, and what they write is watched.

Everything is decided by `sparrowmq.coordinator.leases.rules`; time, network, database and faults come from a
seed. The table here follows the same rules as the one in SQL, which `test_simulation.py` shows by running
both side by side.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from sparrowmq.coordinator.leases import rules
from sparrowmq.coordinator.leases.rules import LeaseAction, LeaseCandidate, LeaseTimes, Owner

TIMES = LeaseTimes(ttl_ms=15_000, renew_ms=5_000, margin_ms=2_000)
NODES = 4
DELAY_MAX = 0.3
"""Seconds a request, and its answer, travel at most."""
DRIFT = 0.005
"""How much faster or slower a node's clock runs than the database's."""
BOUND = (TIMES.ttl_ms + TIMES.renew_ms) / 1000 + 4 * DELAY_MAX


@dataclass
class Table:
    """One lease, as `leases.table` stores it; `now` is the database's time in milliseconds."""

    owner: str = ""
    epoch: int = 0
    expires_at: float = 0.0
    blocked: str = ""
    blocked_until: float = 0.0

    def claim(self, owner: str, ttl_ms: int, now: float) -> int | None:
        if (self.owner not in ("", owner) and self.expires_at > now) or (
            self.blocked == owner and self.blocked_until > now
        ):
            return None
        self.owner, self.epoch, self.expires_at = owner, self.epoch + 1, now + ttl_ms
        return self.epoch

    def renew(self, owner: str, epoch: int, ttl_ms: int, now: float) -> bool:
        if not self.guard(owner, epoch, now):
            return False
        self.expires_at = now + ttl_ms
        return True

    def release(self, owner: str, epoch: int, now: float) -> bool:
        if (self.owner, self.epoch) != (owner, epoch):
            return False
        self.owner, self.expires_at = "", now
        return True

    def hand_over(self, block_ms: int, now: float) -> bool:
        if not self.owner or self.expires_at <= now:
            return False
        self.blocked, self.blocked_until = self.owner, now + block_ms
        self.owner, self.epoch, self.expires_at = "", self.epoch + 1, now
        return True

    def guard(self, owner: str, epoch: int, now: float) -> bool:
        return (self.owner, self.epoch) == (owner, epoch) and self.expires_at > now


@dataclass
class Node:
    """One coordinator. `asked` numbers its unanswered request; 0: none."""

    number: int
    rate: float
    owner: Owner
    candidate: LeaseCandidate = field(default_factory=LeaseCandidate)
    asked: int = 0
    alive: bool = True
    frozen_until: float = 0.0
    isolated_until: float = 0.0


class World:
    """The whole simulation. `run(faults)` ends after that many; invariants are checked all the time."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.table = Table()
        self.numbers = itertools.count(1)
        self.nodes = [self._node(number) for number in range(NODES)]
        self.writes: list[tuple[float, int, str]] = []
        self.refused = 0
        self.waits: list[float] = []
        self.fault_at: float | None = None
        self.faults = 0
        self._order = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []

    def run(self, faults: int) -> None:
        for node in self.nodes:
            self._at(self.random.random(), lambda node=node: self._turn(node))
        self._at(30.0, self._fault)
        while self.faults < faults or self.fault_at is not None:
            self.now, _, event = heapq.heappop(self._events)
            event()
            self._check()

    def _node(self, number: int) -> Node:
        rate = 1 + self.random.uniform(-DRIFT, DRIFT)
        return Node(number, rate, Owner(f"{number}-{next(self.numbers)}", str(number)))

    def _at(self, delay: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + delay, next(self._order), event))

    def _on(self, node: Node, event: Callable[[], None]) -> None:
        """An event in a node: after the node is resumed, never after it died."""
        if not node.alive:
            return
        if self.now < node.frozen_until:
            self._at(node.frozen_until - self.now, lambda: self._on(node, event))
        else:
            event()

    def _clock(self, node: Node) -> float:
        return 1000.0 * node.number + self.now * node.rate

    def _turn(self, node: Node) -> None:
        self._on(node, lambda: self._decide(node))

    def _decide(self, node: Node) -> None:
        now = self._clock(node)
        action = rules.decide(node.candidate, now, enabled=True, overdue=False)
        if action is LeaseAction.STOP:
            node.candidate = rules.missed(now, TIMES)
        elif action in (LeaseAction.CLAIM, LeaseAction.RENEW):
            self._ask(node, now)
            return
        elif rules.leads(node.candidate, now):
            self._write(node)
        wait = rules.wait_seconds(node.candidate, now)
        self._at(min(wait, self.random.uniform(0.1, 2.0)) + 1e-4, lambda: self._turn(node))

    def _ask(self, node: Node, sent_at: float) -> None:
        asked = node.asked = next(self.numbers)
        holding = node.candidate.holding
        limit = rules.answer_seconds(node.candidate, sent_at, TIMES)
        self._at(limit + 1e-4, lambda: self._on(node, lambda: self._give_up(node, asked)))

        def arrive() -> None:
            now = self.now * 1000
            if holding is None:
                epoch = self.table.claim(node.owner.id, TIMES.ttl_ms, now)
                if epoch is not None and self.fault_at is not None:
                    self.waits.append(self.now - self.fault_at)
                    self.fault_at = None
            else:
                kept = self.table.renew(node.owner.id, holding.epoch, TIMES.ttl_ms, now)
                epoch = holding.epoch if kept else None
            self._travel(node, lambda: self._on(node, lambda: answer(epoch)))

        def answer(epoch: int | None) -> None:
            if node.asked != asked:
                return
            node.asked = 0
            now = self._clock(node)
            node.candidate = rules.missed(now, TIMES) if epoch is None else rules.won(sent_at, epoch, TIMES)
            self._decide(node)

        self._travel(node, arrive)

    def _give_up(self, node: Node, asked: int) -> None:
        if node.asked == asked:
            node.asked = 0
            node.candidate = rules.unanswered(node.candidate, self._clock(node), TIMES)
            self._decide(node)

    def _travel(self, node: Node, arrive: Callable[[], None]) -> None:
        """A message between a node and the database; lost while the node is isolated."""
        if self.now >= node.isolated_until:
            self._at(self.random.uniform(0.001, DELAY_MAX), arrive)

    def _write(self, node: Node) -> None:
        """A write that is decided now and made later: much later after a freeze."""
        assert node.candidate.holding is not None
        owner, epoch = node.owner.id, node.candidate.holding.epoch

        def arrive() -> None:
            if self.table.guard(owner, epoch, self.now * 1000):
                self.writes.append((self.now, epoch, owner))
            else:
                self.refused += 1

        self._at(self.random.uniform(0, 0.2), lambda: self._on(node, lambda: self._travel(node, arrive)))

    def _fault(self) -> None:
        """A fault of the leader, while another node is healthy."""
        self._at(self.random.uniform(5.0, 60.0), self._fault)
        leader = next((node for node in self.nodes if node.owner.id == self.table.owner and node.alive), None)
        others = [node for node in self.nodes if node is not leader and self._well(node)]
        if leader is None or not others or not self._well(leader) or self.fault_at is not None:
            return
        if self.table.expires_at <= self.now * 1000:
            return
        self.faults += 1
        self.fault_at = self.now
        kind, lasts = self.random.choice("kfi"), self.random.uniform(20.0, 60.0)
        if kind == "k":
            leader.alive = False
            self._at(lasts, lambda: self._restart(leader))
        elif kind == "f":
            leader.frozen_until = self.now + lasts
        else:
            leader.isolated_until = self.now + lasts

    def _restart(self, dead: Node) -> None:
        node = self.nodes[dead.number] = self._node(dead.number)
        self._turn(node)

    def _well(self, node: Node) -> bool:
        return node.alive and self.now >= max(node.frozen_until, node.isolated_until)

    def _check(self) -> None:
        running = [node for node in self.nodes if node.alive and self.now >= node.frozen_until]
        leading = [node.number for node in running if rules.leads(node.candidate, self._clock(node))]
        assert len(leading) <= 1, f"{leading} lead at {self.now:.3f}"
        if self.fault_at is not None:
            assert self.now - self.fault_at <= BOUND, (
                f"nobody leads {BOUND} s after the fault at {self.fault_at:.3f}"
            )
