"""Calls to clients for tools: resets on both sides, status, running info, direct consumption."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert
from tests.broker.rig import STORE_HOST, Rig, connection, pull_ext
from tests.store.rig import ended
from tests.support import run

from sparrowmq.broker.admin import client_calls as module
from sparrowmq.broker.base.internal_store import InnerMessage
from sparrowmq.broker.tables.clients import ConnectedMember, ConsumerGroup
from sparrowmq.core.errors import ConnectionLostError, RequestTimeoutError
from sparrowmq.core.ids import offset_message_id
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.bodies import (
    ConsumeFromWhere,
    ConsumerStatusBody,
    ConsumeType,
    MessageModel,
    ResetOffsetBody,
    TopicConfig,
)
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command
from sparrowmq.protocol.hot import PullFields, PullFrame
from sparrowmq.protocol.record import decode_record


def queue(number: int) -> MessageQueue:
    return MessageQueue("T", "broker-a", number)


class Desk:
    """A rig with a topic of two queues, five messages in each, one per second, and the calls to clients."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.rig = Rig(root, **settings)
        rig = self.rig
        rig.put_topic(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2))
        assert rig.groups.get("g") is not None
        self.start = rig.clock.ms
        self.placed = []
        for _ in range(5):
            rig.clock.ms += 1000
            for number in (0, 1):
                message = InnerMessage("T", number, b"body", b"", 0, 0, rig.clock.ms, STORE_HOST)
                self.placed += rig.inner.put([message])
        self.calls = rig.parts.exchange.calls

    def join(self, client_id: str, *, language: str = "JAVA", group: str = "g") -> Any:
        client = connection(len(self.rig.clients.consumers) + hash(client_id) % 1000 + 1000)
        kind = (
            ConsumeType.CONSUME_PASSIVELY,
            MessageModel.CLUSTERING,
            ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        )
        self.rig.clients.add_consumer(
            ConsumerGroup(group, *kind), client, ConnectedMember(client_id, language, 1, 0.0)
        )
        return client

    def ask(self, handler: Callable[..., Any], code: RequestCode, **ext: Any) -> Command:
        command = Command(code, 9, ext={name: str(value) for name, value in ext.items()})
        answer = handler(connection(), command)
        if isinstance(answer, Command):
            return answer

        async def awaited() -> Command:
            return await answer

        return run(awaited())

    def reset(self, timestamp: int, **ext: Any) -> Command:
        fields = {"topic": "T", "group": "g", "isForce": "true", "queueId": -1, "offset": -1}
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        return self.ask(self.calls.reset, code, timestamp=timestamp, **(fields | ext))

    def pull(
        self, client: Any, offset: int, queue_id: int = 0, *, group: str = "g", sys_flag: int = 4
    ) -> None:
        ext = pull_ext(
            topic="T",
            queueId=queue_id,
            queueOffset=offset,
            consumerGroup=group,
            sysFlag=sys_flag,
            commitOffset=offset,
        )
        self.rig.pulling.pull(client, PullFrame(3, 0, convert(ext, PullFields, strict=False)))


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Desk]]:
    made: list[Desk] = []

    def _make(**settings: Any) -> Desk:
        made.append(Desk(tmp_path / f"store{len(made)}", **settings))
        return made[-1]

    yield _make
    for desk in made:
        desk.rig.close()


@pytest.fixture
def desk(make: Callable[..., Desk]) -> Desk:
    return make()


