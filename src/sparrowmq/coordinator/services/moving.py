"""Wishes for other offsets, from the database to who carries them out, and what became of them back.

A group with members is asked to let go of its queues; another one is told as RocketMQ's tools do it.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from sqlalchemy import Connection

from sparrowmq.coordinator.groups import resets
from sparrowmq.coordinator.groups.led import Groups
from sparrowmq.coordinator.groups.moves import DirectMoves, Moved, Moves, Offsets
from sparrowmq.coordinator.services.frame import Work
from sparrowmq.core.errors import SparrowError


class Mover:
    """The wishes that one leader carries out, while it leads."""

    def __init__(self, work: Work, groups: Groups, cluster: Offsets) -> None:
        self._work = work
        self._groups = groups
        self._direct = DirectMoves(cluster)
        self._open = True

    async def look(self, *, changed: bool) -> None:
        """Note what has ended, and take up what waits. Reads only when something was `changed`, or is under
        way. Raises `LeaseLostError`, the `DatabaseError` family.
        """
        sources: list[Moves | DirectMoves] = [*(one.moves for one in self._groups.leaders), self._direct]
        for source in sources:
            for moved in source.ended():
                await self._work.write(partial(_end, moved=moved))
                source.forget(moved)
        for group in self._direct.take_managed():
            with suppress(SparrowError):  # the wish waits, and this is tried again
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
        """Break off; the next leader begins anew with what waits."""
        await self._direct.close()


def _end(connection: Connection, moved: Moved) -> None:
    resets.end(
        connection,
        moved.wish,
        before=moved.before,
        after=moved.after,
        problem=moved.problem,
        generation=moved.generation,
    )
