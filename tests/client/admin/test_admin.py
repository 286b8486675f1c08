from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest
from tests.client.fake import NOW_MS, FakeCluster, answer, fake_cluster
from tests.support import about, run

from sparrowmq.client.admin.admin import Admin
from sparrowmq.client.base.lifecycle import State
from sparrowmq.core.errors import (
    BrokerError,
    ClientError,
    InvalidNameError,
    InvalidStateError,
    NoNameServerError,
    NoRouteError,
    RequestTimeoutError,
    SettingsError,
)
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.route import QueueData
from sparrowmq.protocol import bodies
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.headers import CreateTopicRequest, from_ext

CREATE = int(RequestCode.UPDATE_AND_CREATE_TOPIC)


def flow(test: Callable[[FakeCluster, Admin], Coroutine[Any, Any, None]], brokers: int = 1) -> None:
    async def main() -> None:
        async with fake_cluster("T", brokers=brokers, queues=2) as cluster, Admin(cluster.namesrv) as admin:
            await test(cluster, admin)

    run(main())


def test_topics_are_listed_without_system_topics() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        hidden = ["%RETRY%g", "%DLQ%g", "TBW102", "broker-a", "FakeCluster", "FakeCluster_REPLY_TOPIC"]
        for name in [*hidden, "rmq_sys_x", "RMQ_SYS_TRANS_HALF_TOPIC", "Another"]:
            cluster.add_topic(name)
        assert await admin.topics.list() == ["Another", "T"]
        assert set(hidden) < set(await admin.topics.list(system=True))

    flow(test)


@pytest.mark.proves("client:E-54", "client:F-02")
def test_topic_is_created_on_every_master_and_visible_at_the_name_server() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        route = await admin.topics.create("New", 3, perm=4)
        assert {(q.broker_name, q.read_queue_nums, q.perm) for q in route.queues} == {
            ("broker-a", 3, 4),
            ("broker-b", 3, 4),
        }
        for broker in cluster.brokers.values():
            (asked,) = broker.requests(CREATE)
            header = from_ext(CreateTopicRequest, asked.ext)
            assert (header.topic, header.read_queue_nums, header.write_queue_nums) == ("New", 3, 3)
            assert (header.perm, header.topic_filter_type, header.default_topic) == (
                4,
                "SINGLE_TAG",
                "TBW102",
            )
        assert (await admin.topics.create("New", 5, cluster="FakeCluster")).queues[0].read_queue_nums == 5

    flow(test, brokers=2)


def test_change_of_a_topic_keeps_what_is_not_given() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        kept = bodies.TopicConfig(
            topic_name="T", read_queue_nums=4, write_queue_nums=2, perm=4, order=True, topic_sys_flag=2
        )
        cluster.broker.on[RequestCode.GET_TOPIC_CONFIG] = lambda conn, c: answer(body=kept.encode())
        cluster.topics["T"]["broker-a"] = QueueData("broker-a", 4, 2, 6)
        cluster.broker.on[CREATE] = lambda conn, c: answer()
        await admin.topics.create("T", perm=6)
        header = from_ext(CreateTopicRequest, cluster.broker.requests(CREATE)[-1].ext)
        assert (header.read_queue_nums, header.write_queue_nums, header.perm) == (4, 2, 6)
        assert (header.order, header.topic_sys_flag) == (True, 2)

    flow(test)


def test_more_queues_to_write_than_to_read_need_force() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        kept = bodies.TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=8, perm=6)
        cluster.broker.on[RequestCode.GET_TOPIC_CONFIG] = lambda conn, c: answer(body=kept.encode())
        cluster.topics["T"]["broker-a"] = QueueData("broker-a", 2, 8, 6)
        cluster.broker.on[CREATE] = lambda conn, c: answer()
        with pytest.raises(ClientError, match=r"the queues 2 to 8; give it at least 9 read queues"):
            await admin.topics.create("T", write_queues=9)
        assert cluster.broker.requests(CREATE) == []
        await admin.topics.create("T", perm=6)
        await admin.topics.create("T", write_queues=8, force=True)
        assert len(cluster.broker.requests(CREATE)) == 2

    flow(test)


def test_creation_takes_no_queues_away() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        kept = bodies.TopicConfig(topic_name="T", read_queue_nums=8, write_queue_nums=4, perm=6)
        cluster.brokers["broker-b"].on[RequestCode.GET_TOPIC_CONFIG] = lambda c, m: answer(body=kept.encode())
        for numbers in ({}, {"write_queues": 4}):
            with pytest.raises(ClientError, match="on broker-b", check=about(value=4, limit=8)):
                await admin.topics.create("T", 4, **numbers)
        assert not any(broker.requests(CREATE) for broker in cluster.brokers.values()), "not at one of them"
        cluster.topics["T"] = {name: QueueData(name, 4, 4, 6) for name in cluster.brokers}
        for broker in cluster.brokers.values():
            broker.on[CREATE] = lambda conn, c: answer()
        await admin.topics.create("T", 4, force=True)
        await admin.topics.create("T", read_queues=4, write_queues=4)
        assert len(cluster.brokers["broker-b"].requests(CREATE)) == 2

    flow(test, brokers=2)


