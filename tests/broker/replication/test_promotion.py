"""Manual promotion of a slave: the checks, what clients notice, and the old master's fate."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest
from tests.broker.replication.test_replication import Group, bodies, group, same
from tests.broker.replication.test_role_change import becomes, order
from tests.support import run, until

from sparrowmq import aio
from sparrowmq.broker.replication import rivals as rivals_module
from sparrowmq.broker.replication import slave as slave_module
from sparrowmq.broker.server import Broker
from sparrowmq.client.admin.promotion import PromotionPlan, plan_promotion
from sparrowmq.core.errors import ClientError, SparrowError
from sparrowmq.core.message import Message, MessageQueue
from sparrowmq.protocol.bodies.replicas import (
    FOLLOWING,
    MASTER,
    SERVING,
    SLAVE,
    WAITING,
    EpochStart,
    ReplicaState,
)

QUEUE = MessageQueue("TopicTest", "broker-a", 0)
CLIENTS = (aio.Producer, aio.Admin)
"""Their first use loads their modules: not while a loop runs."""


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slave_module, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(rivals_module, "RIVAL_SECONDS", 0.05)


def replica(port: int, role: str = SLAVE, end: int = 1000, **changes: Any) -> ReplicaState:
    """A replica at `port`, whose log ends at `end`."""
    values: dict[str, Any] = {
        "cluster_name": "c",
        "broker_name": "b",
        "broker_id": port if role == SLAVE else 0,
        "address": f"h:{port}",
        "ha_address": f"h:{port + 1}",
        "role": role,
        "state": SERVING if role == MASTER else FOLLOWING,
        "max_offset": end,
        "master_address": "" if role == MASTER else "h:9",
        "is_sync": True,
    }
    return ReplicaState(**(values | changes))


# The decision


def test_slave_of_an_answering_master_loses_nothing() -> None:
    candidate, master = replica(1, end=900), replica(9, MASTER)
    plan = plan_promotion(candidate, {"h:9": master, "h:2": replica(2, end=900)}, {})
    assert (plan.doubts, plan.refusals, plan.lost_bytes, plan.master) == ((), (), 0, master)
    assert [plan.broker_id(one) for one in (master, *plan.followers)] == [1, 2]


def test_warning_when_the_candidate_lacks_what_another_slave_has() -> None:
    plan = plan_promotion(replica(1), {"h:2": replica(2, end=1500)}, {"h:9": "gone"})
    assert plan.lost_bytes == 500
    assert plan.doubts == ("h:2 has 500 bytes of the log that h:1 lacks",)
    newer = replica(2, end=800, epochs=[EpochStart(3, 700)], epoch=3)
    plan = plan_promotion(replica(1), {"h:2": newer}, {"h:9": "gone"})
    assert len(plan.doubts) == 1 and plan.epoch == 4
    stale = replica(1, end=800, state=WAITING, trouble="their logs have diverged")
    plan = plan_promotion(stale, {"h:9": replica(9, MASTER)}, {})
    assert plan.lost_bytes == 200 and "their logs have diverged" in plan.doubts[0]


def test_no_warning_when_a_slave_is_ahead_of_a_candidate_that_follows() -> None:
    """The candidate gets the master's whole log before it becomes master."""
    found = {"h:9": replica(9, MASTER, 1600), "h:2": replica(2, end=1500)}
    plan = plan_promotion(replica(1), found, {})
    assert (plan.doubts, plan.lost_bytes) == ((), 0)
    plan = plan_promotion(replica(1), found | {"h:2": replica(2, end=1900)}, {})
    assert plan.doubts == ("h:2 has 300 bytes of the log that h:9 lacks",)


def test_warning_when_the_candidates_log_differs_from_its_masters() -> None:
    """Also when its log is longer: nobody knows whether it has everything the master acknowledged."""
    parted = replica(1, end=2000, state=WAITING, trouble="their logs have diverged")
    plan = plan_promotion(parted, {"h:9": replica(9, MASTER)}, {})
    assert plan.lost_bytes is None
    assert "their logs have diverged" in plan.doubts[0] and "unknown number of bytes" in plan.doubts[0]


def test_warning_about_possible_losses_of_an_unavailable_master() -> None:
    assert plan_promotion(replica(1), {"h:2": replica(2)}, {"h:9": "gone"}).doubts == ()
    plan = plan_promotion(replica(1, is_sync=False), {}, {"h:9": "gone"})
    assert "SYNC_MASTER" in plan.doubts[0] and plan.lost_bytes is None
    plan = plan_promotion(replica(1), {}, {"h:9": "gone", "h:2": "gone"})
    assert "h:2" in plan.doubts[0] and "h:9" not in plan.doubts[0] and plan.lost_bytes is None


def test_no_warning_about_a_broker_that_is_the_master_already() -> None:
    alone = plan_promotion(replica(9, MASTER, is_sync=False), {}, {"h:2": "gone"})
    assert alone.is_done and (alone.doubts, alone.refusals, alone.lost_bytes) == ((), (), 0)


def test_warning_about_two_masters_and_managed_broker_is_refused() -> None:
    two = {"h:8": replica(8, MASTER, 500), "h:9": replica(9, MASTER)}
    plan = plan_promotion(replica(1), two, {})
    assert plan.lost_bytes is None and "h:8, h:9" in plan.doubts[0]
    assert "coordinator" in plan_promotion(replica(1, is_managed=True), {}, {}).refusals[0]


