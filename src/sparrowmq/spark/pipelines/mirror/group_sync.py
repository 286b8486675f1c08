"""Groups of the source are given their place at the target, again and again while a mirror runs."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparrowmq.core.errors import SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.cluster.faults import Occasionally
from sparrowmq.spark.pipelines.mirror.clusters import Side
from sparrowmq.spark.pipelines.mirror.group_offsets import Budget, ReturnedOffsets, Translator
from sparrowmq.spark.pipelines.mirror.state import MirrorState

if TYPE_CHECKING:
    from sparrowmq.aio import Admin

log = logging.getLogger("sparrowmq.spark")


@dataclass(frozen=True, slots=True, order=True)
class Moved:
    """A group now continues at `offset` of a target queue."""

    group: str
    queue: MessageQueue
    offset: int


class GroupMover:
    """Moves some groups from `source` to `target`; groups by name, and those that a pattern matches."""

    def __init__(self, source: Side, target: Side, groups: Iterable[str], pattern: str) -> None:
        self._source = source
        self._target = target
        self._groups = sorted(set(groups))
        self._pattern = re.compile(pattern) if pattern else None
        self._translator = Translator(source.name, target, ReturnedOffsets(source, target.name))
        self._complaints = Occasionally()

    async def groups(self) -> list[str]:
        """The selected groups that exist at the source."""
        found = set(self._groups)
        if self._pattern is not None:
            known = await (await self._source.admin()).groups.list()
            found.update(name for name in known if self._pattern.fullmatch(name))
        return sorted(found)

    async def move(self, state: MirrorState) -> list[Moved]:
        """Move every group that has read on and is nowhere online at the target; what was moved.

        What fails for a group is logged; it is tried again the next time.
        """
        source = await self._source.admin()
        topics = sorted({queue.topic for queue in state.queues})
        moved: list[Moved] = []
        readers: dict[str, list[str]] = {}
        for topic in topics:
            try:
                for group in await source.topics.groups(topic):
                    readers.setdefault(group, []).append(topic)
            except SparrowError as error:
                self._complaints.warn("the groups of topic %s could not be listed: %s", topic, error)
        try:
            queues = await self._whole_queues(state)
            groups = await self.groups()
        except SparrowError as error:
            self._complaints.warn("group offsets could not be mirrored at %s: %s", self._target.name, error)
            return []
        for group in groups:
            try:
                wanted = [queue for queue in queues if queue.topic in readers.get(group, ())]
                moved += await self._move(group, wanted, state)
            except SparrowError as error:
                self._complaints.warn(
                    "the offsets of group %s could not be mirrored to the target: %s", group, error
                )
        if moved:
            log.info("%d group offsets were mirrored to %s", len(moved), self._target.name)
        return moved

    async def _whole_queues(self, state: MirrorState) -> list[MessageQueue]:
        """Target queues that still have all that was sent to them: their topic was not recreated."""
        ends = await self._target.ends(sorted(state.places))
        short = [queue for queue, end in ends.items() if end < state.places[queue].end]
        if short:
            self._complaints.warn(
                "%s ends before the messages that were sent to it; its topic may have been recreated",
                short[0],
            )
        return [queue for queue in ends if queue not in short]

    async def _move(self, group: str, queues: list[MessageQueue], state: MirrorState) -> list[Moved]:
        target = await self._target.admin()
        if not queues or await self._is_online(target, group):
            return []
        if not await target.groups.config(group):
            await target.groups.create(group)
        moved: list[Moved] = []
        budget = Budget()
        for queue in queues:
            offset = await self._advance(group, queue, state, budget)
            if offset is not None:
                moved.append(Moved(group, queue, offset))
        return moved

    async def _is_online(self, target: Admin, group: str) -> bool:
        members = await target.groups.connections(group)
        return members is not None and bool(members.members)

    async def _advance(
        self, group: str, queue: MessageQueue, state: MirrorState, budget: Budget
    ) -> int | None:
        """Move a group in one target queue; None when it stays."""
        read = await self._read(group, state.sources(queue))
        if not read:
            return None
        target = await self._target.admin()
        now = await target.groups.committed(group, queue)
        offset = await self._translator.position(queue, state.places[queue], now or 0, read, budget)
        if now is not None and offset <= now:
            return None
        await target.groups.commit(group, queue, offset)
        return offset

    async def _read(self, group: str, sources: Iterable[MessageQueue]) -> Mapping[MessageQueue, int]:
        """Up to where the group has read source queues; those it has no offset in are left out."""
        admin = await self._source.admin()
        asked = list(sources)
        found = await asyncio.gather(*(admin.groups.committed(group, queue) for queue in asked))
        return {queue: offset for queue, offset in zip(asked, found, strict=True) if offset is not None}
