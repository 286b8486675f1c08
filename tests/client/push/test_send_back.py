"""Failed messages on their way back."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.client.consuming import SEND_BACK
from tests.client.fake import FakeCluster, answer, fake_cluster
from tests.support import run

from sparrowmq.client.base.settings import ClientSettings, ConsumerSettings
from sparrowmq.client.cluster.broker_api import no_generation
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.client.consumer.dynamic_settings import DynamicSettings
from sparrowmq.client.consumer.outcomes import ConsumeResult, Retry, why_of
from sparrowmq.client.push.send_back import FORBIDDEN_MAX, SendBack, retry_properties
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.protocol import headers, properties
from sparrowmq.protocol.bodies import SubscriptionGroupConfig
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.compression import decompress
from sparrowmq.protocol.sysflag import COMPRESSED, CompressionType

CONFIG = int(RequestCode.GET_BROKER_CONFIG)


def message(**props: str) -> ReceivedMessage:
    queue = MessageQueue("T", "broker-a", 0)
    return ReceivedMessage(queue, 5, 77, "T", b"body", props, 9, 0, 0, "", 0, "", 2, 0, 0, "OFFSETID")


@pytest.mark.proves("client:D-58")
def test_copy_names_its_original() -> None:
    copy = retry_properties(
        message(
            UNIQ_KEY="U", KEYS="k", MIN_OFFSET="1", MAX_OFFSET="2", TRAN_MSG="true", CONSUME_START_TIME="3"
        ),
        3,
        16,
    )
    assert copy == {
        "UNIQ_KEY": "U",
        "KEYS": "k",
        "ORIGIN_MESSAGE_ID": "U",
        "RETRY_TOPIC": "T",
        "RECONSUME_TIME": "3",
        "MAX_RECONSUME_TIMES": "16",
        "DELAY": "5",
    }
    assert retry_properties(message(ORIGIN_MESSAGE_ID="O"), 1, 16)["ORIGIN_MESSAGE_ID"] == "O"
    assert "MAX_RECONSUME_TIMES" not in retry_properties(message(MAX_RECONSUME_TIMES="3"), 1, None)


def test_copy_contains_the_handlers_error_if_there_is_room() -> None:
    assert retry_properties(message(), 1, 16, "ValueError: x")["SPARROW_ERROR"] == "ValueError: x"
    assert "SPARROW_ERROR" not in retry_properties(message(SPARROW_ERROR="before"), 1, 16)
    assert "SPARROW_ERROR" not in retry_properties(message(own="x" * 9000), 1, 16, "ValueError: x")


def test_handler_error_is_described() -> None:
    assert why_of(ValueError("a\nb")) == "ValueError: a b"
    assert why_of(Retry("busy")) == "Retry: busy"
    assert why_of(ConsumeResult.LATER) == "the handler returned ConsumeResult.LATER"


def flow(test: Callable[[FakeCluster, ClientInstance], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with fake_cluster("T", "%RETRY%g", queues=1) as cluster:
            instance = ClientInstance(ClientSettings(namesrv=cluster.namesrv))
            await instance.update_route("T")
            try:
                await test(cluster, instance)
            finally:
                await instance.close()

    run(main())


def back_of(instance: ClientInstance, limit: int) -> SendBack:
    dynamic = DynamicSettings(ConsumerSettings(max_reconsume_times=limit), lambda: 0)
    return SendBack(instance, "g", dynamic, 5, generation_of=no_generation, copies=True)


@pytest.mark.proves("client:D-56", "client:D-57", "MUST-66")
@pytest.mark.parametrize(("limit", "told"), [(-1, None), (3, "3"), (5, "5")])
def test_broker_gets_level_and_the_limit_that_was_set(limit: int, told: str | None) -> None:
    async def test(cluster: FakeCluster, instance: ClientInstance) -> None:
        cluster.broker.on[SEND_BACK] = lambda conn, c: answer()
        assert await back_of(instance, limit).send(message(UNIQ_KEY="U"), level=7)
        (request,) = cluster.broker.requests(SEND_BACK)
        assert (request.ext["offset"], request.ext["delayLevel"], request.ext["originMsgId"]) == (
            "77",
            "7",
            "U",
        )
        assert request.ext.get("maxReconsumeTimes") == told

    flow(test)


@pytest.mark.proves("client:D-57", "client:D-100")
def test_wait_is_rounded_up_to_a_level_of_the_broker() -> None:
    """The broker is asked for its levels once per connection; without an answer RocketMQ's count."""

    async def test(cluster: FakeCluster, instance: ClientInstance) -> None:
        broker = cluster.broker
        broker.on[SEND_BACK] = lambda conn, c: answer()
        broker.on[CONFIG] = lambda conn, c: answer(body=b"messageDelayLevel=2s 30s 1h\n")
        back = back_of(instance, -1)
        waits = (0, 3, 31, 9999)
        assert all([await back.send(message(), after) for after in waits])
        assert [one.ext["delayLevel"] for one in broker.requests(SEND_BACK)] == ["1", "2", "3", "3"]
        assert len(broker.requests(CONFIG)) == 1

        broker.on[CONFIG] = lambda conn, c: answer(ResponseCode.NO_PERMISSION, remark="no right")
        async with cluster.moved(instance):
            assert all([await back.send(message(), after) for after in waits])
            assert await back.send(message(), 3, level=-1) and await back.send(message())
        found = [one.ext["delayLevel"] for one in broker.requests(SEND_BACK)]
        assert found[4:] == ["1", "2", "5", "18", "-1", "0"]
        assert len(broker.requests(CONFIG)) == 2

    flow(test)


