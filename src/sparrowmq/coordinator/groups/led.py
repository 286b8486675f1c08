"""The groups of one coordinator: which it leads, each from its first member on, in a task of its own.

What fails for one group delays no other. A leader that ends is replaced by the next member's request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from sparrowmq.coordinator.groups.handover import Times
from sparrowmq.coordinator.groups.leader import GroupLeader
from sparrowmq.coordinator.groups.ledger import Ledger
from sparrowmq.coordinator.groups.moves import Cluster
from sparrowmq.coordinator.groups.plan import Rules
from sparrowmq.coordinator.groups.takeover import Terms
from sparrowmq.core.errors import CoordinatorError, EpochBehindError, InvalidStateError

log = logging.getLogger("sparrowmq.coordinator")

NO_LEADER: Final = "this coordinator does not lead any more; ask the name server for another"


class Groups:
    """The groups of one coordinator, each led from its first member on.

    `epoch` is that of all its leaders; without it each group has one after those that brokers know. `leads`
    says whether it still may; asked before anything that is told outside.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        times: Times | None = None,
        rules: Mapping[str, Rules] | None = None,
        monotonic: Callable[[], float],
        groups_max: int = 1000,
        epoch: int | None = None,
        ledger: Ledger | None = None,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        self._cluster = cluster
        self._usual = Terms(times or Times())
        self._terms = {group: replace(self._usual, rules=one) for group, one in (rules or {}).items()}
        self._monotonic = monotonic
        self._groups_max = groups_max
        self._epoch = epoch
        self._ledger = ledger
        self.leads = leads
        self._paused = self._closed = False
        self._leaders: dict[str, GroupLeader] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._taking: dict[str, asyncio.Task[GroupLeader]] = {}
        self._told: dict[str, int] = {}
        self.epoch_behind = 0
        """A later epoch that brokers know: whoever leads has to begin above it."""
        self.ahead_ms = 0
        """How far the clock by which knobs end, the database's, is ahead of this process's."""

    def find(self, group: str) -> GroupLeader | None:
        """The leader of a group that has members here."""
        return self._leaders.get(group)

    @property
    def leaders(self) -> list[GroupLeader]:
        """The leaders of all groups that have members here, by name."""
        return [self._leaders[name] for name in sorted(self._leaders)]

    def adopt(self, terms: Mapping[str, Terms], usual: Terms | None = None) -> None:
        """Take over what people set of groups, all of it; `usual` counts for groups that are not named."""
        self._usual = usual or self._usual
        self._terms = dict(terms)
        for group, leader in self._leaders.items():
            leader.adopt(self._terms.get(group, self._usual))

    def pause(self, paused: bool) -> None:
        """Let plans wait, or let them be made again. Members keep what they have meanwhile."""
        self._paused = paused
        for leader in self._leaders.values():
            leader.paused = paused

    def plan_anew(self) -> None:
        """Plan all groups again, paused or not."""
        for leader in self._leaders.values():
            leader.plan_anew()

    async def lead(self, group: str) -> GroupLeader:
        """The leader of a group, taken over if that is not done yet; many may ask at once.

        Raises `InvalidStateError` at the limit of groups, `SparrowError` when brokers do not answer.
        """
        if self._closed or not self.leads():
            raise CoordinatorError(NO_LEADER)
        found = self._leaders.get(group)
        if found is not None and not found.deposed:
            return found
        if group not in self._taking:
            if len(self._leaders) >= self._groups_max:
                raise InvalidStateError(
                    f"this coordinator leads {self._groups_max} groups, which is the limit"
                )
            self._taking[group] = asyncio.get_running_loop().create_task(self._take_over(group))
        taking = self._taking[group]
        try:
            leader = await asyncio.shield(taking)
        except EpochBehindError as error:
            self.epoch_behind = max(self.epoch_behind, error.epoch)
            raise
        finally:
            if taking.done():
                self._taking.pop(group, None)
        if self._closed:
            raise CoordinatorError(NO_LEADER)
        if self._leaders.get(group) is not leader:
            self._leaders[group] = leader
            task = asyncio.get_running_loop().create_task(self._run(leader))
            self._tasks.add(task)  # also that of a leader which is replaced and ends its step yet
            task.add_done_callback(self._tasks.discard)
        return leader

    def _remember_told(self, leader: GroupLeader) -> None:
        """Members know orders up to there, and heed none below; after a while without any it is forgotten."""
        if leader.unused:
            self._told.pop(leader.group, None)
        else:
            self._told[leader.group] = max(leader.told, self._told.get(leader.group, 0))

    async def _take_over(self, group: str) -> GroupLeader:
        before = self._leaders.get(group)
        if before is not None:
            self._remember_told(before)
        terms = self._terms.get(group, self._usual)
        leader = await GroupLeader.take_over(
            group,
            self._cluster,
            terms,
            self._monotonic,
            epoch=self._epoch,
            told=self._told.get(group, 0),
            ledger=self._ledger,
            leads=self.leads,
        )
        if self._terms.get(group, self._usual) != terms:
            leader.adopt(self._terms.get(group, self._usual))
        leader.paused = self._paused
        return leader

    async def _run(self, leader: GroupLeader) -> None:
        try:
            await leader.run()
        except Exception:
            log.exception("group %s is not led any more; its next member begins anew", leader.group)
        finally:
            self._remember_told(leader)
            if self._leaders.get(leader.group) is leader:
                del self._leaders[leader.group]

    async def close(self) -> None:
        """Lead no more; groups stay as they are until their members' leases end."""
        self._closed = True
        tasks = [*self._tasks, *self._taking.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._leaders.clear()
        self._tasks.clear()