class TestOnTheBroker:
    """`useServerSideResetOffset` is true, the default of 5.x."""

    @pytest.mark.proves("client:D-81")
    def test_reset_by_time_is_stored_and_returned_by_the_next_pull(self, desk: Desk) -> None:
        answer = desk.reset(desk.start + 3000)
        assert answer.code == ResponseCode.SUCCESS
        assert ResetOffsetBody.decode(answer.body).offset_table == {queue(0): 2, queue(1): 2}
        assert [desk.rig.offsets.query("T", "g", number) for number in (0, 1)] == [2, 2]
        client = connection()
        desk.pull(client, 5)
        (told,) = client.answers()
        assert (told.code, told.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "2")
        assert (told.ext["minOffset"], told.ext["maxOffset"]) == ("0", "5")
        desk.pull(client, 2)
        assert client.answers()[0].code == ResponseCode.SUCCESS

    def test_pulls_of_other_groups_and_queues_are_not_affected(self, desk: Desk) -> None:
        desk.reset(0, queueId=1)
        client = connection()
        desk.pull(client, 0)
        desk.pull(client, 0, 1, group="h")
        assert [one.code for one in client.answers()] == [ResponseCode.SUCCESS] * 2
        desk.pull(client, 3, 1)
        assert client.answers()[0].ext["nextBeginOffset"] == "0"

    def test_held_pull_is_answered_at_once(self, desk: Desk) -> None:
        held, other = connection(1), connection(2)
        desk.pull(held, 5, sys_flag=6)
        desk.pull(other, 5, sys_flag=6, group="h")
        assert desk.rig.pulling.held == 2
        desk.reset(0)
        (told,) = held.answers()
        assert (told.code, told.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "0")
        assert other.answers() == [] and desk.rig.pulling.held == 1

    def test_commits_cannot_overwrite_a_reset_before_it_is_returned(self, desk: Desk) -> None:
        desk.reset(desk.start + 2000)
        rig = desk.rig
        progress = rig.parts.offset_requests
        fields = {"topic": "T", "consumerGroup": "g", "queueId": 0, "commitOffset": 5}
        assert desk.ask(progress.update, RequestCode.UPDATE_CONSUMER_OFFSET, **fields).code == 0
        client = connection()
        desk.pull(client, 5, sys_flag=5)
        assert rig.offsets.query("T", "g", 0) == 1
        desk.ask(progress.update, RequestCode.UPDATE_CONSUMER_OFFSET, **fields)
        assert rig.offsets.query("T", "g", 0) == 5

    @pytest.mark.proves("client:D-82")
    def test_reset_to_the_end_to_an_offset_and_of_one_queue(self, desk: Desk) -> None:
        assert ResetOffsetBody.decode(desk.reset(-1).body).offset_table == {queue(0): 5, queue(1): 5}
        one = desk.reset(0, queueId=1, offset=3)
        assert ResetOffsetBody.decode(one.body).offset_table == {queue(1): 3}
        assert desk.rig.offsets.query("T", "g", 1) == 3

    @pytest.mark.parametrize(
        ("ext", "code"),
        [
            ({"topic": "Unknown"}, ResponseCode.TOPIC_NOT_EXIST),
            ({"group": "unknown"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
            ({"queueId": 2}, ResponseCode.SYSTEM_ERROR),
            ({"queueId": 0, "offset": 6}, ResponseCode.SYSTEM_ERROR),
            ({"queueId": 0, "offset": -3}, ResponseCode.SYSTEM_ERROR),
        ],
    )
    def test_invalid_resets_are_refused(self, desk: Desk, ext: Any, code: ResponseCode) -> None:
        answer = desk.reset(0, **ext)
        assert answer.code == code and answer.remark
        assert desk.rig.offsets.resets == {}

    def test_deleting_a_group_or_topic_discards_its_resets(self, desk: Desk) -> None:
        desk.reset(0)
        desk.rig.offsets.forget_group("g")
        assert desk.rig.offsets.resets == {}
        desk.reset(0)
        desk.rig.offsets.forget_topic("T")
        assert desk.rig.offsets.resets == {}


class TestInTheClients:
    """`useServerSideResetOffset` is false, as in 4.9."""

    @pytest.fixture
    def desk(self, make: Callable[..., Desk]) -> Desk:
        desk = make(use_server_side_reset_offset=False)
        for number in (0, 1):
            desk.rig.offsets.commit("T", "g", number, 3)
        return desk

    @pytest.mark.proves("client:A-88", "client:D-81")
    def test_every_member_is_notified_in_the_form_it_supports(self, desk: Desk) -> None:
        java, cpp = desk.join("java"), desk.join("cpp", language="CPP")
        answer = desk.reset(-1)
        table = {queue(0): 5, queue(1): 5}
        assert ResetOffsetBody.decode(answer.body).offset_table == table
        for client in (java, cpp):
            (told,) = client.notices
            assert told.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET
            assert told.ext == {
                "topic": "T",
                "group": "g",
                "timestamp": "-1",
                "isForce": "false",
                "queueId": "-1",
            }
            assert ResetOffsetBody.decode(told.body).offset_table == table
        assert java.notices[0].body.startswith(b'{"offsetTable":{')
        assert cpp.notices[0].body.startswith(b'{"offsetTable":[')
        assert desk.rig.offsets.query("T", "g", 0) == 3

    def test_offsets_only_go_back_unless_forced(self, desk: Desk) -> None:
        desk.join("java")
        assert set(ResetOffsetBody.decode(desk.reset(-1, isForce="false").body).offset_table.values()) == {3}
        assert set(ResetOffsetBody.decode(desk.reset(0, isForce="false").body).offset_table.values()) == {0}

    def test_offline_and_unknown_groups_are_refused(self, desk: Desk) -> None:
        answer = desk.reset(-1)
        assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE
        assert "Consumer not online, so can not reset offset, Group: g" in (answer.remark or "")
        answer = desk.reset(-1, group="never")
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            "THe consumer group <never> not exist",
        )
        assert desk.reset(-1, topic="Unknown").code == ResponseCode.TOPIC_NOT_EXIST


class TestStatus:
    """Codes 223 and 221."""

    CODE = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS

    @pytest.mark.proves("client:A-89")
    def test_members_are_queried_and_silent_ones_left_out(self, desk: Desk) -> None:
        one, two, three = desk.join("one"), desk.join("two"), desk.join("three")
        table = {queue(0): 4}
        one.answer = Command(0, 0, FLAG_RESPONSE, body=ConsumerStatusBody(table).encode())
        two.answer = RequestTimeoutError("late")
        three.answer = Command(0, 0, FLAG_RESPONSE, body=b"nonsense")
        answer = desk.ask(desk.calls.status, self.CODE, topic="T", group="g")
        assert ConsumerStatusBody.decode(answer.body).clients == {"one": table}
        assert one.calls[0].code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
        assert one.calls[0].ext == {"topic": "T", "group": "g"}

    def test_one_member_is_queried(self, desk: Desk) -> None:
        one, two = desk.join("one"), desk.join("two")
        two.answer = Command(0, 0, FLAG_RESPONSE, body=ConsumerStatusBody({queue(1): 2}).encode())
        answer = desk.ask(desk.calls.status, self.CODE, topic="T", group="g", clientAddr="two")
        assert ConsumerStatusBody.decode(answer.body).clients == {"two": {queue(1): 2}}
        assert one.calls == []

    def test_group_without_members_is_refused(self, desk: Desk) -> None:
        answer = desk.ask(desk.calls.status, self.CODE, topic="T", group="g")
        assert answer.code == ResponseCode.SYSTEM_ERROR and "online" in (answer.remark or "")


class TestPassedThrough:
    """Codes 307 and 309."""

    INFO = RequestCode.GET_CONSUMER_RUNNING_INFO
    DIRECT = RequestCode.CONSUME_MESSAGE_DIRECTLY

    @pytest.mark.proves("client:A-90")
    def test_running_info_is_requested_from_the_client_and_forwarded(self, desk: Desk) -> None:
        desk.join("one")
        two = desk.join("two")
        two.answer = Command(0, 55, FLAG_RESPONSE, {"k": "v"}, b"info", remark="odd")
        fields = {"consumerGroup": "g", "clientId": "two", "jstackEnable": "true"}
        answer = desk.ask(desk.calls.running_info, self.INFO, **fields)
        assert (answer.code, answer.opaque, answer.body, answer.ext) == (0, 9, b"info", {"k": "v"})
        assert (two.calls[0].code, two.calls[0].ext) == (self.INFO, fields)

    def test_client_receives_only_its_own_fields(self, desk: Desk) -> None:
        """The caller's signature would also be valid for other requests: it covers only the joined values."""
        member = desk.join("one")
        member.answer = Command(ResponseCode.SUCCESS, 0, FLAG_RESPONSE, body=b"{}")
        fields = {"consumerGroup": "g", "clientId": "one", "jstackEnable": "true"}
        secret = {"AccessKey": "root", "Signature": "s", "SecurityToken": "t", "zzz": "more"}
        desk.ask(desk.calls.running_info, self.INFO, **fields, **secret)
        placed = desk.placed[0]
        wanted = {
            "consumerGroup": "g",
            "clientId": "one",
            "msgId": offset_message_id(STORE_HOST, placed.physical_offset),
        }
        code = RequestCode.CONSUME_MESSAGE_DIRECTLY
        desk.ask(desk.calls.consume_directly, code, **wanted, **secret)
        desk.ask(
            desk.calls.status,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            topic="T",
            group="g",
            **secret,
        )
        assert [call.code for call in member.calls] == [307, 309, 221]
        assert member.calls[0].ext == fields
        assert not any(secret.keys() & call.ext.keys() for call in member.calls)

    @pytest.mark.parametrize(
        ("told", "code"),
        [
            (RequestTimeoutError("late"), ResponseCode.CONSUME_MSG_TIMEOUT),
            (ConnectionLostError("gone"), ResponseCode.SYSTEM_ERROR),
        ],
    )
    def test_silent_client_is_a_timeout(self, desk: Desk, told: Exception, code: ResponseCode) -> None:
        desk.join("one").answer = told
        answer = desk.ask(desk.calls.running_info, self.INFO, consumerGroup="g", clientId="one")
        assert answer.code == code and "one" in (answer.remark or "")

    @pytest.mark.parametrize("group", ["g", "unknown"])
    def test_offline_client_is_refused(self, desk: Desk, group: str) -> None:
        desk.join("one")
        answer = desk.ask(desk.calls.running_info, self.INFO, consumerGroup=group, clientId="two")
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            f"The Consumer <{group}> <two> not online",
        )

    @pytest.mark.proves("client:A-91", "client:D-88")
    def test_message_is_consumed_directly(self, desk: Desk) -> None:
        one = desk.join("one")
        one.answer = Command(0, 1, FLAG_RESPONSE, body=b'{"consumeResult":"CR_SUCCESS"}')
        msg_id = offset_message_id(STORE_HOST, desk.placed[4].physical_offset)
        fields = {"consumerGroup": "g", "clientId": "one", "msgId": msg_id, "topic": "T"}
        answer = desk.ask(desk.calls.consume_directly, self.DIRECT, **fields)
        assert answer.body == b'{"consumeResult":"CR_SUCCESS"}'
        (call,) = one.calls
        added = {"brokerName": "broker-a", "topicSysFlag": "0", "groupSysFlag": "0"}
        assert call.ext == fields | added
        record = decode_record(call.body)
        assert (record.topic, record.queue_offset, record.body) == ("T", 2, b"body")
        del fields["clientId"]
        assert desk.ask(desk.calls.consume_directly, self.DIRECT, **fields).code == ResponseCode.SUCCESS

    @pytest.mark.parametrize("msg_id", [None, "", "nonsense", offset_message_id(STORE_HOST, 1 << 45)])
    def test_missing_message_is_refused(self, desk: Desk, msg_id: str | None) -> None:
        one = desk.join("one")
        fields = {"consumerGroup": "g", "clientId": "one"} | ({} if msg_id is None else {"msgId": msg_id})
        answer = desk.ask(desk.calls.consume_directly, self.DIRECT, **fields)
        assert answer.code == ResponseCode.SYSTEM_ERROR and answer.remark
        assert one.calls == []


