"""Queries the brokers of one group and executes decisions, in the database first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, ParamSpec

import pytest
from tests.coordinator.replicas.made_up_brokers import MadeUpBrokers
from tests.support import until

from sparrowmq.coordinator.replicas import decisions
from sparrowmq.coordinator.replicas.decisions import ElectionTimes, GroupChange, ReplicaGroup, WishKind
from sparrowmq.coordinator.replicas.group_watch import GroupWatch
from sparrowmq.coordinator.replicas.table import StoredWish
from sparrowmq.core.errors import CoordinatorError, LeaseLostError
from sparrowmq.protocol.bodies.replicas import SlaveState

P = ParamSpec("P")
TIMES = ElectionTimes(lease_ms=300, margin_ms=20, poll_ms=10, fresh_ms=280)


@dataclass
class MadeUpBook:
    """A database that records writes; `fails` is raised once, before or after the change."""

    brokers: MadeUpBrokers
    group: ReplicaGroup | None = None
    fails: Exception | None = None
    fails_after: bool = False
    waits: asyncio.Event | None = None
    is_waiting: bool = False

    async def load(self, name: str) -> ReplicaGroup | None:
        return self.group

    async def save(self, before: ReplicaGroup, change: GroupChange, reason: str) -> None:
        if self.waits is not None:
            self.is_waiting = True
            await self.waits.wait()
        error, self.fails = self.fails, None
        if error is not None and not self.fails_after:
            raise error
        if self.group is not None and before != self.group:
            raise CoordinatorError("the group is not as it was")
        self.group = change.group
        if change.kind not in (decisions.ChangeKind.MEMBERS, decisions.ChangeKind.IN_SYNC):
            after = change.group
            self.brokers.log.append(f"write {change.kind} {after.master} {after.epoch} {reason}".strip())
        if error is not None:
            raise error

    async def release(self, name: str, reason: str) -> None:
        self.brokers.log.append("released")
        self.group = None


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test on its own loop."""

    @wraps(test)
    def run(*arguments: P.args, **named: P.kwargs) -> None:
        asyncio.run(test(*arguments, **named))

    return run


@asynccontextmanager
async def watching(
    *, leads: Callable[[], bool] = lambda: True, lease_ms: int = TIMES.lease_ms
) -> AsyncIterator[tuple[GroupWatch, MadeUpBrokers, MadeUpBook]]:
    """A new group of two brokers, once both are in sync."""
    brokers = MadeUpBrokers()
    brokers.add("a", "MASTER")
    brokers.add("b", "SLAVE")
    group = ReplicaGroup("g", lease_ms=lease_ms)
    book = MadeUpBook(brokers, group)
    loop = asyncio.get_running_loop()
    watch = GroupWatch(group, brokers, book, monotonic=loop.time, leads=leads, times=TIMES)
    watch.start()
    try:
        if leads():
            await until(lambda: watch.group.master == "a" and brokers.states["b"].epoch == 1)
            brokers.change("a", wanted=["a", "b"], slaves=[SlaveState("b", 100, 0, "store-b")])
            await until(lambda: watch.group.in_sync == ("a", "b"))
        yield watch, brokers, book
    finally:
        await watch.close()


@in_loop
async def test_change_is_written_before_anybody_receives_it() -> None:
    async with watching() as (_, brokers, _):
        assert brokers.log[:2] == ["write first-master a 1", "order a MASTER 1 300"]
        assert "order b SLAVE 1 300" in brokers.log


@in_loop
async def test_slave_takes_over_when_the_master_is_lost() -> None:
    async with watching() as (watch, brokers, _):
        brokers.down.add("a")
        await until(lambda: brokers.states["b"].role == "MASTER")
        assert brokers.log[-2:] == ["write elected b 2", "order b MASTER 2 300"]
        await until(lambda: brokers.states["b"].in_sync == ["b"])
        assert watch.group.in_sync == ("b",)
        brokers.down.clear()
        await until(lambda: brokers.states["a"].role == "SLAVE")
        assert brokers.states["a"].master_address == "b"


@in_loop
async def test_node_that_does_not_lead_changes_and_sends_nothing() -> None:
    async with watching(leads=lambda: False) as (watch, brokers, _):
        await until(lambda: brokers.stamp > 20)
        assert brokers.log == []
        assert watch.group.epoch == 0


