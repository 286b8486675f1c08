from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import update
from tests.support import run, until

from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.database.tables import lease
from sparrowmq.coordinator.leases import table
from sparrowmq.coordinator.leases.holder import LeaseHolder
from sparrowmq.coordinator.leases.rules import LeaseTimes, Owner
from sparrowmq.core.clock import SystemClock
from sparrowmq.core.errors import DatabaseGoneError

TIMES = LeaseTimes(ttl_ms=60_000, renew_ms=50, margin_ms=10)
A, B = Owner("a" * 32, "one"), Owner("b" * 32, "two")


@asynccontextmanager
async def holding(
    database: Database,
    owner: Owner = A,
    changed: Callable[[], None] = lambda: None,
    times: LeaseTimes = TIMES,
) -> AsyncIterator[LeaseHolder]:
    table.ensure(database, "s")
    holder = LeaseHolder(database, "s", owner, times, SystemClock(), changed)
    task = asyncio.create_task(holder.run())
    try:
        yield holder
    finally:
        task.cancel()
        await asyncio.wait([task])


def live(database: Database) -> bool:
    with database.read() as connection:
        found = table.row(connection, "s")
    return found is not None and found.live


@pytest.mark.proves("pmq:L5", "pmq:L8")
def test_holder_leads_at_once_and_releases_the_lease_at_its_end(database: Database) -> None:
    async def main() -> None:
        changes: list[int | None] = []
        async with holding(database, changed=lambda: changes.append(holder.epoch)) as holder:
            assert await until(lambda: holder.epoch)
            assert live(database)
            assert repr(holder).startswith("<LeaseHolder s epoch=")
        assert len(changes) == 2 and changes[1] is None
        assert not live(database)

    run(main())


@pytest.mark.proves("pmq:L6", "pmq:1.4")
def test_another_holder_takes_over_on_handover(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with holding(database) as first:
            await until(lambda: first.epoch)
            async with holding(database, B) as second:
                with database.write() as connection:
                    table.hand_over(connection, "s", 60_000)
                assert await until(lambda: second.epoch) >= 3
                await until(lambda: first.epoch is None)
                assert "s: another process leads now; its work stops" in caplog.text

    with caplog.at_level(logging.WARNING):
        run(main())


@pytest.mark.proves("pmq:L3", "pmq:L4")
def test_closed_gate_releases_the_group_and_an_open_one_claims_it_again(database: Database) -> None:
    async def main() -> None:
        async with holding(database) as holder:
            await until(lambda: holder.epoch)
            holder.enabled = False
            holder.wake()
            await until(lambda: not live(database))
            assert holder.epoch is None
            holder.enabled = True
            holder.wake()
            assert await until(lambda: holder.epoch) >= 2

    run(main())


@pytest.mark.proves("pmq:L2")
def test_overdue_step_lets_the_lease_expire(database: Database) -> None:
    async def main() -> None:
        async with holding(database, times=LeaseTimes(ttl_ms=500, renew_ms=200, margin_ms=50)) as holder:
            await until(lambda: holder.epoch)
            with holder.step(deadline=0.0):
                await until(lambda: holder.epoch is None)
                await until(lambda: not live(database))
            await until(lambda: holder.epoch)

    run(main())


@pytest.mark.proves("pmq:L9", "pmq:L10")
def test_without_a_database_it_stops_by_its_own_clock(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        def gone(*_: object) -> bool:
            raise DatabaseGoneError("the database is gone")

        async with holding(database, times=LeaseTimes(ttl_ms=500, renew_ms=200, margin_ms=50)) as holder:
            await until(lambda: holder.epoch)
            with monkeypatch.context() as patched:
                patched.setattr(table, "renew", gone)
                patched.setattr(table, "claim", gone)
                await until(lambda: holder.epoch is None)
                await until(lambda: "the lease expired before it could be renewed" in caplog.text)
            assert await until(lambda: holder.epoch) >= 2
        assert "s: renew failed: the database is gone" in caplog.text

    with caplog.at_level(logging.WARNING):
        run(main())


def test_lost_lease_stops_the_work(database: Database) -> None:
    async def main() -> None:
        changes: list[int | None] = []
        async with holding(database, changed=lambda: changes.append(holder.epoch)) as holder:
            await until(lambda: holder.epoch)
            with database.write() as connection:
                connection.execute(update(lease).values(owner_id=B.id, epoch=99))
            await until(lambda: changes and changes[-1] is None)

    run(main())


def test_answer_to_a_renewal_does_not_bring_back_a_lease_that_was_lost_meanwhile(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, go_on, renew = threading.Event(), threading.Event(), table.renew

    def slow(*arguments: Any) -> bool:
        kept = renew(*arguments)
        asked.set()
        go_on.wait(30)
        return kept

    async def main() -> None:
        times = LeaseTimes(ttl_ms=60_000, renew_ms=500, margin_ms=10)
        async with holding(database, times=times) as holder:
            before = await until(lambda: holder.epoch)
            monkeypatch.setattr(table, "renew", slow)
            await until(asked.is_set)
            holder.lost()
            go_on.set()
            assert await until(lambda: holder.epoch) > before

    run(main())


@pytest.mark.proves("pmq:L5")
@pytest.mark.parametrize("claimed", [False, True], ids=["before it", "after it"])
def test_holder_that_ends_during_a_claim_leaves_the_lease_free(
    database: Database, monkeypatch: pytest.MonkeyPatch, claimed: bool
) -> None:
    """The claim is stopped just before or just after its statement while the holder ends."""
    asked, go_on, claim = threading.Event(), threading.Event(), table.claim

    def slow(*arguments: Any) -> int | None:
        epoch = claim(*arguments) if claimed else None
        asked.set()
        go_on.wait(30)
        return epoch if claimed else claim(*arguments)

    monkeypatch.setattr(table, "claim", slow)

    async def main() -> None:
        times = LeaseTimes(ttl_ms=600_000, renew_ms=60_000, margin_ms=10)
        table.ensure(database, "s")
        holder = LeaseHolder(database, "s", A, times, SystemClock(), lambda: None)
        task = asyncio.create_task(holder.run())
        await until(asked.is_set)
        task.cancel()
        asyncio.get_running_loop().call_soon(go_on.set)
        await asyncio.wait([task])
        await asyncio.to_thread(database.close)  # waits for the calls under way
        assert not live(database)

    run(main())


@pytest.mark.proves("pmq:L3", "pmq:L5")
@pytest.mark.parametrize("claimed", [False, True], ids=["after it", "before it"])
def test_closed_gate_releases_what_a_claim_without_an_answer_has_won(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, claimed: bool
) -> None:
    """The claim's statement is executed just before or just after the gate closes."""
    claims: list[Callable[[], Any]] = []

    async def unanswered(claim: Callable[[], Any]) -> None:
        claims.append(claim)
        await asyncio.Event().wait()

    async def main() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(database, "run", unanswered)
            times = LeaseTimes(ttl_ms=600_000, renew_ms=50, margin_ms=10)
            async with holding(database, times=times) as holder:
                await until(lambda: "s: claim failed: no answer in time" in caplog.text)
                if claimed:
                    assert claims[0]()
                holder.enabled = False
                patched.undo()
                holder.wake()
                if not claimed:
                    await until(lambda: not holder._claiming)
                    claims[0]()
                await until(lambda: not live(database))
                assert holder.epoch is None

    with caplog.at_level(logging.WARNING):
        run(main())
