"""The service that plans managed groups and hands their queues over.

Whoever leads it listens to members, and name servers say where. Plans are made when something happens; a step
looks at all groups again and writes down what members said last. When the lease is lost all of it stops at
once: what comes later from this process carries its epoch, and brokers refuse it.

Paused, no plans are made: members keep what they have, and their leases go on.
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
from sparrowmq.coordinator.groups import knobs
from sparrowmq.coordinator.groups.leader import GroupLeader
from sparrowmq.coordinator.groups.led import Groups
from sparrowmq.coordinator.groups.members import Keeper, Port, open_port
from sparrowmq.coordinator.groups.table import DatabaseLedger, Proofs, proof_key
from sparrowmq.coordinator.groups.takeover import Terms
from sparrowmq.coordinator.groups.unfenced import UnfencedGroups
from sparrowmq.coordinator.leases import table as leases
from sparrowmq.coordinator.services.board import Settings
from sparrowmq.coordinator.services.frame import Work
from sparrowmq.coordinator.services.moving import Mover
from sparrowmq.coordinator.services.schedule import Kind, Report
from sparrowmq.core.clock import Clock
from sparrowmq.core.errors import CoordinatorError, DatabaseError, LeaseLostError, SparrowError
from sparrowmq.core.knobs import Setting
from sparrowmq.transport.occasional import OccasionalLog

KIND: Final = Kind("rebalance", "Plan managed groups and hand their queues over", 10_000, 1_000, 60.0)
TAKEN_AT_ONCE: Final = 16
"""Groups that a new leader takes over side by side."""
STOP_SECONDS: Final = 5.0
STEER_SECONDS: Final = 10.0
"""For brokers to be told of groups that are not managed; what is left comes with the next step."""
log = logging.getLogger("sparrowmq.coordinator.services")


class Keepers(Protocol):
    """Where the cluster's calls are had from."""

    async def keeper(self) -> Keeper:
        """The cluster. Raises `SparrowError` when it cannot be had."""


@dataclass(frozen=True, slots=True)
class _Set:
    """What people have set: by group, in which revision, and when the next of it ends (0: never)."""

    terms: dict[str, Terms] = field(default_factory=dict)
    revision: int = 0
    ends_at: int = 0


@dataclass(slots=True)
class _Term:
    """The time this process leads in one epoch."""

    work: Work
    groups: Groups
    ledger: DatabaseLedger
    stack: AsyncExitStack
    set: _Set
    mover: Mover
    unfenced: UnfencedGroups
    plans: int = 0


