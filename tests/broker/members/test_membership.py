"""Heartbeats, unregistration and change notifications."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.rig import Rig, connection
from tests.support import run, until

from sparrowmq.broker.members import membership as module
from sparrowmq.broker.members.unlike_members import AGAIN_SECONDS
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.files import disk
from sparrowmq.protocol.bodies import (
    ConsumerData,
    ConsumerList,
    HeartbeatData,
    MessageModel,
    ProducerData,
)
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.transport.slices import Slices


class Members:
    """The handlers with a rig's tables."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.handlers = rig.parts.membership

    @property
    def made(self) -> int:
        """How often a topic was created."""
        return self.rig.registration.soon

    def beat(
        self,
        client: Any,
        client_id: str,
        *consumers: ConsumerData,
        producers: tuple[str, ...] = (),
        fingerprint: int = 0,
        without_sub: bool = False,
    ) -> Any:
        data = HeartbeatData(
            client_id=client_id,
            producers=tuple(ProducerData(group=name) for name in producers),
            consumers=consumers,
            fingerprint=fingerprint,
            without_sub=without_sub,
        )
        return self.handlers.heartbeat(client, Command(RequestCode.HEART_BEAT, 1, body=data.encode()))

    def list(self, group: str) -> Command:
        ext = {"consumerGroup": group}
        return self.handlers.members(
            connection(), Command(RequestCode.GET_CONSUMER_LIST_BY_GROUP, 2, ext=ext)
        )


def consumer(group: str, *topics: str, model: MessageModel = MessageModel.CLUSTERING) -> ConsumerData:
    return ConsumerData(
        group=group,
        message_model=model,
        subscriptions=tuple(SubscriptionData(topic, version=1) for topic in topics),
    )


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    rig = Rig(tmp_path / "store")
    yield Members(rig)
    rig.close()


def test_heartbeat_registers_group_client_and_retry_topic(members: Members) -> None:
    answer = members.beat(connection(), "c1", consumer("g", "A"), producers=("p",))
    assert answer.code == ResponseCode.SUCCESS
    assert answer.ext == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
    assert "g" in members.rig.groups.configs
    assert members.rig.topics.configs["%RETRY%g"].read_queue_nums == 1
    assert members.made == 1
    assert list(members.rig.clients.producers) == ["p"]
    assert ConsumerList.decode(members.list("g").body).consumer_id_list == ["c1"]


def test_unknown_group_has_no_members(members: Members) -> None:
    answer = members.list("nobody")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "no consumer for this group" in (answer.remark or "")


def test_members_are_notified_of_each_change_and_only_of_changes(members: Members) -> None:
    first, second = connection(1), connection(2)
    members.beat(first, "c1", consumer("g", "A"))
    first.notices.clear()
    members.beat(second, "c2", consumer("g", "A"))
    assert [n.code for n in first.notices] == [RequestCode.NOTIFY_CONSUMER_IDS_CHANGED]
    assert first.notices[0].ext == {"consumerGroup": "g"}
    members.beat(second, "c2", consumer("g", "A"))
    assert len(first.notices) == 1


@pytest.mark.proves("client:A-63")
def test_many_changes_cause_few_notifications(members: Members) -> None:
    """When many connections close at once, each remaining member is not notified of each of them."""

    async def main() -> None:
        count = 300
        clients = [connection(number) for number in range(1, count + 1)]
        for client in clients:
            members.beat(client, f"c{client.peer[1]}", consumer("g", "T"))
        stayed, lost = clients[:100], clients[100:]
        for client in clients:
            client.notices.clear()
        for client in lost:
            client.closed = True
            members.handlers.connection_gone(client)
        await until(lambda: all(client.notices for client in stayed))
        told = sum(len(client.notices) for client in stayed)
        assert told <= len(stayed) * 20, "told once for each that was lost"
        before = len(stayed[0].notices)
        members.handlers.connection_gone(stayed[-1])
        await until(lambda: len(stayed[0].notices) > before)

    run(main())


