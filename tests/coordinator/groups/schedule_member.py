"""Members in a schedule: real `Grants`, fake handlers. Some are slow, some fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.coordinator.groups.schedule_nodes import CALL_SECONDS, Broker, Node

from sparrowmq.core.grants import Grants, Orders
from sparrowmq.core.message import MessageQueue

if TYPE_CHECKING:
    from tests.coordinator.groups.schedules import World


@dataclass(eq=False)
class Run:
    """A queue being processed by a member."""

    queue: MessageQueue
    generation: int
    next_offset: int | None = None
    buffer: list[tuple[int, int]] = field(default_factory=list)
    in_hand: set[int] = field(default_factory=set)
    pulled: int = 0
    running: int = 0
    leaving: bool = False
    committing: bool = False


class Member(Node):
    """A consumer: two handlers at once for each queue; some are slow, some fail. One that handles in order
    has one handler for each queue, and a lock of it.
    """

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.alive = False
        self.ordered = world.rng.random() < 0.4
        self.begin()

    def begin(self) -> None:
        """Start as a new process."""
        self.alive = True
        self.id: str | None = None
        self.grants = Grants()
        self.runs: dict[MessageQueue, Run] = {}
        self.leaves = False
        self.after(self.world.rng.random(), self._poll)

    def crash(self) -> None:
        """Crash; it is started again later."""
        self.die()
        for counter in self.world.running.values():
            counter[id(self)] = 0
        self.world.at(self.world.now + self.world.rng.uniform(0.2, 10), self._again)

    def _again(self) -> None:
        if not self.alive:
            self.begin()

    def leave(self) -> None:
        """Stop everything, then leave the group."""
        self.leaves = True

    def _poll(self) -> None:
        self.after(0.7, self._poll)
        if self.runs and self.clock >= self.grants.lease_end:
            self.world.events["leases ran out"] += 1
        if self.leaves and self.id is not None:
            self._leave()
            return
        name, life = self.id, self.life
        sent, report = self.clock, self.grants.report()
        for leader in self.world.leaders:
            if name is None:
                self.world.send(self, leader, lambda at=leader: at.join(self, life))
            else:
                self.world.send(self, leader, lambda at=leader: at.report(self, name, report, sent))

    def _leave(self) -> None:
        for queue, run in list(self.runs.items()):
            if not run.leaving:
                self.grants.give_up()
                self._stop(queue)
        if not self.runs:
            for leader in self.world.leaders:
                self.world.send(self, leader, lambda at=leader, name=str(self.id): at.leave(name))
            self.die()
            self.world.at(self.world.now + self.world.rng.uniform(1, 10), self._again)

    def joined(self, name: str, life: int) -> None:
        """The coordinator accepts it; a second coordinator that also did waits for its lease to end."""
        if self.id is None and life == self.life:
            self.id = name

    def answered(self, name: str, orders: Orders | None, sent: float) -> None:
        """Handle the coordinator's answer."""
        if name != self.id or self.leaves:
            return
        if orders is None:
            for queue in self.grants.give_up():
                self._stop(queue)
            if not self.runs:
                self.id, self.grants = None, Grants()
            return
        changes = self.grants.obey(orders, sent)
        for queue in changes.stop:
            self._stop(queue)
        for queue, generation in changes.begin.items():
            run = self.runs[queue] = Run(queue, generation)
            self._ask_offset(run)
        for run in self.runs.values():
            self._handle(run)  # the lease may have been over

    # Queues

    def _broker(self, run: Run) -> Broker:
        return self.world.brokers[run.queue.broker_name]

    def _call(self, run: Run, work: Callable[[Broker], Any], then: Callable[[Any], None]) -> None:
        """Ask the queue's broker; `then` gets None when no answer came in two seconds."""
        broker, done = self._broker(run), [False]

        def end(value: Any) -> None:
            if not done[0]:
                done[0] = True
                then(value)

        def serve() -> None:
            value = work(broker)
            self.world.send(broker, self, lambda: end(value))

        self.world.send(self, broker, serve)
        self.after(CALL_SECONDS, lambda: end(None))

    def _ask_offset(self, run: Run) -> None:
        def got(offset: int | None) -> None:
            if run.leaving:
                return
            if offset is None:
                self._ask_offset(run)
                return
            run.next_offset = run.pulled = offset
            self._pull(run)

        self._call(run, lambda broker: broker.offsets[run.queue], got)

    def _pull(self, run: Run) -> None:
        if run.leaving:
            return
        offset, generation, owner = run.pulled, run.generation, self.id or ""

        def serve(broker: Broker) -> list[int] | None:
            if self.ordered and not broker.lock(run.queue, generation, owner):
                return None
            if broker.take("pull", run.queue, generation):
                return broker.logs[run.queue][offset : offset + 4]
            return None

        def got(found: list[int] | None) -> None:
            if run.leaving:
                return
            for message in found or ():
                run.buffer.append((run.pulled, message))
                run.in_hand.add(run.pulled)
                run.pulled += 1
            self._handle(run)
            self.after(0.05 if found else 0.5, lambda: self._pull(run))

        if len(run.in_hand) > 20:
            self.after(0.5, lambda: self._pull(run))
        else:
            self._call(run, serve, got)

    def _handle(self, run: Run) -> None:
        """Start handlers, if the members' gate allows it: nothing else prevents them."""
        while run.buffer and run.running < (1 if self.ordered else 2):
            if not self.grants.may_start(run.queue, run.generation, self.clock):
                self.world.events["starts refused by the lease"] += 1
                return
            if self.id in self.world.out:
                text = f"{self.world.now:.2f}: {self.id} starts a handler after its leader let go of it"
                self.world.problems.append(text)
            if run.generation < self.world.granted.get(run.queue, 0):
                text = f"{self.world.now:.2f}: {self.id} starts a handler of {run.queue} that others have"
                self.world.problems.append(text)
            if run.leaving:
                text = f"{self.world.now:.2f}: {self.id} starts a handler of {run.queue} it gives up"
                self.world.problems.append(text)
            offset, message = run.buffer.pop(0)
            counter = self.world.running[run.queue]
            if any(count for owner, count in counter.items() if owner != id(self)):
                self.world.events["overlaps"] += 1
            counter[id(self)] += 1
            run.running += 1
            rng = self.world.rng
            seconds = rng.choices((0.05, rng.uniform(0.2, 2), rng.uniform(5, 40)), (90, 9, 1))[0]
            self.after(seconds, lambda o=offset, m=message: self._ended(run, o, m))

    def _ended(self, run: Run, offset: int, message: int) -> None:
        run.running -= 1
        self.world.running[run.queue][id(self)] -= 1
        if self.world.rng.random() < 0.05:
            self._send_back(run, offset, message)
        else:
            self.world.handled[message] += 1
            self._finish(run, offset)

    def _send_back(self, run: Run, offset: int, message: int) -> None:
        """Send it back: it goes to the end of its queue."""

        def serve(broker: Broker) -> bool:
            if not broker.take("send-back", run.queue, run.generation):
                return False
            broker.logs[run.queue].append(message)
            return True

        def got(stored: bool | None) -> None:
            if stored:
                self._finish(run, offset)
            elif run.leaving:
                self._finish(run, None)
            else:
                run.buffer.insert(0, (offset, message))
                self._handle(run)

        self._call(run, serve, got)

    def _finish(self, run: Run, offset: int | None) -> None:
        if offset is not None:
            run.in_hand.discard(offset)
            if not run.leaving or run.next_offset is not None:
                run.next_offset = min(run.in_hand, default=run.pulled)
        self._handle(run)
        if run.leaving:
            self._drain(run)
            return
        self._commit(run, lambda _: None)

    def _commit(self, run: Run, then: Callable[[Any], None]) -> None:
        offset = run.next_offset

        def serve(broker: Broker) -> bool:
            if offset is None or not broker.take("commit", run.queue, run.generation):
                return False
            broker.offsets[run.queue] = offset
            return True

        self._call(run, serve, then)

    def _stop(self, queue: MessageQueue) -> None:
        run = self.runs.get(queue)
        if run is None or run.leaving:
            return
        run.leaving = True
        self._handle(run)  # which starts nothing
        self._drain(run)

    def _drain(self, run: Run) -> None:
        """When no handler runs any more: commit, then release, whether the commit was accepted or refused."""
        if run.running or run.committing:
            return
        run.committing = True
        life = self.life

        def released(answer: bool | None, tries: int = 3) -> None:
            if answer is None and tries:
                self._commit(run, lambda again: released(again, tries - 1))
                return
            if self.life == life and self.runs.get(run.queue) is run:
                del self.runs[run.queue]
                self.grants.released(run.queue)

        self._commit(run, released)
