"""`GroupWatch`: asks the brokers of one group, and carries out the decisions.

Each broker has its own task, so one that does not answer delays no other. The tasks share one state, which
only the loop touches. A change is in the database before any broker receives it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from sparrowmq.coordinator.replicas import decisions
from sparrowmq.coordinator.replicas.decisions import (
    ChangeKind,
    ElectionTimes,
    GroupChange,
    Heard,
    ReplicaGroup,
    RoleOrders,
    View,
    Wish,
    WishKind,
)
from sparrowmq.coordinator.replicas.table import StoredWish
from sparrowmq.core.clock import Sleep
from sparrowmq.core.errors import LeaseLostError, SparrowError
from sparrowmq.core.outside import one_line
from sparrowmq.protocol.bodies.replicas import ReplicaOrders, ReplicaState
from sparrowmq.transport.occasional import OccasionalLog

log = logging.getLogger("sparrowmq.coordinator.replicas")
FIND_SECONDS: Final = 2.0
"""How often the name servers are asked for brokers of the group."""
CHANGING_SECONDS: Final = 0.05
"""How often a broker is asked while its role is changing."""
TICK_SECONDS: Final = 0.1
"""How often leases are checked for their end."""
ASK_SECONDS: Final = 1.0
"""How long a broker may take to answer; well below a lease, so that the next request comes in time."""
RELEASE_SECONDS: Final = 20.0
"""How long brokers are sent the release of their group; a broker that does not answer must be changed by
hand.
"""
MEMBERS_MAX: Final = 16
"""Maximum number of brokers of a group that are asked."""


class GroupBrokers(Protocol):
    """Access to the brokers. Everything raises `SparrowError`."""

    async def of_group(self, name: str) -> list[str]:
        """The addresses of a group's brokers that are registered at name servers."""

    async def state(self, address: str, seconds: float) -> ReplicaState:
        """A broker's description of itself."""

    async def order(self, address: str, orders: ReplicaOrders, seconds: float) -> ReplicaState:
        """Give orders to a broker."""

    async def close(self) -> None:
        """Close the connections."""


class GroupBook(Protocol):
    """The leader's access to the database. Everything raises `LeaseLostError` and the
    `DatabaseError` family.
    """

    async def load(self, name: str) -> ReplicaGroup | None:
        """The group as it is in the database; None if it was deleted."""

    async def save(self, before: ReplicaGroup, change: GroupChange, reason: str) -> None:
        """Write a change."""

    async def release(self, name: str, reason: str) -> None:
        """Delete the group."""


def heard(state: ReplicaState, at: float) -> Heard:
    """An answer that arrived at `at`, in the form for decisions."""
    return Heard(
        address=state.address,
        at=at,
        store=state.store,
        run=state.run,
        stamp=state.stamp,
        role=state.role,
        state=state.state,
        epoch=max(0, state.epoch),
        number=state.in_sync_number,
        log_epoch=state.log_epoch,
        end=state.max_offset,
        confirmed=state.confirmed_offset,
        cluster=state.cluster_name,
        ha_address=state.ha_address,
        master_address=state.master_address or (state.address if state.role == decisions.MASTER else ""),
        wanted=None if state.wanted is None else tuple(state.wanted),
        slaves={one.address: one.store for one in state.slaves if one.address},
        is_managed=state.is_managed,
        is_sync=state.is_sync,
        is_damaged=state.damaged_offset >= 0,
        paused_ms=state.paused_left_ms,
        trouble=state.trouble,
    )


def request(group: ReplicaGroup, told: RoleOrders, *, unclean: bool = False) -> ReplicaOrders:
    """Orders for the wire."""
    return ReplicaOrders(
        cluster_name=group.cluster,
        broker_name=group.name,
        epoch=told.epoch,
        role=told.role,
        broker_id=told.broker_id,
        master_address=told.master.address,
        master_ha_address=told.master.ha_address,
        in_sync=list(told.in_sync),
        in_sync_number=told.number,
        lease_ms=told.lease_ms,
        lease_from=told.lease_from,
        run=told.run,
        store=told.store,
        unclean=unclean,
        force=not told.lease_ms,
        pause_ms=told.pause_ms,
    )


@dataclass(slots=True)
class _Asked:
    """A broker that is asked: its task, its last answer, and why it does not answer."""

    task: asyncio.Task[None]
    wake: asyncio.Event
    error: str = ""


