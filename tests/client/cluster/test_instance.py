from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable
from typing import Any

import pytest
from tests.client.fake import FakeCluster, answer, fake_cluster
from tests.support import about, free_port, is_connected, run, until

from sparrowmq.client.base.settings import ClientSettings
from sparrowmq.client.cluster.instance import ClientInstance, InstanceState
from sparrowmq.core.errors import BrokerError, ClientError, ConnectError, InvalidStateError, ProtocolError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.route import TopicRoute
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.protocol import bodies
from sparrowmq.protocol.codes import RequestCode

ROUTE = int(RequestCode.GET_ROUTEINFO_BY_TOPIC)


class Member:
    """A consumer that records its notifications."""

    def __init__(self, *topics: str) -> None:
        self.used = topics
        self.changes: list[str] = []
        self.woken = 0

    def topics(self) -> Iterable[str]:
        return self.used

    def route_changed(self, topic: str, route: TopicRoute) -> None:
        self.changes.append(topic)

    def heartbeat_data(self) -> bodies.ConsumerData:
        return bodies.ConsumerData("g")

    def wake_rebalance(self) -> None:
        self.woken += 1


class Subscribed(Member):
    """A member with a subscription."""

    def heartbeat_data(self) -> bodies.ConsumerData:
        return bodies.ConsumerData("g", subscriptions=(SubscriptionData("T"),))


@pytest.mark.proves("client:A-01", "client:A-03", "client:A-04", "client:A-07", "client:A-74")
def test_client_id_is_address_and_instance_name() -> None:
    async def main() -> None:
        def id_of(stream: bool = False, **values: Any) -> str:
            return ClientInstance(ClientSettings(namesrv="a:1", **values), stream=stream).client_id

        assert re.fullmatch(rf"[0-9.]+@{os.getpid()}#\d+", id_of())
        assert id_of() != id_of(), "two clients of one process are two members"
        assert id_of(client_ip="1.2.3.4", instance_name="me") == "1.2.3.4@me"
        assert id_of(client_ip="::1", instance_name="me", unit_name="u") == "[::1]@me@u"
        assert id_of(client_ip="1.2.3.4", instance_name="me", stream=True) == "1.2.3.4@me@STREAM"

    run(main())


@pytest.mark.proves("client:A-40")
def test_route_is_requested_once_for_all_callers() -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster:
            instance = ClientInstance(ClientSettings(namesrv=cluster.namesrv))
            member = Member("T")
            instance.register_consumer("g", member)
            routes = await asyncio.gather(*(instance.update_route("T") for _ in range(5)))
            assert all(route == routes[0] is not None for route in routes)
            assert len(cluster.seen) == 1
            assert member.changes == ["T"]
            assert await instance.find_route("T") == routes[0]
            assert len(cluster.seen) == 1
            assert await instance.find_route("Nowhere") is None
            await instance.close()

    run(main())


def test_cancelled_caller_of_a_route_request_does_not_affect_others() -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster:
            instance = ClientInstance(ClientSettings(namesrv=cluster.namesrv))
            one, two = (asyncio.create_task(instance.update_route("T")) for _ in range(2))
            await asyncio.sleep(0)
            one.cancel()
            assert await two is not None
            alone = asyncio.create_task(instance.update_route("T"))
            await asyncio.sleep(0)
            alone.cancel()
            await asyncio.gather(alone, return_exceptions=True)
            assert await instance.update_route("T") is not None
            await instance.close()

    run(main())


@pytest.mark.proves("client:A-73")
def test_invalid_routes_are_errors() -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster:
            instance = ClientInstance(ClientSettings(namesrv=cluster.namesrv))
            cluster.on[ROUTE] = lambda conn, c: answer(1, remark="broken")
            with pytest.raises(BrokerError, check=about(code=1, remark="broken")):
                await instance.update_route("T")
            cluster.on[ROUTE] = lambda conn, c: answer(0)
            with pytest.raises(ProtocolError, check=about(what="route", value="T")):
                await instance.update_route("T")
            await instance.close()

    run(main())


