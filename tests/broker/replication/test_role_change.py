"""Brokers that change their role while they run: orders with and without a lease, and the truncated log."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.broker.replication.test_replication import TOPIC, Group, bodies, group, pull, same
from tests.broker.rig import LOG_FILE_BYTES, STORE_HOST, Rig, send_command
from tests.support import run, until

from sparrowmq import aio
from sparrowmq.broker.base.internal_store import InnerMessage
from sparrowmq.broker.replication import metadata as metadata_module
from sparrowmq.broker.replication import slave as slave_module
from sparrowmq.broker.replication.frames import FROM_FIRST_FILE, PacketReader, report
from sparrowmq.broker.server import Broker
from sparrowmq.broker.transactions.half_messages import committed, half_properties, read_half
from sparrowmq.core.names import HALF_TOPIC, OP_HALF_TOPIC
from sparrowmq.protocol.bodies import ProducersEnd, SubscriptionGroupConfig, TopicConfig
from sparrowmq.protocol.bodies.replicas import (
    CHANGING,
    FENCED,
    FOLLOWING,
    MASTER,
    SERVING,
    SLAVE,
    FollowAnswer,
    FollowRequest,
    ReplicaOrders,
    ReplicaState,
    SlaveState,
)
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.pop.records import RequestMode
from sparrowmq.protocol.producer_mark import mark_head
from sparrowmq.protocol.properties import encode as encode_properties


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slave_module, "RETRY_SECONDS", 0.05)


async def state_of(g: Group, broker: Broker) -> ReplicaState:
    answer = await g.ask(broker, Command(RequestCode.GET_REPLICA_STATE))
    assert answer.code == 0, answer.remark
    return ReplicaState.decode(answer.body)


async def order(g: Group, broker: Broker, epoch: int, **changes: Any) -> Command:
    """A manual order: to be master, unless a `master` is named."""
    master: Broker | None = changes.pop("master", None)
    values: dict[str, Any] = {
        "cluster_name": "DefaultCluster",
        "broker_name": "broker-a",
        "epoch": epoch,
        "role": MASTER if master is None else SLAVE,
        "broker_id": 0 if master is None else 1,
        "master_address": "" if master is None else master.address,
        "master_ha_address": "" if master is None else master.ha_address,
    }
    orders = ReplicaOrders(**(values | changes))
    return await g.ask(broker, Command(RequestCode.SET_REPLICA_ROLE, body=orders.encode()))


async def lease(g: Group, broker: Broker, epoch: int, **changes: Any) -> Command:
    """A coordinator's order: to be master with a lease of 5 s."""
    known = await state_of(g, broker)
    values: dict[str, Any] = {
        "lease_ms": 5000,
        "lease_from": known.stamp,
        "run": known.run,
        "in_sync": [broker.address],
        "in_sync_number": 1,
    }
    return await order(g, broker, epoch, **(values | changes))


async def becomes(g: Group, broker: Broker, *states: str) -> ReplicaState:
    """The broker's state, once it is one of these."""
    found: list[ReplicaState] = []

    async def there() -> bool:
        try:
            found.append(await state_of(g, broker))
        except Exception:  # it changes, and refuses connections
            return False
        return found[-1].state in states

    await until(there)
    return found[-1]