def test_numbers_of_queues_change_at_no_broker_if_one_change_is_refused() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        for broker, (reads, writes) in zip(cluster.brokers.values(), ((8, 8), (4, 4)), strict=True):
            kept = bodies.TopicConfig(topic_name="T", read_queue_nums=reads, write_queue_nums=writes, perm=6)
            body = kept.encode()
            broker.on[RequestCode.GET_TOPIC_CONFIG] = lambda c, m, body=body: answer(body=body)
            broker.on[CREATE] = lambda conn, c: answer()
        with pytest.raises(ClientError):
            await admin.topics.set_queues("T", write_queues=8)
        assert not any(broker.requests(CREATE) for broker in cluster.brokers.values())
        found = await admin.topics.set_queues("T", write_queues=3)
        numbers = {name: (one.read_queue_nums, one.write_queue_nums) for name, one in found.items()}
        assert numbers == {"broker-a": (8, 3), "broker-b": (4, 3)}
        assert all(len(broker.requests(CREATE)) == 1 for broker in cluster.brokers.values())
        with pytest.raises(SettingsError, check=about(setting="read_queues", value=0, limit=1)):
            await admin.topics.set_queues("T", read_queues=0)

    flow(test, brokers=2)


def test_permissions_change_only_the_permissions() -> None:
    """Queues and order are the broker's, not those of a route that may be old."""

    async def test(cluster: FakeCluster, admin: Admin) -> None:
        kept = bodies.TopicConfig(topic_name="T", read_queue_nums=8, write_queue_nums=8, perm=6, order=True)
        cluster.broker.on[RequestCode.GET_TOPIC_CONFIG] = lambda conn, c: answer(body=kept.encode())
        cluster.broker.on[CREATE] = lambda conn, c: answer()
        assert await admin.topics.set_perm("T", 4) == ["broker-a"]
        header = from_ext(CreateTopicRequest, cluster.broker.requests(CREATE)[-1].ext)
        assert (header.read_queue_nums, header.write_queue_nums, header.perm) == (8, 8, 4)
        assert header.order

    flow(test)


def test_change_of_a_topic_at_an_older_broker_reads_its_table() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        broker = cluster.broker
        broker.on[RequestCode.GET_TOPIC_CONFIG] = lambda conn, c: answer(3, remark="not supported")
        kept = bodies.TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4, perm=4)
        table = bodies.TopicConfigTable(topic_config_table={"T": kept})
        broker.learn(RequestCode.GET_ALL_TOPIC_CONFIG, lambda conn, c: answer(body=table.encode()))
        await admin.topics.create("T", 6)
        header = from_ext(CreateTopicRequest, broker.requests(CREATE)[-1].ext)
        assert (header.read_queue_nums, header.perm) == (6, 4)

    flow(test)


def test_creating_waits_for_the_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparrowmq.client.admin.topics._ROUTE_WAIT", 0.05)

    async def test(cluster: FakeCluster, admin: Admin) -> None:
        cluster.broker.on[CREATE] = lambda conn, c: answer()
        with pytest.raises(RequestTimeoutError, match="'Late' was created on broker-a"):
            await admin.topics.create("Late")

    flow(test)


def test_invalid_topics_are_refused() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        for name in ("a b", "TBW102", "rmq_sys_x", ""):
            with pytest.raises(InvalidNameError):
                await admin.topics.create(name)
            with pytest.raises(InvalidNameError):
                await admin.topics.delete(name)
        with pytest.raises(InvalidNameError, match="must be text, not NoneType"):
            await admin.topics.delete(None)  # type: ignore[arg-type]
        with pytest.raises(SettingsError, check=about(setting="queues", value=0, limit=1)):
            await admin.topics.create("New", 0)
        with pytest.raises(SettingsError, check=about(setting="perm", value=8, limit=7)):
            await admin.topics.create("New", 1, perm=8)
        with pytest.raises(ClientError, check=about(what="cluster", value="zzz", limit="FakeCluster")):
            await admin.topics.create("New", cluster="zzz")
        cluster.broker.on[CREATE] = lambda conn, c: answer(16, remark="not allowed")
        with pytest.raises(BrokerError, check=about(code=16, remark="not allowed")):
            await admin.topics.create("New")
        cluster.brokers.clear()
        with pytest.raises(ClientError, check=about(what="masters", value=0)):
            await admin.topics.create("New")

    flow(test)