class Rebalance:
    """Managed groups under this process, while it leads."""

    def __init__(self, cluster: Keepers, port: Port, clock: Clock) -> None:
        self._cluster = cluster
        self._port = port
        self._clock = clock
        self._term: _Term | None = None
        self._problem = "it has not begun yet"
        self._occasional = OccasionalLog(log)

    def __repr__(self) -> str:
        return f"<Rebalance {'leads' if self._term else 'waits'}>"

    @property
    def kind(self) -> Kind:
        """Name, defaults and bounds."""
        return KIND

    @property
    def groups(self) -> Groups | None:
        """The groups under this process; None while it does not lead."""
        return None if self._term is None else self._term.groups

    async def look(self, work: Work, seen: Settings) -> None:
        """Listen to members from the first look on; have in force what people changed.

        What is not there yet is tried again. Raises `LeaseLostError`, the `DatabaseError` family.
        """
        try:
            term = self._term
            if term is None or term.work.epoch != work.epoch:
                await self.resign()
                term = await self._begin(work, seen.plan.paused)
            term.groups.pause(seen.plan.paused)
            term.groups.ahead_ms = seen.now - self._clock.now_ms()
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
            self._occasional.write(logging.WARNING, "begin", f"members are not listened to yet: {error}")

    async def step(self, work: Work) -> Report:
        """Plan all groups anew, and write down what their members said last."""
        term = self._term
        if term is None:
            raise CoordinatorError(f"members are not listened to: {self._problem}")
        await work.write(lambda connection: knobs.expire(connection, work.actor))
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
        return Report(counts, "; ".join(problems))

    async def resign(self) -> None:
        """Close the port and plan nothing any more; groups stay as they are."""
        term, self._term = self._term, None
        if term is None:
            return
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await term.stack.aclose()
        except Exception:
            log.exception("the members' port was not closed cleanly")

    async def _begin(self, work: Work, paused: bool) -> _Term:
        key = await work.write(proof_key)
        found = await work.read(_read_set)
        keeper = await self._cluster.keeper()
        ledger = DatabaseLedger(work)
        groups = Groups(
            keeper,
            monotonic=self._clock.monotonic,
            epoch=work.epoch,
            ledger=ledger,
            leads=lambda: work.leads,
        )
        groups.adopt(found.terms, _USUAL)
        groups.pause(paused)
        async with AsyncExitStack() as stack:
            opened = open_port(keeper, groups, self._port, proofs=Proofs(key), clock=self._clock)
            server = await stack.enter_async_context(opened)
            log.info("members of managed groups are listened to at %s, epoch %d", server.address, work.epoch)
            mover = Mover(work, groups, keeper)
            stack.push_async_callback(mover.close)
            unfenced = UnfencedGroups(keeper, work.epoch, lambda group: bool(_members_of(groups, group)))
            self._term = _Term(work, groups, ledger, stack.pop_all(), found, mover, unfenced)
        await _take_over(self._term)
        return self._term


_USUAL: Final = Terms.of(())


def _read_set(connection: Connection) -> _Set:
    """All that is set of groups; read before its revision changes again, it is read once more then."""
    revision = _revision(connection)
    by_group: dict[str, list[Setting]] = {}
    rows = knobs.read(connection)
    for row in rows:
        by_group.setdefault(row.group, []).append(row.setting)
    ends = [row.setting.until for row in rows if row.setting.until]
    return _Set(
        {group: Terms.of(settings) for group, settings in by_group.items()}, revision, min(ends, default=0)
    )


def _revision(connection: Connection) -> int:
    return int(connection.execute(select(func.sum(group_revision.c.revision))).scalar() or 0)


async def _have_in_force(term: _Term, now: int) -> bool:
    """Take over what was set since the last look, or has ended; whether anything was. One statement when
    nothing was.
    """
    revision = await term.work.read(_revision)
    if revision == term.set.revision and not 0 < term.set.ends_at <= now:
        return False
    term.set = await term.work.read(_read_set)
    term.groups.adopt(term.set.terms, _USUAL)
    return True


async def _write_down(term: _Term, leaders: Iterable[GroupLeader]) -> None:
    """Keep what members said last: each interval, and at most once a look when they go by other knobs."""
    chosen = list(leaders)
    for one in chosen:
        one.news = False
    await term.ledger.see({one.group: (one.seen(), one.problem) for one in chosen})


def _members_of(groups: Groups, group: str) -> list[str]:
    leader = groups.find(group)
    return [] if leader is None else leader.members


async def _steer(term: _Term) -> int:
    """Have members that divide queues by themselves go by what is set of their groups; how many groups."""
    try:
        async with asyncio.timeout(STEER_SECONDS):
            return len(await term.unfenced.look(term.set.terms))
    except TimeoutError:
        log.warning("brokers take longer than %g s to be told who may consume", STEER_SECONDS)
        return 0


async def _take_over(term: _Term) -> None:
    """Lead all groups that had members, so that those who died meanwhile are missed."""
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
    """Begin above an epoch that brokers know already, of another database or an older coordinator."""
    await work.write(lambda connection: leases.lift(connection, KIND.name, epoch))
    raise LeaseLostError(
        f"brokers know a leader of {KIND.name} in epoch {epoch}; it begins anew above that one"
    )
