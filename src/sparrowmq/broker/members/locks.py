"""Queue locks of ordered consumers (broker:10.6): who may consume a queue, until when.

A lock is valid for 60 s after its last renewal. Locks are kept in memory only. After a restart of the broker
the first client to ask gets the lock; clients that could not renew theirs have stopped before (client:C-30).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.base.offsets import answer
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.bodies import LockBatchRequestBody, LockBatchResponseBody, wire_queues
from sparrowmq.transport.occasional import OccasionalLog
from sparrowmq.transport.slices import shared

if TYPE_CHECKING:
    from sparrowmq.core.clock import Clock
    from sparrowmq.protocol.frame import Command
    from sparrowmq.transport.connection import Connection

log = logging.getLogger("sparrowmq.broker")
LOCK_SECONDS: Final = 60.0
LOCKS_MAX: Final = 200_000
"""Maximum number of locks of all groups; further locks are not granted until others expire."""
SHARE: Final = 4
"""One connection may have at most a quarter of the free locks, but always a few."""
LOCKS_OF_ONE: Final = 100
NAME_CHARS_MAX: Final = 1024
"""Maximum length of the names of a lock and its client; longer ones are refused."""


class LockTable:
    """Locks by group and queue."""

    def __init__(self, clock: Clock, *, locks_max: int = LOCKS_MAX) -> None:
        self._clock = clock
        self._locks_max = locks_max
        self._groups: dict[str, dict[MessageQueue, tuple[str, float, int]]] = {}
        self._count = 0
        self._of_asker: dict[int, int] = {}
        """Number of locks granted to each connection, by its number."""
        self._occasional = OccasionalLog(log)

    def __len__(self) -> int:
        return self._count

    def claim(
        self, group: str, client_id: str, queues: Iterable[MessageQueue], asker: int = 0
    ) -> list[MessageQueue]:
        """Acquire or renew locks; returns those of `queues` that the client now holds. `asker` is the number
        of its connection, which limits how many locks it gets, so that others get some too.
        """
        now = self._clock.monotonic()
        held = self._groups.setdefault(group, {})
        room = self._room(asker)
        granted = []
        spare = NAME_CHARS_MAX - len(group) - len(client_id)
        for queue in dict.fromkeys(queues):
            if len(queue.topic) + len(queue.broker_name) > spare:
                continue
            entry = held.get(queue)
            if entry is None:
                if room <= 0:
                    text = (
                        f"group {group} gets no lock on {queue}: {self._count} locks are held already, "
                        f"{self._of_asker.get(asker, 0)} of them by this connection"
                    )
                    self._occasional.write(logging.WARNING, "locks", text)
                    continue
                room -= 1
            elif entry[0] != client_id and entry[1] > now:
                continue
            if entry is not None:
                self._uncount(entry)
            self._count += 1
            self._of_asker[asker] = self._of_asker.get(asker, 0) + 1
            held[queue] = (client_id, now + LOCK_SECONDS, asker)
            granted.append(queue)
        if not held:
            del self._groups[group]
        return granted

    def release(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Release locks; those of other clients stay."""
        held = self._groups.get(group)
        if held is None:
            return
        for queue in queues:
            entry = held.get(queue)
            if entry is not None and entry[0] == client_id:
                self._uncount(held.pop(queue))
        if not held:
            del self._groups[group]

    def drop(self, group: str, queues: Iterable[MessageQueue]) -> None:
        """End locks of all clients: the queues have new owners."""
        held = self._groups.get(group, {})
        for queue in queues:
            if queue in held:
                self._uncount(held.pop(queue))
        if group in self._groups and not held:
            del self._groups[group]

    def is_ordered(self, group: str) -> bool:
        """Whether the group has any lock that has not expired (broker:6.6)."""
        now = self._clock.monotonic()
        return any(until > now for _, until, _ in self._groups.get(group, {}).values())

    def drop_expired(self) -> None:
        """Delete expired locks; called every few seconds."""
        shared().run(self._dropping(self._clock.monotonic()))

    def _dropping(self, now: float) -> Iterator[None]:
        """Process one group per step."""
        for group in list(self._groups):
            held = self._groups.get(group, {})
            for queue in [queue for queue, entry in held.items() if entry[1] <= now]:
                self._uncount(held.pop(queue))
            if group in self._groups and not held:
                del self._groups[group]
            yield

    def _room(self, asker: int) -> int:
        """How many more locks a connection may have."""
        free = self._locks_max - self._count
        return min(free, max(LOCKS_OF_ONE, free // SHARE) - self._of_asker.get(asker, 0))

    def _uncount(self, entry: tuple[str, float, int]) -> None:
        """A lock ended or was replaced."""
        self._count -= 1
        asker = entry[2]
        self._of_asker[asker] -= 1
        if not self._of_asker[asker]:
            del self._of_asker[asker]

    # Handlers

    def lock(self, connection: Connection, command: Command) -> Command:
        """41: claim queues; answers with those the client now holds."""
        request = LockBatchRequestBody.decode_request(command.body)
        granted = self.claim(request.consumer_group, request.client_id, request.queues, connection.id)
        return answer(command, body=LockBatchResponseBody(wire_queues(granted)).encode())

    def unlock(self, connection: Connection, command: Command) -> Command:
        """42: release queues."""
        request = LockBatchRequestBody.decode_request(command.body)
        self.release(request.consumer_group, request.client_id, request.queues)
        return answer(command)
