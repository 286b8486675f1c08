"""The leased service of managed groups: which node listens, which one plans, and what stops when the lease
is lost."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from sqlalchemy import update
from tests.coordinator.services.watched import MadeUpKeeper
from tests.support import about, run, until

from sparrowmq.coordinator.database import tables
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.groups import dynamic_settings
from sparrowmq.coordinator.groups.members import Keeper, Port
from sparrowmq.coordinator.groups.table import load, member_views, plan_views, views
from sparrowmq.coordinator.leases import table as leases
from sparrowmq.coordinator.leases.rules import LeaseTimes, Owner
from sparrowmq.coordinator.records.audit import Actor, Search, search
from sparrowmq.coordinator.services.base import board
from sparrowmq.coordinator.services.base import runner as frame
from sparrowmq.coordinator.services.base.runner import ServiceRunner
from sparrowmq.coordinator.services.groups.rebalance import KIND, Rebalance
from sparrowmq.core.clock import SystemClock
from sparrowmq.core.dynamic_settings import SettingPlace
from sparrowmq.core.errors import ConnectError, DatabaseGoneError
from sparrowmq.core.grants import Grants
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.managed import (
    COORDINATOR_KEY,
    JoinBody,
    JoinedBody,
    LeaveBody,
    OrdersBody,
    ReportBody,
)
from sparrowmq.transport.client import RemotingClient

TIMES = LeaseTimes(ttl_ms=60_000, renew_ms=1_000, margin_ms=10)
PORT = Port("127.0.0.1")
ANN = Actor("ann", "why not")
A, B = MessageQueue("T", "a", 0), MessageQueue("T", "b", 0)


@pytest.fixture(autouse=True)
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaders run often, so that tests do not wait for intervals."""
    monkeypatch.setattr(frame, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr("sparrowmq.coordinator.groups.leader.STEP_SECONDS", 0.02)


class Hurried(SystemClock):
    """Ten times as fast: leases of members expire soon."""

    def monotonic(self) -> float:
        return super().monotonic() * 10


class Keeping:
    """The cluster of a service, and whether it is available."""

    def __init__(self, keeper: MadeUpKeeper) -> None:
        self._keeper = keeper

    async def keeper(self) -> Keeper:
        return self._keeper


@dataclass
class Process:
    """A coordinator's process, as far as it plans groups."""

    runner: ServiceRunner
    service: Rebalance

    @property
    def leads(self) -> bool:
        return self.service.groups is not None


@asynccontextmanager
async def process(
    database: Database,
    keeper: MadeUpKeeper,
    label: str = "one",
    times: LeaseTimes = TIMES,
    port: Port = PORT,
    clock: SystemClock | None = None,
) -> AsyncIterator[Process]:
    board.ensure(database, [KIND])
    service = Rebalance(Keeping(keeper), port, clock or SystemClock())
    runner = ServiceRunner(database, service, Owner(label * 8, label), times, SystemClock())
    task = asyncio.create_task(runner.run())
    try:
        yield Process(runner, service)
    finally:
        task.cancel()
        await asyncio.wait([task])


@dataclass
class Member:
    """A member that sends the reports of a consumer without handlers."""

    client: RemotingClient
    keeper: MadeUpKeeper
    client_id: str
    group: str = "g"
    grants: Grants = field(default_factory=Grants)
    member: str = ""
    proof: str = ""

    async def ask(self, code: RequestCode, body: bytes, ext: dict[str, str] | None = None) -> Command:
        address = self.keeper.values[COORDINATOR_KEY]
        return await self.client.call(address, Command(code, ext=ext or {}, body=body), 5.0)

    async def join(self) -> None:
        body = JoinBody(self.group, self.client_id, ["T"], "9.9").encode()
        answer = await self.ask(RequestCode.JOIN_MANAGED_GROUP, body, {"consumerGroup": self.group})
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        joined = JoinedBody.decode(answer.body)
        self.member, self.proof = joined.member, joined.proof

    async def report(self, **changed: Any) -> Command:
        fields = {"member": self.member, "proof": self.proof, "late": 0} | changed
        body = ReportBody.of(
            self.group, fields["member"], self.grants.report(), ["T"], fields["late"], proof=fields["proof"]
        )
        answer = await self.ask(RequestCode.REPORT_MANAGED_MEMBER, body.encode())
        if answer.code == ResponseCode.SUCCESS:
            changes = self.grants.obey(OrdersBody.decode(answer.body).orders, SystemClock().monotonic())
            for queue in changes.stop:
                self.grants.released(queue)
        return answer

    async def has(self, *queues: MessageQueue) -> bool:
        await self.report()
        return self.grants.held() == sorted(queues)


@asynccontextmanager
async def members(keeper: MadeUpKeeper, *names: str) -> AsyncIterator[list[Member]]:
    client = RemotingClient()
    try:
        yield [Member(client, keeper, name) for name in names]
    finally:
        await client.close()


def change(database: Database, work: Callable[..., Any], *arguments: Any) -> None:
    with database.write() as connection:
        work(connection, *arguments, ANN)


def put(
    database: Database, name: str, value: object, place: SettingPlace | None = None, for_ms: int = 0
) -> None:
    with database.write() as connection:
        dynamic_settings.put(connection, "g", name, place or SettingPlace(), value, ANN, for_ms=for_ms)


@pytest.mark.proves("MUST-70", "MUST-72")
def test_leader_listens_plans_and_stores_its_actions(database: Database) -> None:
    keeper = MadeUpKeeper()

    async def main() -> None:
        async with process(database, keeper) as one, members(keeper, "p", "q") as (p, q):
            await until(lambda: COORDINATOR_KEY in keeper.values)
            await p.join()
            await until(lambda: p.has(A, B))
            await q.join()
            await until(lambda: share(p, q))
            epoch = one.runner.holder.epoch
            assert keeper.epochs("g") == {epoch}, "policies carry the lease's epoch"
            await until(lambda: kept(database).group.settled and len(kept(database).members) == 2)
            found = kept(database)
            assert (found.group.generation, found.group.epoch) == (2, epoch)
            rows = {one.client_id: one for one in found.members.values()}
            assert {name: (row.version, row.standing) for name, row in rows.items()} == {
                "p": ("9.9", "active"),
                "q": ("9.9", "active"),
            }
            assert {queue: row.owner for queue, row in found.queues.items()} == {A: p.member, B: q.member}
            assert found.queues[B].why == f"{p.member} had 2 of 2; each of 2 has 1"
            with database.read() as connection:
                second, first = plan_views(connection, "g", 10)
            assert (first.row.cause, first.row.moved) == (f"joined: {p.member}; 2 queues more", 2)
            assert (second.row.cause, [move.queue for move in second.row.moves]) == (
                f"joined: {q.member}",
                [B],
            )
            assert second.epoch == epoch
            await until(lambda: in_force(database) == [2, 1])
        assert keeper.values == {}, "nobody is sent to who does not listen"

    run(main())


async def share(p: Member, q: Member) -> bool:
    """Whether each has one queue; both report."""
    return [await p.has(A), await q.has(B)] == [True, True]


async def first_alone(p: Member, q: Member) -> bool:
    """Whether one has all queues; both report."""
    return [await p.has(A, B), await q.has()] == [True, True]


def kept(database: Database) -> Any:
    with database.read() as connection:
        return load(connection, "g")


def in_force(database: Database) -> list[int]:
    """Generations of plans that came into force, newest first."""
    with database.read() as connection:
        return [one.row.generation for one in plan_views(connection, "g", 10) if one.in_force_at]


@pytest.mark.proves("pmq:L5", "pmq:L9")
def test_another_process_continues_where_the_first_stopped_and_nothing_moves(database: Database) -> None:
    keeper = MadeUpKeeper()

    async def main() -> None:
        async with members(keeper, "p", "q") as (p, q):
            async with process(database, keeper, "one") as one:
                await until(lambda: one.leads)
                put(database, "maximum", 1)
                await p.join()
                await q.join()
                await until(lambda: first_alone(p, q))
                await until(lambda: len(kept(database).members) == 2)
                await first_alone(p, q)
                owners, epoch = keeper.owners("g"), one.runner.holder.epoch
            async with process(database, keeper, "two") as two:
                await until(lambda: two.leads)
                assert two.runner.holder.epoch == epoch + 1
                assert await p.has(A, B)
                await until(lambda: first_alone(p, q) if keeper.epochs("g") == {epoch + 1} else None)
                assert keeper.owners("g") == owners, "the one that stands by joined later, and does so still"
                assert (await q.report()).code == ResponseCode.SUCCESS, "who stands by is known, too"
                await until(lambda: standings(database) == {"p": "active", "q": "standby"})

    run(main())


def standings(database: Database) -> dict[str, str]:
    """The state of each client."""
    return {one.client_id: one.standing for one in kept(database).members.values()}


@pytest.mark.proves("pmq:L1", "pmq:L9")
def test_port_closes_and_nothing_is_planned_when_the_lease_is_lost(database: Database) -> None:
    keeper = MadeUpKeeper()

    async def main() -> None:
        async with process(database, keeper) as one, members(keeper, "p", "q") as (p, q):
            await until(lambda: one.leads)
            await p.join()
            await until(lambda: p.has(A, B))
            groups = one.service.groups
            assert groups is not None
            leader = groups.find("g")
            assert leader is not None
            with database.write() as connection:
                board.hand_over(connection, KIND, 60_000, ANN)
            leader.join("q", "", ["T"], 1)
            await until(lambda: not one.leads)
            await until(lambda: leader.deposed or not groups.leads())
            assert keeper.owners("g") == {A: ("p", 1), B: ("p", 1)}, "the plan with q was never told"
            assert kept(database).group.generation == 1
            await until(lambda: COORDINATOR_KEY not in keeper.values)
            keeper.values[COORDINATOR_KEY] = "127.0.0.1:1"
            with pytest.raises(ConnectError, check=about(address="127.0.0.1:1")):
                await q.join()

    run(main())


def test_paused_service_plans_only_on_request_and_leases_continue(database: Database) -> None:
    keeper = MadeUpKeeper()

    async def main() -> None:
        async with process(database, keeper) as one, members(keeper, "p", "q") as (p, q):
            await until(lambda: one.leads)
            await p.join()
            await until(lambda: p.has(A, B))
            change(database, board.set_paused, KIND, True)
            groups = one.service.groups
            assert groups is not None
            leader = groups.find("g")
            assert leader is not None
            await until(lambda: leader.paused)
            await q.join()
            end = p.grants.lease_end
            assert await p.has(A, B)
            assert p.grants.lease_end > end
            assert leader.plan.generation == 1
            change(database, board.ask_run, KIND)
            await until(lambda: share(p, q))
            assert leader.plan.generation == 2
            assert leader.paused

    run(main())


@pytest.mark.proves("pmq:R1")
def test_settings_of_users_apply_immediately_and_expire(database: Database) -> None:
    keeper = MadeUpKeeper()

    async def main() -> None:
        async with process(database, keeper) as one, members(keeper, "p") as (p,):
            await until(lambda: one.leads)
            await p.join()
            await until(lambda: p.has(A, B))
            put(database, "deny", ["127.0.0.0/8"])
            await until(lambda: p.has())
            await until(lambda: {row.reason for row in kept(database).members.values()} != {""})
            (row,) = kept(database).members.values()
            assert (row.standing, row.reason) == ("rejected", "deny list: 127.0.0.1 is in 127.0.0.0/8")
            with database.write() as connection:
                dynamic_settings.remove(connection, "g", "deny", SettingPlace(), ANN)
            await until(lambda: p.has(A, B))
            put(database, "pause", True, SettingPlace("T", 0, "b"))
            await until(lambda: [rule.topic for rule in keeper.policies["b"]["g"].pauses] == ["T"])
            assert keeper.policies["a"]["g"].pauses == [], "it is about the other broker's queue"
            put(database, "deny", ["127.0.0.1"], for_ms=600)
            await until(lambda: p.has())
            await until(lambda: p.has(A, B))
            change(database, board.ask_run, KIND)
            await until(lambda: entries(database, "setting.expire"))
            (entry,) = entries(database, "setting.expire")
            assert (entry.actor, entry.object) == ("service:rebalance", "g")

    run(main())


def entries(database: Database, action: str) -> list[Any]:
    with database.read() as connection:
        return search(connection, Search(action=action))


@pytest.mark.proves("pmq:P1")
def test_members_are_distinguished_and_cannot_impersonate_each_other(database: Database) -> None:
    keeper = MadeUpKeeper()

    async def main() -> None:
        async with process(database, keeper) as one, members(keeper, "same", "same") as (p, q):
            await until(lambda: one.leads)
            await p.join()
            await until(lambda: p.has(A, B))
            await q.join()
            assert p.member != q.member
            await until(lambda: share(p, q))
            change(database, board.ask_run, KIND)
            await until(lambda: heard(database) == 2)
            with database.read() as connection:
                found = member_views(connection, "g")
            assert [(one.member, one.row.client_id) for one in found] == [
                (p.member, "same"),
                (q.member, "same"),
            ]
            held = p.grants.held()
            for forged in (
                {"member": q.member},
                {"proof": "0" * 32},
                {"proof": "ä"},
                {"member": "same#99.1.1"},
            ):
                answer = await p.report(**forged)
                assert answer.code == ResponseCode.MEMBER_UNKNOWN
            for group in ("other", "made-up"):
                stranger = Member(p.client, keeper, "same", group, member=p.member, proof=p.proof)
                assert (await stranger.report()).code == ResponseCode.MEMBER_UNKNOWN
                assert one.service.groups is not None
                assert one.service.groups.find(group) is None, "nothing is begun for it"
            goodbye = LeaveBody("g", q.member, p.proof).encode()
            assert (await p.ask(RequestCode.LEAVE_MANAGED_GROUP, goodbye)).code == ResponseCode.MEMBER_UNKNOWN
            assert (await q.report()).code == ResponseCode.SUCCESS, "it was not thrown out"
            assert p.grants.held() == held
            goodbye = LeaveBody("g", q.member, q.proof).encode()
            assert (await q.ask(RequestCode.LEAVE_MANAGED_GROUP, goodbye)).code == ResponseCode.SUCCESS
            await until(lambda: p.has(A, B))
            await until(lambda: list(kept(database).members) == [p.member])
            assert (await q.report()).code == ResponseCode.MEMBER_UNKNOWN, "its proof is worth nothing now"
            assert await p.has(A, B)

    run(main())


def heard(database: Database) -> int:
    with database.read() as connection:
        return sum(one.heard_at is not None for one in member_views(connection, "g"))


def test_account_refused_by_brokers_cannot_join(database: Database) -> None:
    keeper = MadeUpKeeper()

    async def main() -> None:
        async with process(database, keeper) as one, members(keeper, "p") as (p,):
            await until(lambda: one.leads)
            keeper.refused = "User:eve has no permission"
            body = JoinBody("g", "p", ["T"]).encode()
            fields = {"consumerGroup": "g", "AccessKey": "eve", "Signature": "x"}
            answer = await p.ask(RequestCode.JOIN_MANAGED_GROUP, body, fields)
            assert (answer.code, answer.remark) == (
                ResponseCode.NO_PERMISSION,
                "this account may not use group g: User:eve has no permission",
            )
            assert keeper.asked == [fields], "brokers judge the member's own words"
            answer = await p.ask(RequestCode.JOIN_MANAGED_GROUP, body, {"consumerGroup": "other"})
            assert answer.code == ResponseCode.INVALID_PARAMETER
            body = JoinBody("g", "x" * 201, ["T"]).encode()
            answer = await p.ask(RequestCode.JOIN_MANAGED_GROUP, body, {"consumerGroup": "g"})
            assert answer.code == ResponseCode.INVALID_PARAMETER
            keeper.refused = ""
            await p.join()

    run(main())


def test_epoch_begins_above_every_epoch_known_to_brokers(database: Database) -> None:
    """Another database was used before, or this one is an old copy."""
    keeper = MadeUpKeeper()

    async def main() -> None:
        async with members(keeper, "p") as (p,):
            async with process(database, keeper) as one:
                await until(lambda: one.leads)
                await p.join()
                await until(lambda: p.has(A, B))
            for table in keeper.policies.values():
                table["g"] = type(table["g"])(**{**as_fields(table["g"]), "epoch": 70})
            async with process(database, keeper) as two:
                await until(lambda: keeper.epochs("g") == {71})
                assert two.runner.holder.epoch == 71
                await until(lambda: p.has(A, B))

    run(main())


def as_fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__struct_fields__}


