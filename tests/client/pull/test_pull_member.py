from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from tests.client.fake import BROKER, FakeCluster, fake_cluster
from tests.client.pulling import flow, quick, store
from tests.support import about, run, until

from sparrowmq.client.pull.pull_consumer import PullConsumer
from sparrowmq.core.errors import BrokerError, ClientError, InvalidNameError, TransportError
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol import bodies
from sparrowmq.protocol.bodies import ConsumeFromWhere, ConsumeType, MessageModel
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command

LITE = int(RequestCode.LITE_PULL_MESSAGE)
PULL = int(RequestCode.PULL_MESSAGE)
QUERY = int(RequestCode.QUERY_CONSUMER_OFFSET)
Told = list[tuple[str, list[int], list[int]]]


def files_below(directory: Path) -> list[str]:
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("offsets.json"))


def queue(number: int, topic: str = "T") -> MessageQueue:
    return MessageQueue(topic, BROKER, number)


@pytest.mark.proves("client:E-44", "client:E-26", "client:A-56")
def test_heartbeats_contain_pull_type_and_last_offset_and_no_retry_topic() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.subscribe("T", "A")
        await consumer.start()
        await until(lambda: cluster.broker.heartbeats)
        ((mine,),) = {tuple(beat.consumers) for beat in cluster.broker.heartbeats}
        assert (mine.group, mine.consume_type) == ("g", ConsumeType.CONSUME_ACTIVELY)
        assert mine.consume_from_where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, "though it is first"
        assert mine.message_model is MessageModel.CLUSTERING
        assert [(s.topic, s.expression) for s in mine.subscriptions] == [("T", "A")]
        assert cluster.broker.heartbeats[0].client_id.endswith("@STREAM")

    flow(test)


@pytest.mark.proves("client:E-44")
def test_with_an_assignment_no_subscription_is_sent() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.assign([queue(0)])
        await consumer.start()
        await until(lambda: cluster.broker.heartbeats)
        assert cluster.broker.heartbeats[0].consumers[0].subscriptions == ()

    flow(test)


@pytest.mark.proves("client:E-25")
def test_messages_arrive_after_the_first_heartbeat_without_waiting_for_the_interval() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.subscribe("T")
        await consumer.start()
        assert [m.body for m in await consumer.poll(20)] == [b"0"]
        codes = [command.code for command in cluster.broker.seen]
        assert codes.index(RequestCode.HEART_BEAT) < codes.index(RequestCode.GET_CONSUMER_LIST_BY_GROUP)

    flow(test, messages=1, rebalance_interval=3600.0, heartbeat_interval=3600.0)


@pytest.mark.proves("client:E-22", "client:E-41", "client:C-41")
def test_members_share_queues_and_listeners_are_called_when_they_are_ready() -> None:
    async def test(cluster: FakeCluster, one: PullConsumer) -> None:
        told: Told = []
        in_place = []

        async def listener(topic: str, every: list[MessageQueue], mine: list[MessageQueue]) -> None:
            in_place.append(one.assignment == mine)
            told.append((topic, [q.queue_id for q in every], [q.queue_id for q in mine]))

        one.subscribe("T", "*", listener)
        await one.start()
        await until(lambda: len(one.assignment) == 4)
        await until(lambda: told == [("T", [0, 1, 2, 3], [0, 1, 2, 3])])
        async with PullConsumer("g", settings=quick(cluster)) as two:
            two.subscribe("T")
            await until(lambda: len(one.assignment) == len(two.assignment) == 2)
            assert {*one.assignment, *two.assignment} == {queue(n) for n in range(4)}
            await until(lambda: len(told) == 2)
        await until(lambda: len(one.assignment) == 4)
        await until(lambda: len(told) == 3)
        assert [sorted(mine) for _, _, mine in told[::2]] == [[0, 1, 2, 3]] * 2
        assert all(in_place)

    flow(test, queues=4)


