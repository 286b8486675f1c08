"""The simple consumer with our broker: receiving, settling, dead letters, several brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from typing import Any, cast

import pytest
from tests.support import about, run, until, until_sync

import sparrowmq as mq
from sparrowmq import aio
from sparrowmq.client.cluster.pop_calls import PopCalls, popped
from sparrowmq.core.errors import RecordError
from sparrowmq.core.names import dlq_topic
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.filter import parse_expression
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command
from sparrowmq.protocol.pop.receipts import pop_retry_topic
from sparrowmq.protocol.record import encode_record
from sparrowmq.testing import LocalCluster

_numbers = count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: LocalCluster) -> str:
    """A separate topic for each test."""
    name = f"Simple{next(_numbers)}"
    cluster.create_topic(name, 2)
    return name


def send(cluster: LocalCluster, topic: str, *bodies: bytes, **fields: object) -> None:
    with mq.Producer("p", namesrv=cluster.namesrv) as producer:
        for body in bodies:
            producer.send(mq.Message(topic, body, **fields))


def test_messages_are_received_and_acknowledged_one_by_one(cluster: LocalCluster, topic: str) -> None:
    send(cluster, topic, b"1", b"2", b"3")

    async def main() -> None:
        async with aio.SimpleConsumer(f"{topic}_g", namesrv=cluster.namesrv) as consumer:
            consumer.subscribe(topic)
            first = await consumer.receive(2, invisible=1.0, wait=5.0)
            rest = await consumer.receive(32, invisible=30.0, wait=5.0)
            found = [*first, *rest]
            while len(found) < 3:
                found += await consumer.receive(32, invisible=30.0, wait=5.0)
            assert sorted(one.body for one in found) == [b"1", b"2", b"3"]
            assert len(first) <= 2 and first[0].visible_at == first[0].receipt.pop_time + 1000
            for message in found[1:]:
                await consumer.ack(message)
            (again,) = await consumer.receive(32, invisible=30.0, wait=10.0)
            assert (again.body, again.topic, again.reconsume_times) == (found[0].body, topic, 1)
            await consumer.ack(again)
            assert await consumer.receive(32, wait=0.0) == []

    run(main())


def test_requests_do_not_say_when_they_were_sent() -> None:
    """A broker whose clock is ahead would answer them as too late, at once and for ever."""
    asked: list[Command] = []

    class Remoting:
        async def call(self, address: str, command: Command, timeout: float) -> Command:
            asked.append(command)
            is_pop = command.code == RequestCode.POP_MESSAGE
            code = ResponseCode.POLLING_TIMEOUT if is_pop else ResponseCode.SUCCESS
            return Command(code, 1, FLAG_RESPONSE, {"hasMsg": "false"})

    async def main() -> None:
        calls = PopCalls(cast("Any", Remoting()), "g", None)
        wanted = parse_expression("T", "*", 0)
        assert (
            await calls.pop("", "b", wanted, max_messages=1, invisible=1.0, wait=1.0, from_first=True) == []
        )
        assert not await calls.is_ready("", "T", 1.0)

    run(main())
    assert [command.ext.get("bornTime", "0") for command in asked] == ["0", "0"]


def test_waiting_consumer_gets_a_message_when_it_is_sent(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        async with (
            aio.SimpleConsumer(f"{topic}_g", namesrv=cluster.namesrv) as consumer,
            aio.Producer("p", namesrv=cluster.namesrv) as producer,
        ):
            consumer.subscribe(topic)
            waiting = asyncio.ensure_future(consumer.receive(wait=20.0))
            await asyncio.sleep(0.2)
            await producer.send(mq.Message(topic, b"1"))
            assert [one.body for one in await waiting] == [b"1"]

    run(main())


def test_invisible_time_can_be_changed(cluster: LocalCluster, topic: str) -> None:
    send(cluster, topic, b"1")

    async def main() -> None:
        async with aio.SimpleConsumer(f"{topic}_g", namesrv=cluster.namesrv) as consumer:
            consumer.subscribe(topic)
            (one,) = await consumer.receive(invisible=60.0)
            before = one.receipt
            await consumer.change_invisible(one, 0.0)
            assert one.receipt != before
            (again,) = await consumer.receive(invisible=60.0)
            assert (again.body, again.reconsume_times) == (b"1", 1)
            await consumer.change_invisible(again, 120.0)
            await consumer.ack(again)

    run(main())


def test_failed_messages_become_dead_letters(cluster: LocalCluster, topic: str) -> None:
    send(cluster, topic, b"bad", b"never")

    async def main() -> None:
        group = f"{topic}_g"
        async with aio.SimpleConsumer(group, namesrv=cluster.namesrv, max_reconsume_times=0) as consumer:
            consumer.subscribe(topic)
            found: list[aio.PoppedMessage] = []
            while len(found) < 2:
                found += await consumer.receive(invisible=60.0)
            bad = next(one for one in found if one.body == b"bad")
            await consumer.dead_letter(bad)
            await consumer.change_invisible(next(one for one in found if one.body == b"never"), 0.0)
            async with aio.PullConsumer(namesrv=cluster.namesrv) as reader:

                async def dead() -> list[bytes]:
                    assert await consumer.receive(wait=0.2) == [], "it was delivered too often"
                    try:
                        (queue,) = await reader.queues(dlq_topic(group))
                    except aio.NoRouteError:
                        return []
                    return sorted(one.body for one in (await reader.pull(queue, 0)).messages)

                await until(lambda: _is(dead, [b"bad", b"never"]))

    run(main())


def test_group_decides_how_often_a_message_is_delivered_if_the_consumer_does_not_say(
    cluster: LocalCluster, topic: str
) -> None:
    send(cluster, topic, b"twice")

    async def main() -> None:
        group = f"{topic}_g"
        async with (
            aio.Admin(namesrv=cluster.namesrv) as admin,
            aio.SimpleConsumer(group, namesrv=cluster.namesrv) as consumer,
        ):
            await admin.groups.create(group, retries=1)
            consumer.subscribe(topic)
            for times in range(2):
                (found,) = await consumer.receive(invisible=60.0, wait=10.0)
                assert found.reconsume_times == times
                await consumer.change_invisible(found, 0.0)
            await until(lambda: _dead_letters(admin, consumer, group))

    run(main())


def test_dead_letter_that_cannot_be_stored_does_not_lose_the_other_messages(
    cluster: LocalCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        group = f"{topic}_g"
        dead = dlq_topic(group)
        async with (
            aio.Admin(namesrv=cluster.namesrv) as admin,
            aio.SimpleConsumer(group, namesrv=cluster.namesrv, max_reconsume_times=0) as consumer,
        ):
            await admin.topics.create(dead, queues=1, perm=4)
            consumer.subscribe(topic)
            await asyncio.to_thread(send, cluster, topic, b"bad")
            (bad,) = await consumer.receive(invisible=60.0)
            await consumer.change_invisible(bad, 0.0)
            await until(lambda: _waits_for_retry(admin, group, topic))
            await asyncio.to_thread(send, cluster, topic, b"1", b"2")
            found: set[bytes] = set()

            async def received() -> bool:
                for one in await consumer.receive(invisible=2.0, wait=5.0):
                    found.add(one.body)
                    await consumer.ack(one)
                return found == {b"1", b"2"} and "could not be settled (dead_letter)" in caplog.text

            await until(received)
            await admin.topics.set_perm(dead, 6)

            async def moved() -> bool:
                await consumer.receive(wait=0.2)
                return [one.body for one in await admin.dead_letters.list(group)] == [b"bad"]

            await until(moved)

    run(main())


def test_dead_letter_that_is_sent_again_is_received_again(cluster: LocalCluster, topic: str) -> None:
    """Also when it was moved at its first delivery, and for the second time."""
    send(cluster, topic, b"bad")

    async def main() -> None:
        group = f"{topic}_g"
        async with (
            aio.Admin(namesrv=cluster.namesrv) as admin,
            aio.SimpleConsumer(group, namesrv=cluster.namesrv) as consumer,
        ):
            consumer.subscribe(topic)
            for _ in range(2):
                (bad,) = await consumer.receive(invisible=60.0)
                assert (bad.body, bad.topic, bad.reconsume_times) == (b"bad", topic, 0)
                await consumer.dead_letter(bad)
                letter = (await admin.dead_letters.list(group))[-1]
                await admin.dead_letters.resend_one(group, letter)
            (bad,) = await consumer.receive(invisible=60.0)
            assert bad.body == b"bad"
            await consumer.ack(bad)

    run(main())


async def _waits_for_retry(admin: aio.Admin, group: str, topic: str) -> bool:
    """Whether a message of the topic became visible again."""
    retries = pop_retry_topic(group, topic)
    if retries not in await admin.topics.list(system=True):
        return False
    return any(status.max_offset for status in await admin.topics.status(retries))


async def _dead_letters(admin: aio.Admin, consumer: aio.SimpleConsumer, group: str) -> bool:
    assert await consumer.receive(wait=0.2) == [], "it was delivered too often"
    return dlq_topic(group) in await admin.topics.list(system=True)


async def _is(found, wanted: list[bytes]) -> bool:  # type: ignore[no-untyped-def]
    return bool(await found() == wanted)


def test_filters_select_messages(cluster: LocalCluster, topic: str) -> None:
    send(cluster, topic, b"1", tags="A", properties={"size": "3"})
    send(cluster, topic, b"2", tags="B", properties={"size": "5"})

    async def bodies(group: str, expression: mq.Sql | str) -> list[bytes]:
        async with aio.SimpleConsumer(group, namesrv=cluster.namesrv) as consumer:
            consumer.subscribe(topic, expression)
            return [one.body for one in await consumer.receive()]

    assert run(bodies(f"{topic}_tags", "A || C")) == [b"1"]
    assert run(bodies(f"{topic}_sql", mq.Sql("size > 4"))) == [b"2"]


def test_iteration_works_without_asyncio(cluster: LocalCluster, topic: str) -> None:
    send(cluster, topic, b"1", b"2", b"3")
    found = []
    with mq.SimpleConsumer(f"{topic}_g", namesrv=cluster.namesrv) as consumer:
        consumer.subscribe(topic)
        for message in consumer:
            found.append(message.body)
            consumer.ack(message)
            if len(found) == 3:
                break
    assert sorted(found) == [b"1", b"2", b"3"]
    assert consumer.state is mq.State.CLOSED


def test_loop_holds_no_message_but_the_one_in_hand(cluster: LocalCluster, topic: str) -> None:
    """Others would be handed out after their time, when another member has them."""
    send(cluster, topic, b"1", b"2", b"3")
    group = f"{topic}_g"
    with (
        mq.SimpleConsumer(group, namesrv=cluster.namesrv) as consumer,
        mq.SimpleConsumer(group, namesrv=cluster.namesrv) as other,
    ):
        consumer.subscribe(topic)
        other.subscribe(topic)
        found = {next(iter(consumer)).body}

        def all_found() -> bool:
            found.update(message.body for message in other.receive(wait=0.0))
            return len(found) == 3

        until_sync(all_found)


def test_topic_that_is_missing_does_not_hold_up_the_others(
    cluster: LocalCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither one that never was, nor one that is deleted while its route is known; both are said once."""
    gone = f"{topic}Gone"
    cluster.create_topic(gone, 1)

    async def main() -> None:
        async with (
            aio.Admin(namesrv=cluster.namesrv) as admin,
            aio.SimpleConsumer(f"{topic}_g", namesrv=cluster.namesrv) as consumer,
        ):
            for one in ("Nowhere", gone, topic):
                consumer.subscribe(one)
            assert await consumer.receive(wait=0.0) == []
            await admin.topics.delete(gone)
            assert await consumer.receive(wait=0.0) == []
            waiting = asyncio.ensure_future(consumer.receive(wait=20.0))
            await asyncio.to_thread(send, cluster, topic, b"1")
            assert [one.body for one in await waiting] == [b"1"]
            for missing in ("Nowhere", gone):
                assert sum(missing in record.message for record in caplog.records) == 1, caplog.text
            consumer.unsubscribe(topic)
            with pytest.raises((mq.NoRouteError, mq.BrokerError)):
                await consumer.receive(wait=0.0)

    run(main())


