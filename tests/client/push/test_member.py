"""Membership: sharing queues, heartbeats, start positions, commits."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.client.consuming import (
    SEND_BACK,
    consumer_of,
    flow,
    numbers,
    put,
)
from tests.client.fake import FakeCluster, answer, fake_cluster
from tests.support import about, run, until

from sparrowmq.client.base.offset_store_protocol import MemoryOffsets
from sparrowmq.client.consumer.offset_store import local_path, read_offsets, write_offsets
from sparrowmq.client.push.push_consumer import PushConsumer
from sparrowmq.core.errors import ClientError, InvalidExpressionError
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.core.subscription import Sql
from sparrowmq.protocol import properties
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command


@pytest.mark.proves("client:C-11", "client:C-23", "client:C.6-1", "client:D-109")
def test_two_members_share_the_queues_and_hand_them_over() -> None:
    async def test(cluster: FakeCluster) -> None:
        one_got: list[ReceivedMessage] = []
        two_got: list[ReceivedMessage] = []
        async with consumer_of(cluster) as one:
            one.subscribe("T", handler=one_got.append)
            await until(lambda: len(_of_t(one)) == 4)
            async with consumer_of(cluster) as two:
                two.subscribe("T", handler=two_got.append)
                await until(lambda: len(_of_t(one)) == len(_of_t(two)) == 2)
                assert not set(one.assignment) & set(two.assignment)
                for number in range(40):
                    put(cluster, number, queues=4)
                await until(lambda: len(one_got) + len(two_got) == 40)
                assert len(one_got) == len(two_got) == 20
            await until(lambda: len(_of_t(one)) == 4)
            put(cluster, 41, queues=4)
            await until(lambda: len(one_got) == 21)
        assert numbers([*one_got, *two_got]) == [*range(40), 41]

    def _of_t(consumer: PushConsumer) -> list[MessageQueue]:
        return [queue for queue in consumer.assignment if queue.topic == "T"]

    flow(test, 0, queues=4)


@pytest.mark.proves("client:C.6-2")
@pytest.mark.parametrize(
    ("start", "expected"),
    [("first", [0, 2, 4, 6, 8, 10]), ("last", [10]), (datetime(2024, 1, 1, tzinfo=UTC), [4, 6, 8, 10])],
)
def test_new_group_starts_at_the_configured_offset(start: Any, expected: list[int]) -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        async with consumer_of(cluster, consume_from=start) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: [q for q in consumer.assignment if q.topic == "T"])
            cluster.broker.store("T", 0, b"10")
            await until(lambda: any(m.body == b"10" for m in got))
            await until(lambda: len(got) == len(expected))
        assert numbers(got) == expected

    async def main() -> None:
        async with fake_cluster("T", queues=1) as cluster:
            for number in range(0, 10, 2):
                cluster.broker.store("T", 0, b"%d" % number)
            await test(cluster)

    run(main())


def test_next_owner_does_not_skip_unfinished_messages_of_a_new_group() -> None:
    async def test(cluster: FakeCluster) -> None:
        put(cluster, 0, queues=1)  # from before the group began

        async def handle(message: ReceivedMessage) -> None:
            await asyncio.sleep(3600)

        one = consumer_of(cluster, consume_from="last", close_timeout=0.05, persist_interval=3600)
        one.subscribe("T", handler=handle)
        await one.start()
        await until(lambda: [q for q in one.assignment if q.topic == "T"])
        for number in (1, 2):
            put(cluster, number, queues=1)
        await until(lambda: sum(one.lag.values()) == 2)
        await one.close()
        got: list[ReceivedMessage] = []
        async with consumer_of(cluster, consume_from="last") as two:
            two.subscribe("T", handler=got.append)
            await until(lambda: len(got) == 2)
        assert numbers(got) == [1, 2]

    flow(test, 0, queues=1)


@pytest.mark.proves("client:D.2-15", "client:D-05")
def test_heartbeats_contain_group_subscription_and_start() -> None:
    async def test(cluster: FakeCluster) -> None:
        async with consumer_of(cluster, consume_from="last") as consumer:
            consumer.subscribe("T", "A || B", print)
            heartbeat = await until(
                lambda: [h for h in cluster.broker.heartbeats if len(h.consumers[0].subscriptions) == 2]
            )
            (data,) = heartbeat[0].consumers
            assert heartbeat[0].client_id == consumer.client_id
            assert data.group == "g"
            assert data.consume_from_where == "CONSUME_FROM_LAST_OFFSET"
            assert {s.topic: s.tags for s in data.subscriptions} == {
                "T": {"A", "B"},
                "%RETRY%g": frozenset(),
            }
        goodbye = cluster.broker.requests(RequestCode.UNREGISTER_CLIENT)[-1]
        assert goodbye.ext["consumerGroup"] == "g"

    flow(test)


@pytest.mark.proves("client:D.2-14", "broker:14.2")
def test_filters_are_checked_at_the_start_and_a_refusal_is_raised() -> None:
    async def test(cluster: FakeCluster) -> None:
        code = RequestCode.CHECK_CLIENT_CONFIG
        consumer = consumer_of(cluster)
        consumer.subscribe("T", Sql("a > 1"), print)
        async with consumer:
            codes = [command.code for command in cluster.broker.seen]
            assert codes.count(code) == 1
        refused = int(ResponseCode.SUBSCRIPTION_PARSE_FAILED)
        cluster.broker.on[code] = lambda conn, command: answer(refused, remark="too new for me")
        consumer = consumer_of(cluster)
        consumer.subscribe("T", Sql("a > 1"), print)
        with pytest.raises(InvalidExpressionError, match="too new for me"):
            await consumer.start()

    flow(test)


@pytest.mark.proves("client:D-07")
def test_wrong_filter_is_refused_when_it_is_subscribed() -> None:
    async def test(cluster: FakeCluster) -> None:
        consumer = consumer_of(cluster)
        with pytest.raises(InvalidExpressionError) as caught:
            consumer.subscribe("T", Sql("a > 1 AN b"), print)
        assert (caught.value.position, caught.value.token) == (6, "AN")

    flow(test)


class NotedOffsets(MemoryOffsets):
    """A user's own offset store, which records its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.kept: dict[MessageQueue, int] = {MessageQueue("T", "broker-a", 0): 3}

    async def load(self) -> None:
        self.calls.append("load")

    async def read(self, queue: MessageQueue) -> int | None:
        self.calls.append("read")
        return self.kept.get(queue)

    async def persist(self, queues: Iterable[MessageQueue], *, confirmed: bool = False) -> bool:
        self.calls.append("persist")
        self.kept.update(self._known(queues))
        return True

    async def persist_all(self, queues: Collection[MessageQueue]) -> bool:
        return await self.persist(queues)


