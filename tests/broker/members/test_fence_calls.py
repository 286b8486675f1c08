"""The fence in front of the handlers, on a real store: pulls, commits, locks, send-backs; policies on
disk."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.doubles import FakeClock, FakeConnection
from tests.broker.rig import Rig, connection, pull_ext, send_command
from tests.support import about, run, until

from sparrowmq.broker.members.fence import NOBODY
from sparrowmq.broker.members.fence_calls import Fence
from sparrowmq.broker.members.locks import LockTable
from sparrowmq.broker.tables.clients import ClientTable, ConnectedMember, ConsumerGroup
from sparrowmq.core.errors import ProtocolError, StoreCorruptError, StoreFullError
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.bodies import (
    AssignmentRequest,
    Assignments,
    ConsumeFromWhere,
    ConsumerList,
    ConsumeType,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageModel,
    wire_queues,
)
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import Command, FrameReader, encode
from sparrowmq.protocol.hot import decode_pull
from sparrowmq.protocol.managed import GroupPolicies, GroupPolicy, PauseRule, QueueGrant
from sparrowmq.store.tables.config_file import ConfigFile

FENCED = ResponseCode.GENERATION_FENCED
QUEUES = [MessageQueue("TopicTest", "broker-a", number) for number in range(3)]


def grant(queue_id: int = 0, owner: str = "p", generation: int = 3, fenced: bool = True) -> QueueGrant:
    return QueueGrant("TopicTest", "broker-a", queue_id, generation, owner, fenced)


class World(Rig):
    """A rig with the handlers that the fence protects."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.make_topic("TopicTest", 3)
        assert self.groups.get("g") is not None
        self.handlers = self.parts.handlers
        self.told: list[str] = []
        self.parts.membership.tell = self.told.append

    def ask(self, code: Code, ext: dict[str, Any] | None = None, body: bytes = b"") -> Command:
        fields = {name: str(value) for name, value in (ext or {}).items() if value is not None}
        found = self.handlers[code](connection(), Command(code, 1, 0, fields, body))
        return found if isinstance(found, Command) else run(found)

    def put(self, policy: GroupPolicy) -> Command:
        return self.ask(Code.PUT_GROUP_POLICY, body=policy.encode())

    def set(self, *queues: QueueGrant, revision: int = 1, **more: Any) -> None:
        answer = self.put(GroupPolicy("g", revision=revision, queues=list(queues), **more))
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    def pull(self, client: FakeConnection, **fields: Any) -> list[Command]:
        command = Command(Code.PULL_MESSAGE, 1, 0, dict(pull_ext(**fields)))
        _, header, _ = FrameReader().feed(encode(command))[0]
        frame = decode_pull(header)
        assert frame is not None
        self.pulling.pull(client, frame)  # type: ignore[arg-type]
        return client.answers()

    def commit(self, offset: int, generation: int | None, queue: int = 0) -> Command:
        place = {"consumerGroup": "g", "topic": "TopicTest", "queueId": queue}
        ext = place | {"commitOffset": offset, "generation": generation}
        return self.ask(Code.UPDATE_CONSUMER_OFFSET, ext)

    def send(self, count: int = 1) -> None:
        for _ in range(count):
            self.sending.handle(connection(), send_command())

    def join(self, *clients: str) -> None:
        for client in clients:
            group = ConsumerGroup(
                "g",
                ConsumeType.CONSUME_PASSIVELY,
                MessageModel.CLUSTERING,
                ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            )
            self.clients.add_consumer(group, connection(), ConnectedMember(client, "JAVA", 475, 0.0))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "store")
    yield made
    made.close()


@pytest.mark.parametrize(("generation", "code"), [(3, 0), (2, FENCED), (4, FENCED), (None, FENCED)])
def test_pulls_and_commits_of_another_generation_are_refused(
    world: World, generation: int | None, code: int
) -> None:
    world.send()
    world.set(grant())
    fields = {} if generation is None else {"generation": generation}
    (answer,) = world.pull(connection(), sysFlag=5, commitOffset=1, **fields)
    assert answer.code == code
    assert world.commit(1, generation).code == code
    assert world.offsets.query("TopicTest", "g", 0) == (1 if code == 0 else None)
    if code:
        assert "p has it under generation 3" in str(answer.remark)
        assert world.fence.refused == 2