def test_namespace_is_supported(cluster: LocalCluster) -> None:
    cluster.create_topic("space%Named", 1)
    settings = mq.ClientSettings(namesrv=cluster.namesrv, namespace="space")

    async def main() -> None:
        async with aio.Producer(
            "p", settings=mq.ProducerSettings(namesrv=cluster.namesrv, namespace="space")
        ) as p:
            await p.send(mq.Message("Named", b"1"))
        async with aio.SimpleConsumer("named_g", settings=settings) as consumer:
            consumer.subscribe("Named")
            (one,) = await consumer.receive(invisible=60.0)
            assert one.topic == "Named"
            await consumer.change_invisible(one, 0.0)
            (again,) = await consumer.receive(invisible=60.0)
            assert (again.topic, again.reconsume_times) == ("Named", 1)
            await consumer.ack(again)
        async with aio.SimpleConsumer("space%named_g", namesrv=cluster.namesrv) as plain:
            plain.subscribe("space%Named")
            assert await plain.receive(wait=0.0) == [], "it is the same group"

    run(main())


def test_invalid_arguments_are_refused(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        consumer = aio.SimpleConsumer(f"{topic}_g", namesrv=cluster.namesrv)
        with pytest.raises(mq.InvalidStateError):
            await consumer.receive()
        async with consumer:
            with pytest.raises(mq.InvalidStateError, check=about(what="subscription")):
                await consumer.receive()
            consumer.subscribe("Nowhere")
            with pytest.raises(mq.NoRouteError):
                await consumer.receive()
            consumer.unsubscribe("Nowhere")
            consumer.subscribe(topic)
            for wrong in ({"max_messages": 33}, {"invisible": 0.0}, {"wait": 61.0}):
                with pytest.raises(mq.SettingsError):
                    await consumer.receive(**wrong)
            send(cluster, topic, b"1")
            (one,) = await consumer.receive()
            one.receipt = one.receipt._replace(queue_id=77)
            with pytest.raises(mq.BrokerError) as refused:
                await consumer.ack(one)
            assert refused.value.code == 13

    run(main())


def test_invalid_answer_is_an_error() -> None:
    record = encode_record(
        topic=b"T",
        queue_id=0,
        queue_offset=5,
        physical_offset=0,
        body=b"x",
        properties=b"",
        flag=0,
        sys_flag=0,
        born_timestamp=0,
        born_host=bytes(8),
        store_timestamp=0,
        store_host=bytes(8),
    )
    ext = {"popTime": "1", "invisibleTime": "2", "reviveQid": "0", "restNum": "0"}
    told = ext | {"startOffsetInfo": "0 0 4", "msgOffsetInfo": "0 0 4,5"}
    (message,) = popped(Command(0, ext=told, body=record), "broker-a")
    assert message.receipt.encode() == "4 1 2 0 0 broker-a 0 5"
    with pytest.raises(RecordError, check=about(what="offset", value=5)):
        popped(Command(0, ext=told | {"msgOffsetInfo": "0 0 4"}, body=record), "broker-a")
