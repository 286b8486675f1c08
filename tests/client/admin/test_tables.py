from __future__ import annotations

import asyncio
import json
import os
import threading
from datetime import datetime
from typing import Any

import pytest
from tests.client.fake import NOW_MS, answer, fake_cluster
from tests.support import about, run

import sparrowmq as mq
from sparrowmq import aio
from sparrowmq.client.admin import brokers as brokers_module
from sparrowmq.client.admin import calls as calls_module
from sparrowmq.client.admin.admin import Admin
from sparrowmq.client.admin.types import QueueProgress
from sparrowmq.core.errors import (
    BrokerError,
    ClientError,
    SettingsError,
    TransportError,
)
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol import bodies
from sparrowmq.protocol.bodies import TopicConfig
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.testing import LocalCluster


def test_tables_of_a_broker_are_read_and_changed() -> None:
    async def main() -> None:
        with LocalCluster() as local:
            async with aio.Admin(namesrv=local.namesrv) as admin:
                (broker,) = (await admin.brokers.cluster_info()).brokers
                await admin.topics.set_config(broker, TopicConfig(topic_name="T", read_queue_nums=2, perm=4))
                await admin.groups.create("g", retries=3)
                found = await admin.brokers.topics(broker)
                assert (found.configs["T"].read_queue_nums, found.configs["T"].perm) == (2, 4)
                assert (found.configs["T"].write_queue_nums, found.static) == (16, frozenset())
                assert (await admin.brokers.groups(broker))["g"].retry_max_times == 3
                async with aio.Producer("p", namesrv=local.namesrv) as producer:
                    await producer.send(mq.Message("U", b"x"))
                assert await admin.topics.search_offset(MessageQueue("U", broker, 0), 0) == 0
                (listed,) = (await admin.name_servers.topics()).values()
                assert {"T", "U"} <= listed

    run(main())


def test_attributes_of_a_topic_are_set_read_changed_and_removed() -> None:
    async def main() -> None:
        with LocalCluster() as local:
            async with aio.Admin(namesrv=local.namesrv) as admin:
                (broker,) = (await admin.brokers.cluster_info()).brokers

                async def attributes() -> dict[str, str] | None:
                    config = await admin.topics.config(broker, "T")
                    return None if config is None else config.attributes

                assert await attributes() is None
                made = {"message.type": "FIFO", "queue.type": "SimpleCQ"}
                await admin.topics.create("T", 2, attributes=made)
                assert await attributes() == made
                await admin.topics.create("T", 3)
                assert await attributes() == made
                await admin.topics.create("T", 3, attributes={"message.type": None})
                assert await attributes() == {"queue.type": "SimpleCQ"}
                await admin.topics.set_config(broker, TopicConfig(topic_name="T", attributes=made))
                assert await attributes() == made, "only what differs is asked for"
                await admin.topics.set_config(broker, TopicConfig(topic_name="T", attributes=made))
                await admin.topics.set_config(broker, TopicConfig(topic_name="T", read_queue_nums=5))
                assert await attributes() == made
                with pytest.raises(
                    BrokerError,
                    match="BatchCQ is not supported by this broker",
                ):
                    await admin.topics.create("Other", attributes={"queue.type": "BatchCQ"})
                assert "Other" not in await admin.topics.list()
                for wrong in ({"a,b": "c"}, {"a": "b,+c=d"}, {"": "x"}, {"a": ""}, {"+a": "b"}):
                    with pytest.raises(SettingsError, match="attribute"):
                        await admin.topics.create("Other", attributes=wrong)

    run(main())