@pytest.mark.proves("client:A.5", "client:A-34", "client:A-35", "client:A-46")
def test_scheduled_tasks_refresh_routes_and_send_heartbeats_despite_errors() -> None:
    async def main() -> None:
        async with fake_cluster("T", "U") as cluster:
            settings = ClientSettings(
                namesrv=cluster.namesrv, route_interval=0.01, heartbeat_interval=0.01, request_timeout=0.5
            )
            instance = ClientInstance(settings)
            member = Member("T", "U")
            instance.register_consumer("g", member)
            instance.start()
            await until(lambda: set(member.changes) == {"T", "U"})
            cluster.on[ROUTE] = lambda conn, c: answer(1, remark="broken")
            asked = len(cluster.seen)
            await until(lambda: len(cluster.seen) > asked + 4)
            del cluster.on[ROUTE]
            before = len(member.changes)
            await until(lambda: len(member.changes) > before)
            await until(lambda: len(cluster.broker.heartbeats) > 3)
            assert len(instance.tasks) == 2, "both go on"
            await instance.close()

    run(main())


@pytest.mark.proves("client:A-57")
def test_heartbeats_go_only_to_masters_without_a_consumer() -> None:
    async def main() -> None:
        async with fake_cluster("T", brokers=2) as cluster:
            instance = ClientInstance(ClientSettings(namesrv=cluster.namesrv))
            assert not await instance.heartbeat(), "nobody to speak of"
            instance.register_producer("p", Member("T"))
            assert not await instance.heartbeat(), "no broker is known"
            await instance.update_route("T")
            assert await instance.heartbeat()
            assert all(broker.heartbeats for broker in cluster.brokers.values())
            await cluster.brokers["broker-b"].server.close(timeout=0.1)
            assert await instance.heartbeat(), "one broker took it"
            await instance.unregister(producer="p")
            await instance.close()

    run(main())


@pytest.mark.proves("client:A-59", "client:A-63")
def test_heartbeats_requested_during_a_running_one_are_merged() -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster:
            instance = ClientInstance(ClientSettings(namesrv=cluster.namesrv))
            instance.register_consumer("g", Subscribed("T"))
            await instance.update_route("T")
            await instance.introduce(cluster.broker.server.address)
            arrived, go_on = asyncio.Event(), asyncio.Event()

            async def slowly(conn: Any, command: Any) -> Any:
                arrived.set()
                await go_on.wait()
                return cluster.broker.heartbeat(conn, command)

            cluster.broker.on[int(RequestCode.HEART_BEAT)] = slowly
            await until(lambda: len(cluster.broker.heartbeats) == 2)  # with the connection, and introduced
            first = asyncio.ensure_future(instance.heartbeat())
            await arrived.wait()
            instance.register_consumer("late", Subscribed("T"))
            others = [asyncio.ensure_future(instance.heartbeat()) for _ in range(20)]
            await asyncio.sleep(0)
            go_on.set()
            assert await first and all(await asyncio.gather(*others))
            _, _, before, after = cluster.broker.heartbeats
            assert (len(before.consumers), len(after.consumers)) == (1, 2)
            for beat in cluster.broker.heartbeats:
                assert (beat.fingerprint, beat.without_sub) == (0, False), "subscriptions are always told"
                assert all(one.subscriptions for one in beat.consumers)
            assert await instance.heartbeat() and len(cluster.broker.heartbeats) == 5
            await instance.close()

    run(main())


@pytest.mark.proves("client:A-59")
def test_heartbeat_is_sent_by_the_next_caller_when_the_first_is_cancelled() -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster:
            instance = ClientInstance(ClientSettings(namesrv=cluster.namesrv))
            instance.register_producer("p", Member("T"))
            await instance.update_route("T")
            arrived = asyncio.Event()

            async def never(conn: Any, command: Any) -> Any:
                arrived.set()
                await asyncio.Event().wait()

            cluster.broker.on[int(RequestCode.HEART_BEAT)] = never
            first = asyncio.ensure_future(instance.heartbeat())
            await arrived.wait()
            others = [asyncio.ensure_future(instance.heartbeat()) for _ in range(2)]
            await asyncio.sleep(0)
            del cluster.broker.on[int(RequestCode.HEART_BEAT)]
            first.cancel()
            assert await asyncio.gather(*others) == [True, True]
            assert len(cluster.broker.heartbeats) == 1
            await instance.close()

    run(main())


