from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.client.fake import NOW_MS, FakeCluster, answer, fake_cluster
from tests.support import about, run

from sparrowmq.client.admin.admin import Admin
from sparrowmq.client.admin.types import Rate
from sparrowmq.core.errors import BrokerError, ClientError, ConnectError, NoRouteError, SettingsError
from sparrowmq.core.ids import offset_message_id, pack_host
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.record import encode_record

QUERY, VIEW = int(RequestCode.QUERY_MESSAGE), int(RequestCode.VIEW_MESSAGE_BY_ID)


def flow(test: Callable[[FakeCluster, Admin], Coroutine[Any, Any, None]], brokers: int = 1) -> None:
    async def main() -> None:
        async with fake_cluster("T", brokers=brokers, queues=2) as cluster, Admin(cluster.namesrv) as admin:
            await test(cluster, admin)

    run(main())


HOST = pack_host("127.0.0.1", 10911)


def record(
    body: bytes, *, unique: str, keys: str = "", topic: str = "T", stored: int = NOW_MS, host: bytes = HOST
) -> bytes:
    properties = f"UNIQ_KEY\x01{unique}\x02KEYS\x01{keys}\x02"
    return encode_record(
        topic=topic.encode(),
        queue_id=0,
        queue_offset=0,
        physical_offset=stored - NOW_MS,
        body=body,
        properties=properties.encode(),
        flag=0,
        sys_flag=0,
        born_timestamp=NOW_MS,
        born_host=host,
        store_timestamp=stored,
        store_host=host,
    )


@pytest.mark.proves("client:E-51", "broker:4.3")
def test_every_broker_is_queried_and_other_keys_are_omitted() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        one, two = cluster.brokers.values()
        good = record(b"1", unique="A", keys="k other", stored=NOW_MS + 5)
        collision = record(b"2", unique="B", keys="kk k2")
        elsewhere = record(b"3", unique="C", keys="k", topic="U")
        one.on[QUERY] = lambda conn, c: answer(body=good + collision + elsewhere)
        two.on[QUERY] = lambda conn, c: answer(body=record(b"4", unique="D", keys="k"))
        found = await admin.messages.query("T", "k", count=7, begin=1, end=datetime.fromtimestamp(0.002, UTC))
        assert [message.body for message in found] == [b"4", b"1"]
        assert [message.queue.broker_name for message in found] == ["broker-b", "broker-a"]
        (asked,) = one.requests(RequestCode.QUERY_MESSAGE)
        assert asked.ext == {
            "topic": "T",
            "key": "k",
            "maxNum": "7",
            "beginTimestamp": "1",
            "endTimestamp": "2",
            "indexType": "K",
            "_UNIQUE_KEY_QUERY": "false",
        }

    flow(test, brokers=2)


@pytest.mark.proves("client:E-51", "client:E-53")
def test_empty_results_and_failures_are_handled() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        one, two = cluster.brokers.values()
        one.on[QUERY] = two.on[QUERY] = lambda conn, c: answer(22, remark="can not find message")
        assert await admin.messages.query("T", "k") == []
        one.on[QUERY] = lambda conn, c: answer(1, remark="broken")
        with pytest.raises(BrokerError, check=about(code=1, remark="broken")):
            await admin.messages.query("T", "k")
        two.on[QUERY] = lambda conn, c: answer(body=record(b"4", unique="D", keys="k"))
        assert len(await admin.messages.query("T", "k")) == 1
        with pytest.raises(NoRouteError, check=about(topic="Nowhere")):
            await admin.messages.query("Nowhere", "k")
        with pytest.raises(SettingsError, check=about(setting="count", value=0, limit=1)):
            await admin.messages.query("T", "k", count=0)

    flow(test, brokers=2)


@pytest.mark.proves("client:E-52")
def test_newest_message_is_returned_for_a_unique_id() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        broker = cluster.broker
        twice = record(b"new", unique="A", stored=NOW_MS + 9) + record(b"old", unique="A")
        broker.on[QUERY] = lambda conn, c: answer(body=twice + record(b"no", unique="AA", stored=NOW_MS + 20))
        found = await admin.messages.get("T", "A")
        assert found is not None
        assert found.body == b"new"
        (asked,) = broker.requests(RequestCode.QUERY_MESSAGE)
        assert (asked.ext["_UNIQUE_KEY_QUERY"], asked.ext["indexType"]) == ("true", "U")
        assert await admin.messages.get("T", "B") is None

    flow(test)


