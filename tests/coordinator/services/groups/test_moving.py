"""Requested offset changes on their way from the database to the node that executes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.coordinator.groups.plans.test_moves import QUEUES, Places
from tests.support import run, until

from sparrowmq import aio
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.groups import resets
from sparrowmq.coordinator.groups.resets import ResetRow, ResetTarget
from sparrowmq.coordinator.records.audit import Actor
from sparrowmq.coordinator.services.groups.moving import Mover
from sparrowmq.core.dynamic_settings import SettingPlace
from sparrowmq.core.errors import ConnectError
from sparrowmq.protocol.managed import QueueGrant


@dataclass
class Desk:
    """A leader's work on a database."""

    database: Database

    async def read(self, work: Callable[..., Any]) -> Any:
        with self.database.read() as connection:
            return work(connection)

    async def write(self, work: Callable[..., Any]) -> Any:
        with self.database.write() as connection:
            return work(connection)


@dataclass
class Leaders:
    """Groups without a leader until one is requested; `refuses` keeps them without one."""

    asked: list[str] = field(default_factory=list)
    refuses: bool = False
    leaders: list[Any] = field(default_factory=list)

    def find(self, group: str) -> None:
        return None

    async def lead(self, group: str) -> None:
        self.asked.append(group)
        if self.refuses:
            raise ConnectError("no broker answers")


def wished(database: Database, place: SettingPlace) -> None:
    with database.write() as connection:
        resets.ask(connection, "g", place, ResetTarget("offset", 33), Actor("ann", "why"))


def wishes(database: Database) -> list[ResetRow]:
    with database.read() as connection:
        return resets.of(connection, "g")


def fenced_for(owner: str) -> dict[str, aio.GroupPolicies]:
    """A broker that grants the first queue to a member under generation 4."""
    grant = QueueGrant("Orders", "a", 0, 4, owner)
    return {"a": aio.GroupPolicies([aio.GroupPolicy("g", 1, queues=[grant])])}


def test_fenced_group_without_a_leader_gets_one_and_is_then_reset(
    database: Database,
) -> None:
    async def main() -> None:
        cluster, leaders = Places(policies=fenced_for("dead#1")), Leaders(refuses=True)
        mover = Mover(Desk(database), leaders, cluster)  # type: ignore[arg-type]
        wished(database, SettingPlace("Orders", 0))

        async def looked(done: Callable[[], bool]) -> bool:
            await mover.look(changed=False)
            return done()

        await until(lambda: looked(lambda: len(leaders.asked) > 1))
        assert set(leaders.asked) == {"g"}
        assert wishes(database)[0].state == "waiting"
        cluster.policies = fenced_for("")  # its leader waited for the lease, and let go
        await until(lambda: looked(lambda: wishes(database)[0].state == "done"))
        assert cluster.commits == [(QUEUES[0], 33, 4)]
        asked = len(leaders.asked)
        await mover.look(changed=True)
        assert len(leaders.asked) == asked
        await mover.close()

    run(main())


def test_problem_ends_a_request_with_a_message(database: Database) -> None:
    async def main() -> None:
        mover = Mover(Desk(database), Leaders(), Places(known=[]))  # type: ignore[arg-type]
        wished(database, SettingPlace("Orders", 0))

        async def ended() -> bool:
            await mover.look(changed=False)
            return wishes(database)[0].state == "failed"

        await until(ended)
        assert wishes(database)[0].message == "Orders/0 has no queue"
        await mover.close()

    run(main())