def test_other_groups_and_unmanaged_queues_are_not_affected(world: World) -> None:
    world.send()
    world.set(grant())
    (answer,) = world.pull(connection(), consumerGroup="other")
    assert answer.code == ResponseCode.SUCCESS
    assert world.pull(connection(), queueId=1)[0].code == ResponseCode.PULL_NOT_FOUND
    assert world.commit(0, None, queue=1).code == ResponseCode.SUCCESS
    assert world.pull(connection(), queueId=1, generation=3)[0].code == FENCED


def test_held_pull_of_the_previous_owner_gets_no_new_messages(world: World) -> None:
    old, new = connection(), connection()
    world.set(grant())
    assert world.pull(old, sysFlag=6, generation=3) == []
    world.set(grant(owner="q", generation=4), revision=2)
    (answer,) = old.answers()
    assert (answer.code, world.told) == (FENCED, ["g", "g"])
    assert world.pull(new, sysFlag=6, generation=4) == []
    world.send()
    assert [one.code for one in new.answers()] == [ResponseCode.SUCCESS]
    assert old.answers() == []


def test_send_backs_of_a_former_owner_are_not_stored(world: World) -> None:
    world.send(2)
    record = world.inner.read(0)
    assert record is not None
    world.set(grant())
    end = world.store.position
    back = {"offset": 0, "group": "g", "delayLevel": 0}
    late = world.ask(Code.CONSUMER_SEND_MSG_BACK, back | {"generation": 2})
    assert (late.code, world.store.position) == (FENCED, end)
    mine = world.ask(Code.CONSUMER_SEND_MSG_BACK, back | {"generation": 3})
    assert mine.code == ResponseCode.SUCCESS
    assert world.store.position > end
    gone = world.ask(Code.CONSUMER_SEND_MSG_BACK, back | {"offset": 99})
    assert gone.code == ResponseCode.SYSTEM_ERROR


def lock(world: World, client: str, generations: list[int] | None, queues: list[MessageQueue]) -> Command:
    body = LockBatchRequestBody(client, "g", wire_queues(queues), generations=generations).encode()
    return world.ask(Code.LOCK_BATCH_MQ, body=body)


def test_only_the_owner_gets_locks_and_gets_them_at_once(world: World) -> None:
    before = lock(world, "old", None, QUEUES)
    assert LockBatchResponseBody.decode(before.body).queues == QUEUES
    world.set(grant(0), grant(1, "q", 3))
    assert lock(world, "old", None, QUEUES[:2]).code == FENCED
    mixed = lock(world, "old", [2, 3, 1], QUEUES)
    assert LockBatchResponseBody.decode(mixed.body).queues == [QUEUES[1]]
    mine = lock(world, "p", [3], QUEUES[:1])
    assert LockBatchResponseBody.decode(mine.body).queues == QUEUES[:1]
    world.set(grant(0, "q", 4), grant(1, "q", 3), revision=2)
    assert lock(world, "p", [3], QUEUES[:1]).code == FENCED
    assert LockBatchResponseBody.decode(lock(world, "q", [4], QUEUES[:1]).body).queues == QUEUES[:1]
    unlocked = LockBatchRequestBody("x", "other", wire_queues(QUEUES)).encode()
    other = world.ask(Code.LOCK_BATCH_MQ, body=unlocked)
    assert LockBatchResponseBody.decode(other.body).queues == QUEUES


def test_stock_members_are_shown_only_to_permitted_consumers(world: World) -> None:
    world.join("a", "b", "c")

    def listed() -> list[str]:
        answer = world.ask(Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"})
        return ConsumerList.decode(answer.body).consumer_id_list

    assert listed() == ["a", "b", "c"]
    world.set(members=["c", "x", "a"])
    assert listed() == ["c", "a"]
    world.set(members=["c", "x", "a"], maximum=1, revision=2)
    assert listed() == ["c"]
    world.set(members=[], revision=3)
    assert listed() == [NOBODY]
    unknown = world.ask(Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "nobody"})
    assert unknown.code == ResponseCode.SYSTEM_ERROR


