"""The service that chooses the masters of groups of brokers, and says what is wrong with such groups.

The leader asks the brokers all the time; a step saves what they said and updates the alarms. When the lease
is lost, it stops at once: brokers obey the next leader, whose epochs are higher. While nobody leads, masters
take messages until their own leases end. Pausing the service stops its alarms only, because a master without
a lease takes no messages.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import Final

from sparrowmq.coordinator.alarms.outbox import Channels
from sparrowmq.coordinator.alarms.table import AlarmCheck, Condition
from sparrowmq.coordinator.replicas import conditions, table
from sparrowmq.coordinator.replicas.decisions import ElectionTimes, GroupChange, ReplicaGroup
from sparrowmq.coordinator.replicas.group_watch import GroupBrokers, GroupWatch
from sparrowmq.coordinator.replicas.table import StoredGroup
from sparrowmq.coordinator.services.base.board import ServiceSettings
from sparrowmq.coordinator.services.base.runner import Work
from sparrowmq.coordinator.services.base.schedule import RunReport, ServiceKind, ServiceOption
from sparrowmq.coordinator.services.base.watch import CALM, WatchService, policy_of
from sparrowmq.core.clock import Clock

NO_MASTER: Final = "replicas-no-master"
ONE_COPY: Final = "replicas-one-copy"
AHEAD: Final = "replicas-ahead"
KIND: Final = ServiceKind(
    "replica-election",
    "Choose the masters of brokers that have a second copy",
    5_000,
    1_000,
    20.0,
    (
        ServiceOption("checks", 2, 1, 100, "consecutive checks that must see it before it fires"),
        CALM,
        ServiceOption("reminder_seconds", 3600, 0, 604_800, "how often a firing alarm is repeated; 0: never"),
    ),
)
log = logging.getLogger("sparrowmq.coordinator.services")


class DatabaseBook:
    """What watches write, as the leader of the service."""

    def __init__(self, work: Work) -> None:
        self._work = work

    async def load(self, name: str) -> ReplicaGroup | None:
        """The group as it is in the database."""
        found = await self._work.read(table.every)
        return next((one.group for one in found if one.group.name == name), None)

    async def save(self, before: ReplicaGroup, change: GroupChange, reason: str) -> None:
        """Write a change with its audit entry."""
        actor = replace(self._work.actor, reason=reason)
        await self._work.write(lambda connection: table.save(connection, before, change, actor))

    async def release(self, name: str, reason: str) -> None:
        """Delete a group with its audit entry."""
        actor = replace(self._work.actor, reason=reason)
        await self._work.write(lambda connection: table.release(connection, name, actor))


class ReplicaElection(WatchService[GroupBrokers]):
    """The groups of brokers in this process, while it leads."""

    kind = KIND

    def __init__(
        self, brokers: GroupBrokers, channels: Channels, clock: Clock, times: ElectionTimes | None = None
    ) -> None:
        super().__init__(brokers, channels)
        self._clock = clock
        self._times = times or ElectionTimes()
        self._epoch: int | None = None
        self._watches: dict[str, GroupWatch] = {}

    def __repr__(self) -> str:
        return f"<ReplicaElection epoch={self._epoch} groups={sorted(self._watches)}>"

    async def look(self, work: Work, seen: ServiceSettings) -> None:
        """Begin to watch groups that are new, and pass on what people asked for. Raises `LeaseLostError`."""
        if self._epoch != work.epoch:
            await self.resign()
            self._epoch = work.epoch
        for watch in self._watches.values():
            if watch.lost is not None:
                raise watch.lost
        stored = {one.group.name: one for one in await work.read(table.every)}
        for name in [name for name, watch in self._watches.items() if watch.released or name not in stored]:
            await self._watches.pop(name).close()
        for name, one in stored.items():
            if name not in self._watches:
                self._watches[name] = self._watch(work, one)
                self._watches[name].start()
            self._watches[name].compare(one.group)
            self._watches[name].wish(one.wish)

    async def step(self, work: Work) -> RunReport:
        """Save what the brokers last said, and update the alarms."""
        watches = {name: watch for name, watch in self._watches.items() if not watch.released}
        seen = {name: watch.seen() for name, watch in watches.items()}
        for name, told in seen.items():
            await work.write(partial(table.see, name=name, seen=told))
        policy = policy_of(work.options)
        checks = [
            AlarmCheck(rule, policy, tuple(Condition(name, text) for name, text in found.items()))
            for rule, found in self._found(watches).items()
        ]
        counts = await work.write(lambda connection: self._observe(connection, work, checks))
        problems = [f"{name}: {watch.text}" for name, watch in watches.items() if watch.text]
        return RunReport({"groups": len(watches)} | counts, "; ".join(problems))

    async def resign(self) -> None:
        """Stop asking; brokers are told nothing."""
        watches, self._watches = self._watches, {}
        self._epoch = None
        for watch in watches.values():
            try:
                await watch.close()
            except Exception:
                log.exception("the group %s was not closed cleanly", watch.group.name)

    def _watch(self, work: Work, stored: StoredGroup) -> GroupWatch:
        return GroupWatch(
            stored.group,
            self._view,
            DatabaseBook(work),
            monotonic=self._clock.monotonic,
            leads=lambda: work.leads,
            times=self._times,
        )

    def _found(self, watches: dict[str, GroupWatch]) -> dict[str, dict[str, str]]:
        """The problems by rule and group."""
        rules = {NO_MASTER: conditions.no_master, ONE_COPY: conditions.one_copy, AHEAD: conditions.ahead}
        found: dict[str, dict[str, str]] = {}
        for rule, check in rules.items():
            texts = {name: check(watch.group, watch.seen()) for name, watch in watches.items()}
            found[rule] = {name: text for name, text in texts.items() if text}
        return found