@pytest.mark.proves("client:D.2-7", "client:D.2-8", "MUST-07")
@pytest.mark.parametrize("model", ["clustering", "broadcasting"])
def test_users_own_offset_store_is_used_and_loaded_first(model: str, tmp_path: Path) -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        own = NotedOffsets()
        async with consumer_of(cluster, model=model, offset_store=own, offset_dir=tmp_path) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: len(got) == 2)
        assert (own.calls[0], own.calls.count("load")) == ("load", 1)
        assert "read" in own.calls
        assert own.kept[MessageQueue("T", "broker-a", 0)] == 5
        assert cluster.broker.requests(RequestCode.UPDATE_CONSUMER_OFFSET) == []

    flow(test, 5, queues=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.proves("client:D.2-7", "client:D.2-8", "client:D.12", "MUST-07")
@pytest.mark.parametrize("model", ["clustering", "broadcasting"])
def test_offsets_are_otherwise_stored_by_the_broker_or_in_a_file(model: str, tmp_path: Path) -> None:
    async def test(cluster: FakeCluster) -> None:
        cluster.broker.offsets["g", "T", 0] = 2
        path = local_path(tmp_path, "10.0.0.9@DEFAULT", "g")
        write_offsets(path, {MessageQueue("T", "broker-a", 0): 4})
        got: list[ReceivedMessage] = []
        values = {"model": model, "offset_dir": tmp_path, "client_ip": "10.0.0.9"}
        async with consumer_of(cluster, **values) as consumer:
            consumer.subscribe("T", handler=got.append)
            first = 4 if model == "broadcasting" else 2
            await until(lambda: len(got) == 6 - first)
        assert [m.queue_offset for m in got] == list(range(first, 6))
        kept = read_offsets(path)[0][MessageQueue("T", "broker-a", 0)]
        at_broker = cluster.broker.offsets["g", "T", 0]
        assert (kept, at_broker) == ((6, 2) if model == "broadcasting" else (4, 6))

    flow(test, 6, queues=1)


@pytest.mark.proves("client:D.2-8")
def test_offsets_that_cannot_be_loaded_stop_the_start_before_registration(tmp_path: Path) -> None:
    async def test(cluster: FakeCluster) -> None:
        path = local_path(tmp_path, "10.0.0.9@DEFAULT", "g")
        write_offsets(path, {})
        path.write_text("{broken")
        path.with_name("offsets.json.bak").write_text("{broken")
        values = {"model": "broadcasting", "offset_dir": tmp_path, "client_ip": "10.0.0.9"}
        consumer = consumer_of(cluster, **values)
        consumer.subscribe("T", handler=print)
        with pytest.raises(ClientError, check=about(what="offsets", value=path)):
            await consumer.start()
        assert cluster.broker.seen == []

    flow(test)


@pytest.mark.proves("client:D.2-13", "MUST-12")
def test_start_ends_when_all_routes_are_loaded_and_brokers_have_a_heartbeat() -> None:
    async def main() -> None:
        async with fake_cluster("T", "U", "V") as cluster:
            consumer = consumer_of(cluster)
            for topic in ("T", "U", "V"):
                consumer.subscribe(topic, handler=print)
            await consumer.start()
            asked = [c.ext["topic"] for c in cluster.seen if c.code == RequestCode.GET_ROUTEINFO_BY_TOPIC]
            assert {"T", "U", "V", "%RETRY%g"} <= set(asked)
            assert cluster.broker.heartbeats
            await consumer.close()

    run(main())


@pytest.mark.proves("client:D.2-16", "MUST-12")
def test_start_wakes_the_rebalance(tmp_path: Path) -> None:
    """Nothing else does: brokers accept no heartbeat, and rounds are an hour apart."""

    async def main() -> None:
        async with fake_cluster("T") as cluster:
            cluster.broker.on[RequestCode.HEART_BEAT] = lambda conn, c: answer(1, remark="no")
            values = {"model": "broadcasting", "offset_dir": tmp_path, "rebalance_interval": 3600}
            consumer = consumer_of(cluster, **values)
            consumer.subscribe("T", handler=print)
            async with consumer:
                await until(lambda: len(consumer.assignment) == 4)

    run(main())


@pytest.mark.proves("client:C-10", "client:D-08")
def test_running_consumer_subscribes_and_unsubscribes_and_brokers_are_notified() -> None:
    def told(cluster: FakeCluster) -> set[str]:
        (data,) = cluster.broker.heartbeats[-1].consumers
        return {one.topic for one in data.subscriptions}

    async def main() -> None:
        async with fake_cluster("T", "U", queues=2) as cluster:
            cluster.broker.store("U", 1, b"later")
            got: list[bytes] = []
            consumer = consumer_of(cluster)
            consumer.subscribe("T", handler=print)
            async with consumer:
                await until(lambda: len(consumer.assignment) >= 2)
                consumer.subscribe("U", handler=lambda message: got.append(message.body))
                await until(lambda: got == [b"later"])
                assert told(cluster) == {"T", "U", "%RETRY%g"}
                consumer.unsubscribe("T")
                await until(lambda: "T" not in {queue.topic for queue in consumer.assignment})
                await until(lambda: told(cluster) == {"U", "%RETRY%g"})

    run(main())


@pytest.mark.proves("client:D-112", "client:D.12")
@pytest.mark.parametrize("ordered", [True, False])
def test_ordered_setting_decides_who_gets_the_messages(ordered: bool) -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[int] = []
        free = asyncio.Event()

        async def handle(message: ReceivedMessage) -> None:
            got.append(message.queue_offset)
            if message.queue_offset == 0:
                await free.wait()

        async with consumer_of(cluster, ordered=ordered) as consumer:
            consumer.subscribe("T", handler=handle)
            await until(lambda: len(got) == (1 if ordered else 5))
            assert bool(cluster.broker.locks) is ordered
            info = consumer.running_info()
            assert info.properties["PROP_CONSUMEORDERLY"] == str(ordered).lower()
            assert got[1:] == ([] if ordered else [1, 2, 3, 4])
            free.set()
            await until(lambda: len(got) == 5)

    flow(test, 5, queues=1)


@pytest.mark.proves("client:D.12", "client:D-107", "client:D-06")
@pytest.mark.parametrize("model", ["clustering", "broadcasting"])
def test_failed_messages_return_only_to_the_owner_of_the_retry_queue(model: str, tmp_path: Path) -> None:
    async def test(cluster: FakeCluster) -> None:
        calls: list[tuple[str, int]] = []
        sent: list[Command] = []

        def send_back(conn: Any, command: Command) -> Command:
            sent.append(command)
            props = properties.encode({"RETRY_TOPIC": "T"})
            cluster.broker.store("%RETRY%g", 0, b"3", props, reconsume_times=len(sent))
            return answer()

        cluster.broker.on[SEND_BACK] = send_back

        def fails(name: str) -> Any:
            def handle(message: ReceivedMessage) -> None:
                calls.append((name, message.reconsume_times))
                if message.reconsume_times < 2:
                    raise ValueError("not yet")

            return handle

        members = {}
        for name in ("a", "b"):
            values = {"model": model, "offset_dir": tmp_path / name, "instance_name": name}
            members[name] = consumer_of(cluster, client_ip="10.0.0.1", consume_from="last", **values)
            members[name].subscribe("T", handler=fails(name))
            await members[name].start()

        def owner(topic: str, number: int) -> list[str]:
            queue = MessageQueue(topic, "broker-a", number)
            return [name for name, consumer in members.items() if queue in consumer.assignment]

        if model == "clustering":
            await until(lambda: (owner("T", 1), owner("%RETRY%g", 0)) == (["b"], ["a"]))
            put(cluster, 3)
            await until(lambda: len(calls) == 3)
            assert calls == [("b", 0), ("a", 1), ("a", 2)], "not to the one that sent it back"
        else:
            await until(lambda: owner("T", 1) == ["a", "b"])
            put(cluster, 3)
            await until(lambda: len(calls) == 2)
            assert sorted(calls) == [("a", 0), ("b", 0)]
            assert (owner("%RETRY%g", 0), sent) == ([], [])
        for consumer in members.values():
            await consumer.close()

    flow(test)


def test_aborted_member_leaves_its_group_though_others_keep_its_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*args: object) -> None:
        raise ZeroDivisionError("a fault of ours")

    async def test(cluster: FakeCluster) -> None:
        shared = {"instance_name": "shared", "client_ip": "10.0.0.1"}
        stays, breaks = consumer_of(cluster, "stays", **shared), consumer_of(cluster, "breaks", **shared)
        await stays.start()
        breaks.subscribe("T", handler=print)
        await breaks.start()
        await until(lambda: cluster.broker.members["breaks"])
        monkeypatch.setattr("sparrowmq.client.consumer.pull_loop.decode_messages", broken)
        put(cluster, 0)
        await until(lambda: breaks.failure)
        await until(lambda: not cluster.broker.members["breaks"])
        assert cluster.broker.members["stays"]
        await stays.close()
        with pytest.raises(ClientError, check=about(what="task")):
            await breaks.close()

    flow(test)