@pytest.mark.parametrize("here", [True, False])
def test_wide_topic_is_reset_in_steps(
    make: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch, here: bool
) -> None:
    """A topic may have 65,536 queues, most of them unused: the reset does not create them."""
    desk, steps = make(use_server_side_reset_offset=here), 0
    desk.rig.make_topic("Wide", 300)
    for number in range(300):
        desk.rig.offsets.commit("Wide", "g", number, 3)
    desk.join("java")

    def counted(work: Generator[None, None, Command]) -> Command:
        nonlocal steps
        found, steps = ended(work)
        return found

    monkeypatch.setattr(module, "finished", counted)
    answer = desk.reset(-1, topic="Wide")
    table = {MessageQueue("Wide", "broker-a", number): 0 for number in range(300)}
    assert ResetOffsetBody.decode(answer.body).offset_table == table
    assert answer.body == ResetOffsetBody(table).encode()
    assert steps >= 600 and desk.rig.store.queues("Wide") == []


def test_topic_deleted_during_a_reset_gets_no_offsets(
    make: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = make()
    desk.rig.make_topic("Wide", 20)

    def cut_short(work: Generator[None, None, Command]) -> Command:
        for _ in range(20):
            next(work)
        run(desk.rig.topics.delete("Wide"))
        return ended(work)[0]

    monkeypatch.setattr(module, "finished", cut_short)
    answer = desk.reset(-1, topic="Wide")
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert desk.rig.offsets.of_topic("Wide") == []


@pytest.mark.parametrize("count", [0, 1, 5])
@pytest.mark.parametrize("as_list", [True, False])
def test_offsets_sent_in_steps_equal_offsets_sent_at_once(count: int, as_list: bool) -> None:
    table = {queue(number): 7 * number for number in range(count)}
    told = ended(ResetOffsetBody.encoding(table.items(), as_list=as_list))
    assert told == (ResetOffsetBody(table).encode(as_list=as_list), count)