@pytest.mark.proves("client:E-41", "client:C-14", "client:A-06", "client:D-70")
def test_in_broadcasting_every_member_has_all_queues_and_its_own_file(tmp_path: Path) -> None:
    async def main() -> None:
        async with fake_cluster("T", queues=2) as cluster:
            store(cluster, 3)
            settings = quick(cluster, model="broadcasting", offset_dir=tmp_path)
            one, two = (PullConsumer("g", settings=replace(settings, instance_name=n)) for n in ("a", "b"))
            async with one, two:
                for consumer in (one, two):
                    consumer.subscribe("T")
                await until(lambda: len(one.assignment) == len(two.assignment) == 2)
                assert one.assignment == two.assignment
                for consumer in (one, two):
                    assert [m.body for m in await consumer.poll(20)] == [b"0", b"1", b"2"]
                models = {c.message_model for beat in cluster.broker.heartbeats for c in beat.consumers}
                assert models == {MessageModel.BROADCASTING}
                ids = [one.client_id, two.client_id]
            assert cluster.broker.offsets == {}, "brokers keep no offsets"
            assert files_below(tmp_path) == sorted(f"{client_id}/g/offsets.json" for client_id in ids)
            async with PullConsumer("g", settings=replace(settings, instance_name="a")) as again:
                again.subscribe("T")
                assert await again.poll(0.3) == [], "it goes on where it was"
            default = PullConsumer("g", settings=settings)
            assert default.settings.instance_name == "DEFAULT", "the same after each start"

    run(main())


@pytest.mark.proves("client:C-40", "client:E-46", "client:E-10")
def test_listener_of_registered_topics_is_called_and_its_errors_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        cluster.add_topic("U", 1)
        told: Told = []

        def listener(topic: str, every: list[MessageQueue], mine: list[MessageQueue]) -> None:
            told.append((topic, [q.queue_id for q in every], [q.queue_id for q in mine]))
            raise ZeroDivisionError("my listener")

        consumer.register_topic("T")
        consumer.register_topic("U", listener)
        await consumer.start()
        await until(lambda: len(told) == 2)
        assert sorted(told) == [("T", [0, 1], [0, 1]), ("U", [0], [0])]
        await until(lambda: caplog.text.count("ZeroDivisionError: my listener") == 2)
        assert "the queue listener of topic U failed" in caplog.text
        assert consumer.fetch_message_queues_in_balance("U") == [queue(0, "U")]
        rounds = len(cluster.broker.requests(RequestCode.GET_CONSUMER_LIST_BY_GROUP))
        await until(lambda: len(cluster.broker.requests(RequestCode.GET_CONSUMER_LIST_BY_GROUP)) > rounds + 6)
        assert len(told) == 2, "nothing changed"

    flow(test, queues=2, rebalance_interval=0.02)


@pytest.mark.proves("client:C-23", "MUST-45")
def test_stored_offset_of_a_revoked_queue_is_sent_and_forgotten() -> None:
    async def test(cluster: FakeCluster, one: PullConsumer) -> None:
        one.register_topic("T")
        await one.start()
        await until(lambda: len(one.assignment) == 2)
        for number in (0, 1):
            one.update_consume_offset(queue(number), number + 5)
        async with PullConsumer("g", settings=quick(cluster, persist_interval=3600)) as two:
            two.register_topic("T")
            await until(lambda: len(one.assignment) == len(two.assignment) == 1)
            (left,), (kept,) = two.assignment, one.assignment
            sent = {("g", "T", left.queue_id): left.queue_id + 5}
            await until(lambda: cluster.broker.offsets == sent)
            cluster.broker.offsets["g", "T", left.queue_id] = 9

            async def forgotten() -> bool:
                """Once the answer to its last commit is here."""
                return await one.fetch_consume_offset(left) == 9

            await until(forgotten)
            assert await one.fetch_consume_offset(kept) == kept.queue_id + 5

    flow(test, queues=2, persist_interval=3600)