# With brokers


def admin(g: Group) -> aio.Admin:
    return aio.Admin(namesrv=g.names.address)


async def numbered(g: Group, producer: aio.Producer, sent: list[bytes], stop: asyncio.Event) -> None:
    """Send numbers, one after the other to one queue, until stopped; repeat a failed send."""
    number = 0
    while not stop.is_set():
        body = b"%d" % number
        try:
            result = await producer.send(Message("TopicTest", body), queue=QUEUE)
        except SparrowError:
            await asyncio.sleep(0.02)
            continue
        if result.status.name == "SEND_OK":
            sent.append(body)
            number += 1


def test_planned_change_loses_and_duplicates_nothing_and_the_producer_continues(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            first, second = await g.master(broker_role="SYNC_MASTER"), await g.slave()
            await g.send(first)
            await until(same(first, second))
            sent: list[bytes] = []
            stop = asyncio.Event()
            settings = aio.ProducerSettings(namesrv=g.names.address, route_interval=0.1)
            async with aio.Producer("p", settings=settings) as producer, admin(g) as tool:
                task = asyncio.create_task(numbered(g, producer, sent, stop))
                await until(lambda: len(sent) > 20)
                plan = await tool.replicas.plan(second.address)
                assert plan.doubts == () and plan.master is not None
                done = await tool.replicas.promote(second.address)
                assert (done.epoch, done.lost_bytes) == (1, 0)
                await becomes(g, first, FOLLOWING)
                before = len(sent)
                await until(lambda: len(sent) > before + 20)
                stop.set()
                await task
                assert (await tool.replicas.promote(second.address)).is_done
            await until(same(first, second))
            queue = [body for body in bodies(second) if body != b"hello"]
            assert queue == sent or sorted(set(queue), key=int) == sent  # an answer may be lost: sent again
            assert [body for n, body in enumerate(queue) if body not in queue[:n]] == sent
            assert bodies(first) == bodies(second)

    run(scenario())


def test_available_master_hands_over_its_log_despite_other_warnings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            first, second = await g.master(), await g.slave()
            await g.send(first, b"0")
            await until(same(first, second))
            assert second.parts.following is not None and second.parts.following.follower.link is not None
            transport = second.parts.following.follower.link._transport
            assert transport is not None
            transport.pause_reading()
            await g.send(first, b"1")
            async with admin(g) as tool:
                plan = await tool.replicas.plan(second.address)

                async def doubted(address: str) -> PromotionPlan:
                    return dataclasses.replace(plan, doubts=("another replica is silent",))

                monkeypatch.setattr(tool.replicas, "plan", doubted)
                task = asyncio.create_task(tool.replicas.promote(second.address, unclean=True))
                await until(lambda: first.parts.reign.is_paused)
                transport.resume_reading()
                await task
            assert bodies(second) == [b"0", b"1"]

    run(scenario())


def test_returning_old_master_finds_the_new_one_and_follows(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            first, second = await g.master(), await g.slave()
            await g.send(first, b"both")
            await until(same(first, second))
            await second.close()
            await g.send(first, b"only the old one")
            await first.close()
            second = await g.slave()
            async with admin(g) as tool:
                with pytest.raises(ClientError, match="--unclean"):
                    await tool.replicas.promote(second.address)
                await tool.replicas.promote(second.address, unclean=True)
            assert (await g.send(second, b"new")).code == 0
            first = await g.master("m")
            found = await becomes(g, first, FOLLOWING)
            assert (found.role, found.master_address, found.epoch) == (SLAVE, second.address, 1)
            await until(same(first, second))
            assert bodies(first) == bodies(second) == [b"both", b"new"]
            assert len(list((tmp_path / "m" / "cut").iterdir())) == 1

    run(scenario())


def test_still_running_master_becomes_the_slave_of_a_later_one(tmp_path: Path) -> None:
    """For example one that was disconnected while its slave was promoted."""

    async def scenario() -> None:
        async with group(tmp_path) as g:
            first, second = await g.master(), await g.slave()
            await g.send(first)
            await until(same(first, second))
            await order(g, second, 1)
            await becomes(g, second, SERVING)
            assert (await becomes(g, first, FOLLOWING)).master_address == second.address

    run(scenario())


def test_slave_of_another_cluster_and_slave_with_false_data_are_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            master = await g.master()
            await g.send(master)
            await order(g, master, 3)
            await becomes(g, master, SERVING)
            for changes, text in (
                ({"broker_cluster_name": "another"}, "cluster"),
                ({"broker_name": "broker-b"}, "broker-b"),
            ):
                slave = await stranger(g, master, **changes)
                await until(lambda slave=slave: bool(trouble(slave)))  # type: ignore[misc]
                assert text in trouble(slave)
                assert slave.parts.store.position == 0
                await slave.close()

    def trouble(broker: Broker) -> str:
        assert broker.parts.following is not None
        return broker.parts.following.follower.trouble

    async def stranger(g: Group, master: Broker, **changes: Any) -> Broker:
        slave = Broker(g.settings("x", broker_role="SLAVE", broker_id=1, **changes))
        await slave.start()
        g._stack.push_async_callback(slave.close)
        orders: dict[str, Any] = {
            "cluster_name": slave.settings.broker_cluster_name,
            "broker_name": slave.settings.broker_name,
        }
        assert (await order(g, slave, 3, master=master, **orders)).code == 0
        await becomes(g, slave, WAITING)
        return slave

    run(scenario())