def test_silent_name_server_is_skipped() -> None:
    async def main() -> None:
        async with (
            fake_cluster("T") as one,
            fake_cluster("T") as two,
            Admin(f"{one.namesrv};{two.namesrv}") as admin,
        ):
            code = int(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
            one.on[code] = two.on[code] = lambda conn, c: answer(body=b'{"topicList":["T"]}')
            assert set(await admin.name_servers.topics()) == {one.namesrv, two.namesrv}
            two.on[code] = lambda conn, c: answer(1, remark="broken")
            assert await admin.name_servers.topics() == {one.namesrv: {"T"}}
            one.on[code] = two.on[code]
            with pytest.raises(BrokerError, check=about(code=1, remark="broken")):
                await admin.name_servers.topics()

    run(main())


def test_static_topics_are_reported() -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster, Admin(cluster.namesrv) as admin:
            (broker,) = cluster.brokers.values()
            table = {
                "topicConfigTable": {"S": {"topicName": "S"}},
                "topicQueueMappingDetailMap": {"S": {"bname": broker.name, "totalQueues": 4}},
            }
            broker.learn(21, lambda conn, c: answer(body=json.dumps(table).encode()))
            found = await admin.brokers.topics(broker.name)
            assert (set(found.configs), found.static) == ({"S"}, {"S"})
            assert await admin.topics.search_offset(MessageQueue("T", broker.name, 0), NOW_MS) == 0
            with pytest.raises(SettingsError, check=about(setting="timestamp", value=datetime(2024, 5, 1))):
                await admin.topics.search_offset(MessageQueue("T", broker.name, 0), datetime(2024, 5, 1))

    run(main())


def test_system_topics_are_refused() -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster, Admin(cluster.namesrv) as admin:
            with pytest.raises(ClientError, check=about(what="topic", value="TBW102")):
                await admin.topics.set_config("broker-a", TopicConfig(topic_name="TBW102"))
            with pytest.raises(ClientError, check=about(what="broker", value="other")):
                await admin.brokers.topics("other")
            with pytest.raises(TransportError):
                await admin.brokers.groups("127.0.0.1:1")

    run(main())


@pytest.mark.parametrize("limit", [0, 1 << 20])
def test_very_many_group_offsets_are_parsed_in_a_thread(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of rows would block the loop."""
    threads: list[int] = []
    read = brokers_module._progress_by_group

    def noted(body: bytes) -> dict[str, list[QueueProgress]]:
        threads.append(threading.get_ident())
        return read(body)

    async def main(namesrv: str) -> dict[str, list[QueueProgress]]:
        async with Admin(namesrv) as client:
            (broker,) = (one.broker_name for one in await client.brokers.list())
            return await client.brokers.progress(broker)

    monkeypatch.setattr(calls_module, "INLINE_BYTES_MAX", limit)
    monkeypatch.setattr(brokers_module, "_progress_by_group", noted)
    with LocalCluster() as cluster, mq.Admin(namesrv=cluster.namesrv) as made:
        made.topics.create("T", queues=2)
        made.groups.create("g")
        first = made.topics.status("T")[0]
        made.groups.commit("g", first.queue, 0)
        found = asyncio.run(main(cluster.namesrv))
    assert [one.queue.queue_id for one in found["g"]] == [0, 1]
    assert (threads == [threading.get_ident()]) == (limit > 0)


@pytest.mark.parametrize("limit", [0, 1 << 20])
def test_long_lists_of_names_are_parsed_in_a_thread(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of some thousand groups takes 50 ms."""
    threads: list[int] = []

    def noted(kind: type[bodies.TopicList] | type[bodies.SubscriptionGroupTable]) -> None:
        read = kind.decode

        def decode(body: bytes) -> Any:
            threads.append(threading.get_ident())
            return read(body)

        monkeypatch.setattr(kind, "decode", decode)

    async def main(namesrv: str) -> None:
        async with Admin(namesrv) as client:
            (broker,) = (one.broker_name for one in await client.brokers.list())
            assert await client.topics.list() == ["T"]
            assert await client.groups.list() == ["g"]
            assert list(await client.groups.config("g")) == [broker]
            assert "T" in next(iter((await client.name_servers.topics()).values()))
            assert (await client.brokers.clients(broker)).clients == []

    with LocalCluster() as cluster, mq.Admin(namesrv=cluster.namesrv) as made:
        made.topics.create("T", queues=1)
        made.groups.create("g")
        monkeypatch.setattr(calls_module, "INLINE_BYTES_MAX", limit)
        noted(bodies.TopicList)
        noted(bodies.SubscriptionGroupTable)
        asyncio.run(main(cluster.namesrv))
    assert len(threads) == 5
    assert all((thread == threading.get_ident()) == (limit > 0) for thread in threads)


def test_one_large_answer_is_parsed_at_a_time() -> None:
    """Threads that compute at the same time take the interpreter from the loop, and are no faster."""
    running: list[int] = []
    at_once: list[int] = []

    def decode(body: bytes) -> bytes:
        running.append(1)
        for _ in range(1000):
            at_once.append(len(running))
            os.sched_yield()
        running.pop()
        return body

    async def main() -> None:
        bodies_of_all = [bytes([number]) for number in range(10)]
        found = await asyncio.gather(*(calls_module.apart(decode, body, 0) for body in bodies_of_all))
        assert found == bodies_of_all

    asyncio.run(main())
    assert max(at_once) == 1