@pytest.mark.proves("client:D-58", "client:D-54")
def test_message_that_is_not_accepted_is_copied_if_possible() -> None:
    async def test(cluster: FakeCluster, instance: ClientInstance) -> None:
        back = back_of(instance, -1)
        assert not await back.send(message()), "neither is taken"
        cluster.broker.takes_retries = True
        assert await back.send(message())
        (sent,) = [headers.send_from_v2(c.ext) for c in cluster.broker.requests(RequestCode.SEND_MESSAGE_V2)][
            -1:
        ]
        assert (sent.topic, sent.flag, sent.reconsume_times, sent.max_reconsume_times) == (
            "%RETRY%g",
            9,
            3,
            None,
        )
        assert properties.find((sent.properties or "").encode(), b"RETRY_TOPIC") == b"T"
        assert await back.send_copy(message())
        cluster.topics.pop("%RETRY%g")
        instance.routes.forget("%RETRY%g")
        assert not await back.send_copy(message()), "there is no retry topic"

    flow(test)


def test_copy_comes_after_the_wait_that_the_handler_asked_for() -> None:
    async def test(cluster: FakeCluster, instance: ClientInstance) -> None:
        cluster.broker.takes_retries = True
        cluster.broker.on[CONFIG] = lambda conn, c: answer(body=b"messageDelayLevel=2s 30s 1h\n")
        back = back_of(instance, -1)
        assert await back.send(message(), 31) and await back.send(message())
        sent = [headers.send_from_v2(c.ext) for c in cluster.broker.requests(RequestCode.SEND_MESSAGE_V2)]
        delays = [properties.find((one.properties or "").encode(), b"DELAY") for one in sent]
        assert delays == [b"3", b"5"], "without a wait, the level of the next retry"

    flow(test)


def test_message_goes_back_to_a_broker_that_came_back_under_another_address() -> None:
    async def test(cluster: FakeCluster, instance: ClientInstance) -> None:
        cluster.broker.on[SEND_BACK] = lambda conn, c: answer()
        assert await back_of(instance, 16).bury(message(UNIQ_KEY="U"))
        async with cluster.moved(instance):
            assert await back_of(instance, 16).bury(message(UNIQ_KEY="V"))
        assert [c.ext["originMsgId"] for c in cluster.broker.requests(SEND_BACK)] == ["U", "V"]

    flow(test)


