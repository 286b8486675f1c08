"""The audit clean-up: entries, notices, runs and tokens that are older than they are kept, by time
(pmq:T7).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from sqlalchemy import Connection, select

from sparrowmq.coordinator import audit
from sparrowmq.coordinator.alarms import outbox
from sparrowmq.coordinator.audit import record
from sparrowmq.coordinator.database.clock import now_ms
from sparrowmq.coordinator.groups import resets
from sparrowmq.coordinator.groups import table as managed_groups
from sparrowmq.coordinator.services import board
from sparrowmq.coordinator.services.frame import Work
from sparrowmq.coordinator.services.schedule import Kind, Option, Report
from sparrowmq.coordinator.users import tokens

DAY_MS: Final = 24 * 3_600_000
BATCH: Final = 500
"""Rows one transaction deletes at most: others wait no longer than that takes."""
KIND: Final = Kind(
    "audit-cleanup",
    "Delete old audit entries, notices, runs and tokens",
    DAY_MS,
    60_000,
    600.0,
    (
        Option("keep_days", 30, 1, 3650, "days an audit entry is kept"),
        Option("keep_notice_days", 7, 1, 3650, "days a notice is kept after it was sent or given up"),
        Option("keep_plan_days", 30, 1, 3650, "days a plan of a managed group is kept, the newest 1000"),
    ),
)


class Cleanup:
    """Deletes in batches, each a transaction that checks the lease. `services` are those whose runs are
    kept.
    """

    def __init__(self, services: tuple[str, ...]) -> None:
        self._services = services

    @property
    def kind(self) -> Kind:
        """Name, defaults and bounds."""
        return KIND

    async def step(self, work: Work) -> Report:
        """Delete everything that is old enough."""
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
        return Report(counts)


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