@in_loop
async def test_lost_lease_stops_everything() -> None:
    async with watching() as (watch, brokers, book):
        book.fails = LeaseLostError("another one leads")
        brokers.down.add("a")
        await until(lambda: watch.lost is not None)
        await asyncio.sleep(0)
        assert all("order b MASTER" not in one for one in brokers.log)


@pytest.mark.parametrize("is_written", [False, True])
@in_loop
async def test_change_with_a_lost_answer_is_read_again(is_written: bool) -> None:
    """Otherwise the group would always be compared with its old state."""
    async with watching() as (_, brokers, book):
        book.fails, book.fails_after = CoordinatorError("the database is gone"), is_written
        brokers.down.add("a")
        await until(lambda: brokers.states["b"].role == "MASTER")
        assert brokers.log.count("write elected b 2") == 1


@in_loop
async def test_nothing_is_sent_while_a_change_is_being_written() -> None:
    """The old master may answer again meanwhile: it must not get another lease."""
    async with watching() as (_, brokers, book):
        book.waits = asyncio.Event()
        brokers.down.add("a")
        await until(lambda: book.is_waiting)
        before = brokers.orders["a"]
        brokers.down.clear()
        asked = brokers.stamp
        await until(lambda: brokers.stamp > asked)
        await asyncio.sleep(5 * TIMES.poll_ms / 1000)
        assert brokers.orders["a"] == before
        book.waits.set()
        await until(lambda: brokers.states["b"].role == "MASTER")
        assert "order b MASTER 2 300" in brokers.log


@in_loop
async def test_late_change_is_noticed() -> None:
    async with watching() as (watch, brokers, book):
        assert book.group is not None
        book.group = replace(book.group, number=book.group.number + 1, in_sync=("a",))
        watch.compare(book.group)
        await until(lambda: brokers.states["a"].in_sync == ["a"])
        assert watch.group == book.group


@in_loop
async def test_user_elects_another_master() -> None:
    async with watching() as (watch, brokers, _):
        watch.wish(StoredWish(WishKind.ELECT, "b", "ann", "new kernel on a", 1))
        await until(lambda: brokers.states["b"].role == "MASTER" and brokers.states["a"].role == "SLAVE")
        assert "write elected b 2 new kernel on a" in brokers.log
        assert watch.group.in_sync[0] == "b"


@in_loop
async def test_planned_election_does_not_wait_for_the_lease() -> None:
    """The old master is ordered to refuse writes first; then another one is elected."""
    async with watching(lease_ms=25_000) as (watch, brokers, _):
        watch.wish(StoredWish(WishKind.ELECT, "b", "ann", "new kernel on a", 1))
        await until(lambda: brokers.states["b"].role == "MASTER" and brokers.states["a"].role == "SLAVE")
        done = [one for one in brokers.log if not one.startswith("order")]
        assert done[-2:] == ["pause a 50020", "write elected b 2 new kernel on a"]


@in_loop
async def test_released_brokers_continue_without_a_lease() -> None:
    async with watching() as (watch, brokers, _):
        watch.wish(StoredWish(WishKind.RELEASE, "", "ann", "", 1))
        await until(lambda: watch.released)
        assert brokers.log[-1] == "released"
        assert {"order a MASTER 1 0", "order b SLAVE 1 0"} <= set(brokers.log)
        assert not any(one.is_managed for one in brokers.states.values())


@in_loop
async def test_broker_reports_are_stored_for_users() -> None:
    async with watching() as (watch, brokers, _):
        brokers.down.add("b")
        await until(lambda: watch.seen()["b"]["error"] != "")
        seen = watch.seen()
        assert (seen["a"]["state"], seen["a"]["end"], seen["a"]["error"]) == ("SERVING", 100, "")
        assert (seen["b"]["error"], seen["b"]["end"]) == ("b is down", 100)


@in_loop
async def test_broker_of_another_group_is_ignored() -> None:
    async with watching() as (watch, brokers, _):
        brokers.add("z", "MASTER")
        brokers.change("z", broker_name="other", epoch=9)
        watch._ask("z")
        await until(lambda: watch.seen()["z"]["error"] != "")
        assert "other at z" in watch.seen()["z"]["error"]
        assert "z" not in watch.group.members
        assert watch.group.epoch == 1
