"""How tools create, delete and show topics and groups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.broker.rig import STORE_HOST, Rig, connection, send_command
from tests.support import run

from sparrowmq.broker.admin.admin import QUEUES_MAX
from sparrowmq.broker.base.internal_store import InnerMessage
from sparrowmq.broker.tables.clients import ConnectedMember, ConsumerGroup
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.protocol.bodies import (
    ConsumeFromWhere,
    ConsumerConnection,
    ConsumeStats,
    ConsumeType,
    GroupList,
    MessageModel,
    ProducerConnection,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicConfig,
    TopicConfigList,
    TopicConfigTable,
    TopicList,
    TopicStatsTable,
)
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command

CREATE: Final = {
    "topic": "T",
    "defaultTopic": "TBW102",
    "readQueueNums": "2",
    "writeQueueNums": "2",
    "perm": "6",
}


class Desk:
    """A rig with topic and group administration."""

    def __init__(self, root: Path) -> None:
        rig = self.rig = Rig(root)
        self.topics, self.groups = rig.parts.topic_requests, rig.parts.group_requests

    def ask(self, handler: Callable[..., Any], body: bytes = b"", **ext: Any) -> Command:
        command = Command(RequestCode.HEART_BEAT, 9, ext={k: str(v) for k, v in ext.items()}, body=body)
        found = handler(connection(), command)

        async def awaited(work: Coroutine[Any, Any, Command]) -> Command:
            return await work

        answer: Command = found if isinstance(found, Command) else run(awaited(found))
        assert answer.opaque == 9
        return answer

    def create(self, **changes: Any) -> Command:
        return self.ask(self.topics.create, **(CREATE | changes))

    def fill(self, count: int, queue_id: int = 0) -> None:
        for _ in range(count):
            clock = self.rig.clock
            clock.ms += 1000
            self.rig.inner.put([InnerMessage("T", queue_id, b"x", b"", 0, 0, clock.ms, STORE_HOST)])

    def join(self, *topics: str, group: str = "g", model: MessageModel = MessageModel.CLUSTERING) -> Any:
        """Add a consumer to the group."""
        client = connection(4000)
        kind = (
            ConsumeType.CONSUME_PASSIVELY,
            model,
            ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        )
        online = ConsumerGroup(group, *kind, subscriptions={name: SubscriptionData(name) for name in topics})
        self.rig.clients.add_consumer(online, client, ConnectedMember("me@1", "JAVA", 441, 0.0))
        return client


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.rig.close()


def test_topic_is_created_changed_and_registered_before_the_answer(desk: Desk) -> None:
    assert desk.create(topicFilterType="MULTI_TAG", order="true").code == ResponseCode.SUCCESS
    config = desk.rig.topics.configs["T"]
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (2, 2, 6)
    assert (config.topic_filter_type, config.order) == ("MULTI_TAG", True)
    assert desk.rig.registration.waited == 1
    desk.create(readQueueNums=5, writeQueueNums=3, perm=4)
    config = desk.rig.topics.configs["T"]
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (5, 3, 4)
    assert desk.rig.registration.waited == 2
    desk.create(readQueueNums=5, writeQueueNums=3, perm=4)
    assert desk.rig.registration.waited == 3, "name servers may not have it, although nothing changed"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"topic": "a b"}, "a b"),
        ({"topic": "TBW102"}, "The topic[TBW102] is conflict with system topic."),
        ({"readQueueNums": -1}, f"0 to {QUEUES_MAX} read queues, not -1"),
        ({"writeQueueNums": QUEUES_MAX + 1}, f"0 to {QUEUES_MAX} write queues, not {QUEUES_MAX + 1}"),
        ({"readQueueNums": 0, "writeQueueNums": 0}, "at least one queue"),
        ({"perm": 8}, "not 8"),
        ({"perm": -1}, "not -1"),
    ],
)
def test_invalid_topic_is_not_created(desk: Desk, change: dict[str, Any], text: str) -> None:
    before = dict(desk.rig.topics.configs)
    refusal = desk.create(**change)
    assert refusal.code == ResponseCode.INVALID_PARAMETER
    assert text in (refusal.remark or "")
    assert desk.rig.topics.configs == before
    assert desk.rig.registration.waited == 0


def test_topic_is_deleted_with_its_messages_and_offsets(desk: Desk) -> None:
    desk.create()
    desk.fill(3)
    desk.rig.offsets.commit("T", "g", 0, 2)
    assert desk.ask(desk.topics.delete, topic="T").code == ResponseCode.SUCCESS
    assert desk.ask(desk.topics.config, topic="T").remark == "No topic in this broker. topic: T"
    assert desk.rig.store.find_queue("T", 0) is None
    assert desk.rig.offsets.query("T", "g", 0) is None
    assert desk.rig.registration.waited == 2
    assert desk.ask(desk.topics.delete, topic="T").code == ResponseCode.SUCCESS, "gone already"
    assert desk.rig.registration.waited == 2
    kept = desk.ask(desk.topics.delete, topic="SCHEDULE_TOPIC_XXXX")
    assert kept.code == ResponseCode.INVALID_PARAMETER
    assert "SCHEDULE_TOPIC_XXXX" in desk.rig.topics.configs


def test_topic_cannot_be_created_while_it_is_being_deleted(desk: Desk) -> None:
    """Messages sent to a recreated topic would be lost when the old queues are deleted."""
    desk.create()

    async def main() -> Command:
        delete = Command(RequestCode.DELETE_TOPIC_IN_BROKER, 1, ext={"topic": "T"})
        going = asyncio.create_task(desk.topics.delete(connection(), delete))
        for _ in range(2):  # the request, and the deletion it shares with others
            await asyncio.sleep(0)
        send = desk.rig.sending.handle(connection(), send_command(topic="T"))
        assert isinstance(send, Command) and send.code == ResponseCode.TOPIC_NOT_EXIST
        create = Command(RequestCode.UPDATE_AND_CREATE_TOPIC, 1, ext=dict(CREATE))
        refused = await desk.topics.create(connection(), create)
        assert (await going).code == ResponseCode.SUCCESS
        assert (await desk.topics.create(connection(), create)).code == ResponseCode.SUCCESS
        return refused

    refused = run(main())
    assert refused.code == ResponseCode.INVALID_PARAMETER
    assert refused.remark == "The topic[T] is being deleted; create it again in a moment."


def test_topics_are_listed(desk: Desk) -> None:
    desk.create()
    one = TopicConfig.decode(desk.ask(desk.topics.config, topic="T").body)
    assert (one.topic_name, one.read_queue_nums) == ("T", 2)
    every = TopicConfigTable.decode(desk.ask(desk.topics.all_configs).body)
    assert every.topic_config_table["T"] == one
    assert every.data_version == desk.rig.topics.version
    system = TopicList.decode(desk.ask(desk.topics.system_topics).body).topic_list
    assert "TBW102" in system and "T" not in system


def test_offsets_and_last_update_times_of_queues_are_shown(desk: Desk) -> None:
    desk.create()
    desk.fill(3)
    table = TopicStatsTable.decode(desk.ask(desk.topics.stats, topic="T").body).offset_table
    found = {
        queue.queue_id: (place.min_offset, place.max_offset, place.last_update_timestamp)
        for queue, place in table.items()
    }
    assert found == {0: (0, 3, desk.rig.clock.ms), 1: (0, 0, 0)}
    missing = desk.ask(desk.topics.stats, topic="U")
    assert (missing.code, missing.remark) == (ResponseCode.TOPIC_NOT_EXIST, "topic[U] not exist")


def test_groups_are_created_changed_and_shown(desk: Desk) -> None:
    for retries in (3, 5):
        config = SubscriptionGroupConfig(group_name="g", retry_max_times=retries)
        assert desk.ask(desk.groups.put, config.encode()).code == ResponseCode.SUCCESS
        shown = SubscriptionGroupConfig.decode(desk.ask(desk.groups.config, group="g").body)
        assert shown.retry_max_times == retries
    table = SubscriptionGroupTable.decode(desk.ask(desk.groups.all_configs).body)
    assert table.subscription_group_table["g"].retry_max_times == 5
    refusal = desk.ask(desk.groups.put, SubscriptionGroupConfig(group_name="a b").encode())
    assert refusal.code == ResponseCode.INVALID_PARAMETER
    unknown = desk.ask(desk.groups.config, group="a b")
    assert unknown.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert desk.ask(desk.groups.config, group="new").code == ResponseCode.SUCCESS, "as a consumer's request"


@pytest.mark.parametrize(
    ("asked", "kept"), [({}, 2), ({"cleanOffset": "true"}, None), ({"removeOffset": "true"}, None)]
)
def test_group_is_deleted_with_its_retry_topic_and_optionally_its_offsets(
    desk: Desk, asked: dict[str, str], kept: int | None
) -> None:
    desk.create()
    run(desk.rig.groups.put([SubscriptionGroupConfig(group_name="g")]))
    desk.rig.put_topic(TopicConfig(topic_name="%RETRY%g", read_queue_nums=1, write_queue_nums=1))
    desk.rig.offsets.commit("T", "g", 0, 2)
    desk.rig.offsets.commit("%RETRY%g", "g", 0, 1)
    assert desk.ask(desk.groups.delete, groupName="g", **asked).code == ResponseCode.SUCCESS
    assert "g" not in desk.rig.groups.configs
    assert "%RETRY%g" not in desk.rig.topics.configs
    assert desk.rig.offsets.query("%RETRY%g", "g", 0) is None
    assert desk.rig.offsets.query("T", "g", 0) == kept


def test_online_consumers_are_listed(desk: Desk) -> None:
    offline = desk.ask(desk.groups.consumer_connections, consumerGroup="g")
    assert offline.code == ResponseCode.CONSUMER_NOT_ONLINE
    assert offline.remark == "the consumer group[g] not online"
    client = desk.join("T")
    body = desk.ask(desk.groups.consumer_connections, consumerGroup="g").body
    found = ConsumerConnection.decode(body)
    (one,) = found.connections
    assert (one.client_id, one.client_addr, one.language, one.version) == (
        "me@1",
        client.address,
        "JAVA",
        441,
    )
    assert list(found.subscriptions) == ["T"]
    assert found.consume_type is ConsumeType.CONSUME_PASSIVELY


def test_online_producers_are_listed(desk: Desk) -> None:
    offline = desk.ask(desk.groups.producer_connections, producerGroup="p")
    assert (offline.code, offline.remark) == (ResponseCode.SYSTEM_ERROR, "the producer group[p] not exist")
    desk.rig.clients.add_producer("p", connection(4001), ConnectedMember("you@1", "CPP", 63, 0.0))
    found = ProducerConnection.decode(desk.ask(desk.groups.producer_connections, producerGroup="p").body)
    assert [(one.client_id, one.language) for one in found.connection_set] == [("you@1", "CPP")]


def stats(desk: Desk, **ext: Any) -> dict[MessageQueue, tuple[int, int, int]]:
    body = desk.ask(desk.groups.consume_stats, consumerGroup="g", **ext).body
    table = ConsumeStats.decode(body).offset_table
    return {q: (o.broker_offset, o.consumer_offset, o.last_timestamp) for q, o in table.items()}


def test_lag_of_a_group_is_shown(desk: Desk) -> None:
    desk.create()
    start = desk.rig.clock.ms
    desk.fill(3)
    desk.rig.offsets.commit("T", "g", 0, 2)
    queue = [MessageQueue("T", desk.rig.settings.broker_name, number) for number in (0, 1)]
    expected = {queue[0]: (3, 2, start + 2000), queue[1]: (0, 0, 0)}
    assert stats(desk) == expected, "by its offsets"
    assert stats(desk, topic="T") == stats(desk, topicList="T;Unknown") == expected
    assert stats(desk, topic="Unknown") == {}
    desk.join("U")
    assert stats(desk) == {}, "it is online, and does not subscribe to T any more"


def test_groups_of_a_topic_and_topics_of_a_group_are_listed(desk: Desk) -> None:
    desk.create()
    desk.rig.offsets.commit("T", "gone", 0, 2)
    desk.join("T", "U")
    groups = GroupList.decode(desk.ask(desk.groups.groups_of_topic, topic="T").body).group_list
    assert groups == ["g", "gone"]
    for group, topics in (("g", ["T", "U"]), ("gone", ["T"]), ("nobody", [])):
        found = TopicList.decode(desk.ask(desk.groups.topics_of_group, group=group).body)
        assert found.topic_list == topics


def test_all_readable_queues_are_shown_while_a_topic_shrinks(desk: Desk) -> None:
    desk.create(readQueueNums=4, writeQueueNums=4)
    for queue_id in range(4):
        desk.fill(2, queue_id)
    assert desk.create(readQueueNums=4, writeQueueNums=2).code == ResponseCode.SUCCESS
    body = desk.ask(desk.topics.stats, topic="T").body
    found = {one.queue_id: row.max_offset for one, row in TopicStatsTable.decode(body).offset_table.items()}
    assert found == dict.fromkeys(range(4), 2)


@pytest.mark.parametrize(
    ("committed", "text"),
    [
        ({}, "2 to 3, which nobody reads when it has 2 queues to read: 6;"),
        ({"g": (1, 3), "h": (3, 2)}, ": 2 of group g, 1 of group h;"),
        ({"g": (3, 3)}, None),
    ],
)
def test_topic_does_not_shrink_below_unread_messages_unless_forced(
    desk: Desk, committed: dict[str, tuple[int, int]], text: str | None
) -> None:
    desk.create(readQueueNums=4, writeQueueNums=4)
    for queue_id in range(4):
        desk.fill(3, queue_id)
    for group, offsets in committed.items():
        for queue_id, offset in enumerate(offsets, 2):
            desk.rig.offsets.commit("T", group, queue_id, offset)
    answer = desk.create()
    numbers = TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2)
    several = desk.ask(desk.topics.create_all, TopicConfigList([numbers]).encode())
    if text is None:
        assert answer.code == several.code == ResponseCode.SUCCESS
    else:
        assert text in (answer.remark or "") and answer.remark == several.remark
        assert desk.rig.topics.configs["T"].read_queue_nums == 4
    assert desk.create(sparrowForce="true").code == ResponseCode.SUCCESS
    assert desk.rig.topics.configs["T"].read_queue_nums == 2


def test_topic_does_not_shrink_below_what_an_online_group_has_not_begun(desk: Desk) -> None:
    """A member may be killed before its first commit."""
    desk.create(readQueueNums=4, writeQueueNums=4)
    for queue_id in range(4):
        desk.fill(3, queue_id)
        desk.rig.offsets.commit("T", "done", queue_id, 3)
    desk.join("T", group="new")
    answer = desk.create()
    assert "to read: 6 of group new; reduce" in (answer.remark or "")


def test_groups_that_broadcast_are_named_when_a_topic_shrinks(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    """Only their members know what they have read."""
    desk.create(readQueueNums=4, writeQueueNums=4)
    desk.fill(3, 3)
    desk.rig.offsets.commit("T", "some", 3, 1)
    desk.join("T", group="all", model=MessageModel.BROADCASTING)
    refused = desk.create()
    assert "2 of group some; what members of all have not read is unknown" in (refused.remark or "")
    desk.rig.offsets.commit("T", "some", 3, 3)
    assert desk.create().code == ResponseCode.SUCCESS
    assert "topic T gets 2 queues to read: what members of all" in caplog.text


def test_retries_count_as_lag_without_an_offset(desk: Desk) -> None:
    """A crash may have lost it."""
    run(desk.rig.groups.put([SubscriptionGroupConfig(group_name="g")]))
    desk.rig.put_topic(TopicConfig(topic_name="%RETRY%g", read_queue_nums=1, write_queue_nums=1))
    desk.rig.topics.own_queue("%RETRY%g", 0)
    shown = desk.ask(desk.groups.consume_stats, consumerGroup="g")
    assert [queue.topic for queue in ConsumeStats.decode(shown.body).offset_table] == ["%RETRY%g"]