def test_version_2_heartbeats_omit_unchanged_subscriptions(members: Members) -> None:
    one, two, full, short = connection(1), connection(2), consumer("g", "A", "B"), consumer("g")

    def is_told(client: Any, told: ConsumerData, fingerprint: int, **left_out: bool) -> bool:
        answer = members.beat(client, client.address, told, fingerprint=fingerprint, **left_out)
        assert answer.ext["IS_SUPPORT_HEART_BEAT_V2"] == "true"
        return answer.ext["IS_SUB_CHANGE"] == "false"

    def known() -> list[str]:
        return sorted(members.rig.clients.consumers["g"].subscriptions)

    assert is_told(one, full, 7) and known() == ["A", "B"]
    one.notices.clear()
    assert is_told(one, short, 7, without_sub=True) and known() == ["A", "B"]
    assert is_told(two, short, 7, without_sub=True), "another member with the same subscriptions"
    assert len(one.notices) == 1, "it is told of the other member, and of nothing else"
    assert not is_told(two, consumer("g", "A", "C"), -8), "a member with others: all tell theirs again"
    assert known() == ["A", "C"]
    assert not is_told(one, short, 7, without_sub=True)
    assert is_told(one, full, 7) and known() == ["A", "B"]
    assert members.beat(two, "c2", full).ext["IS_SUB_CHANGE"] == "true", "version 1 always tells all"


@pytest.mark.proves("client:A-63")
def test_subscriptions_unknown_to_a_broker_are_sent_again(members: Members) -> None:
    """After the broker's restart, when a client that does not know of it omits them."""
    client = connection()
    for _ in range(2):
        answer = members.beat(client, "c", consumer("g"), fingerprint=7, without_sub=True)
        assert answer.ext["IS_SUB_CHANGE"] == "true"
    answer = members.beat(client, "c", consumer("g", "A"), fingerprint=7)
    assert answer.ext["IS_SUB_CHANGE"] == "false"
    assert list(members.rig.clients.consumers["g"].subscriptions) == ["A"]


def test_heartbeat_with_many_groups_lets_other_requests_run(members: Members) -> None:
    async def main() -> None:
        count, client, gone = 900, connection(1), connection(2)
        beats = [
            members.beat(one, "c", *(consumer(f"{name}{n}", "T") for n in range(count)))
            for one, name in ((client, "g"), (gone, "x"))
        ]
        assert isinstance(beats[0], asyncio.Future), "all of it in one turn of the loop"
        gone.closed = True
        for beat in beats:
            assert (await beat).code == ResponseCode.SUCCESS
        assert sum(name.startswith("g") for name in members.rig.clients.consumers) == count
        assert sum(name.startswith("x") for name in members.rig.clients.consumers) < count

    run(main())


def test_broadcasting_groups_are_not_notified(members: Members) -> None:
    first = connection(1)
    members.beat(first, "c1", consumer("g", "A", model=MessageModel.BROADCASTING))
    members.beat(connection(2), "c2", consumer("g", "A", model=MessageModel.BROADCASTING))
    assert first.notices == []


def test_members_are_notified_of_unregistration_and_lost_connections(members: Members) -> None:
    clients = [connection(n) for n in (1, 2, 3)]
    for n, client in enumerate(clients):
        members.beat(client, f"c{n}", consumer("g", "A"))
    staying = clients[0]
    staying.notices.clear()
    leave = Command(RequestCode.UNREGISTER_CLIENT, 1, ext={"clientID": "c1", "consumerGroup": "g"})
    assert members.handlers.unregister(clients[1], leave).code == ResponseCode.SUCCESS
    members.handlers.connection_gone(clients[2])
    assert len(staying.notices) == 2
    assert ConsumerList.decode(members.list("g").body).consumer_id_list == ["c0"]


def test_silent_client_is_disconnected(members: Members) -> None:
    client = connection()
    members.beat(client, "c1", consumer("g", "A"))
    members.rig.clock.ms += 120_000
    members.handlers.drop_silent()
    assert not client.closed
    members.rig.clock.ms += 1
    members.handlers.drop_silent()
    assert client.closed and "heartbeat" in client.close_reason


