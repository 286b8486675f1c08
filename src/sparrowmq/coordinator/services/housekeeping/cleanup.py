"""The clean-up: deletes expired audit entries, notices, runs and tokens (pmq:T7)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from sqlalchemy import Connection, select

from sparrowmq.coordinator.alarms import outbox
from sparrowmq.coordinator.database.clock import now_ms
from sparrowmq.coordinator.groups import resets
from sparrowmq.coordinator.groups import table as managed_groups
from sparrowmq.coordinator.records import audit
from sparrowmq.coordinator.records.audit import record
from sparrowmq.coordinator.services.base import board
from sparrowmq.coordinator.services.base.runner import Work
from sparrowmq.coordinator.services.base.schedule import RunReport, ServiceKind, ServiceOption
from sparrowmq.coordinator.users import tokens

DAY_MS: Final = 24 * 3_600_000
BATCH: Final = 500
"""Maximum number of rows deleted in one transaction, which limits how long others wait."""
KIND: Final = ServiceKind(
    "audit-cleanup",
    "Delete old audit entries, notices, runs and tokens",
    DAY_MS,
    60_000,
    600.0,
    (
        ServiceOption("keep_days", 30, 1, 3650, "days an audit entry is kept"),
        ServiceOption("keep_notice_days", 7, 1, 3650, "days a notice is kept after it was sent or abandoned"),
        ServiceOption(
            "keep_plan_days", 30, 1, 3650, "days a plan of a managed group is kept; at most the newest 1000"
        ),
    ),
)


class Cleanup:
    """Deletes in batches, each a transaction that checks the lease. `services` are those whose runs are
    kept.
    """

    def __init__(self, services: tuple[str, ...]) -> None:
        self._services = services

    @property
    def kind(self) -> ServiceKind:
        """Name, defaults and bounds."""
        return KIND

    async def step(self, work: Work) -> RunReport:
        """Delete everything that has expired."""
        now = await work.read(lambda connection: int(connection.execute(select(now_ms())).scalar_one()))
        counts = {
            "audit": await _all(work, audit.delete_before, now - work.options["keep_days"] * DAY_MS),
            "notices": await _all(
                work, outbox.delete_before, now - work.options["keep_notice_days"] * DAY_MS
            ),
            "tokens": await _all(work, tokens.delete_before, now),
            "plans": await _all(
                work,
                managed_groups.delete_plans_before,
                now - work.options["keep_plan_days"] * DAY_MS,
            )
            + await _all(work, managed_groups.delete_plans_beyond, now),
        }
        counts["resets"] = await work.write(resets.delete_old)
        counts["runs"] = 0
        for name in self._services:
            counts["runs"] += await work.write(partial(board.delete_old_runs, name=name))
        if counts["audit"]:
            await work.write(lambda connection: _told(connection, work, counts["audit"]))
        return RunReport(counts)


def _told(connection: Connection, work: Work, count: int) -> None:
    days = work.options["keep_days"]
    record(
        connection,
        work.actor,
        "audit.clean",
        ("service", KIND.name),
        after={"deleted": count, "keep_days": days},
    )


async def _all(work: Work, delete: Callable[[Connection, int, int], int], before: int) -> int:
    total = 0
    while True:
        count = await work.write(lambda connection: delete(connection, before, BATCH))
        total += count
        if count < BATCH:
            return total
