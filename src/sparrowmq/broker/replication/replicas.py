"""Which slaves have how much of the log, and which sends wait for them (broker:12.3). Pure: no clock, no I/O.

A SYNC_MASTER's send needs `needed` copies, the master's included. It fails at once when fewer brokers are in
sync, as in RocketMQ 4.9, and after a time limit when too few have confirmed it. With a coordinator it also
needs every member of the in-sync set, because each of them may become master. For the same reason, consumers
then read only what all of these have, also at an ASYNC_MASTER.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from sparrowmq.broker.replication.in_sync import InSyncSet
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.store.log.commit_log import NOT_TOLD

WAITING_MAX: Final = 10_000
"""Maximum number of chunks that wait for slaves; above it, sends get SYSTEM_BUSY."""
WAITING_BYTES_MAX: Final = 32 * 1024 * 1024
"""Maximum size of the answers to these chunks, in bytes."""

SUCCESS: Final = int(ResponseCode.SUCCESS)
Copied = Callable[[int], None]
"""Called with `SUCCESS`, `SLAVE_NOT_AVAILABLE` or `FLUSH_SLAVE_TIMEOUT`."""


class Replica:
    """One connected slave: its address, and the position up to which it has the log; -1 until it reports.

    `name` is the address for clients of a slave that introduced itself, `store` its store; empty for others.
    """

    __slots__ = ("address", "name", "position", "store")

    def __init__(self, address: str, name: str = "") -> None:
        self.address = address
        self.name = name
        self.store = ""
        self.position = -1

    def has(self, position: int) -> None:
        """The slave has the log up to `position`."""
        self.position = position


class Replicas:
    """The slaves of one master, and the sends that wait for them.

    Up to `gap_max` bytes behind the end, a slave counts as in sync. `begun` is the end of the log when the
    master began; `members` is the in-sync set of a group with a coordinator, which then replaces `needed`.
    Times are seconds of any one clock.
    """

    def __init__(
        self,
        *,
        needed: int,
        needed_before: int,
        gap_max: int,
        timeout: float,
        begun: int = 0,
        members: InSyncSet | None = None,
    ) -> None:
        self.needed = needed
        self.members = members
        self.acknowledged_end = begun
        """The position up to which messages were acknowledged, in this reign or before."""
        self._needed_before = needed_before
        self._gap_max = gap_max
        self._timeout = timeout
        self._replicas: list[Replica] = []
        self._waiting: deque[tuple[int, float, Copied, int]] = deque()
        self._waiting_bytes = 0
        self._taken_end = 0
        self.confirmed = 0
        """The position up to which enough slaves have the log."""
        self._readable: int | None = None if members is None else NOT_TOLD

    @property
    def all(self) -> tuple[Replica, ...]:
        """The connected slaves."""
        return tuple(self._replicas)

    def join(self, replica: Replica) -> None:
        """A slave connected."""
        self._replicas.append(replica)

    def leave(self, replica: Replica) -> None:
        """A slave has disconnected; waiting sends keep waiting, because it may return."""
        self._replicas.remove(replica)

    def in_sync(self, end: int) -> int:
        """How many brokers have the log up to its end, or nearly; the master is one of them."""
        gap_max = self._gap_max
        return 1 + sum(one.position >= 0 and end - one.position <= gap_max for one in self._replicas)

    def refusal(self, end: int) -> str | None:
        """Why no message may be stored now, or None."""
        count = self.in_sync(end) if self.members is None else len(self.members.members)
        if count >= self._needed_before:
            return None
        return (
            f"in-sync replicas not enough: {count} brokers of this group are in sync, minInSyncReplicas is "
            f"{self._needed_before}"
        )

    @property
    def waiting(self) -> int:
        """Number of chunks that wait for slaves."""
        return len(self._waiting)

    @property
    def busy(self) -> bool:
        """Whether the limit of waiting chunks is reached."""
        return len(self._waiting) >= WAITING_MAX or self._waiting_bytes >= WAITING_BYTES_MAX

    def after(self, position: int, now: float, done: Copied, size: int) -> None:
        """Call `done` when enough slaves have the log up to `position`, now or later."""
        waits = self.needed > 1 or (self.members is not None and self.members.waited_for)
        if not waits or position <= self.confirmed:
            self.acknowledged_end = max(self.acknowledged_end, position)
            done(SUCCESS)
        elif self.in_sync(position) < self.needed:
            done(ResponseCode.SLAVE_NOT_AVAILABLE)
        else:
            self._waiting.append((position, now + self._timeout, done, size))
            self._waiting_bytes += size

    def acknowledged(self, replica: Replica, position: int) -> list[Copied]:
        """A slave has the log up to `position`; returns the waiting sends to answer with `SUCCESS`."""
        replica.has(position)
        return self.settle()

    def settle(self) -> list[Copied]:
        """The waiting sends whose messages the slaves now have, to answer with `SUCCESS`."""
        found = self._confirmed()
        if found is not None:
            self.confirmed = max(self.confirmed, found)
        taken = self._take(lambda position, _: position <= self.confirmed)
        if taken:
            self.acknowledged_end = max(self.acknowledged_end, self._taken_end)
        return taken

    def _confirmed(self) -> int | None:
        """The position up to which enough slaves have the log; None if it is unknown."""
        others = self.needed - 1
        if others > len(self._replicas):
            return None
        found = []
        if others > 0:
            found.append(sorted((one.position for one in self._replicas), reverse=True)[others - 1])
        if self.members is not None:
            positions = self.positions
            found += [positions.get(member, -1) for member in self.members.waited_for]
        if found:
            return min(found)
        return self._waiting[-1][0] if self._waiting else None  # they waited for brokers that left the set

    def readable(self, end: int) -> int | None:
        """The position up to which consumers may read; None: everything. Call it after each change, while
        this master has its lease.

        Every replica that may become master has the log up to there. A new master does not know this position
        (`NOT_TOLD`) until all of these have connected, or are no longer in the set.
        """
        members = self.members
        if members is None or not members.waited_for:
            self._readable = None
        elif self._readable is None:
            self._readable = end
        else:
            positions = self.positions
            common = min(positions.get(one, NOT_TOLD) for one in members.waited_for)
            self._readable = max(self._readable, common)
        return self._readable

    def promised(self, end: int) -> int:
        """The position up to which a new member of the in-sync set must have the log: that far messages were
        acknowledged or read. `end` is that of the log."""
        read = end if self._readable is None else self._readable
        return max(self.acknowledged_end, self.confirmed, read)

    def unmanaged(self) -> None:
        """There is no longer an in-sync set."""
        self.members = None

    @property
    def positions(self) -> dict[str, int]:
        """The positions of slaves that introduced themselves, by their addresses for clients."""
        return {one.name: one.position for one in self._replicas if one.name and one.position >= 0}

    def expired(self, now: float) -> list[Copied]:
        """The sends that waited too long, to answer with `FLUSH_SLAVE_TIMEOUT`."""
        return self._take(lambda _, deadline: deadline <= now)

    def give_up(self) -> list[Copied]:
        """All waiting sends, because this broker stops."""
        return self._take(lambda *_: True)

    @property
    def deadline(self) -> float | None:
        """When the first send will have waited too long; None if no send waits."""
        return self._waiting[0][1] if self._waiting else None

    def _take(self, is_due: Callable[[int, float], bool]) -> list[Copied]:
        waiting, taken = self._waiting, []
        while waiting and is_due(waiting[0][0], waiting[0][1]):
            self._taken_end, _, done, size = waiting.popleft()
            self._waiting_bytes -= size
            taken.append(done)
        return taken
