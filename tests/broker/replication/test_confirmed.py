"""In a managed group consumers read only what a take-over cannot replace."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.replication.test_replication import TOPIC, Group, ask, group, pull, same
from tests.broker.replication.test_role_change import becomes, lease, order
from tests.broker.rig import send_command
from tests.support import about, run, until

from sparrowmq.broker.replication import metadata as metadata_module
from sparrowmq.broker.replication import slave as slave_module
from sparrowmq.broker.replication.master_calls import MasterCalls
from sparrowmq.broker.replication.metadata import CopiedTables, MetadataCopy
from sparrowmq.broker.replication.slave import Addresses
from sparrowmq.broker.server import Broker
from sparrowmq.core.errors import BrokerError
from sparrowmq.protocol.bodies.replicas import FOLLOWING, SERVING, ReplicaState
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.record import decode_records

LONG_MS = 600_000
SYNC: dict[str, Any] = {"broker_role": "SYNC_MASTER", "slave_timeout": 60_000}
POLL: dict[str, Any] = {"sysFlag": 6, "suspendTimeoutMillis": 20_000}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slave_module, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(metadata_module, "LOOK_SECONDS", 0.05)


async def managed(g: Group, **changes: Any) -> tuple[Broker, Broker, dict[str, Any]]:
    """A master and a slave that are in sync, with one message, and the orders of the master."""
    master, slave = await g.master(**SYNC | changes), await g.slave(slave_read_enable=True)
    told = {"in_sync": [master.address, slave.address], "lease_ms": LONG_MS}
    assert (await lease(g, master, 1, **told)).code == 0
    await becomes(g, master, SERVING)
    assert (await order(g, slave, 1, master=master, lease_ms=LONG_MS)).code == 0
    await becomes(g, slave, FOLLOWING)
    assert (await g.send(master, b"first")).code == 0
    return master, slave, told


async def send(g: Group, broker: Broker, body: bytes) -> asyncio.Task[Command]:
    """Store a message; its answer may wait for a slave."""
    queue = broker.parts.store.queue(TOPIC, 0)
    end = queue.max_offset + 1
    sending = asyncio.create_task(g.client.call(broker.address, send_command(body), 60))
    await until(lambda: queue.max_offset == end)
    return sending


async def read(g: Group, broker: Broker, offset: int = 0) -> list[bytes] | int:
    """The bodies that a pull finds, or the code of its answer."""
    answer = await g.ask(broker, pull(queueOffset=offset))
    return [record.body for record in decode_records(answer.body)] if not answer.code else answer.code


async def end_of(g: Group, broker: Broker) -> int:
    answer = await g.ask(broker, ask(RequestCode.GET_MAX_OFFSET, topic=TOPIC, queueId=0))
    return int(answer.ext["offset"])


def pop(**fields: Any) -> Command:
    defaults = {
        "consumerGroup": "g",
        "topic": TOPIC,
        "queueId": 0,
        "maxMsgNums": 32,
        "invisibleTime": 60_000,
        "pollTime": 0,
        "initMode": 0,
        "order": "false",
    }
    return ask(RequestCode.POP_MESSAGE, **defaults | fields)


def test_consumers_wait_for_what_the_in_sync_set_lacks(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            master, slave, told = await managed(g)
            assert await read(g, master) == [b"first"]
            await slave.close()
            second = await send(g, master, b"second")
            queue = master.parts.store.queue(TOPIC, 0)
            assert (queue.max_offset, queue.confirmed_offset, await end_of(g, master)) == (2, 1, 1)
            assert await read(g, master) == [b"first"]
            for offset in (1, 2):
                assert await read(g, master, offset) == ResponseCode.PULL_NOT_FOUND
            assert await read(g, master, 3) == ResponseCode.PULL_OFFSET_MOVED
            lately = await g.ask(
                master, ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, topic=TOPIC, queueId=0, timestamp=2**50)
            )
            assert lately.ext["offset"] == "1"
            popped = await g.ask(master, pop())
            assert [one.body for one in decode_records(popped.body)] == [b"first"]
            assert (await g.ask(master, pop())).code == ResponseCode.POLLING_TIMEOUT
            notice = {"consumerGroup": "g", "topic": TOPIC, "queueId": 0, "pollTime": 0}
            said = await g.ask(master, ask(RequestCode.NOTIFICATION, **notice))
            assert said.ext["hasMsg"] == "false"

            held = asyncio.create_task(g.client.call(master.address, pull(queueOffset=1, **POLL), 30))
            later = asyncio.create_task(g.client.call(master.address, pop(pollTime=20_000), 30))
            await until(lambda: master.parts.pulling.held == 1 and master.parts.waiting_pops.pops.count == 1)
            third = await send(g, master, b"third")
            assert not any(one.done() for one in (second, third, held, later))
            alone = told | {"in_sync": [master.address], "in_sync_number": 2}
            assert (await lease(g, master, 1, **alone)).code == 0
            for waiting in (held, later):
                found = await waiting
                assert [one.body for one in decode_records(found.body)] == [b"second", b"third"]
            assert await end_of(g, master) == 3
            assert [(await one).code for one in (second, third)] == [0, 0]

    run(scenario())


def test_what_slaves_confirm_is_read_at_once_by_those_who_wait(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            master, slave, _ = await managed(g)
            for number in range(1, 20):
                held = asyncio.create_task(
                    g.client.call(master.address, pull(queueOffset=number, **POLL), 30)
                )
                await until(lambda: master.parts.pulling.held == 1)
                assert (await g.send(master, b"%d" % number)).code == 0
                assert [one.body for one in decode_records((await held).body)] == [b"%d" % number]
            await until(same(master, slave))

    run(scenario())


def test_a_new_master_gives_nothing_before_it_knows_its_set(tmp_path: Path) -> None:
    """Of two slaves the one may have more than the other: that may still be lost."""

    async def scenario() -> None:
        async with group(tmp_path) as g:
            master, slave, _ = await managed(g)
            await until(same(master, slave))
            old = master.address
            await master.close()
            names = {"in_sync": [slave.address, old], "in_sync_number": 2, "lease_ms": LONG_MS}
            assert (await lease(g, slave, 2, **names)).code == 0
            await becomes(g, slave, SERVING)
            assert await read(g, slave) == ResponseCode.SYSTEM_BUSY
            assert await read(g, slave, 1) == ResponseCode.PULL_NOT_FOUND
            assert await end_of(g, slave) == 1
            held = asyncio.create_task(g.client.call(slave.address, pull(**POLL), 30))
            await until(lambda: slave.parts.pulling.held == 1)
            assert (
                await lease(g, slave, 2, **names | {"in_sync": names["in_sync"][:1], "in_sync_number": 3})
            ).code == 0
            assert [one.body for one in decode_records((await held).body)] == [b"first"]
            assert await read(g, slave) == [b"first"]

    run(scenario())


def test_a_managed_master_that_starts_again_gives_nothing_without_a_lease(tmp_path: Path) -> None:
    """The set that it saved may be outdated."""

    async def scenario() -> None:
        async with group(tmp_path) as g:
            master = await g.master(**SYNC)
            assert (await lease(g, master, 1)).code == 0
            await becomes(g, master, SERVING)
            assert (await g.send(master, b"first")).code == 0
            assert await read(g, master) == [b"first"]
            await master.close()
            master = await g.master(**SYNC)
            assert await read(g, master) == ResponseCode.SYSTEM_BUSY
            assert (await lease(g, master, 2, in_sync_number=2)).code == 0
            await becomes(g, master, SERVING)
            assert await read(g, master) == [b"first"]

    run(scenario())


def test_a_slave_gives_what_its_master_said_also_when_that_is_gone(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            master, slave, told = await managed(g)
            other = await g.slave("t", broker_id=2)
            names = [*told["in_sync"], other.address]
            await until(same(master, other))
            assert (await lease(g, master, 1, **told | {"in_sync": names, "in_sync_number": 2})).code == 0
            log = slave.parts.store.raw_log
            await until(lambda: log.confirmed == slave.parts.store.position)
            assert await read(g, slave) == [b"first"]
            await other.close()
            second = await send(g, master, b"second")
            await until(same(master, slave))
            await master.close()
            assert (await second).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
            await until(lambda: not slave.parts.following.follower.is_following)  # type: ignore[union-attr]
            assert await read(g, slave) == [b"first"]
            for offset in (1, 2):
                assert await read(g, slave, offset) == ResponseCode.PULL_NOT_FOUND

    run(scenario())


def test_a_slave_asks_a_master_again_that_refused_to_tell_its_state() -> None:
    """Only RocketMQ's masters do not know the request."""

    class Client:
        async def call(self, address: str, command: Command, timeout: float) -> Command:
            return Command(answers.pop(0), opaque=command.opaque, body=state.encode())

    async def scenario() -> None:
        calls: Any = MasterCalls(Client(), None, None)  # type: ignore[arg-type]
        tables = MetadataCopy(
            Addresses("", ordered="h:1", ordered_ha="h:2"),
            calls,
            SimpleNamespace(**dict.fromkeys(CopiedTables.__dataclass_fields__)),  # type: ignore[arg-type]
            SimpleNamespace(pool=None, sleep=None),  # type: ignore[arg-type]
            position=int,
            topics_changed=lambda: None,
            told_state=told.append,
        )
        with pytest.raises(BrokerError, check=about(code=ResponseCode.SYSTEM_ERROR)):
            await tables.copy_changed()
        for _ in range(3):
            await tables.copy_changed()

    state = ReplicaState(
        cluster_name="c",
        broker_name="b",
        broker_id=0,
        address="h:1",
        ha_address="h:2",
        role="SYNC_MASTER",
        state=SERVING,
        tables="1",
    )
    told: list[ReplicaState] = []
    answers = [int(ResponseCode.SYSTEM_ERROR), 0, 1, 1, 1, int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED), 0]
    run(scenario())
    assert (len(told), answers) == (1, [0])


def test_a_master_without_a_coordinator_gives_messages_at_once(tmp_path: Path) -> None:
    """As RocketMQ's does."""

    async def scenario() -> None:
        async with group(tmp_path) as g:
            master, slave = await g.master(**SYNC), await g.slave()
            await becomes(g, slave, FOLLOWING)
            assert (await g.send(master, b"first")).code == 0
            await slave.close()
            await send(g, master, b"second")
            assert await read(g, master) == [b"first", b"second"]
            assert await end_of(g, master) == 2

    run(scenario())