class GroupWatch:
    """One group, while this process leads. `monotonic` is its clock; `leads` is checked before orders are
    sent.
    """

    def __init__(
        self,
        group: ReplicaGroup,
        brokers: GroupBrokers,
        book: GroupBook,
        *,
        monotonic: Callable[[], float],
        leads: Callable[[], bool],
        times: ElectionTimes,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.group = group
        self.times = times
        self.text = ""
        """Why this group cannot be managed at the moment; empty if it can."""
        self._brokers = brokers
        self._book = book
        self._monotonic = monotonic
        self._leads = leads
        self._sleep = sleep
        self._heard: dict[str, Heard] = {}
        self._asked: dict[str, _Asked] = {}
        self._lock = asyncio.Lock()
        self._lease_over_at = monotonic() + (group.lease_ms + times.margin_ms) / 1000
        self._wish: Wish | None = None
        self._stored: StoredWish | None = None
        self._was_unclean = False
        self._is_unsure = False
        self._occasional = OccasionalLog(log)
        self._tasks: list[asyncio.Task[None]] = []
        self.lost: LeaseLostError | None = None
        """Set when the database says that this process does not lead; from then on it does nothing."""
        self.released = False

    def __repr__(self) -> str:
        return f"<GroupWatch {self.group.name} epoch={self.group.epoch} master={self.group.master}>"

    def start(self) -> None:
        """Start asking; call on the loop."""
        self._tasks = [
            asyncio.create_task(self._forever(self._find, FIND_SECONDS)),
            asyncio.create_task(self._forever(self._advance, TICK_SECONDS)),
        ]
        for address in self.group.members:
            self._ask(address)

    async def close(self) -> None:
        """Stop asking; the brokers get no further orders."""
        tasks = [*self._tasks, *(one.task for one in self._asked.values())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def wish(self, stored: StoredWish | None) -> None:
        """What a person asks for now."""
        if stored == self._stored:
            return
        self._stored = stored
        now = self._monotonic()
        self._wish = None if stored is None else Wish(stored.kind, stored.target, now)

    def compare(self, stored: ReplicaGroup) -> None:
        """The state in the database: a change that seemed to fail may have been written later."""
        if (stored.epoch, stored.number) > (self.group.epoch, self.group.number):
            self._is_unsure = True

    def seen(self) -> dict[str, dict[str, Any]]:
        """The brokers' last answers, for JSON."""
        found = {}
        for address in sorted({*self.group.members, *self._asked}):
            one, asked = self._heard.get(address), self._asked.get(address)
            values: dict[str, Any] = {"error": asked.error if asked is not None else "it was not asked yet"}
            if one is not None:
                values |= {
                    "role": one.role,
                    "state": one.state,
                    "epoch": one.epoch,
                    "number": one.number,
                    "log_epoch": one.log_epoch,
                    "end": one.end,
                    "confirmed": one.confirmed,
                    "is_sync": one.is_sync,
                    "is_managed": one.is_managed,
                    "trouble": one_line(one.trouble),
                    "seconds_ago": round(max(0.0, self._monotonic() - one.at), 1),
                }
            found[address] = {"role": "", "epoch": 0, "number": 0, **values}
        return found

    # Work

    async def _forever(self, work: Callable[[], Awaitable[None]], seconds: float) -> None:
        while self.lost is None:
            self.text = await self._guarded(work)
            await self._sleep(seconds)

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> str:
        """Run one step; an error is logged and returned, and the step is tried again."""
        try:
            await work()
        except LeaseLostError as error:
            self.lost = error
            return str(error)
        except (SparrowError, OSError, TimeoutError) as error:
            text = str(error) or type(error).__name__
            self._occasional.write(logging.WARNING, text[:80], f"group {self.group.name}: {one_line(text)}")
            return text
        except Exception as error:
            text = f"group {self.group.name} cannot be managed now"
            self._occasional.write(logging.ERROR, type(error).__name__, text, error=error)
            return f"{type(error).__name__}: {error}"
        return ""

    async def _find(self) -> None:
        for address in await self._brokers.of_group(self.group.name):
            if address not in self._asked and len(self._asked) < MEMBERS_MAX:
                self._ask(address)

    def _ask(self, address: str) -> None:
        wake = asyncio.Event()
        self._asked[address] = _Asked(asyncio.create_task(self._rounds(address, wake)), wake)

    async def _rounds(self, address: str, wake: asyncio.Event) -> None:
        while self.lost is None:
            self._asked[address].error = await self._guarded(lambda: self._round(address))
            try:
                async with asyncio.timeout(self._pause(address)):
                    await wake.wait()
            except TimeoutError:
                pass
            wake.clear()

    def _pause(self, address: str) -> float:
        """Seconds until a broker is asked again; fewer while its role is changing."""
        one = self._heard.get(address)
        is_changing = one is not None and one.state == decisions.CHANGING and not self._asked[address].error
        return min(self.times.poll_ms / 1000, CHANGING_SECONDS if is_changing else FIND_SECONDS)

    async def _round(self, address: str) -> None:
        """Ask one broker, decide, and send its orders."""
        one = self._take(address, await self._brokers.state(address, ASK_SECONDS))
        await self._advance()
        told, unclean = self._told(one), self._was_unclean
        if told is None or not self._leads():
            return
        if told.role == decisions.MASTER and told.lease_ms:
            over = decisions.lease_end(one, told, self.times)
            self._lease_over_at = max(self._lease_over_at, over)
        orders = request(self.group, told, unclean=unclean)
        self._take(address, await self._brokers.order(address, orders, ASK_SECONDS))
        if told.pause_ms:  # it has stopped: who has its whole log may be elected
            self._wake()
            await self._advance()

    def _told(self, one: Heard) -> RoleOrders | None:
        if self.released:
            return None
        if self._wish is not None and self._wish.kind is WishKind.RELEASE:
            return decisions.farewell(self.group, one) if one.is_managed else None
        return decisions.orders(self.group, one, self._view(), self.times)

    def _take(self, address: str, state: ReplicaState) -> Heard:
        group, one = self.group, heard(state, self._monotonic())
        if state.address != address or state.broker_name != group.name:
            raise SparrowError(
                f"the broker at {address} says it is {state.broker_name} at {state.address}; check its "
                "brokerName, brokerIP1 and listenPort"
            )
        if group.cluster and state.cluster_name != group.cluster:
            raise SparrowError(
                f"the broker at {address} is of cluster {state.cluster_name}, not {group.cluster}"
            )
        self._heard[address] = one
        return one

    def _view(self) -> View:
        return View(self._monotonic(), self._heard, self._lease_over_at, self._wish)

    async def _advance(self) -> None:
        """Write the changes that are due, one after the other."""
        async with self._lock:
            if self._is_unsure:
                await self._read_again()
            while self._leads() and not self.released:
                change = decisions.decide(self.group, self._view(), self.times)
                if change is None:
                    break
                await self._write(change)
            if self._is_released():
                await self._book.release(self.group.name, self._stored.reason if self._stored else "")
                self.released = True

    async def _read_again(self) -> None:
        """A change may have been written although its response was lost."""
        found = await self._book.load(self.group.name)
        if found is not None:
            self.group = found
        self.released = found is None
        self._is_unsure = False

    async def _write(self, change: GroupChange) -> None:
        reason = self._stored.reason if self._stored is not None and change.ends_wish else ""
        self._is_unsure = True
        await self._book.save(self.group, change, reason)
        self._is_unsure = False
        level = logging.INFO if change.kind is ChangeKind.MEMBERS else logging.WARNING
        self.group = change.group
        log.log(level, "group %s, epoch %d: %s", self.group.name, self.group.epoch, one_line(change.text))
        if change.kind in (ChangeKind.ELECTED, ChangeKind.UNCLEAN, ChangeKind.FIRST):
            self._was_unclean = change.kind is ChangeKind.UNCLEAN
        if change.ends_wish:
            self._wish = None
        self._wake()

    def _wake(self) -> None:
        """Ask all brokers now."""
        for asked in self._asked.values():
            asked.wake.set()

    def _is_released(self) -> bool:
        wish = self._wish
        if wish is None or wish.kind is not WishKind.RELEASE or self.released:
            return False
        if self._monotonic() - wish.since > RELEASE_SECONDS:
            return True
        return all(
            address in self._heard and not self._heard[address].is_managed for address in self.group.members
        )