@pytest.mark.proves("pmq:L9", "pmq:L10")
def test_groups_continue_without_a_database_with_the_last_plan_and_later_with_the_next(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keeper, gone = MadeUpKeeper(), False
    write, read = database.write, database.read

    def failing(real: Callable[[], Any]) -> Callable[[], Any]:
        def call() -> Any:
            if gone:
                raise DatabaseGoneError("the coordinator's database cannot be reached")
            return real()

        return call

    monkeypatch.setattr(database, "write", failing(write))
    monkeypatch.setattr(database, "read", failing(read))

    async def main() -> None:
        nonlocal gone
        async with (
            process(database, keeper, times=LeaseTimes(2_500, 500, 100)) as one,
            members(keeper, "p", "q") as (p, q),
        ):
            await until(lambda: one.leads)
            await p.join()
            await until(lambda: p.has(A, B))
            epoch = one.runner.holder.epoch
            assert epoch is not None
            gone = True
            await q.join()
            groups = one.service.groups
            assert groups is not None
            leader = groups.find("g")
            assert leader is not None
            await until(lambda: "cannot be reached" in leader.problem)
            assert await p.has(A, B), "reports are answered while the lease lasts, and nothing moves"
            assert leader.plan.generation == 1
            await until(lambda: not one.leads)
            assert keeper.owners("g") == {A: ("p", 1), B: ("p", 1)}
            gone = False
            await until(lambda: one.leads)
            assert one.runner.holder.epoch == epoch + 1
            assert await p.has(A, B), "the same member goes on under the same generations"
            await q.join()
            await until(lambda: share(p, q))

    with caplog.at_level(logging.WARNING):
        run(main())
    assert (
        "group g keeps its current plan for now: the coordinator's database cannot be reached" in caplog.text
    )
    assert "rebalance: the lease expired before it could be renewed; its work stops" in caplog.text


def test_used_port_is_a_failed_run_that_is_repeated(database: Database) -> None:
    keeper = MadeUpKeeper()

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = Port("127.0.0.1", taken.getsockname()[1])
            async with process(database, keeper, port=port) as one:
                await until(lambda: last_run(database))
                run_ = last_run(database)
                assert run_.outcome == "failed"
                assert f"the members' port is not open: 127.0.0.1:{port.port} " in run_.message
                taken.close()
                await until(lambda: one.leads)

    run(main())


def last_run(database: Database) -> Any:
    with database.read() as connection:
        return next(iter(board.runs(connection, KIND.name, 1)), None)


def test_members_that_died_without_a_leader_are_detected(database: Database) -> None:
    keeper = MadeUpKeeper()

    async def main() -> None:
        async with members(keeper, "p") as (p,):
            async with process(database, keeper) as one:
                await until(lambda: one.leads)
                await p.join()
                await until(lambda: p.has(A, B))
                await until(lambda: kept(database).group.settled)
            async with process(database, keeper, clock=Hurried()):
                await until(lambda: keeper.owners("g") == {A: ("", 2), B: ("", 2)})
                await until(lambda: kept(database).members == {})
                await until(lambda: kept(database).group.settled)
                with database.read() as connection:
                    (view,) = views(connection)
                assert (view.members, view.queues, view.numbers.lease_over) == (0, 2, 2)

    run(main())


def test_reports_cause_no_writes(database: Database) -> None:
    keeper = MadeUpKeeper()
    statements: list[str] = []

    async def main() -> None:
        from sqlalchemy import event

        async with process(database, keeper) as one, members(keeper, "p") as (p,):
            await until(lambda: one.leads)
            await p.join()
            await until(lambda: p.has(A, B))
            await until(lambda: last_run(database))
            await until(lambda: p.has(A, B))  # on a slow machine its lease may have ended meanwhile
            await until(lambda: kept(database).group.settled)
            await until(lambda: [row.standing for row in kept(database).members.values()] == ["active"])
            event.listen(database.engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
            for _ in range(50):
                await p.report()

    run(main())
    written = [one for one in statements if one.startswith(("INSERT", "UPDATE", "DELETE"))]
    assert [one for one in written if "managed_" in one and "seen_at" not in one] == []


def test_lease_row_of_another_epoch_ends_the_term(database: Database) -> None:
    keeper = MadeUpKeeper()

    async def main() -> None:
        async with process(database, keeper) as one:
            await until(lambda: one.leads)
            first = one.service.groups
            with database.write() as connection:
                connection.execute(
                    update(tables.lease).values(owner_id="", epoch=tables.lease.c.epoch + 1, expires_at=0)
                )
                row = leases.row(connection, KIND.name)
            assert row is not None
            await until(lambda: one.runner.holder.epoch == row.epoch + 1)
            await until(lambda: one.service.groups not in (None, first))

    run(main())
