"""Queue locks of ordered consumers (broker:10.6): who may consume a queue, until when.

A lock lives for 60 s after its last claim. Locks are kept in memory only: after a restart of the broker the
first to claim has them, and clients that did not renew theirs have stopped before (client:C-30).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.progress import answer
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.bodies import LockBatchRequestBody, LockBatchResponseBody, wire_queues
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.core.clock import Clock
    from sparrowmq.protocol.frame import Command
    from sparrowmq.transport.connection import Connection

log = logging.getLogger("sparrowmq.broker")
LOCK_SECONDS: Final = 60.0
LOCKS_MAX: Final = 1_000_000
"""Locks of all groups; what comes above is not granted until others run out."""


class QueueLocks:
    """Locks by group and queue."""

    def __init__(self, clock: Clock, *, locks_max: int = LOCKS_MAX) -> None:
        self._clock = clock
        self._locks_max = locks_max
        self._groups: dict[str, dict[MessageQueue, tuple[str, float]]] = {}
        self._occasional = OccasionalLog(log)

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def claim(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Take or renew locks; those of `queues` that the client holds now."""
        now = self._clock.monotonic()
        held = self._groups.setdefault(group, {})
        room = self._locks_max - len(self)
        granted = []
        for queue in dict.fromkeys(queues):
            entry = held.get(queue)
            if entry is None:
                if room <= 0:
                    text = f"group {group} gets no lock on {queue}: {self._locks_max} locks are held already"
                    self._occasional.write(logging.WARNING, "locks", text)
                    continue
                room -= 1
            elif entry[0] != client_id and entry[1] > now:
                continue
            held[queue] = (client_id, now + LOCK_SECONDS)
            granted.append(queue)
        if not held:
            del self._groups[group]
        return granted

    def release(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Give locks back; those of other clients stay."""
        held = self._groups.get(group)
        if held is None:
            return
        for queue in queues:
            entry = held.get(queue)
            if entry is not None and entry[0] == client_id:
                del held[queue]
        if not held:
            del self._groups[group]

    def drop(self, group: str, queues: Iterable[MessageQueue]) -> None:
        """End locks, whoever has them: the queues have other owners now."""
        held = self._groups.get(group, {})
        for queue in queues:
            held.pop(queue, None)
        if group in self._groups and not held:
            del self._groups[group]

    def is_ordered(self, group: str) -> bool:
        """Whether the group holds any lock that has not run out (broker:6.6)."""
        now = self._clock.monotonic()
        return any(until > now for _, until in self._groups.get(group, {}).values())

    def drop_expired(self) -> None:
        """Forget locks that ran out; called every few seconds."""
        now = self._clock.monotonic()
        for group in list(self._groups):
            held = {queue: entry for queue, entry in self._groups[group].items() if entry[1] > now}
            if held:
                self._groups[group] = held
            else:
                del self._groups[group]

    # Handlers

    def lock(self, connection: Connection, command: Command) -> Command:
        """41: claim queues; answers with those the client holds now."""
        request = LockBatchRequestBody.decode(command.body)
        granted = self.claim(request.consumer_group, request.client_id, request.queues)
        return answer(command, body=LockBatchResponseBody(wire_queues(granted)).encode())

    def unlock(self, connection: Connection, command: Command) -> Command:
        """42: give queues back."""
        request = LockBatchRequestBody.decode(command.body)
        self.release(request.consumer_group, request.client_id, request.queues)
        return answer(command)
