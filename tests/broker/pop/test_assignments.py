"""Requests 400 to 402: which queues a member reads, and whether it pulls or pops."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.rig import Rig, connection
from tests.support import run

from sparrowmq.broker.pop import request_modes
from sparrowmq.broker.pop.assignments import AssignmentRequests, pop_shares
from sparrowmq.broker.pop.request_modes import RequestModes
from sparrowmq.broker.tables.clients import ConnectedMember, ConsumerGroup
from sparrowmq.core.allocation import Averagely
from sparrowmq.core.errors import StoreCorruptError, StoreError
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.bodies import (
    AssignmentRequest,
    Assignments,
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
)
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.pop.records import RequestMode
from sparrowmq.protocol.refusals import Refused
from sparrowmq.store.tables.config_file import ConfigFile

TOPIC = "TopicTest"


def queue(queue_id: int, broker: str = "broker-a") -> MessageQueue:
    return MessageQueue(TOPIC, broker, queue_id)


class World(Rig):
    """A rig whose group `g` has members."""

    def __init__(self, root: Path, **settings: object) -> None:
        super().__init__(root, **settings)
        if self.topics.get(TOPIC) is None:
            self.make_topic(TOPIC, 4)
        assert self.groups.get("g") is not None

    def join(self, *clients: str) -> None:
        for port, client in enumerate(clients, 50_001):
            group = ConsumerGroup(
                "g",
                ConsumeType.CONSUME_PASSIVELY,
                MessageModel.CLUSTERING,
                ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            )
            member = ConnectedMember(client, "PYTHON", 0, self.clock.monotonic())
            self.clients.add_consumer(group, connection(port), member)

    def ask(self, code: Code, body: bytes = b"") -> Command:
        try:
            found = self.parts.handlers[code](connection(), Command(code, 1, 0, {}, body))
            return found if isinstance(found, Command) else run(found)
        except Refused as error:
            return error.answer(1)

    def assigned(
        self, client: str = "p", topic: str = TOPIC, strategy: str = "AVG", model: str = "CLUSTERING"
    ) -> list[tuple[MessageQueue, str]] | None:
        answer = self.ask(
            Code.QUERY_ASSIGNMENT, AssignmentRequest(client, "g", strategy, topic, model).encode()
        )
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return Assignments.decode(answer.body).pairs

    def set_mode(self, mode: str = "POP", share: int = 0, topic: str = TOPIC, group: str = "g") -> Command:
        body = RequestMode(consumer_group=group, mode=mode, pop_share_queue_num=share, topic=topic)
        return self.ask(Code.SET_MESSAGE_REQUEST_MODE, body.encode())


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


@pytest.mark.proves("broker:13.10")
@pytest.mark.parametrize(
    ("members", "share", "expected"),
    [
        ("p", 0, [-1]),
        ("pq", -1, [-1]),
        ("pq", 1, [-1]),
        ("pqrs", 3, [-1]),
        ("pqrs", 2, [0, 1, 2]),
        ("opqr", 1, [1, 2]),
        ("mnop", 1, [3, 0]),
        ("mnopqrst", 1, [3]),
        ("mnopqrst", 8, [-1]),
        ("mnoqrs", 1, []),
    ],
)
def test_queues_are_shared_in_a_group_that_pops(members: str, share: int, expected: list[int]) -> None:
    queues = [queue(number) for number in range(4)]
    asked = AssignmentRequest("p", "g", "AVG", TOPIC)
    found = pop_shares(Averagely(), asked, queues, list(members), share)
    assert [one.queue_id for one in found] == expected


@pytest.mark.proves("broker:13.10")
def test_members_pull_unless_pop_is_set(world: World) -> None:
    assert world.assigned() is None, "a member that is not known keeps what it has"
    world.join("p", "q")
    assert world.assigned("p") == [(queue(0), "PULL"), (queue(1), "PULL")]
    assert world.assigned("q", strategy="AVG_BY_CIRCLE") == [(queue(1), "PULL"), (queue(3), "PULL")]
    assert world.assigned("stranger") == []
    assert world.assigned(topic="Nowhere") is None
    assert world.assigned("x", model="BROADCASTING") == [(queue(number), "PULL") for number in range(4)]
    assert world.set_mode().code == ResponseCode.SUCCESS
    assert world.assigned("p") == world.assigned("q") == [(queue(-1), "POP")]
    assert world.set_mode("PULL").code == ResponseCode.SUCCESS
    assert world.assigned("p") == [(queue(0), "PULL"), (queue(1), "PULL")]


@pytest.mark.proves("broker:13.10")
def test_broker_may_prefer_pop(tmp_path: Path) -> None:
    world = World(tmp_path, default_message_request_mode="POP", default_pop_share_queue_num=1)
    world.make_topic("%RETRY%g", 1)
    world.join("p", "q", "r", "s")
    assert world.assigned("p") == [(queue(0), "POP"), (queue(1), "POP")]
    assert world.assigned("p", topic="%RETRY%g") == [(MessageQueue("%RETRY%g", "broker-a", 0), "PULL")]
    assert world.set_mode("PULL").code == ResponseCode.SUCCESS
    assert world.assigned("p") == [(queue(0), "PULL")]
    world.close()


def test_client_side_allocation_is_kept(world: World) -> None:
    world.join("p")
    body = AssignmentRequest("p", "g", "CONSISTENT_HASH", TOPIC).encode()
    answer = world.ask(Code.QUERY_ASSIGNMENT, body)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert "unsupported strategy [CONSISTENT_HASH], brokers know AVG, AVG_BY_CIRCLE" in (answer.remark or "")
    world.make_topic("Wide", 10_001)
    answer = world.ask(Code.QUERY_ASSIGNMENT, AssignmentRequest("p", "g", "AVG", "Wide").encode())
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert "topic Wide has 10001 queues, and a broker assigns up to 10000" in (answer.remark or "")


def test_queues_of_all_brokers_are_allocated(world: World) -> None:
    class Routes:
        async def find(self, topic: str) -> dict[str, int] | None:
            return {"broker-b": 2, "broker-a": 1} if topic == TOPIC else None

    world.join("p", "q")
    requests = AssignmentRequests(world.topics, world.clients, world.parts.request_modes, Routes())

    def assigned(client: str) -> list[MessageQueue]:
        body = AssignmentRequest(client, "g", "AVG", TOPIC).encode()
        answer = run(requests.query(connection(), Command(Code.QUERY_ASSIGNMENT, 1, body=body)))
        return [one for one, _ in Assignments.decode(answer.body).pairs or ()]

    assert assigned("p") == [queue(0), queue(0, "broker-b")]
    assert assigned("q") == [queue(1, "broker-b")]
    assert world.set_mode().code == ResponseCode.SUCCESS
    assert assigned("p") == [queue(-1), queue(-1, "broker-b")]


@pytest.mark.proves("broker:13.10")
def test_invalid_modes_are_refused(world: World) -> None:
    found = {
        "a retry topic": world.set_mode(topic="%RETRY%g").code,
        "an unknown topic": world.set_mode(topic="Nowhere").code,
        "an unknown mode": world.set_mode("PUSH").code,
    }
    world.groups._auto_create = False
    found["an unknown group"] = world.set_mode(group="nobody").code
    assert found == {
        "a retry topic": ResponseCode.NO_PERMISSION,
        "an unknown topic": ResponseCode.TOPIC_NOT_EXIST,
        "an unknown mode": ResponseCode.INVALID_PARAMETER,
        "an unknown group": ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    }


def test_modes_are_stored_in_rocketmqs_format(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert world.set_mode(share=2).code == ResponseCode.SUCCESS
    world.kill()
    path = tmp_path / "config" / "messageRequestMode.json"
    kept = {"consumerGroup": "g", "mode": "POP", "popShareQueueNum": 2, "topic": TOPIC}
    assert json.loads(path.read_text()) == {"messageRequestModeMap": {TOPIC: {"g": kept}}}
    again = World(tmp_path)
    again.join("p", "q", "r", "s")
    assert again.assigned("p") == [(queue(0), "POP"), (queue(1), "POP"), (queue(2), "POP")]
    told = again.ask(Code.GET_ALL_MESSAGE_REQUEST_MODE)
    assert json.loads(told.body) == json.loads(path.read_text())
    path.write_text('{"messageRequestModeMap": {"T": 7}}')
    with pytest.raises(StoreCorruptError, match="restore or remove it"):
        RequestModes(again.settings, ConfigFile(path), again.topics, again.groups, again.pool)
    again.close()


def test_mode_that_is_not_on_disk_does_not_apply(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.join("p")
    assert world.set_mode(share=7).code == ResponseCode.SUCCESS

    def fail(self: object, value: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as context:
        context.setattr("sparrowmq.store.tables.config_file.ConfigFile.save", fail)
        with pytest.raises(StoreError):
            world.set_mode("PULL")
        assert world.assigned() == [(queue(-1), "POP")]
    assert world.parts.request_modes.get(TOPIC, "g").pop_share_queue_num == 7


def test_number_of_modes_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_modes, "MODES_MAX", 2)
    world.make_topic("Other", 1)
    world.make_topic("Third", 1)
    assert world.set_mode().code == world.set_mode(topic="Other").code == ResponseCode.SUCCESS
    answer = world.set_mode(topic="Third")
    assert answer.code == ResponseCode.SYSTEM_BUSY and "of 2 pairs" in (answer.remark or "")
    assert world.set_mode("PULL").code == ResponseCode.SUCCESS, "a known pair needs no room"
    del world.topics.configs["Other"]
    assert world.set_mode(topic="Third").code == ResponseCode.SUCCESS