def test_client_registers_at_a_broker_once() -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster:
            instance = ClientInstance(ClientSettings(namesrv=cluster.namesrv))
            address = cluster.broker.server.address
            await instance.introduce(address)
            assert not cluster.broker.heartbeats, "nobody to speak of"
            instance.register_consumer("g", Member("T"))
            for _ in range(3):
                await instance.introduce(address)
            assert len(cluster.broker.heartbeats) == 1
            await cluster.broker.server.close(timeout=0.1)
            await instance.introduce("127.0.0.1:1")
            await instance.close()

    run(main())


@pytest.mark.proves("client:A-61", "client:A-62", "client:C-05")
def test_new_connection_sends_a_heartbeat_and_wakes_the_group() -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster:
            instance = ClientInstance(ClientSettings(namesrv=cluster.namesrv))
            member = Member("T")
            instance.register_consumer("g", member)
            await instance.update_route("T")
            await instance.heartbeat()
            await until(lambda: member.woken)
            woken = member.woken
            for conn in list(cluster.broker.server.connections):
                conn.abort()
            await until(lambda: not is_connected(instance.remoting, cluster.broker.server.address))
            await instance.brokers.consumer_ids(cluster.broker.server.address, "g", 3)
            await until(lambda: member.woken > woken)
            await instance.close()

    run(main())


@pytest.mark.proves("client:A-87", "client:C-03")
def test_notifications_wake_the_group_they_name() -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster:
            instance = ClientInstance(ClientSettings(namesrv=cluster.namesrv))
            member = Member("T")
            instance.register_consumer("g", member)
            await instance.update_route("T")
            await instance.heartbeat()
            await until(lambda: member.woken >= 2)
            woken = member.woken
            cluster.broker.members["other"] = cluster.broker.members["g"]
            cluster.broker.notify("other")
            cluster.broker.notify("g")
            await until(lambda: member.woken == woken + 1)
            await instance.close()

    run(main())


@pytest.mark.proves("client:A-35", "client:A-51")
def test_brokers_without_a_route_are_forgotten() -> None:
    async def main() -> None:
        async with fake_cluster("T", brokers=2) as cluster:
            settings = ClientSettings(namesrv=cluster.namesrv, route_interval=0.01, heartbeat_interval=0.01)
            instance = ClientInstance(settings)
            instance.register_consumer("g", Member("T"))
            instance.start()
            await until(lambda: len(instance.routes.all_addresses()) == 2)
            del cluster.topics["T"]["broker-b"]
            await until(lambda: len(instance.routes.all_addresses()) == 1)
            await instance.close()

    run(main())


@pytest.mark.proves("client:A-39", "client:A-37")
def test_topics_of_all_members_are_refreshed_once_per_round_and_nothing_else_is_scheduled() -> None:
    async def main() -> None:
        async with fake_cluster("T", "U", "V") as cluster:
            instance = ClientInstance(ClientSettings(namesrv=cluster.namesrv))
            instance.register_producer("p", Member("T", "U"))
            instance.register_consumer("c", Member("U", "V"))
            await instance.refresh_routes()
            assert [c.ext["topic"] for c in cluster.seen if c.code == ROUTE] == ["T", "U", "V"]
            instance.start()
            assert len(instance.tasks) == 2, "routes and heartbeats"
            await instance.close()

    run(main())


@pytest.mark.proves("client:A-58")
def test_no_heartbeat_is_sent_without_members() -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster:
            instance = ClientInstance(ClientSettings(namesrv=cluster.namesrv))
            await instance.update_route("T")
            assert not await instance.heartbeat() and not cluster.broker.heartbeats
            instance.register_producer("p", Member("T"))
            assert await instance.heartbeat() and cluster.broker.heartbeats
            await instance.close()

    run(main())


def test_unreachable_name_server_is_named() -> None:
    async def main() -> None:
        address = f"127.0.0.1:{free_port()}"
        instance = ClientInstance(ClientSettings(namesrv=address))
        with pytest.raises(ConnectError, check=about(address=address)):
            await instance.update_route("T")
        assert address in repr(instance)
        await instance.close()

    run(main())


