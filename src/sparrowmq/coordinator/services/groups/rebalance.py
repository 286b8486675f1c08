"""The service that plans managed groups and hands over their queues.

The leader listens to members on a port that name servers publish. It makes plans when something changes; a
step checks all groups again and saves the members' latest reports. When the lease is lost, everything stops
immediately: later requests of this process have its old epoch, and brokers refuse them.

When the service is paused, it makes no plans: members keep their queues, and their leases continue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final, Protocol

from sqlalchemy import Connection, func, select

from sparrowmq.coordinator.database.tables import group_revision
from sparrowmq.coordinator.groups import dynamic_settings
from sparrowmq.coordinator.groups.group_registry import GroupRegistry
from sparrowmq.coordinator.groups.initial_state import Terms
from sparrowmq.coordinator.groups.leader import GroupLeader
from sparrowmq.coordinator.groups.members import Keeper, Port, open_port
from sparrowmq.coordinator.groups.table import DatabaseGroupMetadata
from sparrowmq.coordinator.groups.unfenced import UnfencedGroups
from sparrowmq.coordinator.leases import table as leases
from sparrowmq.coordinator.services.base.board import ServiceSettings
from sparrowmq.coordinator.services.base.runner import Work
from sparrowmq.coordinator.services.base.schedule import RunReport, ServiceKind
from sparrowmq.coordinator.services.groups.moving import Mover
from sparrowmq.core.clock import Clock
from sparrowmq.core.dynamic_settings import SettingValue
from sparrowmq.core.errors import CoordinatorError, DatabaseError, LeaseLostError, SparrowError
from sparrowmq.transport.occasional import OccasionalLog

KIND: Final = ServiceKind("rebalance", "Plan managed groups and hand over their queues", 10_000, 1_000, 60.0)
TAKEN_AT_ONCE: Final = 16
"""Number of groups that a new leader takes over concurrently."""
STOP_SECONDS: Final = 5.0
STEER_SECONDS: Final = 10.0
"""Time for updating brokers of unmanaged groups; the rest follows in the next step."""
log = logging.getLogger("sparrowmq.coordinator.services")


class Keepers(Protocol):
    """Access to the cluster's calls."""

    async def keeper(self) -> Keeper:
        """The cluster. Raises `SparrowError` when it is not available."""


@dataclass(frozen=True, slots=True)
class _Set:
    """All settings of users: by group, their revision, and when the next of them ends (0: never)."""

    terms: dict[str, Terms] = field(default_factory=dict)
    revision: int = 0
    ends_at: int = 0


@dataclass(slots=True)
class _Term:
    """The time in which this process leads in one epoch."""

    work: Work
    groups: GroupRegistry
    ledger: DatabaseGroupMetadata
    stack: AsyncExitStack
    set: _Set
    mover: Mover
    unfenced: UnfencedGroups
    plans: int = 0


class Rebalance:
    """Managed groups in this process, while it leads."""

    def __init__(self, cluster: Keepers, port: Port, clock: Clock) -> None:
        self._cluster = cluster
        self._port = port
        self._clock = clock
        self._term: _Term | None = None
        self._problem = "it has not started yet"
        self._occasional = OccasionalLog(log)

    def __repr__(self) -> str:
        return f"<Rebalance {'leads' if self._term else 'waits'}>"

    @property
    def kind(self) -> ServiceKind:
        """Name, defaults and bounds."""
        return KIND

    @property
    def groups(self) -> GroupRegistry | None:
        """The groups in this process; None while it does not lead."""
        return None if self._term is None else self._term.groups

    async def look(self, work: Work, seen: ServiceSettings) -> None:
        """Start listening to members at the first call; apply changed settings.

        Failed steps are tried again. Raises `LeaseLostError`, the `DatabaseError` family.
        """
        try:
            term = self._term
            if term is None or term.work.epoch != work.epoch:
                await self.resign()
                term = await self._begin(work, seen.plan.paused)
            term.groups.pause(seen.plan.paused)
            term.groups.note_clock(seen.now - self._clock.now_ms())
            changed = await _have_in_force(term, seen.now)
            await term.mover.look(changed=changed)
            await _write_down(term, [one for one in term.groups.leaders if one.news])
            if changed:
                await _steer(term)
            if term.groups.epoch_behind:
                await _lift(work, term.groups.epoch_behind)
        except (DatabaseError, LeaseLostError):
            raise
        except SparrowError as error:
            self._problem = str(error)
            self._occasional.write(logging.WARNING, "begin", f"the members' port is not open yet: {error}")

    async def step(self, work: Work) -> RunReport:
        """Plan all groups again, and save their members' last reports."""
        term = self._term
        if term is None:
            raise CoordinatorError(f"the members' port is not open: {self._problem}")
        await work.write(lambda connection: dynamic_settings.expire(connection, work.actor))
        await _take_over(term)
        term.groups.plan_anew()
        steered = await _steer(term)
        leaders = term.groups.leaders
        await _write_down(term, leaders)
        made = sum(one.plans for one in leaders)
        counts = {
            "groups": len(leaders),
            "members": sum(len(one.members) for one in leaders),
            "unsettled": sum(not one.settled for one in leaders),
            "plans": max(0, made - term.plans),
            "steered": steered,
        }
        term.plans = made
        problems = [f"{one.group}: {one.problem}" for one in leaders if one.problem]
        return RunReport(counts, "; ".join(problems))

    async def resign(self) -> None:
        """Close the port and stop planning; groups stay unchanged."""
        term, self._term = self._term, None
        if term is None:
            return
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await term.stack.aclose()
        except Exception:
            log.exception("the members' port was not closed cleanly")

    async def _begin(self, work: Work, paused: bool) -> _Term:
        found = await work.read(_read_set)
        keeper = await self._cluster.keeper()
        ledger = DatabaseGroupMetadata(work)
        groups = GroupRegistry(
            keeper,
            monotonic=self._clock.monotonic,
            epoch=work.epoch,
            ledger=ledger,
            leads=lambda: work.leads,
        )
        groups.adopt(found.terms, _USUAL)
        groups.pause(paused)
        async with AsyncExitStack() as stack:
            groups.expect(await ledger.groups())
            opened = open_port(keeper, groups, self._port, proven=True, clock=self._clock)
            server = await stack.enter_async_context(opened)
            log.info("listening for members of managed groups at %s, epoch %d", server.address, work.epoch)
            mover = Mover(work, groups, keeper)
            stack.push_async_callback(mover.close)
            unfenced = UnfencedGroups(keeper, work.epoch, lambda group: bool(_members_of(groups, group)))
            self._term = _Term(work, groups, ledger, stack.pop_all(), found, mover, unfenced)
        await _take_over(self._term)
        return self._term


