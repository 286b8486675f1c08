"""Requests of brokers to consumers: reset, offsets, running info, direct consumption."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from tests.client.consuming import committed, consumer_of, flow, numbers, put
from tests.client.fake import FakeBroker, FakeCluster
from tests.support import about, until

from sparrowmq.client.base.settings import ConsumerSettings
from sparrowmq.client.consumer.broker_requests import properties_of
from sparrowmq.client.consumer.outcomes import ConsumeResult, Retry
from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.protocol import bodies
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command

Q0, Q1 = (MessageQueue("T", "broker-a", number) for number in range(2))


async def ask(broker: FakeBroker, code: int, ext: dict[str, str], body: bytes = b"") -> Command:
    """The answer of the group's first member, over its connection to the broker."""
    (conn,) = list(broker.members["g"].values())[:1]
    return await conn.call(Command(code, ext=ext, body=body), 20)


@pytest.mark.proves("client:D-81", "MUST-69")
def test_reset_drops_unfinished_messages_and_continues_from_the_new_offsets() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        async with consumer_of(cluster) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: len(got) == 10)
            table = bodies.ResetOffsetBody({Q0: 3, Q1: 5, MessageQueue("T", "broker-z", 0): 1})
            (conn,) = cluster.broker.members["g"].values()
            ext = {"topic": "T", "group": "g", "timestamp": "0", "isForce": "false"}
            conn.notify(Command(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ext=ext, body=table.encode()))
            await until(lambda: len(got) == 12)
            await until(lambda: not consumer.paused)
            assert {Q0, Q1} <= set(consumer.assignment)
        assert sorted((m.queue.queue_id, m.queue_offset) for m in got[10:]) == [(0, 3), (0, 4)]
        assert committed(cluster) == {0: 5, 1: 5}

    flow(test, 10)


@pytest.mark.proves("client:D-80", "client:D-81")
def test_pause_during_a_reset_stays_after_it() -> None:
    async def test(cluster: FakeCluster) -> None:
        begun, free = asyncio.Event(), asyncio.Event()

        async def handle(message: ReceivedMessage) -> None:
            begun.set()
            await free.wait()

        async with consumer_of(cluster) as consumer:
            consumer.subscribe("T", handler=handle)
            await begun.wait()
            member = consumer._member
            assert member is not None
            resetting = asyncio.create_task(member.reset_offsets({Q0: 0}))
            await until(lambda: consumer.paused)
            consumer.resume()
            assert consumer.paused, "the reset is not over"
            consumer.pause()
            free.set()
            await resetting
            assert consumer.paused
            consumer.resume()
            assert not consumer.paused

    flow(test, 2, queues=1)


@pytest.mark.proves("client:D-82")
def test_member_resets_itself_by_time() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        async with consumer_of(cluster) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: len(got) == 8)
            with pytest.raises(SettingsError, check=about(setting="to", value=datetime(2024, 1, 1))):
                await consumer.reset(datetime(2024, 1, 1))
            await consumer.reset(datetime(2024, 1, 1, tzinfo=UTC))  # the fake finds the middle
            await until(lambda: len(got) == 12)
        assert numbers(got[8:]) == [4, 5, 6, 7]

    flow(test, 8)


@pytest.mark.proves("client:D-83", "client:D-52", "client:D-06", "client:D-111")
def test_broadcasting_consumers_cannot_be_reset_and_do_not_retry_or_commit(tmp_path: Any) -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []

        def handle(message: ReceivedMessage) -> None:
            got.append(message)
            if message.body == b"2":
                raise ValueError("dropped")

        async with consumer_of(cluster, model="broadcasting", offset_dir=tmp_path) as consumer:
            consumer.subscribe("T", handler=handle)
            await until(lambda: len(got) == 10)
            assert {queue.topic for queue in consumer.assignment} == {"T"}
            (conn,) = cluster.broker.members["g"].values()
            ext = {"topic": "T", "group": "g", "timestamp": "0", "isForce": "false"}
            body = bodies.ResetOffsetBody({Q0: 0}).encode()
            conn.notify(Command(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ext=ext, body=body))
            await until(lambda: sum(consumer.lag.values()) == 0)
            for number in (10, 11, 12, 13):
                put(cluster, number)
                await until(lambda number=number: len(got) == number + 1)
                await until(lambda: sum(consumer.lag.values()) == 0)
        assert len(got) == 14
        assert cluster.broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK) == []
        assert cluster.broker.requests(RequestCode.UPDATE_CONSUMER_OFFSET) == []
        assert all(not int(c.ext["sysFlag"]) & 1 for c in cluster.broker.requests(RequestCode.PULL_MESSAGE))
        assert cluster.broker.heartbeats[-1].consumers[0].message_model == "BROADCASTING"

    flow(test, 10)


