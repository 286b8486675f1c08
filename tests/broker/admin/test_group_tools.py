"""Tools for groups: time spans, offset corrections, clones, statistics, producers, bans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.rig import STORE_HOST, Rig, connection
from tests.support import run

from sparrowmq.broker.base.internal_store import InnerMessage
from sparrowmq.broker.tables.clients import ConnectedMember, ConsumerGroup
from sparrowmq.core.errors import InvalidNameError, NoRoomError, StoreError
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.files import disk
from sparrowmq.protocol.bodies import (
    ConsumeFromWhere,
    ConsumeTimeSpans,
    ConsumeType,
    CorrectionOffsets,
    GroupForbidden,
    MessageModel,
    ProducerTable,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    TopicConfig,
)
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.java_json import loads

LONG_MAX = 2**63 - 1


class Desk:
    """A rig with topic T of two queues, three messages a second apart in queue 0, and the tools."""

    def __init__(self, root: Path) -> None:
        self.rig = Rig(root)
        rig = self.rig
        rig.put_topic(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2))
        rig.put_topic(TopicConfig(topic_name="Ordered", read_queue_nums=1, write_queue_nums=1, order=True))
        self.times = []
        for _ in range(3):
            rig.clock.ms += 1000
            self.times.append(rig.clock.ms)
            rig.inner.put([InnerMessage("T", 0, b"body", b"", 0, 0, rig.clock.ms, STORE_HOST)])
        self.tools = rig.parts.exchange.tools

    def ask(self, handler: Callable[..., Any], body: bytes = b"", **ext: Any) -> Command:
        command = Command(1, 9, ext={name: str(value) for name, value in ext.items()}, body=body)
        answer = handler(connection(), command)
        if not isinstance(answer, Command):
            answer = run(answer)
        assert isinstance(answer, Command)
        return answer

    def join(self, group: str, *topics: str) -> None:
        kind = (
            ConsumeType.CONSUME_PASSIVELY,
            MessageModel.CLUSTERING,
            ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        )
        subscriptions = {topic: SubscriptionData(topic, version=7) for topic in topics}
        self.rig.clients.add_consumer(
            ConsumerGroup(group, *kind, subscriptions), connection(), ConnectedMember("c", "JAVA", 1, 0.0)
        )


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.rig.close()


@pytest.mark.proves("broker:16.3")
def test_time_spans_have_first_last_and_consumed_times_and_delay(desk: Desk) -> None:
    desk.rig.offsets.commit("T", "g", 0, 2)
    desk.rig.clock.ms += 500
    answer = desk.ask(desk.tools.time_spans, topic="T", group="g")
    full, empty = ConsumeTimeSpans.decode(answer.body).consume_time_span_set
    first, middle, last = desk.times
    assert (full.min_time_stamp, full.max_time_stamp, full.consume_time_stamp) == (first, last, middle)
    assert full.delay_time == 500
    assert (empty.min_time_stamp, empty.max_time_stamp, empty.delay_time) == (-1, -1, 0)
    answer = desk.ask(desk.tools.time_spans, topic="T", group="new")
    full = ConsumeTimeSpans.decode(answer.body).consume_time_span_set[0]
    assert (full.consume_time_stamp, full.delay_time) == (first, 2500)
    assert desk.ask(desk.tools.time_spans, topic="Unknown", group="g").code == ResponseCode.TOPIC_NOT_EXIST


def test_offset_corrections_are_the_lowest_offsets_of_other_groups(desk: Desk) -> None:
    commit = desk.rig.offsets.commit
    for group, zero, one in (("a", 3, 1), ("b", 2, 5), ("c", 1, 0), ("slow", 2, 0)):
        commit("T", group, 0, zero)
        commit("T", group, 1, one)
    commit("Other", "a", 0, 0)

    def ask(**ext: str) -> dict[int, int]:
        return CorrectionOffsets.decode(
            desk.ask(desk.tools.corrections, topic="T", **ext).body
        ).correction_offsets

    assert ask(compareGroup="a") == {0: 1, 1: 0}
    assert ask(compareGroup="a", filterGroups="c,slow") == {0: 2, 1: 1}
    assert ask(compareGroup="slow", filterGroups="c,slow") == {0: 2, 1: LONG_MAX}
    assert ask(compareGroup="nobody") == {0: 1, 1: 0}
    assert desk.rig.offsets.query("T", "c", 0) == 1


@pytest.mark.parametrize("topic", ["T", None])
def test_clone_has_the_offsets_of_its_source(desk: Desk, topic: str | None) -> None:
    commit, query = desk.rig.offsets.commit, desk.rig.offsets.query
    commit("T", "from", 0, 3)
    commit("Ordered", "from", 0, 1)
    commit("Gone", "from", 0, 1)
    commit("T", "to", 1, 9)
    ext = {"srcGroup": "from", "destGroup": "to", "offline": "false"} | ({"topic": topic} if topic else {})
    assert desk.ask(desk.tools.clone, **ext).code == ResponseCode.SUCCESS
    assert (query("T", "to", 0), query("T", "to", 1)) == (3, None)
    assert query("Ordered", "to", 0) == (None if topic else 1)
    assert query("Gone", "to", 0) is None
    commit("T", "from", 0, 0)
    assert query("T", "to", 0) == 3


def test_topics_that_an_online_group_left_are_cloned_only_with_the_offline_option(desk: Desk) -> None:
    desk.rig.offsets.commit("T", "from", 0, 3)
    desk.join("from", "Ordered")
    desk.ask(desk.tools.clone, srcGroup="from", destGroup="to")
    assert desk.rig.offsets.query("T", "to", 0) is None
    desk.ask(desk.tools.clone, srcGroup="from", destGroup="to", offline="true")
    assert desk.rig.offsets.query("T", "to", 0) == 3


@pytest.mark.parametrize("name", ["g" * 121, "g" * 4_000_000, "", "a b"])
def test_nothing_is_cloned_to_an_invalid_group_name(desk: Desk, name: str) -> None:
    """The name would be kept and saved with each topic: one request could fill the memory."""
    desk.rig.offsets.commit("T", "from", 0, 2)
    answer = desk.ask(desk.tools.clone, srcGroup="from", destGroup=name, offline="true")
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert [group for _, group, _, _ in desk.rig.offsets.items()] == ["from"]


def test_number_and_names_of_bans_are_limited(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparrowmq.broker.tables.groups.BANS_MAX", 2)

    def forbid(group: str, topic: str, readable: bool = False) -> None:
        desk.ask(desk.tools.forbidden, group=group, topic=topic, readable=str(readable).lower())

    with pytest.raises(InvalidNameError):
        forbid("g" * 5000, "T")
    with pytest.raises(InvalidNameError):
        forbid("g", "T" * 5000)
    forbid("g", "T")
    forbid("h", "T")
    with pytest.raises(NoRoomError):
        forbid("i", "T")
    forbid("h", "T", readable=True)
    forbid("i", "T")
    assert desk.rig.groups.is_forbidden("i", "T") and not desk.rig.groups.is_forbidden("h", "T")


@pytest.mark.proves("broker:16.3")
def test_statistics_of_all_groups_are_shown(desk: Desk) -> None:
    for name in ("g", "idle"):
        run(desk.rig.groups.put([SubscriptionGroupConfig(group_name=name)]))
    desk.rig.offsets.commit("T", "g", 0, 1)
    desk.rig.offsets.commit("Ordered", "g", 0, 0)
    value = loads(desk.ask(desk.tools.stats_of_all).body)
    groups = {name: stats for one in value["consumeStatsList"] for name, stats in one.items()}
    assert (value["brokerAddr"], value["totalDiff"]) == ("127.0.0.1:10911", 2)
    assert groups["idle"] == [] and len(groups["g"]) == 2
    ordered = loads(desk.ask(desk.tools.stats_of_all, isOrder="true").body)
    groups = {name: stats for one in ordered["consumeStatsList"] for name, stats in one.items()}
    assert len(groups["g"]) == 1 and ordered["totalDiff"] == 0
    desk.join("g", "Ordered")
    assert loads(desk.ask(desk.tools.stats_of_all).body)["totalDiff"] == 0


@pytest.mark.proves("broker:10.1")
def test_producers_are_listed_by_group(desk: Desk) -> None:
    client, last_seen = connection(40_001), desk.rig.clock.monotonic()
    desk.rig.clock.ms += 5000
    for group in ("p", "q"):
        desk.rig.clients.add_producer(group, client, ConnectedMember("id", "JAVA", 399, last_seen))
    data = ProducerTable.decode(desk.ask(desk.tools.producers).body).data
    assert sorted(data) == ["p", "q"]
    (one,) = data["p"]
    assert (one.client_id, one.remote_ip, one.language, one.version) == (
        "id",
        "/127.0.0.1:40001",
        "JAVA",
        399,
    )
    assert one.last_update_timestamp == desk.rig.clock.ms - 5000


def test_subscriptions_of_online_and_offline_groups_are_shown(desk: Desk) -> None:
    desk.join("g", "T")
    value = loads(desk.ask(desk.tools.subscription, group="g", topic="T").body)
    assert value["subscriptionData"]["subVersion"] == 7
    assert loads(desk.ask(desk.tools.subscription, group="h", topic="T").body) == {"group": "h", "topic": "T"}


@pytest.mark.proves("broker:5.3")
def test_topic_is_forbidden_and_allowed_for_a_group(desk: Desk) -> None:
    def ask(**ext: str) -> bool:
        answer = desk.ask(desk.tools.forbidden, group="g", topic="T", **ext)
        return GroupForbidden.decode(answer.body).readable

    assert ask()
    assert not ask(readable="false")
    assert desk.rig.groups.is_forbidden("g", "T") and not desk.rig.groups.is_forbidden("g", "Ordered")
    assert not ask()
    assert ask(readable="true")
    assert not desk.rig.groups.is_forbidden("g", "T")


def test_ban_that_cannot_be_saved_has_no_effect(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "replace", full)
        with pytest.raises(StoreError):
            desk.ask(desk.tools.forbidden, group="g", topic="T", readable="false")
    assert not desk.rig.groups.is_forbidden("g", "T")


def test_several_groups_are_created_together_or_not_at_all(desk: Desk) -> None:
    def put(*names: str) -> int:
        body = SubscriptionGroupList([SubscriptionGroupConfig(group_name=name) for name in names]).encode()
        request = Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, 1, body=body)
        return run(desk.tools.put_all(connection(), request)).code

    assert put("one", "two") == ResponseCode.SUCCESS
    assert {"one", "two"} <= set(desk.rig.groups.configs)
    assert put("three", "not legal!") == ResponseCode.INVALID_PARAMETER
    assert "three" not in desk.rig.groups.configs


def test_queues_that_are_only_read_are_shown(desk: Desk) -> None:
    desk.rig.offsets.commit("T", "g", 0, 2)
    desk.rig.put_topic(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=0))
    spans = ConsumeTimeSpans.decode(desk.ask(desk.tools.time_spans, topic="T", group="g").body)
    assert [one.message_queue.queue_id for one in spans.consume_time_span_set] == [0, 1]
    assert len(list(desk.tools._stats("g", desk.rig.topics.get("T")))) == 2  # one step for each queue
