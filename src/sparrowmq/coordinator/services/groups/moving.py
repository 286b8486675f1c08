"""Passes requested offset resets from the database to their executors, and saves the results.

A group with members first releases its queues; other groups are reset as RocketMQ's tools do it.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from sqlalchemy import Connection

from sparrowmq.coordinator.groups import resets
from sparrowmq.coordinator.groups.group_registry import GroupRegistry
from sparrowmq.coordinator.groups.moves import DirectMoves, MoveResult, Moves, Offsets
from sparrowmq.coordinator.services.base.runner import Work
from sparrowmq.core.errors import SparrowError


class Mover:
    """Requests that one leader carries out while it leads."""

    def __init__(self, work: Work, groups: GroupRegistry, cluster: Offsets) -> None:
        self._work = work
        self._groups = groups
        self._direct = DirectMoves(cluster)
        self._open = True

    async def look(self, *, changed: bool) -> None:
        """Record finished requests, and start waiting ones. Reads only when something was `changed`, or is
        running. Raises `LeaseLostError`, the `DatabaseError` family.
        """
        sources: list[Moves | DirectMoves] = [*(one.moves for one in self._groups.leaders), self._direct]
        for source in sources:
            for moved in source.ended():
                await self._work.write(partial(_end, moved=moved))
                source.forget(moved)
        for group in self._direct.take_managed():
            with suppress(SparrowError):  # the request waits and is tried again
                await self._groups.lead(group)
        if not (changed or self._open):
            return
        waiting = await self._work.read(resets.waiting)
        self._open = bool(waiting)
        for wish in waiting:
            leader = self._groups.find(wish.group)
            if leader is None or (not leader.members and leader.settled):
                self._direct.add(wish)
            elif leader.members and leader.moves.add(wish):
                leader.plan_anew()

    async def close(self) -> None:
        """Cancel all; the next leader starts waiting requests again."""
        await self._direct.close()


def _end(connection: Connection, moved: MoveResult) -> None:
    resets.end(
        connection,
        moved.wish,
        before=moved.before,
        after=moved.after,
        problem=moved.problem,
        generation=moved.generation,
    )