def test_retry_topic_is_created_on_a_full_disk(members: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is saved later; if the broker crashes before that, the next heartbeat creates it again."""
    rig, client = members.rig, connection()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "replace", full)
        for _ in range(2):
            assert members.beat(client, "c1", ConsumerData("g")).code == ResponseCode.SUCCESS
    assert members.list("g").code == ResponseCode.SUCCESS
    assert "%RETRY%g" in rig.topics.configs and rig.topics.is_unsaved("%RETRY%g")
    assert members.made == 1


def test_member_list_error_says_how_to_create_an_unknown_group(members: Members) -> None:
    remark = members.list("nobody").remark or ""
    assert remark.startswith("no consumer for this group, nobody")
    assert "autoCreateSubscriptionGroup" in remark


@pytest.mark.proves("broker:14.2")
def test_filters_live_as_long_as_their_group(members: Members) -> None:
    one, two = connection(1), connection(2)
    data = SubscriptionData("T", "a > 1", version=1, expression_type="SQL92")
    wanted = ConsumerData(group="g", subscriptions=(data,))
    for client, name in ((one, "c1"), (two, "c2")):
        members.beat(client, name, wanted)
    stored = members.rig.filters.get("T", "g")
    assert stored is not None and not stored.is_dead
    members.handlers.connection_gone(one)
    assert not stored.is_dead
    members.handlers.connection_gone(two)
    assert stored.is_dead
    members.beat(one, "c1", wanted)
    assert not stored.is_dead
    ext = {"clientID": "c1", "consumerGroup": "g"}
    members.handlers.unregister(one, Command(RequestCode.UNREGISTER_CLIENT, 1, ext=ext))
    assert stored.is_dead


def test_filter_is_that_of_the_latest_member_though_earlier_ones_repeat_theirs(members: Members) -> None:
    """A rolling deployment; the clock of the staying member is ahead."""
    staying, new = connection(1), connection(2)

    def beat(client: Any, name: str, expression: str, version: int) -> None:
        data = SubscriptionData("T", expression, version=version, expression_type="SQL92")
        members.beat(client, name, ConsumerData(group="g", subscriptions=(data,)))

    beat(staying, "c1", "a = 1", 3_600_000)
    beat(new, "c2", "a = 2", 5)
    for _ in range(2):
        stored = members.rig.filters.get("T", "g")
        assert stored is not None and stored.expression == "a = 2"
        beat(staying, "c1", "a = 1", 3_600_000)


def test_heartbeat_is_processed_one_group_per_step() -> None:
    beat = HeartbeatData("c", consumers=tuple(ConsumerData(f"g{number}") for number in range(40)))
    reading = HeartbeatData.decoding(beat.encode())
    read = 0
    with pytest.raises(StopIteration) as end:
        while True:  # ends with the heartbeat
            next(reading)
            read += 1
    assert read == 40 and end.value.value == beat


def test_client_in_many_groups_is_checked_and_removed_in_steps(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        client, other = connection(), connection()
        await _done(members.beat(client, "c", producers=tuple(f"P{number}" for number in range(100))))
        await _done(members.beat(other, "o", producers=("P1",)))
        slices = Slices(turn_seconds=0.0)
        monkeypatch.setattr(module, "shared", lambda: slices)
        members.rig.clock.ms += 121_000
        members.handlers.drop_silent()
        assert len(slices) == 1 and not other.closed, "not all in one turn"
        await until(lambda: not len(slices))
        assert client.closed and other.closed
        members.handlers.connection_gone(client)
        await asyncio.sleep(0)
        assert 90 < members.rig.clients.count < 101, "not all in one turn"
        await until(lambda: not len(slices))
        assert members.rig.clients.count == 1

    run(main())


async def _done(answer: Any) -> None:
    if not isinstance(answer, Command):
        await answer


def test_members_that_subscribe_differently_are_named_once_an_hour(
    members: Members, caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> list[str]:
        found = [record.getMessage() for record in caplog.records if "differently" in record.getMessage()]
        caplog.clear()
        return found

    def tagged(tag: str) -> ConsumerData:
        return ConsumerData("g", subscriptions=(SubscriptionData("T", tag, frozenset([tag]), 1),))

    first, second = connection(1), connection(2)
    for _ in range(3):
        members.beat(first, "a", tagged("x"))
        members.beat(second, "b", tagged("y"))
    (text,) = told()
    assert text.startswith("members of group g subscribe differently: a asks for T x; b asks for T y;")
    members.beat(second, "b", consumer("g", "Other"))
    members.beat(first, "a", tagged("x"))
    (text,) = told()
    assert "b asks for Other *; a asks for T x" in text
    members.rig.clock.ms += int(AGAIN_SECONDS * 1000)
    for _ in range(3):
        members.beat(second, "b", consumer("g", "Other"))
        members.beat(first, "a", tagged("x"))
    assert len(told()) == 1, "it still holds"
    members.rig.clock.ms += int(AGAIN_SECONDS * 1000)
    members.beat(second, "b", tagged("x"))
    members.beat(first, "a", tagged("x"))
    assert told() == [], "it is over"
    members.handlers.connection_gone(second)
    members.beat(first, "a", tagged("z"))
    assert told() == [], "one member may change its mind"
    members.beat(connection(3), "c", consumer("g", "T", model=MessageModel.BROADCASTING))
    assert told() == []
