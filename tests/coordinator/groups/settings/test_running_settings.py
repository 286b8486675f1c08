"""Dynamic settings from the API to running consumers: a coordinator, a cluster, managed members."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.coordinator.groups.running_world import SETTINGS, World, owned, told
from tests.coordinator.running import running
from tests.support import run, sqlite_url, until

from sparrowmq import aio
from sparrowmq.testing import LocalCluster


@pytest.mark.proves("pmq:6.4")
def test_members_apply_every_dynamic_setting_and_return_to_their_own(world: World) -> None:
    values = {
        "threads": 7,
        "batch": 5,
        "pull_batch": 9,
        "pull_interval": 0.05,
        "delay": 0.05,
        "consume_timeout": 60,
        "retries": 3,
        "retry_delay": 5,
        "retry_growth": 2,
    }

    async def main() -> None:
        async with world.member(batch=2) as consumer:
            await until(lambda: owned(world, consumer) == [0, 1])
            assert told(consumer) == ""
            for name, value in values.items():
                await world.set(name, value)
            await world.set("tags", "A || B", world.topic)
            await world.set("pull_batch", 3, world.topic)
            text = [f"{name}={value} (*)" for name, value in values.items()]
            text += [f'tags="A || B" ({world.topic})', f"pull_batch=3 ({world.topic})"]
            await until(lambda: sorted(told(consumer).split(", ")) == sorted(text))
            member = consumer._member
            assert member is not None
            dynamic = member.dynamic
            assert (dynamic.threads, dynamic.batch, dynamic.pull(world.topic).batch) == (7, 5, 3)
            await world.send(0, 4, "A")
            await world.send(4, 4, "C")
            await until(lambda: len(world.handled) == 4)
            async with aio.Admin(namesrv=world.namesrv) as admin:
                (status,) = await admin.groups.status(world.group)
                assert status.info is not None
                assert "threads=7" in status.info.properties["dynamicSettings"]
            for name in values:
                await world.unset(name)
            await world.unset("tags", world.topic)
            await world.unset("pull_batch", world.topic)
            await until(lambda: told(consumer) == "")
            await world.send(8, 2, "C")
            await until(lambda: {b"8", b"9"} <= set(world.handled))
            assert (dynamic.threads, dynamic.batch) == (4, 2)

    run(main())


def test_temporary_setting_expires(world: World) -> None:
    async def main() -> None:
        async with world.member() as consumer:
            await until(lambda: owned(world, consumer) == [0, 1])
            await world.set("threads", 9, seconds=1)
            await until(lambda: told(consumer) == "threads=9 (*)")
            await until(lambda: told(consumer) == "")
            assert (await world.call("GET", f"/groups/{world.group}/settings"))["settings"] == []

    run(main())


@pytest.mark.proves("pmq:C6", "pmq:6.4")
def test_pause_stops_new_deliveries_lets_handlers_end_and_loses_nothing(world: World) -> None:
    async def main() -> None:
        gate, running_ones = asyncio.Event(), []

        async def slow(message: aio.ReceivedMessage) -> None:
            running_ones.append(message.body)
            await gate.wait()

        async with world.member(slow, threads=2) as consumer:
            await until(lambda: owned(world, consumer) == [0, 1])
            await world.send(0, 20)
            await until(lambda: len(running_ones) == 2)
            await world.set("pause", True)
            await until(lambda: "pause" in told(consumer))
            await until(lambda: rests(consumer, world.topic))
            gate.set()
            await until(lambda: len(world.handled) == 2)
            async with aio.Admin(namesrv=world.namesrv) as admin:
                await until(lambda: committed(admin, world, 2))
            assert len(running_ones) == 2, "nothing more was begun, though it was in hand"
            await world.unset("pause")
            await until(lambda: len(world.handled) == 20)
        assert sorted(map(int, world.handled)) == list(range(20)), "nothing is lost or twice"

    run(main())


def rests(consumer: aio.PushConsumer, topic: str) -> bool:
    member = consumer._member
    assert member is not None
    return not any(one.may_start() for one in member.queues.process_queues() if one.queue.topic == topic)


async def committed(admin: aio.Admin, world: World, offset: int) -> bool:
    places = await admin.groups.progress(world.group, world.topic)
    return sum(place.consumer_offset for place in places) == offset


async def pauses_are(admin: aio.Admin, group: str, broker: str, wanted: list[tuple[str, int, str]]) -> bool:
    """Whether a broker has these pauses: members and brokers are told them apart."""
    (policy,) = (await admin.policies.list(group))[broker].policies
    return [(one.topic, one.queue_id, one.reason) for one in policy.pauses] == wanted


def test_single_queues_and_topics_are_paused_until_the_pause_expires(world: World) -> None:
    async def main() -> None:
        async with world.member() as consumer:
            await until(lambda: owned(world, consumer) == [0, 1])
            await world.set("pause", True, f"{world.topic}/broker-a/0")
            await world.set("pause", True, f"{world.topic}/broker-b/1")
            await until(lambda: told(consumer).count("pause") == 2)
            await world.send(0, 6)
            await until(lambda: sorted(world.handled) == [b"1", b"3", b"5"])
            async with aio.Admin(namesrv=world.namesrv) as admin:
                wanted = [(world.topic, 0, "a test")]
                await until(lambda: pauses_are(admin, world.group, "broker-a", wanted))
            await world.set("pause", True, world.topic, seconds=1)
            await world.unset("pause", f"{world.topic}/broker-a/0")
            await until(lambda: len(world.handled) == 6)

    run(main())


@pytest.mark.proves("pmq:R1")
def test_participating_members_change_while_a_group_runs(world: World) -> None:
    async def main() -> None:
        async with world.member() as one, world.member() as two:
            await until(lambda: (len(owned(world, one)), len(owned(world, two))) == (1, 1))
            await world.set("maximum", 1)
            await until(lambda: (len(owned(world, one)), len(owned(world, two))) in ((2, 0), (0, 2)))
            await world.unset("maximum")
            await until(lambda: (len(owned(world, one)), len(owned(world, two))) == (1, 1))
            await world.set("deny", ["127.0.0.0/8"])
            await until(lambda: (len(owned(world, one)), len(owned(world, two))) == (0, 0))
            await world.set("deny", ["10.0.0.0/8"])
            await world.set("allow", ["127.0.0.1"])
            await until(lambda: (len(owned(world, one)), len(owned(world, two))) == (1, 1))

    run(main())


@pytest.mark.proves("pmq:9.1")
def test_running_group_continues_at_another_offset_and_commits_none_of_the_old(
    world: World,
) -> None:
    async def main() -> None:
        gate, begun = asyncio.Event(), asyncio.Event()

        async def handle(message: aio.ReceivedMessage) -> None:
            if message.body == b"19":
                begun.set()
                await gate.wait()

        async with world.member(handle) as consumer, aio.Admin(namesrv=world.namesrv) as admin:
            await until(lambda: owned(world, consumer) == [0, 1])
            await world.send(0, 20)
            await until(lambda: len(world.handled) == 19)
            await begun.wait()
            before = await generations(admin, world)
            path = f"/groups/{world.group}/resets"
            made = await world.call("POST", path, {"place": world.topic, "offset": 4, "reason": "again"})
            await until(lambda: rested(consumer, world.topic))
            world.handled.clear()
            gate.set()
            (moved,) = await until(lambda: done(world, path))
            assert (moved["id"], moved["state"]) == (made["id"], "done")
            places = [f"{world.topic}/broker-a/{number}" for number in (0, 1)]
            assert moved["before"] == dict.fromkeys(places, 10), "what was in hand is committed first"
            assert moved["after"] == dict.fromkeys(places, 4)
            await until(lambda: len(world.handled) == 13)
            assert sorted(map(int, world.handled)) == sorted([19, *range(8, 20)])
            after = await generations(admin, world)
            assert set(after.values()) == {max(before.values()) + 1}
            await until(lambda: committed(admin, world, 20))
            (entry, *_) = await world.call("GET", f"/audit?kind=group&object={world.group}&count=1")
            assert (entry["action"], entry["actor"], entry["reason"]) == (
                "group.reset.done",
                "admin",
                "again",
            )
            assert (entry["before"][places[0]], entry["after"][places[0]]) == (10, 4)
            assert entry["generation"] == max(after.values())

    run(main())


async def done(world: World, path: str) -> Any:
    found = await world.call("GET", path)
    return all(one["state"] != "waiting" for one in found) and found


def rested(consumer: aio.PushConsumer, topic: str) -> bool:
    member = consumer._member
    assert member is not None
    return any(not one.may_start() for one in member.queues.process_queues() if one.queue.topic == topic)


async def generations(admin: aio.Admin, world: World) -> dict[int, int]:
    (policy,) = (await admin.policies.list(world.group))["broker-a"].policies
    return {one.queue_id: one.generation for one in policy.queues if one.topic == world.topic}


def test_group_is_reset_to_the_first_offset_the_last_one_and_a_time(world: World) -> None:
    async def main() -> None:
        async with world.member() as consumer:
            await until(lambda: owned(world, consumer) == [0, 1])
            await world.send(0, 6)
            await until(lambda: len(world.handled) == 6)
            moved = await world.move(f"{world.topic}/0", to="first")
            assert moved["after"] == {f"{world.topic}/broker-a/0": 0}, "the other queue stays"
            await until(lambda: len(world.handled) == 9)
            await world.move(world.topic, time_ms=1)
            await until(lambda: len(world.handled) == 15)
            moved = await world.move(world.topic, to="last")
            assert set(moved["after"].values()) == {3}
            moved = await world.move("Else", to="last")
            assert (moved["state"], moved["message"]) == (
                "failed", f"group {world.group} does not consume any queue of Else",
            )  # fmt: skip
            await world.send(6, 1)
            await until(lambda: len(world.handled) == 16)
        assert world.handled[-1] == b"6"

    run(main())


def test_unmanaged_and_offline_groups_are_reset_as_well(world: World) -> None:
    async def main() -> None:
        async with world.member():
            await world.send(0, 4)
            await until(lambda: len(world.handled) == 4)
        moved = await world.move(world.topic, to="first")
        assert (moved["state"], moved["before"]) == (
            "done", {f"{world.topic}/broker-a/{number}": 2 for number in (0, 1)},
        )  # fmt: skip
        moved = await world.move(f"{world.topic}/1", offset=1)
        assert moved["after"] == {f"{world.topic}/broker-a/1": 1}
        async with world.member():
            await until(lambda: len(world.handled) == 7)
        world.group += "-unmanaged"
        async with world.member(managed=False, rebalance_interval_min=0.01):
            await until(lambda: len(world.handled) == 11)
            await world.move(world.topic, to="first")
            await until(lambda: len(world.handled) == 15)
        moved = await world.move("NoSuchTopic", to="first")
        assert "NoSuchTopic" in moved["message"]

    run(main())


def test_settings_survive_the_coordinator_and_an_unavailable_database(
    migrated: Path, tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "own.db"
    monkeypatch.setattr("sparrowmq.coordinator.database.connect.WAIT_SECONDS", 0.2)
    shutil.copy(migrated, path)

    async def with_coordinator(test: Callable[[World], Awaitable[None]]) -> None:
        """Run in its own cluster, so that no other coordinator plans there."""
        settings = {"database_url": sqlite_url(path), "namesrv_addr": own.namesrv}
        stack = ExitStack()
        found = await asyncio.to_thread(lambda: stack.enter_context(running(**settings)))
        try:
            found.token = found.token or tokens[0]
            tokens.append(found.token)
            await test(World(own, path, found, "g", "T"))
        finally:
            await asyncio.to_thread(stack.close)

    tokens: list[str] = []
    consumers: list[aio.PushConsumer] = []

    async def main() -> None:
        consumer = aio.PushConsumer("g", namesrv=own.namesrv, settings=SETTINGS)
        consumers.append(consumer)
        consumer.subscribe("T", handler=lambda message: None)
        async with consumer:
            await with_coordinator(first)
            await with_coordinator(second)

    async def first(own_world: World) -> None:
        await until(lambda: owned(own_world, consumers[0]) == [0, 1])
        await own_world.set("threads", 9)
        await until(lambda: told(consumers[0]) == "threads=9 (*)")
        locked = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        locked.execute("BEGIN EXCLUSIVE")
        calls = own_world.coordinator.call
        body = {"value": 5, "reason": "while it is away"}
        asked = asyncio.create_task(asyncio.to_thread(calls, "PUT", "/groups/g/settings/threads", body))
        try:
            status, answer = await asked
            assert status == 503, answer
            assert told(consumers[0]) == "threads=9 (*)"
        finally:
            locked.rollback()
            locked.close()
        shown = await own_world.call("GET", "/groups/g/settings")
        assert [(one["setting"], one["value"]) for one in shown["settings"]] == [("threads", 9)]
        assert shown["revision"] == 1, "nothing of it was kept"

    async def second(own_world: World) -> None:
        await own_world.set("retries", 4)
        await until(lambda: told(consumers[0]) == "retries=4 (*), threads=9 (*)")

    with LocalCluster() as own:
        own.create_topic("T", queues=2)
        run(main())


def test_group_with_all_members_denied_is_reset_and_continues_there(world: World) -> None:
    async def main() -> None:
        await world.send(0, 6)
        async with world.member() as consumer:
            await until(lambda: len(world.handled) == 6)
            await world.set("deny", ["127.0.0.0/8"])
            await until(lambda: owned(world, consumer) == [])
            moved = await world.move(world.topic, to="first")
            assert (moved["state"], set(moved["after"].values())) == ("done", {0})
            assert len(world.handled) == 6
            await world.unset("deny")
            await until(lambda: len(world.handled) == 12)
        assert sorted(world.handled[6:]) == sorted(world.handled[:6])

    run(main())


def test_members_are_notified_of_an_extended_pause(world: World) -> None:
    async def main() -> None:
        async with world.member() as consumer:
            await until(lambda: owned(world, consumer) == [0, 1])
            member = consumer._member
            assert member is not None
            await world.set("pause", True, seconds=60)
            (first,) = await until(lambda: member.dynamic._pauses)
            await world.set("pause", True, seconds=3600)
            await until(lambda: member.dynamic._pauses[0].until > first.until + 3_000_000)

    run(main())
