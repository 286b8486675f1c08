"""Managed groups end to end: consumers, their coordinator and a broker's fence."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest
from tests.coordinator.groups.managed_world import GROUP, SETTINGS, SHORT, Gate, World, flow, queues, rests
from tests.support import about, until

from sparrowmq import aio
from sparrowmq.client.consumer import managed
from sparrowmq.client.consumer.managed import ManagedMember
from sparrowmq.coordinator.groups.handover import Times
from sparrowmq.coordinator.groups.initial_state import Terms
from sparrowmq.coordinator.groups.plan import AdmissionRules
from sparrowmq.core.dynamic_settings import SettingPlace, SettingValue
from sparrowmq.core.errors import SettingsError
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.managed import COORDINATOR_KEY, COORDINATOR_NAMESPACE

pytestmark = pytest.mark.usefixtures("brisk")


@pytest.mark.proves("MUST-72", "MUST-73")
def test_queues_move_between_members_and_every_message_is_handled_once() -> None:
    async def test(world: World) -> None:
        async with world.led() as led:
            one = await led.alone("one")
            await world.send(0, 40)
            await until(lambda: len(world.handled) == 40)
            before = await world.owners()
            async with world.member("two") as two:
                await until(lambda: (len(queues(one)), len(queues(two))) == (2, 2))
                after = await world.owners()
                for queue, (owner, generation) in after.items():
                    assert (owner == one.client_id) == (queue in queues(one))
                    kept = owner == one.client_id
                    assert (generation == before[queue][1]) == kept, "what stays is not touched"
                await world.send(40, 40)
                await until(lambda: len(world.handled) == 80)
            await until(lambda: queues(one) == [0, 1, 2, 3])
            await world.send(80, 8)
            await until(lambda: len(world.handled) == 88)
        assert set(world.handled.values()) == {1}
        assert {"one"} < {name for names in world.seen_by.values() for name in names}

    flow(test)


def test_new_queues_of_a_topic_are_granted_while_the_others_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(world: World) -> None:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(world.coordinator())
            one = await stack.enter_async_context(world.member("one"))
            two = await stack.enter_async_context(world.member("two"))
            await until(lambda: (len(queues(one)), len(queues(two))) == (2, 2))
            before = await world.owners()
            await world.send(0, 20)
            await world.admin.topics.create("Orders", queues=6)
            await until(lambda: (len(queues(one)), len(queues(two))) == (3, 3))
            after = await world.owners()
            assert {queue: after[queue] for queue in before} == before, "what was there is not touched"
            await world.send(20, 60, queues=6)
            await until(lambda: len(world.handled) == 80)
        assert set(world.handled.values()) == {1}

    monkeypatch.setattr("sparrowmq.coordinator.groups.subscribed.ROUTE_SECONDS", 0.05)
    flow(test)


def test_queue_moves_only_after_its_handler_ended_and_its_offset_is_committed() -> None:
    async def test(world: World) -> None:
        slow = Gate()
        async with world.led() as led:
            one = await led.alone("one", slow)
            await world.send(0, 4)
            await slow.started.wait()
            two = await led.join("two")
            leader = led.server.groups.find(GROUP)
            await until(lambda: not leader.settled)
            await until(lambda: len(rests(one)) == 2)
            assert (queues(two), leader.settled) == ([], False)
            slow.opened.set()
            await until(lambda: len(queues(two)) == 2)
            await until(lambda: len(world.handled) == 4)
        assert set(world.handled.values()) == {1}, "the new owner began where the old one had committed"

    flow(test)


def test_member_that_does_not_drain_loses_its_queues_and_its_results_are_refused() -> None:
    async def test(world: World) -> None:
        hung = Gate()
        async with world.led(SHORT) as led:
            one = await led.alone("one", hung)
            await world.send(0, 4)
            await hung.started.wait()
            two = await led.join("two")
            await until(lambda: len(queues(two)) == 2)
            taken = set(queues(two))
            await until(lambda: sum("two" in names for names in world.seen_by.values()) == 2)
            hung.opened.set()
            await until(lambda: len(queues(one)) == 2)
            for place in await world.admin.groups.progress(GROUP, "Orders"):
                if place.queue.queue_id in taken:
                    assert place.queue.queue_id in queues(two)
        assert len(world.handled) == 4

    flow(test)


def test_members_run_until_their_leases_end_without_a_coordinator_which_then_continues() -> None:
    async def test(world: World) -> None:
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(AsyncExitStack())
            await first.enter_async_context(world.coordinator())
            one = await stack.enter_async_context(world.member("one"))
            two = await stack.enter_async_context(world.member("two"))
            await until(lambda: (len(queues(one)), len(queues(two))) == (2, 2))
            before = await world.owners()
            mine = queues(one)
            await first.aclose()
            await world.send(0, 20)
            await until(lambda: len(world.handled) == 20)
            await stack.enter_async_context(world.coordinator())
            await world.send(20, 20)
            await until(lambda: len(world.handled) == 40)
            epoch = (await world.admin.policies.list(GROUP))["broker-a"].policies[0].epoch
            await until(lambda: epoch_is(world, 2))
            assert (await world.owners(), queues(one)) == (before, mine), epoch
        assert set(world.handled.values()) == {1}

    flow(test)


async def epoch_is(world: World, epoch: int) -> bool:
    (policy,) = (await world.admin.policies.list(GROUP))["broker-a"].policies
    return policy.epoch == epoch


def test_handlers_pause_without_a_lease_and_resume_later() -> None:
    async def test(world: World) -> None:
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(AsyncExitStack())
            await first.enter_async_context(world.coordinator(SHORT))
            one = await stack.enter_async_context(world.member("one"))
            await until(lambda: queues(one) == [0, 1, 2, 3])
            await first.aclose()
            await until(lambda: len(rests(one)) == 4)
            await world.send(0, 8)
            places = await world.admin.groups.progress(GROUP, "Orders")
            assert (sum(place.lag for place in places), world.handled) == (8, {})
            await stack.enter_async_context(world.coordinator(SHORT))
            await until(lambda: len(world.handled) == 8)
        assert set(world.handled.values()) == {1}

    flow(test)


def test_queues_of_a_dead_member_move() -> None:
    async def test(world: World) -> None:
        async with world.led(SHORT) as led:
            one = await led.join("one")
            two = await led.join("two")
            await until(lambda: (len(queues(one)), len(queues(two))) == (2, 2))
            mine, before = queues(two), await world.owners()
            assert one._member is not None
            await one._member.abort()
            await world.send(0, 8)
            await until(lambda: queues(two) == [0, 1, 2, 3])
            await until(lambda: len(world.handled) == 8)
            after = await world.owners()
            kept = [queue for queue in sorted(after) if after[queue] == before[queue]]
            assert kept == mine, "those never stopped"

    flow(test)


@pytest.mark.proves("MUST-72")
def test_restarted_broker_enforces_its_policies_and_members_continue() -> None:
    async def test(world: World) -> None:
        async with world.led() as led:
            one = await led.join("one")
            two = await led.join("two")
            await until(lambda: (len(queues(one)), len(queues(two))) == (2, 2))
            before = await world.owners()
            await world.send(0, 20)
            await until(lambda: len(world.handled) == 20)
            await asyncio.to_thread(world.cluster.restart_broker)
            await world.send(20, 20)
            await until(lambda: len(world.handled) == 40)
            assert await world.owners() == before

    flow(test)


def test_closing_member_keeps_its_queues_until_its_handlers_ended_and_committed() -> None:
    async def test(world: World) -> None:
        slow = Gate()
        async with world.led() as led:
            closing = await led.enter_async_context(AsyncExitStack())
            one = await closing.enter_async_context(world.member("one", slow))
            await until(lambda: queues(one) == [0, 1, 2, 3])
            await world.send(0, 4)
            await slow.started.wait()
            end = asyncio.create_task(closing.aclose())
            two = await led.join("two")
            leader = led.server.groups.find(GROUP)
            await until(lambda: not leader.settled)
            assert queues(two) == []
            slow.opened.set()
            await end
            await until(lambda: queues(two) == [0, 1, 2, 3])
            await world.send(4, 4)
            await until(lambda: len(world.handled) == 8)
        assert set(world.handled.values()) == {1}

    flow(test)


def test_pause_and_limit_of_a_running_group_survive_a_new_coordinator() -> None:
    async def test(world: World) -> None:
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(AsyncExitStack())
            server = await first.enter_async_context(world.coordinator())
            one = await stack.enter_async_context(world.member("one"))
            two = await stack.enter_async_context(world.member("two"))
            await until(lambda: (len(queues(one)), len(queues(two))) == (2, 2))
            rest = aio.PauseRule("Orders", reason="repair")
            pause = SettingValue("pause", SettingPlace("Orders"), True, reason="repair")
            server.groups.adopt({GROUP: Terms(rules=AdmissionRules(maximum=1), settings=(pause,))})
            await until(lambda: sorted((len(queues(one)), len(queues(two)))) == [0, 4])
            await first.aclose()
            server = await stack.enter_async_context(world.coordinator())
            await until(lambda: epoch_is(world, 2))
            await world.send(0, 8)
            (policy,) = (await world.admin.policies.list(GROUP))["broker-a"].policies
            assert (policy.pauses, policy.maximum, world.handled) == ([rest], 1, {})
            server.groups.adopt({GROUP: Terms(settings=())})
            await until(lambda: len(world.handled) == 8)
            await until(lambda: (len(queues(one)), len(queues(two))) == (2, 2))

    flow(test)


def test_members_that_start_together_share_at_once_although_the_first_was_granted_all() -> None:
    """Nobody waits for grants that were withdrawn before the member received them: `drain` is longer than
    this test waits."""

    async def test(world: World) -> None:
        long = Times(member_lease=30.0, lease=40.0, drain=600.0)
        async with world.led(long) as led:
            first = await led.join("first")
            others = [await led.join(str(number)) for number in range(3)]
            await until(lambda: [len(queues(one)) for one in (first, *others)] == [1, 1, 1, 1])
            assert len({owner for owner, _ in (await world.owners()).values()}) == 4

    flow(test)


def test_rules_make_members_standby() -> None:
    async def test(world: World) -> None:
        async with world.led(rules={GROUP: AdmissionRules(maximum=1)}) as led:
            async with world.member("one") as one:
                await until(lambda: queues(one) == [0, 1, 2, 3])
                two = await led.join("two")
                await world.send(0, 4)
                await until(lambda: len(world.handled) == 4)
                assert queues(two) == []
            await until(lambda: queues(two) == [0, 1, 2, 3])

    flow(test)


def test_expired_member_is_notified_and_joins_again() -> None:
    async def test(world: World) -> None:
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(AsyncExitStack())
            await first.enter_async_context(world.coordinator())
            one = await stack.enter_async_context(world.member("one"))
            await until(lambda: queues(one) == [0, 1, 2, 3])
            await first.aclose()
            await world.admin.policies.delete(GROUP)
            await stack.enter_async_context(world.coordinator())
            await until(lambda: owners_are(world, one.client_id))
            await until(lambda: queues(one) == [0, 1, 2, 3])
            await world.send(0, 4)
            await until(lambda: len(world.handled) == 4)
            assert min(number for _, number in (await world.owners()).values()) > 1, "not what it was before"

    flow(test)


async def owners_are(world: World, client_id: str) -> bool:
    return {owner for owner, _ in (await world.owners()).values()} == {client_id}


def test_unknown_clients_pull_nothing_and_the_address_is_removed_with_the_coordinator() -> None:
    async def test(world: World) -> None:
        async with world.coordinator() as server:
            assert (
                await world.admin.name_servers.value(COORDINATOR_NAMESPACE, COORDINATOR_KEY) == server.address
            )
            async with world.member("one") as one:
                await until(lambda: queues(one) == [0, 1, 2, 3])
                quiet = aio.PullSettings(announce=False)
                async with aio.PullConsumer(GROUP, namesrv=world.namesrv, settings=quiet) as stranger:
                    with pytest.raises(aio.BrokerError) as caught:
                        await stranger.pull(aio.MessageQueue("Orders", "broker-a", 0), 0)
                    assert caught.value.code == ResponseCode.GENERATION_FENCED
        assert await world.admin.name_servers.value(COORDINATOR_NAMESPACE, COORDINATOR_KEY) is None

    flow(test)


@pytest.mark.parametrize(
    ("more", "other"),
    [
        ({"model": "broadcasting"}, "model"),
        ({"server_assignment": True}, "server_assignment"),
    ],
)
def test_settings_incompatible_with_plans_are_refused(more: dict[str, Any], other: str) -> None:
    with pytest.raises(SettingsError, check=about(setting="managed", other=other)):
        aio.ConsumerSettings(managed=True, **more)


def test_hanging_queue_listener_does_not_block_reading_or_releasing_queues() -> None:
    async def test(world: World) -> None:
        async with AsyncExitStack() as stack:
            told: list[list[int]] = []

            async def hang(topic: str, every: list[aio.MessageQueue], mine: list[aio.MessageQueue]) -> None:
                told.append(sorted(queue.queue_id for queue in mine))
                await asyncio.Event().wait()

            await stack.enter_async_context(world.coordinator())
            one = await stack.enter_async_context(world.member("one", queue_listener=hang))
            await until(lambda: queues(one) == [0, 1, 2, 3] and told)
            for _ in range(2):
                async with world.member("two") as two:
                    await until(lambda: (len(queues(one)), len(queues(two))) == (2, 2))
                await until(lambda: queues(one) == [0, 1, 2, 3])
            await world.send(0, 8)
            await until(lambda: len(world.handled) == 8)
            assert len(told) == 1, "one call at a time"

    flow(test)


def test_member_that_closes_while_joining_leaves_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    joining, go = asyncio.Event(), asyncio.Event()

    async def test(world: World) -> None:
        async with world.coordinator() as server:
            ask = ManagedMember._ask

            async def slow(self: ManagedMember, code: RequestCode, *more: Any) -> Any:
                answer = await ask(self, code, *more)
                if code == RequestCode.JOIN_MANAGED_GROUP:
                    joining.set()
                    await go.wait()
                return answer

            monkeypatch.setattr(ManagedMember, "_ask", slow)
            async with world.member("one"):
                await joining.wait()
                assert len(server.groups.find(GROUP).members) == 1
                asyncio.get_running_loop().call_later(0.1, go.set)
            assert server.groups.find(GROUP).members == [], "nobody has to wait until its lease is over"

    flow(test)


def test_hanging_handler_does_not_keep_a_member_out_of_its_group(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The member was removed by its lease or by a new coordinator: all its other queues must be read
    again."""
    monkeypatch.setattr(managed, "REJOIN_SECONDS", 0.2)

    async def test(world: World) -> None:
        hanging, go = threading.Event(), threading.Event()
        seen: list[bytes] = []

        def handle(message: aio.ReceivedMessage) -> None:
            if message.body == b"3" and not hanging.is_set():
                hanging.set()
                go.wait(60)
            seen.append(message.body)

        settings = replace(SETTINGS, close_timeout=2.0)
        consumer = aio.PushConsumer(GROUP, namesrv=world.namesrv, settings=settings)
        consumer.subscribe("Orders", handler=handle)
        async with world.coordinator() as server, consumer:
            await until(lambda: queues(consumer) == [0, 1, 2, 3])
            await world.send(3, 1)
            await until(hanging.is_set)
            member = consumer._member
            assert member is not None and member._managed is not None
            before = member._managed.member
            server.groups.find(GROUP).leave(before)
            await until(lambda: member._managed and member._managed.member not in (None, before))
            await until(lambda: set(queues(consumer)) >= {0, 1, 2})
            await world.send(0, 3)
            await until(lambda: sorted(seen) == [b"0", b"1", b"2"])
            go.set()
            await until(lambda: sorted(seen) == [b"0", b"1", b"2", b"3", b"3"])
            await until(lambda: queues(consumer) == [0, 1, 2, 3])
            assert consumer.failure is None
        assert "continues without their results" in caplog.text
        async with aio.PullConsumer(GROUP, namesrv=world.namesrv) as reader:
            assert await reader.committed(aio.MessageQueue("Orders", "broker-a", 3)) == 1

    flow(test)
