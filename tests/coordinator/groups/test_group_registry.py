"""The groups of one coordinator: taken over once, isolated from each other's failures, forgotten, limited."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace
from tests.coordinator.groups.made_up import TIMES, A, B, FakeCluster
from tests.support import about, run, until

from sparrowmq.coordinator.groups.group_registry import GroupRegistry
from sparrowmq.coordinator.groups.initial_state import ReportedState
from sparrowmq.core.errors import (
    ConnectError,
    CoordinatorError,
    InvalidStateError,
)
from sparrowmq.core.grants import Report
from sparrowmq.core.route import TopicRoute
from sparrowmq.protocol.managed import GroupPolicies


@pytest.mark.proves("MUST-72")
def test_leader_restarted_in_its_epoch_numbers_orders_above_earlier_ones() -> None:
    """A member ignores orders older than those it knows, and an order it knows counts as obeyed."""
    cluster = FakeCluster()

    async def main() -> None:
        groups = GroupRegistry(cluster, times=TIMES, monotonic=lambda: cluster.now, epoch=3)
        first = await groups.lead("g")
        p = first.join("p", "", ["T"], 1)
        await first.step()
        orders = first.report(p, "", Report(1, 0), ["T"], ReportedState(0))
        assert orders is not None and orders.granted == {A: 1, B: 1}
        (known,) = cluster.policies["a"].policies
        cluster.policies["a"] = GroupPolicies([replace(known, revision=known.revision + 9)])  # was on its way
        first.leave(p)
        await first.step()
        assert first.deposed
        second = await groups.lead("g")
        again = second.report(p, "", Report(2, orders.revision), ["T"], ReportedState(0))
        assert again is not None and second.epoch == first.epoch
        assert again.revision >= first.told > orders.revision
        await groups.close()

    run(main())


@pytest.mark.proves("MUST-73")
def test_failing_group_delays_no_other() -> None:
    class Failing(FakeCluster):
        async def topic_route(self, topic: str) -> TopicRoute:
            if topic == "Broken":
                raise ConnectError("the name server is gone")
            return await super().topic_route(topic)

    async def main() -> None:
        cluster = Failing()
        groups = GroupRegistry(cluster, times=TIMES, monotonic=lambda: cluster.now)
        broken, fine = await groups.lead("broken"), await groups.lead("g")
        broken.join("p", "", ["Broken"], 1)
        member = fine.join("p", "", ["T"], 1)
        await until(lambda: fine.settled and fine.plan.generation == 1)
        orders = fine.report(member, "", Report(1, 0), ["T"], ReportedState(0))
        assert orders is not None
        assert orders.granted == {A: 1, B: 1}
        assert groups.find("broken") is broken
        await groups.close()

    run(main())


def test_stopping_coordinator_takes_nothing_over() -> None:
    """A report that arrives during the stop must not begin another epoch."""

    async def main() -> None:
        cluster = FakeCluster()
        groups = GroupRegistry(cluster, times=TIMES, monotonic=lambda: cluster.now)
        await groups.lead("g")
        await groups.close()
        assert groups.leaders == []
        with pytest.raises(CoordinatorError, check=about(what="leader")):
            await groups.lead("g")

    run(main())


def test_groups_are_taken_over_once_forgotten_when_empty_and_limited() -> None:
    async def main() -> None:
        cluster = FakeCluster()
        groups = GroupRegistry(cluster, times=TIMES, monotonic=lambda: cluster.now, groups_max=1)
        cluster.down = {"all"}
        with pytest.raises(ConnectError):
            await groups.lead("g")
        cluster.down = set()
        one, two = await asyncio.gather(groups.lead("g"), groups.lead("g"))
        assert one is two
        with pytest.raises(InvalidStateError, check=about(limit=1)):
            await groups.lead("other")
        cluster.now = 61.0
        await until(lambda: groups.find("g") is None)
        await groups.lead("other")
        await groups.close()

    run(main())


def test_group_taken_over_while_its_coordinator_stops_is_not_led() -> None:
    cluster = FakeCluster()

    async def main() -> None:
        groups = GroupRegistry(cluster, times=TIMES, monotonic=lambda: cluster.now)
        asked = asyncio.create_task(groups.lead("g"))
        await asyncio.sleep(0)
        (taking,) = groups._taking.values()
        taking.add_done_callback(lambda _: setattr(groups, "_closed", True))  # before the one who waits runs
        with pytest.raises(CoordinatorError, check=about(what="leader")):
            await asked
        assert groups.leaders == []
        await groups.close()

    run(main())


def test_leader_replaced_in_the_middle_of_a_step_stops_with_its_coordinator() -> None:
    class Slow(FakeCluster):
        ended = 0

        async def topic_route(self, topic: str) -> TopicRoute:
            self.asked += 1
            try:
                await asyncio.Event().wait()
            finally:
                self.ended += 1
            raise AssertionError("it waits for ever")

    cluster = Slow()

    async def main() -> None:
        groups = GroupRegistry(cluster, times=TIMES, monotonic=lambda: cluster.now)
        first = await groups.lead("g")
        first.join("p", "", ["T"], 1)
        await until(lambda: cluster.asked)
        first._fencing.is_outdated = True
        second = await groups.lead("g")
        assert second is not first
        await groups.close()
        assert cluster.ended == 1, "nothing of it goes on"

    run(main())