def test_member_is_told_its_queues_on_request(world: World) -> None:
    def assigned(client: str) -> list[tuple[MessageQueue, str]] | None:
        body = AssignmentRequest(client, "g", "AVG", "TopicTest").encode()
        answer = world.ask(Code.QUERY_ASSIGNMENT, body=body)
        return Assignments.decode(answer.body).pairs if answer.code == 0 else None

    assert assigned("p") is None
    world.set(maximum=1)
    assert assigned("p") is None
    world.set(grant(0), grant(1, "q"), revision=2)
    assert assigned("p") == [(QUEUES[0], "PULL")]
    assert assigned("stranger") == []


def test_paused_queues_deliver_nothing_until_they_are_resumed(world: World) -> None:
    client = connection()
    world.set(pauses=[PauseRule("TopicTest", 0, reason="repair")])
    assert world.pull(client, sysFlag=6) == []
    world.send()
    assert client.answers() == []
    (now,) = world.pull(connection())
    assert (now.code, now.remark, now.ext["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, "PAUSED", "0")
    assert world.pulling.held == 1
    world.set(revision=2)
    assert [one.code for one in client.answers()] == [ResponseCode.SUCCESS]
    assert world.pulling.held == 0


def test_pause_applies_to_held_pulls_and_expires(world: World) -> None:
    client = connection()
    assert world.pull(client, sysFlag=6) == []
    world.set(pauses=[PauseRule(until=world.clock.now_ms() + 500)])
    world.send()
    world.pulling.expire()
    assert client.answers() == []
    world.clock.ms += 500
    world.pulling.expire()
    assert [one.code for one in client.answers()] == [ResponseCode.SUCCESS]


def test_paused_pulls_end_with_their_timeout_connection_topic_or_broker(
    world: World,
) -> None:
    world.set(pauses=[PauseRule()])
    ending, closing, going, stopping = (connection() for _ in range(4))
    world.pull(ending, sysFlag=6, suspendTimeoutMillis=0)
    world.pulling.expire()
    assert [one.remark for one in ending.answers()] == ["PAUSED"]
    world.pull(closing, sysFlag=6)
    world.pulling.drop_connection(closing)  # type: ignore[arg-type]
    assert world.pulling.held == 0
    world.pull(going, sysFlag=6)
    world.pulling.release("TopicTest")
    assert [one.remark for one in going.answers()] == ["PAUSED"]
    world.pull(stopping, sysFlag=6)
    world.pulling.release()
    assert [one.remark for one in stopping.answers()] == ["PAUSED"]


def listed_policies(world: World, group: str = "") -> GroupPolicies:
    answer = world.ask(Code.GET_GROUP_POLICIES, {"group": group} if group else None)
    return GroupPolicies.decode(answer.body)


def test_policies_are_on_disk_when_answered_and_apply_after_a_restart(tmp_path: Path) -> None:
    world = World(tmp_path / "store")
    world.set(grant(), members=["p"], maximum=1, pauses=[PauseRule("Other", reason="why")])
    found = listed_policies(world)
    world.close()
    again = World(tmp_path / "store")
    assert listed_policies(again) == found
    again.send()
    assert again.pull(connection(), generation=2)[0].code == FENCED
    assert again.pull(connection(), generation=3)[0].code == ResponseCode.SUCCESS
    again.close()


def test_policy_that_cannot_be_saved_does_not_apply(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.set(grant())

    def full(self: ConfigFile, data: bytes) -> None:
        raise StoreFullError("no space is left")

    with monkeypatch.context() as patch:
        patch.setattr(ConfigFile, "write", full)
        with pytest.raises(StoreFullError):
            world.put(GroupPolicy("g", revision=2, queues=[grant(0, "q", 4)]))
        with pytest.raises(StoreFullError):
            world.ask(Code.DELETE_GROUP_POLICY, {"group": "g"})
    assert listed_policies(world).policies[0].revision == 1
    assert world.commit(0, 3).code == ResponseCode.SUCCESS
    world.set(grant(0, "q", 4), revision=2)


def test_cancelled_change_is_completed_before_the_next_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its file, written late, would replace the next one, which was already answered."""
    writing, go, write = threading.Event(), threading.Event(), ConfigFile.write

    def slow(self: ConfigFile, data: bytes) -> None:
        if not writing.is_set():
            writing.set()
            go.wait(20)
        write(self, data)

    async def main() -> None:
        def put(policy: GroupPolicy) -> asyncio.Task[Command]:
            command = Command(Code.PUT_GROUP_POLICY, 1, 0, {}, policy.encode())
            return asyncio.create_task(world.handlers[Code.PUT_GROUP_POLICY](connection(), command))

        first = put(GroupPolicy("g", queues=[grant(0, "p", 3)]))
        await until(writing.is_set)
        first.cancel()
        await asyncio.wait([first])
        assert first.cancelled()
        second = put(GroupPolicy("g", revision=2, queues=[grant(0, "q", 4)]))
        third = put(GroupPolicy("other", queues=[grant(0, "q", 1)]))
        await asyncio.wait([second], timeout=0.1)  # time enough to overtake the first one, if it could
        go.set()
        assert [(await one).code for one in (second, third)] == [ResponseCode.SUCCESS] * 2

    monkeypatch.setattr(ConfigFile, "write", slow)
    monkeypatch.setattr(world.fence, "_pool", None)  # the loop's own has several threads, as a broker's
    run(main())
    found = GroupPolicies.decode(world.fence._file.path.read_bytes())
    assert [(one.group, one.revision) for one in found.policies] == [("g", 2), ("other", 1)]
    assert found == listed_policies(world)


def test_repeated_policy_changes_nothing_and_an_older_one_is_refused(world: World) -> None:
    world.set(grant(), epoch=2)
    world.set(grant(), epoch=2)
    assert world.told == ["g"]
    older = world.put(GroupPolicy("g", epoch=1, revision=9, queues=[grant(0, "q", 4)]))
    assert older.code == ResponseCode.POLICY_OUTDATED
    assert "policy 1.9 of group g is not later than 2.1" in str(older.remark)
    assert world.put(GroupPolicy("", revision=1)).code == ResponseCode.INVALID_PARAMETER


def test_group_that_is_managed_again_continues_above_its_old_generations(tmp_path: Path) -> None:
    world = World(tmp_path / "store")
    world.set(grant(0), grant(1, generation=7))
    assert world.ask(Code.DELETE_GROUP_POLICY, {"group": "g"}).code == ResponseCode.SUCCESS
    assert world.ask(Code.DELETE_GROUP_POLICY, {"group": "g"}).code == ResponseCode.SUCCESS
    assert world.told == ["g", "g"]
    assert world.commit(0, 3).code == ResponseCode.SUCCESS, "nothing is fenced any more"
    world.close()
    again = World(tmp_path / "store")
    assert listed_policies(again, "g") == GroupPolicies([], {"g": 7})
    assert listed_policies(again, "other") == GroupPolicies()
    low = again.put(GroupPolicy("g", queues=[grant(0, "q", 7)]))
    assert low.code == ResponseCode.POLICY_OUTDATED
    assert "generation 7 of TopicTest/broker-a/0 for group g is older than 8" in str(low.remark)
    again.set(grant(0, "q", 8))
    again.close()


@pytest.mark.parametrize("text", ['{"policies":[{"group":7}]}', '{"policies":3}', '{"retired":{"g":"x"}}'])
def test_invalid_policy_file_stops_the_broker(tmp_path: Path, text: str) -> None:
    path = tmp_path / "groupPolicies.json"
    path.write_text(text)
    clock = FakeClock()
    with pytest.raises(StoreCorruptError, check=about(what="table", value=path)):
        Fence(ConfigFile(path), "broker-a", ClientTable(), LockTable(clock), clock)


def test_invalid_policy_bodies_are_refused(world: World) -> None:
    for body in (b"", b"{", b"[]", b'{"group":"g","queues":[{}]}', b'{"group":"g","epoch":"x"}'):
        with pytest.raises(ProtocolError):
            world.ask(Code.PUT_GROUP_POLICY, body=body)