def test_status_has_every_queue() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        for broker in cluster.brokers.values():
            broker.store("T", 1, b"x")
            broker.queues["T", 0]
        found = await admin.topics.status("T")
        assert [(str(s.queue), s.min_offset, s.max_offset, s.messages) for s in found] == [
            ("T/broker-a/0", 0, 0, 0),
            ("T/broker-a/1", 0, 1, 1),
            ("T/broker-b/0", 0, 0, 0),
            ("T/broker-b/1", 0, 1, 1),
        ]
        assert found[0].last_update_ms == NOW_MS
        with pytest.raises(NoRouteError, check=about(topic="Nowhere")):
            await admin.topics.status("Nowhere")

    flow(test, brokers=2)


def test_topic_is_deleted_at_brokers_then_at_the_name_server() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        await admin.topics.delete("T")
        assert all(b.requests(RequestCode.DELETE_TOPIC_IN_BROKER) for b in cluster.brokers.values())
        assert await admin.topics.list() == []
        with pytest.raises(NoRouteError):
            await admin.topics.delete("T")
        with pytest.raises(InvalidNameError):
            await admin.topics.delete("TBW102")

    flow(test, brokers=2)


def test_brokers_are_listed_with_their_runtime_info() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        info = await admin.brokers.cluster_info()
        assert info.clusters == {"FakeCluster": ["broker-a", "broker-b"]}
        cluster.brokers["broker-b"].on[28] = lambda conn, c: answer(3, remark="not supported")
        one, two = await admin.brokers.list()
        assert (one.broker_name, one.broker_id, one.runtime["brokerVersionDesc"]) == ("broker-a", 0, "fake")
        assert (two.broker_name, two.runtime) == ("broker-b", {})
        assert "not supported" in (two.error or "")

    flow(test, brokers=2)


def test_broker_with_the_name_of_another_is_listed_with_it() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        info = await admin.brokers.cluster_info()
        claimed = msgspec.structs.replace(info, rivals={"broker-b": {0: "h:9"}})
        cluster.on[int(RequestCode.GET_BROKER_CLUSTER_INFO)] = lambda conn, c: answer(body=claimed.encode())
        assert [one.rival for one in await admin.brokers.list()] == ["", "h:9"]

    flow(test, brokers=2)


@pytest.mark.proves("client:F-05")
def test_groups_are_listed_with_progress_and_members() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        cluster.broker.members["g"] = {}
        assert await admin.groups.list() == ["g"]
        assert await admin.groups.list(system=True) == ["CID_RMQ_SYS_TRANS", "g"]
        cluster.broker.store("T", 1, b"x")
        queue = MessageQueue("T", "broker-a", 1)
        assert await admin.groups.committed("g", queue) is None
        await admin.groups.commit("g", queue, 0)
        assert await admin.groups.committed("g", queue) == 0
        (progress,) = await admin.groups.progress("g")
        assert (progress.queue, progress.broker_offset, progress.consumer_offset) == (queue, 1, 0)
        assert (progress.lag, progress.last_timestamp_ms) == (1, NOW_MS)
        assert await admin.topics.groups("T") == ["g"]
        assert await admin.groups.connections("g") is None
        cluster.broker.members["g"] = {"me@1": None}
        cluster.add_topic("%RETRY%g")
        found = await admin.groups.connections("g")
        assert found is not None
        assert [(m.client_id, m.language, m.version) for m in found.members] == [("me@1", "PYTHON", 475)]
        assert (found.consume_type, found.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
        cluster.broker.on[203] = lambda conn, c: answer(1, remark="broken")
        with pytest.raises(BrokerError, check=about(code=1, remark="broken")):
            await admin.groups.connections("g")

    flow(test)


def test_admin_client_starts_and_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARROW_NAMESRV", raising=False)
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)

    async def main() -> None:
        admin = Admin()
        assert "created" in repr(admin)
        with pytest.raises(InvalidStateError, check=about(what="running", value="created")):
            await admin.topics.list()
        with pytest.raises(NoNameServerError):
            await admin.start()
        await admin.close()
        assert admin.state is State.CLOSED
        monkeypatch.setenv("SPARROW_NAMESRV", "127.0.0.1:1")
        async with Admin() as other:
            assert "127.0.0.1:1" in repr(other)
        await other.close()

    run(main())


def test_commands_reach_a_broker_that_came_back_under_another_address() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        queue = MessageQueue("T", "broker-a", 0)
        await admin.groups.commit("g", queue, 3)
        async with cluster.moved(admin.calls.running()):
            assert await admin.groups.committed("g", queue) == 3
            await admin.groups.commit("g", queue, 4)
            assert cluster.broker.offsets["g", "T", 0] == 4

    flow(test)