def test_slave_and_master_exchange_roles(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            first, second = await g.master(), await g.slave()
            for number in range(50):
                assert (await g.send(first, b"%d" % number)).code == 0
            await until(same(first, second))
            end = first.parts.store.position
            answer = await order(g, second, 1)
            assert answer.code == 0
            assert ReplicaState.decode(answer.body).state == CHANGING
            found = await becomes(g, second, SERVING)
            assert (found.role, found.broker_id, found.epoch) == (MASTER, 0, 1)
            assert [(one.epoch, one.start_offset) for one in found.epochs] == [(1, end)]
            assert (await order(g, first, 1, master=second)).code == 0
            assert (await becomes(g, first, FOLLOWING)).role == SLAVE
            for number in range(50, 100):
                assert (await g.send(second, b"%d" % number)).code == 0
            await until(same(first, second))
            assert bodies(first) == bodies(second) == [b"%d" % number for number in range(100)]
            assert (await g.send(first, b"no")).code == ResponseCode.SYSTEM_BUSY
            assert (await state_of(g, first)).epochs == found.epochs
            await first.close()
            await second.close()
        assert g.files("s") == g.files("m")

    run(scenario())


def test_master_names_the_stores_of_its_slaves_and_proposes_nothing_during_a_change(
    tmp_path: Path,
) -> None:
    """A connection may outlive a replaced disk; a set proposed before a change belongs to the old epoch."""

    async def scenario() -> None:
        async with group(tmp_path) as g:
            first, second = await g.master(), await g.slave()
            assert (await lease(g, first, 1)).code == 0
            await becomes(g, first, SERVING)
            store = (await state_of(g, second)).store

            async def is_there() -> bool:
                slaves = (await state_of(g, first)).slaves
                return [(one.address, one.store) for one in slaves] == [(second.address, store)]

            await until(is_there)
            assert store != (await state_of(g, first)).store != ""
            found = ReplicaState.decode((await lease(g, first, 2)).body)
            assert (found.state, found.epoch, found.wanted) == (CHANGING, 2, None)
            assert (await becomes(g, first, SERVING)).wanted == [first.address]

    run(scenario())


def test_readers_ahead_of_a_new_master_continue_where_it_became_master(tmp_path: Path) -> None:
    """Also after a restart, and in a later reign of the same master. Readers that do not say which topic they
    read restart at the beginning."""

    async def scenario() -> None:
        async with group(tmp_path) as g:
            first, second = await g.master(), await g.slave()
            await until(lambda: second.parts.following is not None and second.parts.following.follower.link)
            for number in range(5):
                assert (await g.send(first, b"%d" % number)).code == 0
            await until(same(first, second))
            await until(lambda: TOPIC in second.parts.topics.births)
            await second.close()
            for number in range(5, 8):
                assert (await g.send(first, b"%d" % number)).code == 0
            birth = (await g.ask(first, pull(birth=0))).ext["birth"]
            await first.close()
            second = await g.slave()
            assert (await order(g, second, 1)).code == 0
            await becomes(g, second, SERVING)
            assert (await g.send(second, b"new")).code == 0
            for epoch in (1, 1, 2):
                assert (await order(g, second, epoch)).code == 0
                await becomes(g, second, SERVING)
                moved = await g.ask(second, pull(birth=birth, queueOffset=8))
                assert (moved.code, moved.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "5")
                unsaid = await g.ask(second, pull(queueOffset=8))
                assert (unsaid.code, unsaid.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "0")
                await second.close()
                second = await g.slave()
            assert bodies(second)[5:] == [b"new"]

    run(scenario())


def test_slave_whose_settings_make_it_the_master_continues_the_log(tmp_path: Path) -> None:
    """Its readers continue where its own part of the log begins, also after a restart."""

    async def scenario() -> None:
        async with group(tmp_path) as g:
            first, second = await g.master(), await g.slave()
            for number in range(5):
                assert (await g.send(first, b"%d" % number)).code == 0
            await until(same(first, second))
            await until(lambda: TOPIC in second.parts.topics.births)
            await second.close()
            for number in range(5, 8):
                assert (await g.send(first, b"%d" % number)).code == 0
            birth = (await g.ask(first, pull(birth=0))).ext["birth"]
            await first.close()
            for number in range(2):
                second = await g.master("s")
                assert (await g.ask(second, pull(birth=0))).ext["birth"] == birth
                assert (await g.send(second, b"new%d" % number)).code == 0
                moved = await g.ask(second, pull(birth=birth, queueOffset=8))
                assert (moved.code, moved.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "5")
                await second.close()

    run(scenario())


def test_topic_created_just_before_the_change_exists_afterwards(tmp_path: Path) -> None:
    """Also when its settings were never copied."""

    async def scenario() -> None:
        async with group(tmp_path) as g:
            first, second = await g.master(), await g.slave()
            await until(lambda: second.parts.following is not None and second.parts.following.follower.link)
            assert (await g.send(first, topic="Made", queue_id=1)).code == 0
            await until(lambda: "Made" in second.parts.topics.configs)
            assert second.parts.topics.configs["Made"].read_queue_nums == 4
            second.parts.following.tables.copy_soon = lambda: None  # type: ignore[union-attr, method-assign]
            assert (await g.send(first, topic="MadeLate", queue_id=1)).code == 0
            await until(same(first, second))
            assert "MadeLate" not in second.parts.topics.configs
            await first.close()
            await order(g, second, 1)
            await becomes(g, second, SERVING)
            assert second.parts.topics.configs["MadeLate"].read_queue_nums == 2
            assert (await g.send(second, topic="MadeLate", queue_id=1)).code == 0
            assert bodies(second, "MadeLate", 1) == [b"hello", b"hello"]

    run(scenario())


def test_topic_created_just_before_the_settings_changed_exists_afterwards(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            first, second = await g.master(), await g.slave()
            await until(lambda: second.parts.following is not None and second.parts.following.follower.link)
            second.parts.following.tables.copy_soon = lambda: None  # type: ignore[union-attr, method-assign]
            assert (await g.send(first, topic="MadeLate", queue_id=1)).code == 0
            await until(same(first, second))
            assert "MadeLate" not in second.parts.topics.configs
            await second.close()
            second = await g.master("s")
            assert second.parts.topics.configs["MadeLate"].read_queue_nums == 2

    run(scenario())


def judged(number: int, epoch: int, body: bytes) -> Command:
    """A message of producer `job-0`."""
    own = mark_head("job-0", epoch, TOPIC, 0).decode() + f"{number}\x02UNIQ_KEY\x01A{number}\x02"
    command = send_command(body, properties=own)
    command.ext = {**command.ext, "idempotent": "true"}
    return command


def test_promoted_slave_knows_which_producers_have_ended(tmp_path: Path) -> None:
    """A finished job is not written again, and late sends of its tasks are refused, as at the old master."""

    async def scenario() -> None:
        async with group(tmp_path) as g:
            first, second = await g.master(), await g.slave()
            for number in range(3):
                assert (await g.ask(first, judged(number, 0, b"row"))).code == 0
            end = {"topic": TOPIC, "family": "job", "epoch": "16", "note": "done"}
            assert (await g.ask(first, Command(RequestCode.END_PRODUCERS, ext=end))).code == 0
            await until(same(first, second))
            await first.close()
            await order(g, second, 1)
            await becomes(g, second, SERVING)
            asked = Command(RequestCode.END_PRODUCERS, ext=end | {"epoch": "0"})
            assert ProducersEnd.decode((await g.ask(second, asked)).body) == ProducersEnd(16, "done")
            assert (await g.ask(second, judged(3, 0, b"late"))).code == ResponseCode.PRODUCER_FENCED
            assert not len(second.parts.store.producers)
            assert bodies(second) == [b"row"] * 3

    run(scenario())


def test_promoted_slave_stores_rows_of_a_recreated_topic(tmp_path: Path) -> None:
    """Sequence numbers of the old topic do not apply to the new one."""

    async def scenario() -> None:
        async with group(tmp_path) as g:
            first, second = await g.master(), await g.slave()
            for number in range(5):
                assert (await g.ask(first, judged(number, 0, b"%d" % number))).code == 0
            await until(same(first, second))
            assert await first.parts.deletions.topic(TOPIC)
            assert (await g.ask(first, judged(0, 0, b"0"))).code == 0
            await until(same(first, second))
            await first.close()
            await order(g, second, 1)
            await becomes(g, second, SERVING)
            for number in range(5):
                assert (await g.ask(second, judged(number, 0, b"%d" % number))).code == 0
            assert bodies(second) == [b"%d" % number for number in range(5)]

    run(scenario())


@pytest.mark.parametrize("is_behind", [False, True])
def test_promoted_slave_pops_unacknowledged_messages(tmp_path: Path, is_behind: bool) -> None:
    """Its offsets are slightly old. If its log is behind, too, it has popped messages without their check
    points."""

    async def receive(g: Group, count: int, wait: float = 5.0) -> tuple[aio.SimpleConsumer, list[Any]]:
        consumer = aio.SimpleConsumer("g", namesrv=g.names.address)
        await consumer.start()
        consumer.subscribe(TOPIC)
        return consumer, await consumer.receive(count, invisible=60.0, wait=wait)

    async def scenario() -> None:
        async with group(tmp_path) as g:
            first, second = await g.master(), await g.slave()
            for number in range(4):
                await g.send(first, b"%d" % number)
            consumer, found = await receive(g, 2)
            await until(same(first, second))
            following = second.parts.following
            assert following is not None
            await following.tables.copy_offsets()
            await until(lambda: second.parts.offsets.query(TOPIC, "g", 0) == 2)
            if is_behind:
                assert following.follower.link is not None
                assert following.follower.link._transport is not None
                following.follower.link._transport.pause_reading()
            found += await consumer.receive(2, invisible=60.0)
            for message in found:
                await consumer.ack(message)
            await consumer.close()
            if is_behind:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(following.tables.copy_offsets(), 0.5)
            else:
                await until(same(first, second))
            await first.close()
            assert (await order(g, second, 1)).code == 0
            await becomes(g, second, SERVING)
            consumer, again = await receive(g, 4, 1.0)
            await consumer.close()
            assert [message.body for message in found] == [b"0", b"1", b"2", b"3"]
            assert [message.body for message in again] == ([b"2", b"3"] if is_behind else [])

    run(scenario())


def test_group_created_just_before_the_change_can_pop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without automatic group creation, also when the settings of the group were never copied."""
    monkeypatch.setattr(metadata_module, "TABLES_SECONDS", 1000.0)
    monkeypatch.setattr(metadata_module, "LOOK_SECONDS", 1000.0)

    async def scenario() -> None:
        async with group(tmp_path) as g:
            first = await g.master(auto_create_subscription_group=False)
            second = await g.slave(auto_create_subscription_group=False)
            await until(lambda: second.parts.following is not None and second.parts.following.follower.link)
            assert (await g.send(first, b"1")).code == 0
            await until(lambda: TOPIC in second.parts.topics.configs)
            config = SubscriptionGroupConfig(group_name="made")
            await first.parts.groups.put([config])
            consumer = aio.SimpleConsumer("made", namesrv=g.names.address)
            await consumer.start()
            consumer.subscribe(TOPIC)
            (message,) = await consumer.receive(1, invisible=5.0, wait=5.0)
            assert message.body == b"1"
            await until(same(first, second))
            await consumer.close()
            assert "made" not in second.parts.groups.configs
            await first.close()
            assert (await order(g, second, 1)).code == 0
            await becomes(g, second, SERVING)
            assert "made" in second.parts.groups.configs
            consumer = aio.SimpleConsumer("made", namesrv=g.names.address)
            await consumer.start()
            consumer.subscribe(TOPIC)
            (again,) = await consumer.receive(1, invisible=60.0, wait=15.0)
            await consumer.close()
            assert (again.body, again.reconsume_times) == (b"1", 1)

    run(scenario())


def test_change_of_the_masters_tables_is_copied_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_module, "TABLES_SECONDS", 1000.0)
    monkeypatch.setattr(metadata_module, "LOOK_SECONDS", 0.05)

    async def scenario() -> None:
        async with group(tmp_path) as g:
            first, second = await g.master(), await g.slave()
            await until(lambda: second.parts.following is not None and second.parts.following.follower.link)
            await first.parts.groups.put([SubscriptionGroupConfig(group_name="made", retry_max_times=3)])
            await until(lambda: "made" in second.parts.groups.configs)
            assert second.parts.groups.configs["made"].retry_max_times == 3
            first.parts.topics.put_soon(TopicConfig(topic_name="Made", read_queue_nums=7, write_queue_nums=7))
            await until(lambda: "Made" in second.parts.topics.configs)
            mode = RequestMode(consumer_group="made", mode="POP", pop_share_queue_num=2, topic="Made")
            answer = await g.ask(first, Command(RequestCode.SET_MESSAGE_REQUEST_MODE, body=mode.encode()))
            assert answer.code == 0
            await until(lambda: second.parts.request_modes.get("Made", "made").mode == "POP")

    run(scenario())


@pytest.mark.parametrize("is_cut", [False, True])
def test_slave_with_a_commit_without_its_op_record_ends_the_transaction(tmp_path: Path, is_cut: bool) -> None:
    """Otherwise its producer, checked again, would commit a second time. If the commit was truncated, the
    producer is checked."""
    rig = Rig(tmp_path / "other")
    rig.make_topic(TOPIC, 1)
    own = half_properties({"TRAN_MSG": "true", "PGROUP": "p", "UNIQ_KEY": "K"}, TOPIC, 0)
    half = InnerMessage(HALF_TOPIC, 0, b"x", encode_properties(own), 0, 0, rig.clock.ms, STORE_HOST)
    (placed,) = rig.inner.put([half])
    record = rig.inner.read(placed.physical_offset)
    assert record is not None
    begun = rig.store.position
    rig.inner.put([committed(record, read_half(record.properties))])
    data = bytes(rig.store.raw_log.piece(0, rig.store.position) or b"")
    rig.close()

    async def scenario() -> None:
        async with group(tmp_path) as g:
            slave = await g.slave("s", mapped_file_size_commit_log=LOG_FILE_BYTES)
            copy = slave.parts.store.copy
            copy.add(0, data)
            while copy.step() is not None:
                pass
            assert copy.position == len(data)
            if is_cut:
                assert slave._reign is not None
                slave._reign.cut(begun)
                await until(lambda: slave.parts.store.copy is not copy)
            assert (await order(g, slave, 1)).code == 0
            await becomes(g, slave, SERVING)
            assert slave.parts.store.queue(OP_HALF_TOPIC, 0).max_offset == int(not is_cut)

    run(scenario())


def test_role_survives_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            first, second = await g.master(), await g.slave()
            await g.send(first)
            await until(same(first, second))
            await order(g, second, 1)
            await becomes(g, second, SERVING)
            await order(g, first, 1, master=second)
            await becomes(g, first, FOLLOWING)
            port = second.port
            await first.close()
            await second.close()
            second = await g.slave("s", listen_port=port)
            assert (await becomes(g, second, SERVING)).epoch == 1
            first = await g.master("m")
            assert first.settings.is_slave
            assert (await g.send(second, b"more")).code == 0
            await becomes(g, first, FOLLOWING)
            await until(same(first, second))

    run(scenario())


def test_records_only_the_old_master_has_are_truncated_and_saved_aside(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            first, second = await g.master(), await g.slave()
            for number in range(100):
                assert (await g.send(first, b"%d" % number + bytes(400))).code == 0
            await until(same(first, second))
            common = second.parts.store.position
            await second.close()
            for number in range(300):
                assert (await g.send(first, b"lost %d" % number + bytes(400), queue_id=number % 2)).code == 0
            end = first.parts.store.position
            assert end // (1 << 16) > common // (1 << 16)
            lost = bytes(first.parts.store.raw_log.piece(common, 100) or b"")
            second = await g.slave()
            await order(g, second, 1)
            await becomes(g, second, SERVING)
            assert (await g.send(second, b"new")).code == 0
            await order(g, first, 1, master=second)
            await becomes(g, first, FOLLOWING)
            await until(same(first, second))
            assert (
                bodies(first) == bodies(second) and bodies(first)[-1] == b"new" and len(bodies(first)) == 101
            )
            assert first.parts.store.queue("TopicTest", 1).max_offset == 0
            kept = list((tmp_path / "m" / "cut").iterdir())
            assert [path.name.split("-")[1] for path in kept] == [f"{common:020d}"]
            assert kept[0].stat().st_size == end - common
            assert kept[0].read_bytes().startswith(lost)
            await first.close()
            await second.close()
        assert g.files("s") == g.files("m")

    run(scenario())


def test_managed_master_refuses_writes_without_its_lease(tmp_path: Path) -> None:
    now = [1000.0]

    async def scenario() -> None:
        async with group(tmp_path) as g:
            master = Broker(g.settings("m"), lease_clock=lambda: now[0])
            await master.start()
            try:
                assert (await g.send(master)).code == 0
                assert (await lease(g, master, 1)).code == 0
                found = await becomes(g, master, SERVING)
                assert found.is_managed and found.lease_left_ms == 5000
                assert (await g.send(master, b"taken")).code == 0
                old = await state_of(g, master)
                now[0] += 5
                refused = await g.send(master, b"late")
                assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
                assert "lease" in (refused.remark or "")
                assert (await state_of(g, master)).state == FENCED
                late = await lease(g, master, 1, lease_from=old.stamp)
                assert late.code == ResponseCode.LEASE_OUTDATED
                other = await lease(g, master, 1, run="of another start")
                assert other.code == ResponseCode.LEASE_OUTDATED
                assert (await lease(g, master, 1)).code == 0
                assert (await g.send(master, b"again")).code == 0
                assert bodies(master) == [b"hello", b"taken", b"again"]
            finally:
                await master.close()

    run(scenario())


def test_orders_of_an_older_epoch_or_for_another_broker_are_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            master, other = await g.master(), await g.master("x", broker_name="broker-b")
            await order(g, master, 5)
            before = await becomes(g, master, SERVING)
            for epoch, code, changes in (
                (4, ResponseCode.EPOCH_OUTDATED, {}),
                (5, ResponseCode.EPOCH_OUTDATED, {"master": other}),
                (6, ResponseCode.SYSTEM_ERROR, {"cluster_name": "another"}),
                (6, ResponseCode.SYSTEM_ERROR, {"broker_name": "broker-b"}),
                (6, ResponseCode.SYSTEM_ERROR, {"broker_id": 3}),
                (6, ResponseCode.SYSTEM_ERROR, {"role": "KING"}),
                (6, ResponseCode.SYSTEM_ERROR, {"master": master}),
                (6, ResponseCode.SYSTEM_ERROR, {"store": "of a lost disk"}),
                (6, ResponseCode.SYSTEM_ERROR, {"lease_ms": 10_000_000}),
                (6, ResponseCode.SYSTEM_ERROR, {"in_sync": [f"h:{port}" for port in range(100)]}),
            ):
                answer = await order(g, master, epoch, **changes)
                assert answer.code == code, (epoch, changes, answer.remark)
            garbage = await g.ask(master, Command(RequestCode.SET_REPLICA_ROLE, body=b"{"))
            assert garbage.code == ResponseCode.SYSTEM_ERROR
            after = await state_of(g, master)
            assert (after.state, after.epoch, after.epochs) == (SERVING, 5, before.epochs)
            assert (await g.send(master)).code == 0

    run(scenario())


def test_acknowledgements_wait_for_the_whole_in_sync_set(tmp_path: Path) -> None:
    """A slave that is away leaves the set only when the coordinator orders it."""

    async def scenario() -> None:
        async with group(tmp_path) as g:
            sync: dict[str, Any] = {
                "broker_role": "SYNC_MASTER",
                "slave_timeout": 300,
                "ha_max_time_slave_not_catchup": 200,
            }
            master, near, far = await g.master(**sync), await g.slave("s"), await g.slave("t", broker_id=2)
            names = [master.address, near.address, far.address]
            assert (await lease(g, master, 1, in_sync=names, lease_ms=600_000)).code == 0
            await becomes(g, master, SERVING)

            async def both_follow() -> bool:
                told = await state_of(g, master)
                return sorted(one.address for one in told.slaves) == sorted(names[1:])

            await until(both_follow)
            assert (await g.send(master)).code == 0
            await far.close()
            assert (await g.send(master, b"to one")).code == ResponseCode.FLUSH_SLAVE_TIMEOUT

            async def proposes() -> bool:
                return (await state_of(g, master)).wanted == names[:2]

            await until(proposes)
            assert (await g.send(master, b"to one")).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
            smaller = {"in_sync": names[:2], "in_sync_number": 2, "lease_ms": 600_000}
            assert (await lease(g, master, 1, **smaller)).code == 0
            assert (await g.send(master, b"to both")).code == 0
            outdated = await lease(g, master, 1, in_sync=names, in_sync_number=1)
            assert outdated.code == ResponseCode.EPOCH_OUTDATED
            port = far.port
            far = await g.slave("t", broker_id=2, listen_port=port or int(names[2].split(":")[1]))

            async def wants_it() -> bool:
                return (await state_of(g, master)).wanted == [names[0], *sorted(names[1:])]

            await until(wants_it)
            assert (await g.send(master)).code == 0

    run(scenario())


def test_later_epoch_is_registered_when_two_masters_have_one_name(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            first, second = await g.master(), await g.slave()
            await g.send(first)
            await until(same(first, second))
            await order(g, second, 1)
            await becomes(g, second, SERVING)
            await first.parts.registration.changed()
            await asyncio.sleep(0)
            command = Command(RequestCode.GET_BROKER_CLUSTER_INFO)
            answer = await g.client.call(g.names.address, command, 5.0)
            assert f'"0":"{second.address}"'.encode() in answer.body.replace(b" ", b""), answer.body
            assert first.address.encode() not in answer.body

    run(scenario())


def test_master_does_not_store_long_slave_names(tmp_path: Path) -> None:
    """It stores slaves that introduced themselves, which any client may do."""

    async def scenario() -> None:
        async with group(tmp_path) as g:
            master = await g.master()

            async def follow(**changes: str) -> Command:
                named = {"cluster_name": "DefaultCluster", "broker_name": "broker-a", "address": "h:1"}
                body = FollowRequest(**(named | changes)).encode()
                return await g.ask(master, Command(RequestCode.FOLLOW_MASTER, body=body))

            for changes in ({"address": "h" * 1_000}, {"store": "s" * 256}):
                answer = await follow(**changes)
                assert answer.code == ResponseCode.SYSTEM_ERROR
                assert "the limit is 255" in (answer.remark or "")
            answer = await follow(store="s" * 32)
            assert answer.code == 0
            assert FollowAnswer.decode(answer.body).key < -1

    run(scenario())


@pytest.mark.parametrize("is_new", [False, True], ids=["with its key", "with an empty log"])
def test_first_report_counts_although_a_heartbeat_arrives_with_it(is_new: bool, tmp_path: Path) -> None:
    """For example when the master was frozen after the slave connected."""

    async def scenario() -> None:
        async with group(tmp_path) as g:
            master = await g.master()
            for number in range(40):
                await g.send(master, b"%d" % number + bytes(30_000))  # more than one file
            end = master.parts.store.position
            wish = FollowRequest(
                cluster_name="DefaultCluster",
                broker_name="broker-a",
                address="h:1",
                store="s",
                max_offset=end,
                position=end,
            )
            answer = await g.ask(master, Command(RequestCode.FOLLOW_MASTER, body=wish.encode()))
            first = FROM_FIRST_FILE if is_new else FollowAnswer.decode(answer.body).key
            reader, writer = await asyncio.open_connection("127.0.0.1", master.ha_port)
            writer.write(report(first) + report(0 if is_new else end))
            if is_new:
                [piece, *_] = PacketReader().feed(await reader.readexactly(100))
                assert piece.position == 0, "from the oldest file on, not from the newest"
            else:

                async def is_connected() -> bool:
                    return bool((await state_of(g, master)).slaves)

                await until(is_connected)
                assert (await state_of(g, master)).slaves == [SlaveState("h:1", end, 0, "s")]
            writer.close()

    run(scenario())