@pytest.mark.proves("client:C-22", "client:E-16", "client:E-11", "client:C.6-4")
def test_classic_consumer_gets_its_share_of_queues_but_does_not_read_them() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.register_topic("T")
        await consumer.start()
        with pytest.raises(ClientError, check=about(what="topic", value="U")):
            consumer.fetch_message_queues_in_balance("U")
        await until(lambda: len(consumer.fetch_message_queues_in_balance("T")) == 2)
        assert consumer.assignment == [queue(0), queue(1)]
        rounds = len(cluster.broker.requests(RequestCode.GET_CONSUMER_LIST_BY_GROUP))
        await until(lambda: len(cluster.broker.requests(RequestCode.GET_CONSUMER_LIST_BY_GROUP)) > rounds + 2)
        assert not [c for c in cluster.broker.seen if c.code in (LITE, PULL, QUERY, 30, 31)]
        assert await consumer.queues("T") == await consumer.publish_queues("T") == [queue(0), queue(1)]

    flow(test, queues=2, messages=3, rebalance_interval=0.01)


@pytest.mark.proves("client:E-02", "client:E-03", "client:A-97", "client:E-01")
def test_started_classic_consumer_sends_all_its_registered_topics() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        assert (consumer.group, consumer.settings.model) == ("g", "clustering")
        consumer.register_topic("T")
        await consumer.start()
        assert "#" in consumer.client_id.split("@")[1], "in clustering an instance name of its own"
        await until(lambda: cluster.broker.heartbeats)
        subscriptions = cluster.broker.heartbeats[0].consumers[0].subscriptions
        assert [(s.topic, s.expression, s.version) for s in subscriptions] == [("T", "*", 0)], (
            "no retry topic"
        )
        for group in ("DEFAULT_CONSUMER", "", "a b", "x" * 121):
            with pytest.raises(InvalidNameError):
                PullConsumer(group)

    flow(test)


@pytest.mark.proves("client:E-12", "client:E-13")
def test_offsets_are_stored_then_sent_only_for_own_queues() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.register_topic("T")
        await consumer.start()
        await until(lambda: consumer.assignment)
        foreign = queue(7)
        consumer.update_consume_offset(queue(0), 5)
        consumer.update_consume_offset(queue(0), 3)
        consumer.update_consume_offset(foreign, 9)
        assert await consumer.fetch_consume_offset(queue(0)) == 3, "also lower: it is set, not raised"
        await until(lambda: cluster.broker.offsets.get(("g", "T", 0)) == 3)
        assert await consumer.fetch_consume_offset(foreign) == 9
        assert await consumer.fetch_consume_offset(foreign, from_store=True) is None, "never sent"
        await consumer.commit(foreign, 9)
        assert await consumer.fetch_consume_offset(foreign, from_store=True) == 9

    flow(test)


@pytest.mark.proves("client:E-06")
def test_pull_from_an_unknown_topic_adds_it_without_a_subscription() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        cluster.add_topic("U", 1)
        store(cluster, 2, topic="U")
        consumer.register_topic("T")
        await consumer.start()
        await until(lambda: consumer.assignment == [queue(0)])
        assert len((await consumer.pull(queue(0, "U"), 0)).messages) == 2
        await until(lambda: consumer.fetch_message_queues_in_balance("U") == [queue(0, "U")])
        told = {
            s.topic for beat in cluster.broker.heartbeats for c in beat.consumers for s in c.subscriptions
        }
        assert told == {"T"}

    flow(test)


@pytest.mark.proves("client:E-14")
def test_message_is_sent_back_with_the_retries_of_the_settings() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        await consumer.start()
        (message,) = (await consumer.pull(queue(0), 0)).messages
        with pytest.raises(BrokerError, check=about(code=3, remark=" request type 36 not supported")):
            await consumer.send_back(message, 4)
        (asked,) = cluster.broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK)
        header = asked.ext
        assert (header["group"], header["delayLevel"], header["maxReconsumeTimes"]) == ("g", "4", "5")
        assert (header["offset"], header["originTopic"]) == (str(message.physical_offset), "T")

    flow(test, messages=1, max_reconsume_times=5)