_USUAL: Final = Terms.of(())


def _read_set(connection: Connection) -> _Set:
    """All settings of groups; if the revision changes during the read, the next check reads them again."""
    revision = _revision(connection)
    by_group: dict[str, list[SettingValue]] = {}
    rows = dynamic_settings.read(connection)
    for row in rows:
        by_group.setdefault(row.group, []).append(row.setting)
    ends = [row.setting.until for row in rows if row.setting.until]
    return _Set(
        {group: Terms.of(settings) for group, settings in by_group.items()}, revision, min(ends, default=0)
    )


def _revision(connection: Connection) -> int:
    return int(connection.execute(select(func.sum(group_revision.c.revision))).scalar() or 0)


async def _have_in_force(term: _Term, now: int) -> bool:
    """Apply settings that were changed or have expired since the last check; returns whether there were any.
    One statement if there were none.
    """
    revision = await term.work.read(_revision)
    if revision == term.set.revision and not 0 < term.set.ends_at <= now:
        return False
    term.set = await term.work.read(_read_set)
    term.groups.adopt(term.set.terms, _USUAL)
    return True


async def _write_down(term: _Term, leaders: Iterable[GroupLeader]) -> None:
    """Save the latest reports: each interval, and at most once per check when members apply other
    settings.
    """
    chosen = list(leaders)
    for one in chosen:
        one.take_news()
    await term.ledger.see({one.group: (one.seen(), one.problem) for one in chosen})


def _members_of(groups: GroupRegistry, group: str) -> list[str]:
    leader = groups.find(group)
    return [] if leader is None else leader.members


async def _steer(term: _Term) -> int:
    """Apply settings to groups whose members divide queues themselves; returns the number of groups."""
    try:
        async with asyncio.timeout(STEER_SECONDS):
            return len(await term.unfenced.look(term.set.terms))
    except SparrowError:
        raise
    except TimeoutError:
        log.warning("brokers took longer than %g s to accept who may consume", STEER_SECONDS)
        return 0


async def _take_over(term: _Term) -> None:
    """Lead all groups that had members, so that members that died in the meantime are noticed."""
    places = asyncio.Semaphore(TAKEN_AT_ONCE)

    async def one(group: str) -> None:
        async with places:
            try:
                await term.groups.lead(group)
            except SparrowError as error:
                log.warning("group %s is not led yet: %s", group, error)

    missing = [name for name in await term.ledger.groups() if term.groups.find(name) is None]
    await asyncio.gather(*(one(group) for group in missing))


async def _lift(work: Work, epoch: int) -> None:
    """Begin above an epoch that brokers already know from another database or an older coordinator."""
    await work.write(lambda connection: leases.lift(connection, KIND.name, epoch))
    raise LeaseLostError(
        f"brokers already know a leader of {KIND.name} in epoch {epoch}; it starts again with a higher epoch"
    )