@pytest.mark.proves("client:E-50")
def test_offset_id_is_queried_at_the_broker_it_names() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        broker = cluster.broker
        host, _, port = broker.server.address.rpartition(":")
        message_id = offset_message_id(pack_host(host, int(port)), 4711)
        broker.on[QUERY] = lambda conn, c: answer(22)
        cluster.add_topic("Other")

        def view(conn: object, command: Command) -> Command:
            if command.ext["offset"] != "4711":
                return answer(1, remark=f"can not find message by the offset, {command.ext['offset']}")
            return answer(body=record(b"x", unique="A"))

        broker.on[VIEW] = view
        for found in (
            await admin.messages.get_by_offset_id(message_id),
            await admin.messages.get("T", message_id),
        ):
            assert found is not None
            assert (found.body, found.queue.broker_name) == (b"x", "broker-a")
        assert await admin.messages.get("Other", message_id) is None
        gone = offset_message_id(pack_host(host, int(port)), 1)
        assert await admin.messages.get_by_offset_id(gone) is None
        with pytest.raises(ClientError, match="not an offset message id"):
            await admin.messages.get_by_offset_id("xyz")
        broker.on[VIEW] = lambda conn, c: answer(1, remark="broken")
        with pytest.raises(BrokerError, check=about(code=1, remark="broken")):
            await admin.messages.get_by_offset_id(message_id)
        nobody = offset_message_id(pack_host("127.0.0.1", 1), 4711)
        assert await admin.messages.get("T", nobody) is None

    flow(test)


def test_requests_and_answers_of_brokers_are_correct() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        broker = cluster.broker
        assert (await admin.brokers.info("broker-a"))["brokerVersionDesc"] == "fake"
        assert (await admin.brokers.info(broker.server.address))["brokerVersionDesc"] == "fake"
        with pytest.raises(ClientError, check=about(what="broker", value="zzz")):
            await admin.brokers.info("zzz")
        body = b'{"statsMinute":{"sum":6,"tps":0.1,"avgpt":2.0},"statsHour":{"sum":7},"statsDay":{}}'
        broker.on[315] = lambda conn, c: answer(body=body)
        rates = await admin.brokers.stats("broker-a", "TOPIC_PUT_NUMS", "T")
        assert rates is not None
        assert (rates.minute, rates.hour) == (Rate(6, 0.1, 2.0), Rate(7, 0.0, 0.0))
        broker.on[315] = lambda conn, c: answer(1, remark="The stats <X> <T> not exist")
        assert await admin.brokers.stats("broker-a", "X", "T") is None
        broker.on[315] = lambda conn, c: answer(1, remark="broken")
        with pytest.raises(BrokerError):
            await admin.brokers.stats("broker-a", "X", "T")
        broker.on[26] = lambda conn, c: answer(body=b"a=1\nb = x\\\\y\n")
        assert await admin.brokers.settings("broker-a") == {"a": "1", "b": "x\\y"}
        taken = []

        def take(conn: object, command: Command) -> Command:
            taken.append(command.body)
            return answer()

        broker.on[25] = take
        await admin.brokers.set_settings("broker-a", {"fileReservedTime": "5", "p": "a\\b"})
        assert taken == [b"fileReservedTime=5\np=a\\\\b\n"]
        for code in (306, 316, 329):
            broker.on[code] = lambda conn, c: answer()
        await admin.brokers.delete_expired_files("broker-a")
        await admin.brokers.clean_expired_queues("broker-a")
        await admin.brokers.clean_unused_topics("broker-a")
        assert all(broker.requests(RequestCode(code)) for code in (306, 316, 329))

    flow(test)


def test_queries_reach_a_broker_that_came_back_under_another_address() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        broker = cluster.broker
        host, _, port = broker.server.address.rpartition(":")
        where = offset_message_id(pack_host(host, int(port)), 0)
        stored = record(b"x", unique="A", keys="k", host=pack_host(host, int(port)))
        broker.on[QUERY] = lambda conn, c: answer(body=stored) if c.ext["key"] != where else answer(22)
        broker.on[VIEW] = lambda conn, c: answer(body=stored)
        assert [message.body for message in await admin.messages.query("T", "k")] == [b"x"]
        async with cluster.moved(admin.calls.running()):
            assert [message.body for message in await admin.messages.query("T", "k")] == [b"x"]
            found = await admin.messages.get("T", where)
            assert found is not None and (found.body, found.queue.broker_name) == (b"x", "broker-a")
            assert await admin.messages.get_by_offset_id(where) == found, (
                "without a topic all brokers are asked"
            )
            broker.on[VIEW] = lambda conn, c: answer(body=record(b"of another broker", unique="B"))
            assert await admin.messages.get("T", where) is None
            with pytest.raises(ConnectError, match=f"the id names the broker at {host}:{port}, .* no other"):
                await admin.messages.get_by_offset_id(where)

    flow(test)