def test_sharing_can_be_disabled() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.register_topic("T")
        await consumer.start()
        await until(lambda: len(cluster.broker.heartbeats) > 1)
        assert consumer.assignment == []
        assert not cluster.broker.requests(RequestCode.GET_CONSUMER_LIST_BY_GROUP)

    flow(test, rebalance=False)


@pytest.mark.proves("client:E-15", "client:E-45")
def test_closing_sends_stored_offsets_and_unregisters() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.register_topic("T")
        await consumer.start()
        await until(lambda: consumer.assignment)
        consumer.update_consume_offset(queue(0), 4)
        await consumer.close()
        await consumer.close()
        assert cluster.broker.offsets["g", "T", 0] == 4
        assert [c.code for c in cluster.broker.seen if c.code in (15, 35)] == [15, 35]
        assert not cluster.broker.members["g"]

    flow(test, persist_interval=60.0)


def test_unavailable_broker_does_not_prevent_closing(caplog: pytest.LogCaptureFixture) -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.register_topic("T")
        await consumer.start()
        await until(lambda: consumer.assignment)
        consumer.update_consume_offset(queue(0), 4)
        await cluster.broker.server.close(0.1)
        await asyncio.wait_for(consumer.close(), 10)
        assert "offset 4 of group g in T/broker-a/0 is not committed yet" in caplog.text

    flow(test, persist_interval=60.0)


@pytest.mark.proves("client:E-24")
def test_failed_start_shuts_down() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        await cluster.name_server.close(0.1)
        consumer.subscribe("T")
        with pytest.raises(TransportError, match="name server"):
            await consumer.start()
        assert consumer.state.value == "failed"
        await consumer.close()

    flow(test)


def test_listeners_get_one_change_after_the_other() -> None:
    """The last call has the current queues, however long a listener takes for the call before."""

    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        told: list[int] = []
        go_on = asyncio.Event()

        async def listener(topic: str, every: list[MessageQueue], mine: list[MessageQueue]) -> None:
            if len(mine) == 2:
                await go_on.wait()
            told.append(len(mine))

        consumer.subscribe("T", "*", listener)
        await consumer.start()
        await until(lambda: len(consumer.assignment) == 2)
        for count in (3, 4):
            cluster.add_topic("T", count)
            await until(lambda count=count: len(consumer.assignment) == count)
        assert told == []
        go_on.set()
        await until(lambda: told[-1:] == [4])
        assert told in ([2, 4], [2, 3, 4])

    flow(test, queues=2)


def test_topic_that_is_subscribed_again_is_announced_again() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        told: list[str] = []
        consumer.subscribe("T", "*", lambda topic, every, mine: told.append("first"))
        await consumer.start()
        await until(lambda: told == ["first"])
        consumer.unsubscribe("T")
        assert consumer.assignment == []
        consumer.subscribe("T", "*", lambda topic, every, mine: told.append("second"))
        await until(lambda: told == ["first", "second"])
        assert consumer.assignment == [queue(0)]

    flow(test)


async def ask(cluster: FakeCluster, code: RequestCode, **ext: str) -> Command:
    """The answer of the only member of group g to its broker."""
    (conn,) = cluster.broker.members["g"].values()
    return await conn.call(Command(code, ext=ext), 20)


