"""A coordinator's port for members, over groups that no database keeps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from sparrowmq.coordinator.groups.group_registry import GroupRegistry
from sparrowmq.coordinator.groups.handover import Times
from sparrowmq.coordinator.groups.members import Keeper, MemberServer, Port, open_port
from sparrowmq.coordinator.groups.plan import AdmissionRules
from sparrowmq.core.clock import Clock, Sleep, SystemClock


@asynccontextmanager
async def serve_members(
    cluster: Keeper,
    *,
    host: str,
    port: int,
    times: Times | None = None,
    rules: Mapping[str, AdmissionRules] | None = None,
    clock: Clock | None = None,
    sleep: Sleep = asyncio.sleep,
) -> AsyncIterator[MemberServer]:
    """Coordinate without a database while the block runs. Raises like `open_port`."""
    used = clock or SystemClock()
    groups = GroupRegistry(cluster, times=times, rules=rules, monotonic=used.monotonic)
    async with open_port(cluster, groups, Port(host, port), clock=used, sleep=sleep) as server:
        yield server