@pytest.mark.proves("client:A-27", "client:A-28", "client:A.4")
def test_second_start_does_nothing_and_a_failed_start_is_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        instance = ClientInstance(ClientSettings(namesrv="127.0.0.1:1", route_interval=3600))
        instance.start()
        instance.start()
        assert (instance.state, len(instance.tasks)) == (InstanceState.RUNNING, 2)
        await instance.close()
        instance.start()
        assert (instance.state, len(instance.tasks)) == (InstanceState.CLOSED, 0)
        broken = ClientInstance(ClientSettings(namesrv="127.0.0.1:1"))

        def fail(*args: Any) -> None:
            raise OSError("no")

        monkeypatch.setattr(broken, "_start_tasks", fail)
        with pytest.raises(OSError, check=about(args=("no",))):
            broken.start()
        with pytest.raises(InvalidStateError, check=about(what="client", value=broken.client_id)):
            broken.start()
        await broken.close()

    run(main())


@pytest.mark.proves("client:A-17", "client:A-18", "client:A-31")
def test_group_has_one_member_of_each_kind_in_an_instance() -> None:
    async def main() -> None:
        instance = ClientInstance(ClientSettings(namesrv="127.0.0.1:1"))
        first = Member()
        instance.register_producer("g", first)
        instance.register_consumer("g", first)
        with pytest.raises(ClientError, check=about(what="producer", value="g")):
            instance.register_producer("g", Member())
        with pytest.raises(ClientError, check=about(what="consumer", value="g")):
            instance.register_consumer("g", Member())
        assert instance.producer("g") is instance.consumer("g") is first
        await instance.unregister(producer="g")
        assert instance.producer("g") is None
        instance.register_producer("g", Member())
        await instance.close()

    run(main())


@pytest.mark.proves("client:A-22", "client:A-60")
def test_broker_versions_are_known_from_heartbeats() -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster:
            instance = ClientInstance(ClientSettings(namesrv=cluster.namesrv))
            instance.register_producer("g", Member("T"))
            await instance.update_route("T")
            assert instance.broker_versions == {}
            await instance.heartbeat()
            assert instance.broker_versions == {cluster.broker.server.address: 475}
            await instance.close()

    run(main())


def test_scheduled_work_uses_the_given_sleep() -> None:
    asked: list[float] = []

    async def sleep(seconds: float) -> None:
        asked.append(seconds)
        await asyncio.sleep(0 if asked.count(seconds) < 3 else 3600)

    async def main() -> None:
        async with fake_cluster("T") as cluster:
            settings = ClientSettings(namesrv=cluster.namesrv, route_interval=3000, heartbeat_interval=3500)
            instance = ClientInstance(settings, sleep=sleep)
            instance.register_producer("g", Member("T"))
            await instance.update_route("T")
            instance.start()
            await until(lambda: asked.count(3000) == asked.count(3500) == 3)
            assert len(cluster.broker.requests(RequestCode.HEART_BEAT)) >= 2, "hours passed at once"
            await instance.close()

    run(main())


def test_master_that_moved_is_found_with_one_more_look_at_its_route() -> None:
    queue = MessageQueue("T", "broker-a", 0)

    async def main() -> None:
        async with fake_cluster("T") as cluster:
            instance = ClientInstance(ClientSettings(namesrv=cluster.namesrv))
            before = cluster.broker.server.address
            assert await instance.master_of(queue) == await instance.master_of(queue) == before
            assert _asked_routes(cluster) == 1
            async with cluster.moved(instance):
                now = cluster.broker.server.address
                assert await instance.master_of(queue) == await instance.master_of(queue) == now != before
            assert _asked_routes(cluster) == 2
            await until(lambda: now not in repr(instance.remoting))
            with pytest.raises(ConnectError, check=about(address=now)):
                await instance.master_of(queue)
            await cluster.name_server.close(0.1)
            with pytest.raises(ConnectError, check=about(address=now)):
                await instance.master_of(queue)
            await instance.close()

    run(main())


def _asked_routes(cluster: FakeCluster) -> int:
    return sum(c.code == ROUTE for c in cluster.seen)
