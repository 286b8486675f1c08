"""Topics, groups and messages that break a rule: what clients raise, commands print and brokers answer."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.cli.conftest import Sparrow
from tests.contract.bad_input import ask, send_request
from tests.support import about, run, until

import sparrowmq as mq
from sparrowmq import aio
from sparrowmq.core.errors import (
    BrokerError,
    InvalidMessageError,
    InvalidNameError,
    NoRouteError,
    SparrowError,
)
from sparrowmq.core.names import SEND_FORBIDDEN_TOPICS
from sparrowmq.protocol.batch import encode_batch
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.testing import LocalCluster

BODY_MAX = 4 * 1024 * 1024


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """A cluster that makes topics at the first send."""
    with LocalCluster() as running:
        running.create_topic("Sound", queues=1)
        yield running


@pytest.fixture(scope="module")
def strict() -> Iterator[LocalCluster]:
    """A cluster that makes no topic by itself."""
    with LocalCluster(auto_create_topic_enable=False) as running:
        yield running


def refused(cluster: LocalCluster, message: aio.Message, kind: type[SparrowError]) -> str:
    """What every way to send says of a message it does not take; they must all refuse it."""
    texts = set[str]()

    async def main() -> None:
        async with aio.Producer("p", namesrv=cluster.namesrv) as producer:
            with pytest.raises(kind) as single:
                await producer.send(message)
            with pytest.raises(kind) as oneway:
                await producer.send_oneway(message)
            with pytest.raises(kind) as batch:
                await producer.send_batch([message])
            texts.update(str(caught.value) for caught in (single, oneway, batch))

    run(main())
    with mq.Producer("p", namesrv=cluster.namesrv) as producer, pytest.raises(kind) as caught:
        producer.send(message)
    texts.add(str(caught.value))
    assert len(texts) == 1, texts
    return texts.pop()


def topics_on_disk(cluster: LocalCluster) -> set[str]:
    """Topics whose queues have files."""
    directory = cluster.data / "consumequeue"
    return set(os.listdir(directory)) if directory.exists() else set()


def answer(cluster: LocalCluster, request: Command) -> Command:
    return run(ask(cluster.broker_address, request))[0]


# Unknown topics


def test_an_unknown_topic_is_made_by_the_first_send(cluster: LocalCluster) -> None:
    async def main() -> None:
        async with aio.Producer("p", namesrv=cluster.namesrv) as producer:
            assert (await producer.send(aio.Message("New1", b"x"))).queue.topic == "New1"
            await producer.send_oneway(aio.Message("New2", b"x"))
            assert (await producer.send_batch([aio.Message("New3", b"x")])).queue.topic == "New3"
        await until(lambda: {"New1", "New2", "New3"} <= topics_on_disk(cluster))

    run(main())
    assert Sparrow(cluster.namesrv)("send", "New4", "x").out.startswith("SEND_OK")
    assert answer(cluster, send_request(b"x", topic="New5")).code == ResponseCode.SUCCESS


def test_an_unknown_topic_is_an_error_where_none_is_made(strict: LocalCluster) -> None:
    text = refused(strict, aio.Message("Missing", b"x"), NoRouteError)
    assert "'Missing'" in text and "`sparrow topic create Missing`" in text
    outcome = Sparrow(strict.namesrv)("send", "Missing", "x", status=1)
    assert outcome.err == f"sparrow: {text}\n"
    raw = answer(strict, send_request(b"x", topic="Missing"))
    assert raw.code == ResponseCode.TOPIC_NOT_EXIST
    assert "topic[Missing]" in (raw.remark or "") and "sparrow topic create" in (raw.remark or "")
    assert topics_on_disk(strict) == set()


@pytest.mark.parametrize(
    "arguments",
    [
        ("topic", "route", "Missing"),
        ("topic", "status", "Missing"),
        ("topic", "delete", "Missing"),
        ("consume", "Missing"),
    ],
)
def test_looking_at_an_unknown_topic_says_how_to_make_it(
    cluster: LocalCluster, arguments: tuple[str, ...]
) -> None:
    outcome = Sparrow(cluster.namesrv)(*arguments, status=1)
    assert len(outcome.err.splitlines()) == 1
    assert "'Missing'" in outcome.err and "sparrow topic create Missing" in outcome.err


def test_a_consumer_of_an_unknown_topic_says_so_and_begins_when_it_is_there(
    strict: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        got = list[bytes]()
        settings = aio.ConsumerSettings(rebalance_interval_min=0.05, consume_from="first")
        consumer = aio.PushConsumer("waiting", namesrv=strict.namesrv, settings=settings)
        consumer.subscribe("Later", handler=lambda message: got.append(message.body))
        async with consumer, aio.Admin(namesrv=strict.namesrv) as admin:
            await until(lambda: any("no broker serves topic Later" in text for text in caplog.messages))
            await admin.topics.create("Later", queues=1)
            async with aio.Producer("p", namesrv=strict.namesrv) as producer:
                await producer.send(aio.Message("Later", b"x"))
            await until(lambda: got == [b"x"])

    with caplog.at_level(logging.WARNING, logger="sparrowmq.client"):
        run(main())
    assert sum("no broker serves topic Later" in text for text in caplog.messages) == 1


def test_pulls_of_unknown_topics_queues_and_groups_are_refused_by_name() -> None:
    def pull(**fields: Any) -> Command:
        ext = {"consumerGroup": "TOOLS_CONSUMER", "topic": "Pulled", "queueId": 0, "queueOffset": 0}
        ext |= {"maxMsgNums": 1, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0}
        ext |= {"subscription": "*", "subVersion": 0} | fields
        request = Command(RequestCode.PULL_MESSAGE, ext={name: str(value) for name, value in ext.items()})
        return answer(strict, request)

    wrong = (
        (ResponseCode.TOPIC_NOT_EXIST, "topic[Missing]", {"topic": "Missing"}),
        (ResponseCode.TOPIC_NOT_EXIST, "topic[../x]", {"topic": "../x"}),
        (ResponseCode.INVALID_PARAMETER, "queueId[2]", {"queueId": 2}),
        (ResponseCode.INVALID_PARAMETER, "queueId[-1]", {"queueId": -1}),
        (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "[nobody]", {"consumerGroup": "nobody"}),
        (ResponseCode.SUBSCRIPTION_PARSE_FAILED, "'||'", {"subscription": "||"}),
    )
    with LocalCluster(auto_create_subscription_group=False) as strict:
        strict.create_topic("Pulled", queues=2)
        assert pull().code == ResponseCode.PULL_NOT_FOUND
        for code, text, fields in wrong:
            refusal = pull(**fields)
            assert refusal.code == code, refusal
            assert text in (refusal.remark or "")


def test_a_consumer_whose_group_may_not_be_made_is_told(caplog: pytest.LogCaptureFixture) -> None:
    def told() -> list[str]:
        return [text for text in caplog.messages if "autoCreateSubscriptionGroup" in text]

    async def main(namesrv: str) -> None:
        settings = aio.ConsumerSettings(rebalance_interval_min=0.05)
        consumer = aio.PushConsumer("stranger", namesrv=namesrv, settings=settings)
        consumer.subscribe("Sound", handler=print)
        async with consumer:
            await until(told)

    with LocalCluster(auto_create_subscription_group=False) as strict:
        strict.create_topic("Sound", queues=1)
        run(main(strict.namesrv))
    assert "stranger" in told()[0]


# Names


@pytest.mark.parametrize(
    ("topic", "text"),
    [
        ("", "the topic is blank; give it a name"),
        ("  ", "the topic is blank; give it a name"),
        ("two words", "the topic 'two words' may only have letters, digits, '%', '|', '_' and '-'"),
        ("../escape", "the topic '../escape' may only have"),
        ("a/b", "the topic 'a/b' may only have"),
        ("nul\x00", r"the topic 'nul\x00' may only have"),
        ("straße", "the topic 'straße' may only have"),
        ("x" * 128, "has 128 characters, the limit is 127"),
        ("%RETRY%" + "x" * 249, "has 256 characters, the limit is 255"),
    ],
)
def test_an_illegal_topic_is_refused_by_name(cluster: LocalCluster, topic: str, text: str) -> None:
    before = topics_on_disk(cluster)
    if not topic.startswith("%RETRY%"):  # batches refuse retry topics for another reason
        assert text in refused(cluster, aio.Message(topic, b"x"), InvalidNameError)
    sparrow = Sparrow(cluster.namesrv)
    if "\x00" not in topic:
        for arguments in (("send", topic, "x"), ("topic", "create", topic), ("consume", topic)):
            outcome = sparrow(*arguments, status=1)
            assert text in outcome.err and len(outcome.err.splitlines()) == 1
    raw = answer(cluster, send_request(b"x", topic=topic))
    assert raw.code == ResponseCode.INVALID_PARAMETER
    assert text in (raw.remark or "")
    fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1"}
    fields |= {"perm": "6", "topicFilterType": "SINGLE_TAG"}
    raw = answer(cluster, Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext=fields))
    assert raw.code == ResponseCode.INVALID_PARAMETER
    assert text in (raw.remark or "")
    assert topics_on_disk(cluster) == before


@pytest.mark.parametrize("topic", sorted(SEND_FORBIDDEN_TOPICS))
def test_topics_of_rocketmq_itself_take_no_messages(cluster: LocalCluster, topic: str) -> None:
    text = refused(cluster, aio.Message(topic, b"x"), InvalidNameError)
    assert text == f"the topic {topic!r} is RocketMQ's own; clients may not send to it"
    assert answer(cluster, send_request(b"x", topic=topic)).code == ResponseCode.NO_PERMISSION
    assert topic not in topics_on_disk(cluster)


@pytest.mark.parametrize("name", [None, 5, b"bytes"])
def test_names_that_are_not_text_are_refused(cluster: LocalCluster, name: Any) -> None:
    with pytest.raises(InvalidNameError, check=about(what="group", value=name)):
        aio.Producer(name)
    with pytest.raises(InvalidNameError, check=about(what="topic", value=name)):
        aio.PushConsumer("g").subscribe(name)

    async def main() -> None:
        async with aio.Producer("p", namesrv=cluster.namesrv) as producer:
            with pytest.raises(InvalidNameError, check=about(what="topic", value=name)):
                await producer.send(aio.Message(name, b"x"))

    run(main())


@pytest.mark.parametrize(
    ("group", "text"),
    [
        ("", "the group is blank"),
        ("two words", "the group 'two words' may only have letters"),
        ("../escape", "the group '../escape' may only have letters"),
        ("x" * 121, "has 121 characters, the limit is 120"),
        ("DEFAULT_CONSUMER", "the group 'DEFAULT_CONSUMER' is a placeholder; choose a name of your own"),
    ],
)
def test_an_illegal_group_is_refused_by_name(cluster: LocalCluster, group: str, text: str) -> None:
    makers: list[Callable[[str], object]] = [
        aio.Producer,
        aio.PushConsumer,
        aio.PullConsumer,
        mq.Producer,
        mq.PushConsumer,
        mq.PullConsumer,
    ]
    for maker in makers:
        with pytest.raises(InvalidNameError) as caught:
            maker(group)
        assert text in str(caught.value)
    outcome = Sparrow(cluster.namesrv)("consume", "Sound", "--group", group, status=1)
    assert text in outcome.err and len(outcome.err.splitlines()) == 1
    ext = {"consumerGroup": group, "topic": "Sound", "queueId": "0", "queueOffset": "0", "maxMsgNums": "1"}
    ext |= {"sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*"}
    ext |= {"subVersion": "0"}
    raw = answer(cluster, Command(RequestCode.PULL_MESSAGE, ext=ext))
    assert raw.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert f"[{group}]" in (raw.remark or "")


def test_commits_for_queues_that_a_topic_does_not_have_are_refused(cluster: LocalCluster) -> None:
    def commit(topic: str, queue_id: int) -> Command:
        ext = {"consumerGroup": "committers", "topic": topic, "queueId": str(queue_id), "commitOffset": "0"}
        return answer(cluster, Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext=ext))

    unknown = commit("Sound", 0)
    assert unknown.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert unknown.remark == "Group committers not exist!"
    Sparrow(cluster.namesrv)("group", "create", "committers")
    assert commit("Sound", 0).code == ResponseCode.SUCCESS
    for queue_id in (-1, 1, 2**31 - 1):
        refusal = commit("Sound", queue_id)
        assert refusal.code == ResponseCode.INVALID_PARAMETER
        assert refusal.remark == f"queueId {queue_id}: topic Sound has queues 0 to 0"
    assert commit("Missing", 0).code == ResponseCode.TOPIC_NOT_EXIST


# Bodies


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "the body of a message to 'Sound' is empty; RocketMQ requires at least one byte"),
        (
            bytes(BODY_MAX + 1),
            f"has {BODY_MAX + 1} bytes, the limit is {BODY_MAX}; send it in parts",
        ),
        ("text", "the body must be bytes, not str; encode it first"),
        (None, "the body must be bytes, not NoneType"),
        (bytearray(b"x"), "the body must be bytes, not bytearray"),
    ],
    ids=["empty", "oversized", "text", "none", "bytearray"],
)
def test_an_illegal_body_never_leaves(cluster: LocalCluster, body: Any, text: str) -> None:
    assert text in refused(cluster, aio.Message("Sound", body), InvalidMessageError)


def test_an_empty_body_on_the_command_line(cluster: LocalCluster) -> None:
    outcome = Sparrow(cluster.namesrv)("send", "Sound", "", status=1)
    assert (
        outcome.err
        == "sparrow: the body of a message to 'Sound' is empty; RocketMQ requires at least one byte\n"
    )


def test_brokers_check_bodies_by_themselves(cluster: LocalCluster) -> None:
    end = queue_end(cluster, "Sound")
    for body, text in (
        (b"", "its body is empty"),
        (bytes(BODY_MAX + 1), f"its body has {BODY_MAX + 1} bytes, maxMessageSize is {BODY_MAX}"),
    ):
        raw = answer(cluster, send_request(body, topic="Sound"))
        assert raw.code == ResponseCode.MESSAGE_ILLEGAL
        assert text in (raw.remark or "")
    assert queue_end(cluster, "Sound") == end


def queue_end(cluster: LocalCluster, topic: str, queue_id: int = 0) -> int:
    ext = {"topic": topic, "queueId": str(queue_id)}
    return int(answer(cluster, Command(RequestCode.GET_MAX_OFFSET, ext=ext)).ext["offset"])


def test_the_largest_body_goes_through_even_if_it_cannot_be_compressed(cluster: LocalCluster) -> None:
    body = os.urandom(BODY_MAX)

    async def main() -> None:
        async with (
            aio.Producer("p", namesrv=cluster.namesrv) as producer,
            aio.PullConsumer(namesrv=cluster.namesrv) as consumer,
        ):
            result = await producer.send(aio.Message("Sound", body), timeout=20)
            pulled = await consumer.pull(result.queue, result.queue_offset)
            assert pulled.messages[0].body == body

    run(main())


def test_a_broker_with_a_smaller_limit_names_it(cluster: LocalCluster) -> None:
    async def main(namesrv: str) -> BrokerError:
        async with aio.Producer("p", namesrv=namesrv) as producer:
            with pytest.raises(BrokerError) as caught:
                await producer.send(aio.Message("Small", os.urandom(2000)))
            assert (await producer.send(aio.Message("Small", os.urandom(1000)))).queue_offset == 0
            return caught.value

    with LocalCluster(max_message_size=1024) as small:
        error = run(main(small.namesrv))
    assert error.code == ResponseCode.MESSAGE_ILLEGAL
    assert "its body has 2000 bytes, maxMessageSize is 1024" in error.remark


# Tags, keys, properties, flags


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"tags": "a\x01b"}, "must not hold the characters 0x01 and 0x02"),
        ({"keys": ["a", "b\x02"]}, "must not hold the characters 0x01 and 0x02"),
        ({"properties": {"a": "\x01"}}, "must not hold the characters 0x01 and 0x02"),
        ({"properties": {"a\x02": "b"}}, "must not hold the characters 0x01 and 0x02"),
        ({"properties": {"KEYS": "x"}}, "the property 'KEYS' is RocketMQ's own; choose another name"),
        ({"properties": {"UNIQ_KEY": "x"}}, "the property 'UNIQ_KEY' is RocketMQ's own"),
        ({"properties": {"DELAY": "3"}}, "the property 'DELAY' is RocketMQ's own"),
        ({"properties": {"": "x"}}, "is blank; receivers would lose it"),
        ({"properties": {"a": " "}}, "the property 'a'=' ' is blank"),
        ({"properties": {"a": 5}}, "the property 'a'=5 is not text"),
        ({"properties": {5: "a"}}, "the property 5='a' is not text"),
        ({"properties": {"a": "\ud800"}}, r"have '\ud800', which UTF-8 cannot encode"),
        ({"tags": "\udcff"}, r"have '\udcff', which UTF-8 cannot encode"),
        ({"tags": 5}, "the tag of a message to 'Sound' must be text, not int"),
        ({"keys": 5}, "the keys of a message to 'Sound' must be text or several texts, not 5"),
        ({"keys": [b"k"]}, "must be text or several texts"),
        ({"flag": 2**31}, "the flag 2147483648 of a message to 'Sound' must be an integer of 32 bits"),
        ({"flag": "1"}, "the flag '1' of a message to 'Sound' must be an integer of 32 bits"),
    ],
)
def test_a_wrong_property_never_leaves(cluster: LocalCluster, fields: dict[str, Any], text: str) -> None:
    assert text in refused(cluster, aio.Message("Sound", b"x", **fields), InvalidMessageError)


def test_properties_end_at_32767_bytes_on_both_sides(cluster: LocalCluster) -> None:
    text = refused(cluster, aio.Message("Sound", b"x", properties={"a": "é" * 16_384}), InvalidMessageError)
    assert "take 32823 bytes, the limit is 32767; move data to the body" in text
    end = queue_end(cluster, "Sound")
    # what the broker adds counts as well: it says so instead of storing a record nobody can read
    for size in (32_700, 40_000, 70_000):
        raw = answer(cluster, send_request(b"x", topic="Sound", properties=f"a\x01{'x' * size}\x02"))
        assert raw.code == ResponseCode.MESSAGE_ILLEGAL
        assert "the limit is 32767" in (raw.remark or "")
    assert queue_end(cluster, "Sound") == end


@pytest.mark.parametrize(
    ("name", "code", "text"),
    [
        ("DELAY", ResponseCode.SYSTEM_ERROR, "NumberFormatException"),
        ("TIMER_DELIVER_MS", ResponseCode.MESSAGE_ILLEGAL, "timer message illegal"),
        ("TIMER_DELAY_MS", ResponseCode.MESSAGE_ILLEGAL, "timer message illegal"),
        ("TIMER_DELAY_SEC", ResponseCode.MESSAGE_ILLEGAL, "timer message illegal"),
    ],
)
@pytest.mark.parametrize("value", ["soon", "1e3", "9" * 30])
def test_an_invalid_delay_is_refused_rather_than_ignored(
    cluster: LocalCluster, name: str, code: ResponseCode, text: str, value: str
) -> None:
    end = queue_end(cluster, "Sound")
    raw = answer(cluster, send_request(b"x", topic="Sound", properties=f"{name}\x01{value}\x02"))
    assert raw.code == code
    assert text in (raw.remark or "")
    assert queue_end(cluster, "Sound") == end


@pytest.mark.parametrize(
    "text", ["\x02\x02", "\x01", "no separator", "a\x01b", "a\x01b\x01c\x02", "\x01\x02x\x01"]
)
def test_property_strings_nobody_should_write_are_stored_and_read(cluster: LocalCluster, text: str) -> None:
    """Their bodies come out whole; properties that cannot be told apart are left out."""
    raw = answer(cluster, send_request(b"body of it", topic="Odd", properties=text))
    assert raw.code == ResponseCode.SUCCESS
    offset = int(raw.ext["queueOffset"])

    async def main() -> None:
        async with aio.PullConsumer(namesrv=cluster.namesrv) as consumer:
            await until(lambda: _has_route(consumer, "Odd"))
            queue = next(q for q in await consumer.queues("Odd") if q.queue_id == 0)
            pulled = await consumer.pull(queue, offset, max_messages=1)
            assert pulled.messages[0].body == b"body of it"
            assert "UNIQ_KEY" in pulled.messages[0].properties

    run(main())


async def _has_route(consumer: aio.PullConsumer, topic: str) -> bool:
    try:
        return bool(await consumer.queues(topic))
    except NoRouteError:
        return False


# Batches


def test_batches_that_break_a_rule_never_leave(cluster: LocalCluster) -> None:
    message = aio.Message

    async def main() -> None:
        async with aio.Producer("p", namesrv=cluster.namesrv) as producer:
            for messages, text in (
                ([], "a batch needs at least one message"),
                ([message("A", b"x"), message("B", b"x")], "this one has 'A' and 'B'; split it"),
                ([message("A", b"x"), message("A", b"")], "is empty"),
                ([message("%RETRY%g", b"x")], "a batch cannot go to the retry topic '%RETRY%g'"),
                ([message("A", bytes(1 << 20))] * 5, f"the limit is {BODY_MAX}; send smaller batches"),
                (
                    [message("A", b"x", wait_store_ok=False), message("A", b"x")],
                    "must have the same wait_store_ok",
                ),
            ):
                with pytest.raises(InvalidMessageError) as caught:
                    await producer.send_batch(messages)
                assert text in str(caught.value)

    run(main())


def test_brokers_refuse_broken_batches_whole(cluster: LocalCluster) -> None:
    good = encode_batch([(0, b"x", b"UNIQ_KEY\x01A\x02")] * 3)
    end = queue_end(cluster, "Sound")
    for body in (
        good[:-1],
        good + b"\0",
        b"\xff" * 40,
        b"\x00",
        encode_batch([(0, b"x", b""), (0, b"", b"")]),
        encode_batch([(0, bytes(1 << 20), b"")] * 5),
    ):
        request = send_request(body, topic="Sound")
        request.code = RequestCode.SEND_BATCH_MESSAGE
        request.ext["m"] = "true"
        raw = answer(cluster, request)
        assert raw.code == ResponseCode.MESSAGE_ILLEGAL, raw
        assert raw.remark
    assert queue_end(cluster, "Sound") == end
    request = send_request(good, topic="Sound")
    request.code = RequestCode.SEND_BATCH_MESSAGE
    request.ext["m"] = "true"
    assert answer(cluster, request).code == ResponseCode.SUCCESS
    assert queue_end(cluster, "Sound") == end + 3


# Sends that many make at once


def test_one_bad_message_among_many_fails_alone(cluster: LocalCluster) -> None:
    """Over one connection, within one chunk: the good ones are stored, the bad ones refused."""
    bodies = [b"" if number % 10 == 3 else b"%d" % number for number in range(200)]

    async def main() -> list[Command]:
        requests = [send_request(body, topic="Among", opaque=n) for n, body in enumerate(bodies)]
        await ask(cluster.broker_address, send_request(b"first", topic="Among"))
        return await ask(cluster.broker_address, *requests)

    answers = run(main())
    codes = [raw.code for raw in answers]
    wanted = [ResponseCode.SUCCESS if body else ResponseCode.MESSAGE_ILLEGAL for body in bodies]
    assert codes == wanted
    assert queue_end(cluster, "Among") == 1 + wanted.count(ResponseCode.SUCCESS)


def test_a_bad_message_does_not_disturb_a_producer(cluster: LocalCluster) -> None:
    async def main() -> None:
        async with aio.Producer("p", namesrv=cluster.namesrv) as producer:
            good = [producer.send(aio.Message("Mixed", b"x")) for _ in range(20)]
            bad = [producer.send(aio.Message("Mixed", b"")) for _ in range(20)]
            results = await asyncio.gather(*good, *bad, return_exceptions=True)
            assert all(isinstance(result, aio.SendResult) for result in results[:20])
            assert all(isinstance(result, InvalidMessageError) for result in results[20:])
            assert producer.in_flight == 0

    run(main())