@pytest.mark.proves("client:A-89", "client:A-90", "client:D-45", "client:D-86", "client:D-87")
def test_member_reports_its_offsets_and_state() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        async with consumer_of(cluster, threads=7) as consumer:
            consumer.subscribe("T", "A || B", got.append)
            await until(lambda: len(got) == 10)
            await until(lambda: sum(consumer.lag.values()) == 0)
            status = await ask(
                cluster.broker, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": "T", "group": "g"}
            )
            assert bodies.ConsumerStatusBody.decode(status.body).queues == {Q0: 5, Q1: 5}
            ext = {"consumerGroup": "g", "clientId": consumer.client_id, "jstackEnable": "true"}
            answer = await ask(cluster.broker, RequestCode.GET_CONSUMER_RUNNING_INFO, ext)
            info = bodies.ConsumerRunningInfo.decode(answer.body)
            assert info.properties["PROP_CONSUMEORDERLY"] == "false"
            assert info.properties["PROP_THREADPOOL_CORE_SIZE"] == "7"
            assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
            assert info.properties["PROP_CONSUMER_START_TIMESTAMP"].isdecimal()
            assert info.properties["PROP_NAMESERVER_ADDR"] == cluster.namesrv
            assert {s.topic for s in info.subscriptions} == {"T", "%RETRY%g"}
            assert (info.queues[Q0].commit_offset, info.queues[Q0].cached_msg_count) == (5, 0)
            assert info.queues[Q0].last_pull_timestamp > 0
            assert set(info.statuses) == {"T", "%RETRY%g"}
            assert info.jstack is not None
            assert "task pull T/broker-a/0" in info.jstack
            assert "thread MainThread" in info.jstack
            ext = {"consumerGroup": "other", "clientId": consumer.client_id}
            unknown = await ask(cluster.broker, RequestCode.GET_CONSUMER_RUNNING_INFO, ext)
            assert unknown.code == 1
            assert "other" in (unknown.remark or "")
            missing = await ask(cluster.broker, RequestCode.GET_CONSUMER_RUNNING_INFO, {})
            assert missing.code != 0

    flow(test, 10, tags=("A", "B"))


def fails(message: ReceivedMessage) -> None:
    raise KeyError("no such order")


def asks_for_more_time(message: ReceivedMessage) -> None:
    raise Retry("later")


async def works(message: ReceivedMessage) -> None:
    assert message.topic == "T"


@pytest.mark.proves("client:A-91", "client:D-88")
@pytest.mark.parametrize(
    ("handler", "result", "remark"),
    [
        (works, "CR_SUCCESS", None),
        (lambda m: None, "CR_SUCCESS", None),
        (fails, "CR_THROW_EXCEPTION", "KeyError"),
        (asks_for_more_time, "CR_LATER", "later"),
        (lambda m: ConsumeResult.LATER, "CR_LATER", None),
        (lambda m: ConsumeResult.COMMIT, "CR_COMMIT", None),
    ],
)
def test_message_can_be_delivered_directly_to_a_handler(
    handler: Any,
    result: str,
    remark: str | None,
) -> None:
    async def test(cluster: FakeCluster) -> None:
        record = cluster.broker.queues["T", 0][0]
        async with consumer_of(cluster, consume_from="last") as consumer:
            consumer.subscribe("T", handler=handler)
            await until(lambda: cluster.broker.members["g"])
            ext = {"consumerGroup": "g", "clientId": consumer.client_id, "brokerName": "broker-a"}
            answer = await ask(cluster.broker, RequestCode.CONSUME_MESSAGE_DIRECTLY, ext, record)
            found = bodies.ConsumeMessageDirectlyResult.decode(answer.body)
            assert (found.consume_result, found.order, found.auto_commit) == (result, False, True)
            assert (found.remark is None) if remark is None else (remark in (found.remark or ""))
            bad = await ask(cluster.broker, RequestCode.CONSUME_MESSAGE_DIRECTLY, ext, record + record)
            assert bad.code != 0
            assert "2 messages" in (bad.remark or "")

    flow(test, 1, queues=1)


@pytest.mark.proves("client:D-80", "client:C-04", "MUST-14")
def test_paused_consumer_pulls_nothing_and_continues_when_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparrowmq.client.push.puller.PAUSED_SECONDS", 0.01)

    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        async with consumer_of(cluster, pull_hold=0.05) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: len(got) == 4)
            assert not consumer.paused
            consumer.pause()
            assert consumer.paused
            member = consumer._member
            assert member is not None
            await until(lambda: member.instance.remoting.in_flight == 0)
            put(cluster, 99)
            now = time.monotonic()
            await until(lambda: all(held.last_pull > now for held in member.queues.process_queues()))
            assert len(got) == 4
            assert not await member._rebalancer.round(), "a paused round counts as not settled"
            consumer.resume()
            await until(lambda: len(got) == 5)

    flow(test, 4)


def test_secrets_are_not_reported() -> None:
    settings = ConsumerSettings(
        access_key="me", secret_key="hidden", security_token="hidden", tls_key_password="hidden", batch=3
    )
    instance: Any = SimpleNamespace(name_servers=SimpleNamespace(addresses=("a:1", "b:1")))
    kind = bodies.ConsumeType.CONSUME_PASSIVELY
    told = properties_of(settings, instance, "g", kind, 5, messageModel="CLUSTERING")
    assert "hidden" not in str(told)
    assert (told["access_key"], told["batch"], told["consumerGroup"]) == ("me", "3", "g")
    assert (told["PROP_NAMESERVER_ADDR"], told["PROP_CONSUMER_START_TIMESTAMP"]) == ("a:1;b:1", "5")
    assert told["messageModel"] == "CLUSTERING"