@pytest.mark.parametrize("kind", [0, CompressionType.ZSTD])
def test_copy_of_a_compressed_message_is_compressed(kind: int) -> None:
    """Else a message that fits only compressed could never be retried."""

    async def test(cluster: FakeCluster, instance: ClientInstance) -> None:
        cluster.broker.takes_retries = True
        large = message()
        large.body, large.sys_flag, large.store_size = b"x" * 100_000, kind, 200
        assert await back_of(instance, -1).send_copy(large)
        (request,) = cluster.broker.requests(RequestCode.SEND_MESSAGE_V2)
        sent = headers.send_from_v2(request.ext)
        assert len(request.body) < 1000 and sent.sys_flag & COMPRESSED
        assert decompress(request.body, sent.sys_flag) == large.body

    flow(test)


@pytest.mark.parametrize("how", ["send", "send_copy", "bury"])
def test_message_that_no_broker_can_store_is_skipped_after_its_retries(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(cluster: FakeCluster, instance: ClientInstance) -> None:
        back = back_of(instance, 3)
        for code in (SEND_BACK, RequestCode.SEND_MESSAGE_V2):
            cluster.broker.on[code] = lambda conn, c: answer(ResponseCode.MESSAGE_ILLEGAL, remark="too long")
        bad = message(UNIQ_KEY="U")
        if how == "send":
            assert not await back.send(bad), "it has a retry left"
        bad.reconsume_times = 3
        assert await (back.send(bad) if how == "send" else getattr(back, how)(bad))
        assert back.skipped == 1 and "message U of group g" in caplog.text
        assert cluster.broker.requests(SEND_BACK)[-1].ext["delayLevel"] == "-1", "it was to be a dead letter"

    flow(test)


@pytest.mark.parametrize("how", ["send", "send_copy", "bury"])
def test_message_is_skipped_when_a_permission_is_missing_for_good(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(cluster: FakeCluster, instance: ClientInstance) -> None:
        back = back_of(instance, 3)
        for code in (SEND_BACK, RequestCode.SEND_MESSAGE_V2):
            cluster.broker.on[code] = lambda conn, c: answer(ResponseCode.NO_PERMISSION, remark="read only")
        bad = message(UNIQ_KEY="U")
        bad.reconsume_times = FORBIDDEN_MAX - 1
        assert not await getattr(back, how)(bad), "somebody may give the permission"
        bad.reconsume_times = FORBIDDEN_MAX
        assert await getattr(back, how)(bad)
        assert back.skipped == 1 and "message U of group g" in caplog.text

    flow(test)


def test_last_retry_is_that_of_the_group() -> None:
    async def test(cluster: FakeCluster, instance: ClientInstance) -> None:
        back, broker = back_of(instance, -1), cluster.broker
        config = SubscriptionGroupConfig(group_name="g", retry_max_times=20)
        told = answer(body=config.encode())
        broker.learn(int(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG), lambda conn, c: told)
        for code in (SEND_BACK, RequestCode.SEND_MESSAGE_V2):
            broker.on[code] = lambda conn, c: answer(ResponseCode.MESSAGE_ILLEGAL, remark="too long")
        bad = message()
        bad.reconsume_times = 19
        assert not await back.send(bad)
        bad.reconsume_times = 20
        assert await back.send(bad)
        assert back.skipped == 1

    flow(test)


def test_group_may_permit_more_retries_than_usual() -> None:
    async def test(cluster: FakeCluster, instance: ClientInstance) -> None:
        cluster.broker.on[SEND_BACK] = lambda conn, c: answer()
        often = message()
        often.reconsume_times = 20
        assert await back_of(instance, -1).send(often)
        (request,) = cluster.broker.requests(SEND_BACK)
        assert request.ext["delayLevel"] == "0", "the broker knows the group's limit"

    flow(test)


def test_message_is_kept_while_brokers_are_only_busy() -> None:
    async def test(cluster: FakeCluster, instance: ClientInstance) -> None:
        back = back_of(instance, 0)
        for code in (SEND_BACK, RequestCode.SEND_MESSAGE_V2):
            cluster.broker.on[code] = lambda conn, c: answer(ResponseCode.SYSTEM_BUSY, remark="busy")
        assert not await back.send(message())
        assert not await back.send_copy(message())
        assert back.skipped == 0

    flow(test)
