"""Does the faults of a plan to a cluster, and undoes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from sparrowmq.core.errors import SparrowError
from sparrowmq.torture.cluster import NotReadyError, TortureCluster
from sparrowmq.torture.network import RelayedNetwork, Trouble
from sparrowmq.torture.plan import CUT, CUT_FROM, CUT_TO, FREEZE, KILL, RESET, SLOW, PlannedFault

TEAR_SECONDS: Final = 0.3
"""Between two times that connections are torn."""


class FaultRunner:
    """Does faults, several at a time if the plan says so, but one at a time to each process.

    `note` is told of each begin and end.
    """

    def __init__(self, cluster: TortureCluster, note: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._note = note
        self._busy: set[str] = set()

    async def run(self, faults: Sequence[PlannedFault]) -> None:
        """Do all, and wait until the last is undone. Raises `NotReadyError` if a server does not start."""
        loop = asyncio.get_running_loop()
        began = loop.time()

        async def one(fault: PlannedFault) -> None:
            await asyncio.sleep(began + fault.at - loop.time())
            await self._do(fault)

        async with asyncio.TaskGroup() as tasks:
            for fault in faults:
                tasks.create_task(one(fault))

    async def _do(self, fault: PlannedFault) -> None:
        target = await self._cluster.part(fault.part)
        if target in self._busy:
            self._note(f"{fault}: left out, {target} has another fault")
            return
        self._busy.add(target)
        try:
            self._note(f"{fault}: {target}")
            async with self._undone(fault, target):
                await asyncio.sleep(fault.length)
            self._note(f"{fault.kind} of {target} is over")
        finally:
            self._busy.discard(target)

    @asynccontextmanager
    async def _undone(self, fault: PlannedFault, target: str) -> AsyncIterator[None]:
        """The fault, from its begin to its end."""
        server, network = self._cluster.servers[target], self._cluster.network
        if fault.kind == KILL:
            await server.kill()
            yield
            try:
                await self._cluster.begin(target)
            except SparrowError as error:
                raise NotReadyError(f"{target} did not start again after kill -9: {error}") from error
        elif fault.kind == FREEZE:
            server.freeze()
            try:
                yield
            finally:
                server.thaw()
        elif fault.kind == RESET and network is not None:
            tearing = asyncio.create_task(_tear(network, target))
            try:
                yield
            finally:
                tearing.cancel()
                await asyncio.gather(tearing, return_exceptions=True)
        elif network is not None:
            troubles = troubles_of(fault, target)
            await network.trouble(*troubles)
            try:
                yield
            finally:
                await network.end(*troubles)


def troubles_of(fault: PlannedFault, target: str) -> tuple[Trouble, ...]:
    """What a fault does to the network around a part."""
    to, from_ = Trouble(target=target, is_cut=True), Trouble(source=target, is_cut=True)
    if fault.kind == SLOW:
        return Trouble(target=target, delay=fault.delay), Trouble(source=target, delay=fault.delay)
    return {CUT: (to, from_), CUT_TO: (to,), CUT_FROM: (from_,)}[fault.kind]


async def _tear(network: RelayedNetwork, target: str) -> None:
    while True:
        network.tear(target)
        await asyncio.sleep(TEAR_SECONDS)
