"""The groups that one coordinator leads, each from its first member on, in its own task.

A failure in one group does not delay others. A leader that ended is replaced with the next member's request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from sparrowmq.coordinator.groups.group_metadata import GroupMetadata
from sparrowmq.coordinator.groups.handover import Times
from sparrowmq.coordinator.groups.initial_state import Terms
from sparrowmq.coordinator.groups.leader import GroupLeader
from sparrowmq.coordinator.groups.moves import ManagedCluster
from sparrowmq.coordinator.groups.plan import AdmissionRules
from sparrowmq.core.errors import CoordinatorError, EpochBehindError, InvalidStateError

log = logging.getLogger("sparrowmq.coordinator")

NO_LEADER: Final = "this coordinator no longer leads; ask the name server for the current leader"


class GroupRegistry:
    """The groups of one coordinator, each led from its first member on.

    `epoch` is that of all its leaders; without it each group has one after those that brokers know. `leads`
    says whether it may still lead; it is checked before every request to others.
    """

    def __init__(
        self,
        cluster: ManagedCluster,
        *,
        times: Times | None = None,
        rules: Mapping[str, AdmissionRules] | None = None,
        monotonic: Callable[[], float],
        groups_max: int = 1000,
        epoch: int | None = None,
        ledger: GroupMetadata | None = None,
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
        self._known: set[str] = set()
        self.epoch_behind = 0
        """A higher epoch that brokers know: a new leader must use one above it."""
        self.ahead_ms = 0
        """Offset of the database's clock, which determines the end of dynamic settings, from this process's
        clock.
        """

    def find(self, group: str) -> GroupLeader | None:
        """The leader of a group that has members here."""
        return self._leaders.get(group)

    @property
    def leaders(self) -> list[GroupLeader]:
        """The leaders of all groups that have members here, by name."""
        return [self._leaders[name] for name in sorted(self._leaders)]

    def adopt(self, terms: Mapping[str, Terms], usual: Terms | None = None) -> None:
        """Replace the settings of all groups; `usual` applies to groups that are not listed."""
        self._usual = usual or self._usual
        self._terms = dict(terms)
        for group, leader in self._leaders.items():
            leader.adopt(self._terms.get(group, self._usual))

    def pause(self, paused: bool) -> None:
        """Pause or resume planning. Members keep their queues during a pause."""
        self._paused = paused
        for leader in self._leaders.values():
            leader.pause(paused)

    def note_clock(self, ahead_ms: int) -> None:
        """Set the offset of the database's clock."""
        self.ahead_ms = ahead_ms

    def plan_anew(self) -> None:
        """Plan all groups again, paused or not."""
        for leader in self._leaders.values():
            leader.plan_anew()

    def expect(self, groups: Iterable[str]) -> None:
        """Register groups that have members according to the ledger."""
        self._known.update(groups)

    async def known(self, group: str) -> GroupLeader | None:
        """The leader of a group that has members, here or in the ledger; None for an unknown group. Raises
        like `lead`.
        """
        return await self.lead(group) if group in self._known else None

    async def lead(self, group: str) -> GroupLeader:
        """The leader of a group, which is taken over if necessary; calls may be concurrent.

        Raises `InvalidStateError` at the limit of groups, `SparrowError` when brokers do not answer.
        """
        if self._closed or not self.leads():
            raise CoordinatorError(NO_LEADER, what="leader")
        found = self._leaders.get(group)
        if found is not None and not found.deposed:
            return found
        if group not in self._taking:
            if len(self._leaders) >= self._groups_max:
                raise InvalidStateError(
                    f"this coordinator leads {self._groups_max} groups, which is the limit",
                    limit=self._groups_max,
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
            raise CoordinatorError(NO_LEADER, what="leader")
        if self._leaders.get(group) is not leader:
            self._leaders[group] = leader
            self._known.add(group)
            task = asyncio.get_running_loop().create_task(self._run(leader))
            self._tasks.add(task)  # includes that of a leader which is being replaced and finishes its step
            task.add_done_callback(self._tasks.discard)
        return leader

    def _remember_told(self, leader: GroupLeader) -> None:
        """Members know orders up to this number and ignore lower ones; it is forgotten after a while without
        members.
        """
        if leader.unused:
            self._told.pop(leader.group, None)
            self._known.discard(leader.group)
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
        leader.pause(self._paused)
        return leader

    async def _run(self, leader: GroupLeader) -> None:
        try:
            await leader.run()
        except Exception:
            log.exception(
                "group %s is no longer led here; it starts again with its next member", leader.group
            )
        finally:
            self._remember_told(leader)
            if self._leaders.get(leader.group) is leader:
                del self._leaders[leader.group]

    async def close(self) -> None:
        """Stop leading; groups stay unchanged until their members' leases expire."""
        self._closed = True
        tasks = [*self._tasks, *self._taking.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._leaders.clear()
        self._tasks.clear()
