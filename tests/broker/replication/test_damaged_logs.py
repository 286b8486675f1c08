"""Logs with a damaged part: a slave's log is cut there and copied again, a master's damage is reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.broker.replication.test_replication import (
    FILE_BYTES,
    TOPIC,
    Group,
    bodies,
    figures,
    forget_first_file,
    group,
    same,
)
from tests.broker.replication.test_role_change import becomes, order, state_of
from tests.support import run, until

from sparrowmq.broker.replication import slave as slave_module
from sparrowmq.broker.replication.comparison import where_damaged
from sparrowmq.broker.server import Broker
from sparrowmq.protocol.bodies.replicas import FOLLOWING, SERVING, WAITING, ReplicaState
from sparrowmq.store.recovery.safe_point import FILE_NAME as SAFE_POINT

BODY_BYTES = 300
COUNT = 40


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slave_module, "RETRY_SECONDS", 0.05)


def position_of(broker: Broker, offset: int) -> int:
    """The place of a topic's message in the log."""
    found = broker.parts.store.queue(TOPIC, 0).physical_offset(offset)
    assert found is not None
    return found


def zero(root: Path, low: int, high: int) -> None:
    """Overwrite a part of a log with zeros."""
    for path in sorted((root / "commitlog").iterdir()):
        base = int(path.name)
        start, end = max(low, base) - base, min(high, base + FILE_BYTES) - base
        if start < end:
            with path.open("r+b") as file:
                file.seek(start)
                file.write(bytes(end - start))


def as_after_a_crash(root: Path) -> None:
    """Make the next start read the whole log."""
    (root / "abort").touch()
    for name in (SAFE_POINT, "checkpoint"):
        (root / name).unlink(missing_ok=True)


async def is_whole(g: Group, broker: Broker, master: Broker) -> ReplicaState:
    """The broker's state, once it has its master's whole log again."""
    found: list[ReplicaState] = []

    async def there() -> bool:
        try:
            found.append(await state_of(g, broker))
        except Exception:  # its role changes, and it refuses connections
            return False
        end = master.parts.store.position
        return (found[-1].state, found[-1].damaged_offset, found[-1].max_offset) == (FOLLOWING, -1, end)

    await until(there)
    return found[-1]


async def pair(g: Group) -> tuple[Broker, Broker]:
    """A master with messages, and its slave with the same messages."""
    master, slave = await g.master(), await g.slave()
    for number in range(COUNT):
        assert (await g.send(master, b"%d" % number + bytes(BODY_BYTES))).code == 0
    await until(same(master, slave))
    return master, slave


def damaged_places(broker: Broker) -> list[float]:
    return figures(broker)["sparrow_replication_log_damaged"]


@pytest.mark.parametrize("starts", [1, 2])
def test_slave_with_damage_cuts_its_log_there_and_copies_it_again(tmp_path: Path, starts: int) -> None:
    """Also when its master was away during the start that found the damage, and it was stopped cleanly
    since."""

    async def scenario() -> None:
        async with group(tmp_path) as g:
            master, slave = await pair(g)
            low, high = position_of(slave, 10), position_of(slave, 12)
            store = (await state_of(g, slave)).store
            await slave.close()
            zero(tmp_path / "s", low, high)
            as_after_a_crash(tmp_path / "s")
            if starts == 2:
                port = master.port
                await master.close()
                slave = await g.slave()
                found = await state_of(g, slave)
                assert (found.state, found.damaged_offset) == (WAITING, low)
                assert damaged_places(slave) == [1]
                await slave.close()
                master = await g.master(listen_port=port)
            slave = await g.slave()
            found = await is_whole(g, slave, master)
            assert bodies(slave) == bodies(master)
            assert found.store != store, "the coordinator has to take it for another copy"
            assert damaged_places(slave) == [0]
            assert len(bodies(slave)) == COUNT
            (kept,) = (tmp_path / "s" / "cut").iterdir()
            assert kept.name.endswith(f"-{low:020d}")
            await master.close()
            await slave.close()
        assert g.files("s") == g.files("m")

    run(scenario())


def test_slave_keeps_what_its_master_no_longer_has(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            master, slave = await g.master(), await g.slave()
            while master.parts.store.position < 2 * FILE_BYTES:
                assert (await g.send(master, bytes(2 * BODY_BYTES))).code == 0
            await until(same(master, slave))
            low, high = position_of(slave, 10), position_of(slave, 11)
            await slave.close()
            zero(tmp_path / "s", low, high)
            as_after_a_crash(tmp_path / "s")
            forget_first_file(master)
            slave = await g.slave()
            await becomes(g, slave, FOLLOWING)
            assert (await g.send(master, b"more")).code == 0
            await until(same(master, slave))
            assert slave.parts.store.min_position == 0
            assert (await state_of(g, slave)).damaged_offset == low
            assert not (tmp_path / "s" / "cut").exists()

    run(scenario())


def test_master_reports_where_its_log_is_damaged_and_its_slave_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            master = await g.master()
            for number in range(COUNT):
                assert (await g.send(master, b"%d" % number + bytes(BODY_BYTES))).code == 0
            low, high = position_of(master, 10), position_of(master, 11)
            zero(tmp_path / "m", low, high)
            slave = await g.slave()

            def follower() -> Any:
                assert slave.parts.following is not None
                return slave.parts.following.follower

            await until(lambda: follower().pause == slave_module.DAMAGE_RETRY_SECONDS)
            assert (slave.parts.store.position, len(bodies(slave))) == (low, 10)
            await slave.close()
            slave = await g.slave()
            await until(lambda: "is damaged at" in follower().trouble)
            assert follower().pause == slave_module.DAMAGE_RETRY_SECONDS
            assert (await state_of(g, slave)).state == WAITING
            assert (await state_of(g, master)).damaged_offset == low
            assert damaged_places(master) == [1]
            told = [line for line in caplog.messages if f"is damaged at {low}" in line]
            assert "00000000000000000000" in told[0]
            assert "sparrow store verify" in told[0]

    run(scenario())


def test_damaged_master_copies_the_log_of_the_slave_that_replaces_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            master, slave = await pair(g)
            low, high = position_of(master, 10), position_of(master, 11)
            port = master.port
            await master.close()
            zero(tmp_path / "m", low, high)
            as_after_a_crash(tmp_path / "m")
            master = await g.master(listen_port=port)
            assert (await state_of(g, master)).damaged_offset == low
            await becomes(g, slave, FOLLOWING)
            await order(g, slave, 1)
            await becomes(g, slave, SERVING)
            await order(g, master, 1, master=slave)
            await is_whole(g, master, slave)
            assert len(bodies(master)) == COUNT
            await master.close()
            await slave.close()
        assert g.files("s") == g.files("m")

    run(scenario())


@pytest.mark.parametrize(
    ("damaged", "start", "end", "master_start", "at"),
    [
        (500, 0, 1000, 0, 500),
        (500, 0, 1000, 500, 500),
        (500, 0, 1000, 501, None),
        (500, 600, 1000, 0, None),
        (1000, 0, 1000, 0, None),
    ],
)
def test_damaged_log_is_cut_where_the_master_can_continue_it(
    damaged: int, start: int, end: int, master_start: int, at: int | None
) -> None:
    assert where_damaged(damaged, start, end, master_start) == at