@pytest.mark.proves("client:A-89", "client:A-90", "client:D-86")
def test_tools_see_the_state_of_a_polling_member() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.subscribe("T", "A || B")
        await consumer.start()
        assert len(await consumer.poll(20)) == 3
        await consumer.commit()
        status = await ask(cluster, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, topic="T", group="g")
        assert bodies.ConsumerStatusBody.decode(status.body).queues == {queue(0): 3}
        answer = await ask(cluster, RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="g")
        info = bodies.ConsumerRunningInfo.decode(answer.body)
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
        assert info.properties["PROP_NAMESERVER_ADDR"] == cluster.namesrv
        assert info.properties["PROP_CONSUMER_START_TIMESTAMP"].isdecimal()
        assert info.properties["pull_batch"] == "10"
        assert "secret" not in info.properties and "my secret" not in str(info.properties)
        assert [(one.topic, one.expression) for one in info.subscriptions] == [("T", "A || B")]
        assert (info.queues[queue(0)].commit_offset, info.queues[queue(0)].cached_msg_count) == (3, 0)
        assert info.queues[queue(0)].last_pull_timestamp > 0
        assert info.queues[queue(0)].last_consume_timestamp > 0
        for code in (RequestCode.CONSUME_MESSAGE_DIRECTLY, RequestCode.GET_CONSUMER_RUNNING_INFO):
            unknown = await ask(cluster, code, consumerGroup="other")
            assert (unknown.code, "<other>" in (unknown.remark or "")) == (1, True)
        directly = await ask(cluster, RequestCode.CONSUME_MESSAGE_DIRECTLY, consumerGroup="g")
        assert directly.code == 1, "only push consumers are brought messages"

    flow(test, messages=3, access_key="me", secret_key="my secret")


def test_classic_member_reports_its_topics_and_queues() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.register_topic("T")
        await consumer.start()
        await until(lambda: consumer.assignment)
        consumer.update_consume_offset(queue(0), 2)
        status = await ask(cluster, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, topic="T", group="g")
        assert bodies.ConsumerStatusBody.decode(status.body).queues == {queue(0): 2}
        answer = await ask(cluster, RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="g")
        info = bodies.ConsumerRunningInfo.decode(answer.body)
        assert [one.topic for one in info.subscriptions] == ["T"]
        ((mine, told),) = info.queues.items()
        assert (mine, told.commit_offset, told.cached_msg_count) == (queue(0), 2, 0)

    flow(test)


# With nothing to share

UPDATE = int(RequestCode.UPDATE_CONSUMER_OFFSET)
BEAT = int(RequestCode.HEART_BEAT)


@pytest.mark.proves("client:E-02", "client:A-56", "client:E-09")
def test_group_is_registered_before_its_first_commit() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        await consumer.start()
        await consumer.commit(queue(0), 1)
        codes = [command.code for command in cluster.broker.seen]
        assert codes.index(BEAT) < codes.index(UPDATE), "the broker makes the group with it"
        (told,) = cluster.broker.heartbeats[0].consumers
        assert (told.group, told.subscriptions) == ("g", ())
        assert told.consume_type is ConsumeType.CONSUME_ACTIVELY
        await consumer.commit(queue(0), 2)
        assert cluster.broker.offsets["g", "T", 0] == 2
        cluster.broker.offsets["g", "T", 0] = 1
        assert await consumer.committed(queue(0)) == 1, "what another one set is seen"
        assert consumer.assignment == []

    flow(test, messages=3, heartbeat_interval=30.0)


@pytest.mark.parametrize("way", ["subscribe", "assign", "register"])
def test_member_without_shared_topics_can_add_them_later(way: str) -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        await consumer.start()
        await consumer.commit(queue(0), 1)
        member = consumer._member
        if way == "subscribe":
            consumer.subscribe("T")
        elif way == "assign":
            consumer.assign([queue(0)])
        else:
            consumer.register_topic("T")
        await until(lambda: consumer.assignment == [queue(0)])
        assert consumer._member is member, "one membership all the time"
        if way == "register":
            assert (await consumer.pull(queue(0), 1)).messages
        else:
            assert [message.body for message in await consumer.poll(10)] == [b"1", b"2"]
        assert len({beat.client_id for beat in cluster.broker.heartbeats}) == 1
        if way == "assign":
            assert member is not None and member._sharing is None, "what is assigned is not shared"

    flow(test, messages=3)


def test_reader_without_a_group_is_not_a_member() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        await consumer.start()
        await consumer.queues("T")
        assert len((await consumer.pull(queue(0), 0)).messages) == 3
        await consumer.commit(queue(0), 3)
        assert not cluster.broker.heartbeats and not cluster.broker.members["g"]
        consumer.subscribe("T")
        await until(lambda: consumer.assignment == [queue(0)])
        assert cluster.broker.heartbeats

    flow(test, messages=3, announce=False)
