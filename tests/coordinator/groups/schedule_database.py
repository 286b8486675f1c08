"""The database that leaders share in a simulated schedule: unavailable for a while, slow, or unavailable
right after a commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from sparrowmq.coordinator.groups.group_metadata import GroupRow, KeptGroup, MemberRow

if TYPE_CHECKING:
    from tests.coordinator.groups.schedule_nodes import Node
    from tests.coordinator.groups.schedules import World

LEADER_LEASE: Final = 3.0
SLOW_SECONDS: Final = 2.5

T = TypeVar("T")


class LostError(Exception):
    """Another node leads."""


class GoneError(Exception):
    """No answer, or a lost one: whether the change was stored is unknown."""


@dataclass
class Database:
    """One lease, one group. Its time is the world's. Every transaction is a request and an answer."""

    world: World
    owner: str = ""
    epoch: int = 0
    until: float = 0.0
    back_at: float = 0.0
    slow_until: float = 0.0
    answer_lost: bool = False
    """Whether the next commit is kept, and nobody hears of it because the database is gone right then."""
    kept: KeptGroup = field(default_factory=KeptGroup)

    def ask(
        self,
        node: Node,
        work: Callable[[], T],
        then: Callable[[T], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """A transaction; a failure stores nothing, unless only the answer was lost."""
        world, rng, life = self.world, self.world.rng, node.life

        def answer(call: Callable[[], None]) -> None:
            if node.alive and node.life == life:
                node.after(rng.uniform(0.001, 0.02), call)

        def fail(error: Exception) -> None:
            answer(lambda: failed(error))

        def arrive() -> None:
            if self.back_at > world.now:
                world.events["calls without database"] += 1
                world.at(world.now + rng.uniform(0.01, 1.5), lambda: fail(GoneError()))
            elif self.slow_until > world.now:
                world.at(world.now + rng.uniform(0.1, SLOW_SECONDS), commit)
            else:
                commit()

        def commit() -> None:
            if self.back_at > world.now:
                fail(GoneError())
                return
            try:
                value = work()
            except LostError as error:
                world.events["writes of old leaders refused"] += 1
                fail(error)
                return
            if self.answer_lost:
                self.answer_lost, self.back_at = False, world.now + rng.uniform(0.5, 8)
                world.events["answers lost"] += 1
                fail(GoneError())
            else:
                answer(lambda: then(value))

        world.at(world.now + rng.uniform(0.001, 0.02), arrive)

    # Transactions

    def lead(self, name: str, epoch: int) -> int:
        """Renew the lease of an epoch, or claim it (0); returns the epoch, 0 when another node has the
        lease."""
        now = self.world.now
        if epoch:
            if (self.owner, self.epoch) != (name, epoch) or self.until <= now:
                return 0
        elif self.until > now and self.owner != name:
            return 0
        else:
            self.epoch += 1
        self.owner, self.until = name, now + LEADER_LEASE
        return self.epoch

    def save(self, name: str, epoch: int, generation: int, members: Mapping[str, MemberRow]) -> None:
        """Store a plan's number and the members. Raises `LostError`."""
        if (self.owner, self.epoch) != (name, epoch) or self.until <= self.world.now:
            raise LostError
        self.kept = KeptGroup(GroupRow(epoch=epoch, generation=generation), dict(members))
