"""What tools see and change of groups: time spans, corrections, clones, statistics, producers, bans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.rig import STORE_HOST, Rig, connection
from tests.support import run

from sparrowmq.broker.clients import ConsumerGroup, Member
from sparrowmq.broker.group_tools import GroupTools
from sparrowmq.broker.inner import InnerMessage
from sparrowmq.core.errors import StoreError
from sparrowmq.core.subscription import SubscriptionData
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
from sparrowmq.store import disk

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
        self.tools = GroupTools(
            rig.settings,
            rig.store,
            rig.topics,
            rig.groups,
            rig.clients,
            rig.offsets,
            rig.clock,
            address="127.0.0.1:10911",
        )

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
            ConsumerGroup(group, *kind, subscriptions), connection(), Member("c", "JAVA", 1, 0.0)
        )


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.rig.close()


@pytest.mark.proves("broker:16.3")
def test_time_spans_tell_first_last_consumed_and_delay(desk: Desk) -> None:
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


def test_corrections_are_the_lowest_offsets_of_the_others(desk: Desk) -> None:
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
def test_a_clone_has_the_offsets_of_its_source(desk: Desk, topic: str | None) -> None:
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


def test_topics_an_online_group_left_are_cloned_only_when_offline_is_said(desk: Desk) -> None:
    desk.rig.offsets.commit("T", "from", 0, 3)
    desk.join("from", "Ordered")
    desk.ask(desk.tools.clone, srcGroup="from", destGroup="to")
    assert desk.rig.offsets.query("T", "to", 0) is None
    desk.ask(desk.tools.clone, srcGroup="from", destGroup="to", offline="true")
    assert desk.rig.offsets.query("T", "to", 0) == 3


@pytest.mark.proves("broker:16.3")
def test_statistics_of_all_groups(desk: Desk) -> None:
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
def test_producers_by_group(desk: Desk) -> None:
    client = connection(40_001)
    for group in ("p", "q"):
        desk.rig.clients.add_producer(group, client, Member("id", "JAVA", 399, 0.0))
    data = ProducerTable.decode(desk.ask(desk.tools.producers).body).data
    assert sorted(data) == ["p", "q"]
    (one,) = data["p"]
    assert (one.client_id, one.remote_ip, one.language, one.version) == (
        "id",
        "/127.0.0.1:40001",
        "JAVA",
        399,
    )
    assert 0 < one.last_update_timestamp <= desk.rig.clock.ms


def test_subscriptions_of_groups_online_and_offline(desk: Desk) -> None:
    desk.join("g", "T")
    value = loads(desk.ask(desk.tools.subscription, group="g", topic="T").body)
    assert value["subscriptionData"]["subVersion"] == 7
    assert loads(desk.ask(desk.tools.subscription, group="h", topic="T").body) == {"group": "h", "topic": "T"}


@pytest.mark.proves("broker:5.3")
def test_a_group_is_forbidden_a_topic_and_allowed_again(desk: Desk) -> None:
    def ask(**ext: str) -> bool:
        answer = desk.ask(desk.tools.forbidden, group="g", topic="T", **ext)
        return GroupForbidden.decode(answer.body).readable

    assert ask()
    assert not ask(readable="false")
    assert desk.rig.groups.is_forbidden("g", "T") and not desk.rig.groups.is_forbidden("g", "Ordered")
    assert not ask()
    assert ask(readable="true")
    assert not desk.rig.groups.is_forbidden("g", "T")


def test_a_ban_that_cannot_be_saved_does_not_hold(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "replace", full)
        with pytest.raises(StoreError):
            desk.ask(desk.tools.forbidden, group="g", topic="T", readable="false")
    assert not desk.rig.groups.is_forbidden("g", "T")


def test_several_groups_at_once_all_or_none(desk: Desk) -> None:
    def put(*names: str) -> int:
        body = SubscriptionGroupList([SubscriptionGroupConfig(group_name=name) for name in names]).encode()
        request = Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, 1, body=body)
        return run(desk.tools.put_all(connection(), request)).code

    assert put("one", "two") == ResponseCode.SUCCESS
    assert {"one", "two"} <= set(desk.rig.groups.configs)
    assert put("three", "not legal!") == ResponseCode.INVALID_PARAMETER
    assert "three" not in desk.rig.groups.configs
