"""Pulls: the reference's checks and codes, holding, waking, and bulk answers."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.broker.rig import Rig, connection, pull_ext, send_command
from tests.support import run

from sparrowmq.broker.pull import pull_path as module
from sparrowmq.broker.tables.clients import ConnectedMember, ConsumerGroup
from sparrowmq.core.errors import StoreBusyError
from sparrowmq.core.route import PERM_WRITE
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.protocol import properties
from sparrowmq.protocol.bodies import (
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    SubscriptionGroupConfig,
    TopicConfig,
)
from sparrowmq.protocol.bodies.clients import WireSubscription
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command, FrameReader, encode
from sparrowmq.protocol.hot import PullFrame, decode_pull
from sparrowmq.protocol.record import decode_records
from sparrowmq.store.queues import reads
from sparrowmq.transport.slices import Slices

HOLD = 2


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path / "store")
    made.make_topic("TopicTest", 2)
    yield made
    made.close()


def frame(opaque: int = 1, **fields: Any) -> PullFrame:
    command = Command(RequestCode.PULL_MESSAGE, opaque, 0, dict(pull_ext(**fields)))
    _, header, _ = FrameReader().feed(encode(command))[0]
    decoded = decode_pull(header)
    assert decoded is not None
    return decoded


def pull(rig: Rig, client: Any = None, **fields: Any) -> Command:
    """The answer to a pull that is answered at once."""
    client = client or connection()
    rig.pulling.pull(client, frame(**fields))
    (answer,) = client.answers()
    return answer


def fill(rig: Rig, count: int, tags: str = "TagA", size: int = 5) -> None:
    for n in range(count):
        text = f"UNIQ_KEY\x01K{n}\x02TAGS\x01{tags}\x02"
        rig.sending.handle(connection(), send_command(b"%05d" % n + bytes(size - 5), properties=text))


def bodies(answer: Command) -> list[bytes]:
    return [record.body for record in decode_records(answer.body)]


@pytest.mark.proves("client:D-26")
def test_found_messages_are_returned_as_stored_with_all_offsets(rig: Rig) -> None:
    fill(rig, 3)
    answer = pull(rig, opaque=5, queueOffset=1)
    assert (answer.code, answer.opaque, answer.remark) == (ResponseCode.SUCCESS, 5, "FOUND")
    assert bodies(answer) == [b"00001", b"00002"]
    assert answer.ext["nextBeginOffset"] == "3" and answer.ext["maxOffset"] == "3"
    assert answer.ext["minOffset"] == "0" and answer.ext["suggestWhichBrokerId"] == "0"


def test_answer_has_at_most_32_messages_whatever_is_requested(rig: Rig) -> None:
    fill(rig, 40)
    assert len(bodies(pull(rig, maxMsgNums=1000))) == 32
    assert len(bodies(pull(rig, maxMsgNums=7))) == 7


def test_bulk_answer_has_as_many_messages_as_its_bytes_allow(rig: Rig) -> None:
    fill(rig, 200)
    answer = pull(rig, maxMsgNums=1_000_000, bulkBytes=8 << 20)
    assert len(bodies(answer)) == 200 and answer.ext["nextBeginOffset"] == "200"
    small = pull(rig, maxMsgNums=1_000_000, bulkBytes=2000)
    assert 1 <= len(bodies(small)) < 20 and len(small.body) <= 2000


def test_bulk_reads_find_what_a_topic_had_before_it_was_shrunk(rig: Rig) -> None:
    rig.sending.handle(connection(), send_command(b"old", queue_id=1))
    rig.make_topic("TopicTest", 1)
    assert bodies(pull(rig, queueId=1, bulkBytes=1 << 20)) == [b"old"]
    for others in ({"queueId": 1}, {"queueId": 2, "bulkBytes": 1 << 20}, {"queueId": -1, "bulkBytes": 1}):
        answer = pull(rig, **others)
        assert answer.code == ResponseCode.INVALID_PARAMETER and "is illegal" in (answer.remark or "")


@pytest.mark.proves("client:D-26")
@pytest.mark.parametrize(
    ("offset", "code", "next_offset"),
    [
        (3, ResponseCode.PULL_NOT_FOUND, "3"),
        (99, ResponseCode.PULL_OFFSET_MOVED, "0"),
        (-1, ResponseCode.PULL_OFFSET_MOVED, "0"),
    ],
)
def test_offsets_outside_the_queue_are_corrected(
    rig: Rig, offset: int, code: ResponseCode, next_offset: str
) -> None:
    fill(rig, 3)
    answer = pull(rig, queueOffset=offset)
    assert (answer.code, answer.ext["nextBeginOffset"]) == (code, next_offset)
    assert set(answer.ext) >= {"suggestWhichBrokerId", "minOffset", "maxOffset"}


def test_empty_queue_is_not_found_at_zero_and_moved_elsewhere(rig: Rig) -> None:
    assert pull(rig, queueId=1).code == ResponseCode.PULL_NOT_FOUND
    moved = pull(rig, queueId=1, queueOffset=7)
    assert (moved.code, moved.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "0")


def test_tags_filter_by_code_and_the_offset_passes_skipped_messages(rig: Rig) -> None:
    fill(rig, 2, tags="TagA")
    fill(rig, 2, tags="TagB")
    answer = pull(rig, subscription="TagB || TagC")
    assert len(bodies(answer)) == 2 and answer.ext["nextBeginOffset"] == "4"
    none = pull(rig, subscription="TagX")
    assert (none.code, none.ext["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "4")


def refuse_writes_only(rig: Rig) -> None:
    config = TopicConfig(topic_name="TopicTest", read_queue_nums=2, write_queue_nums=2, perm=PERM_WRITE)
    rig.put_topic(config)


def refuse_group(rig: Rig) -> None:
    run(rig.groups.put([SubscriptionGroupConfig(group_name="g", consume_enable=False)]))


@pytest.mark.parametrize(
    ("prepare", "fields", "code", "word"),
    [
        (None, {"topic": "Nope"}, ResponseCode.TOPIC_NOT_EXIST, "Nope"),
        (None, {"queueId": 2}, ResponseCode.INVALID_PARAMETER, "queueId[2]"),
        (None, {"queueId": -1}, ResponseCode.INVALID_PARAMETER, "queueId[-1]"),
        (None, {"consumerGroup": "bad group"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "bad group"),
        (None, {"subscription": "||"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED, "||"),
        (None, {"sysFlag": 0}, ResponseCode.SUBSCRIPTION_NOT_EXIST, "g"),
        (None, {"expressionType": "SQL92"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED, "column 1"),
        (None, {"expressionType": "FOO"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED, "FOO"),
        (refuse_writes_only, {}, ResponseCode.NO_PERMISSION, "TopicTest"),
        (refuse_group, {}, ResponseCode.NO_PERMISSION, "g"),
    ],
)
def test_each_check_answers_with_its_code(
    rig: Rig, prepare: Any, fields: dict[str, Any], code: ResponseCode, word: str
) -> None:
    if prepare is not None:
        prepare(rig)
    answer = pull(rig, opaque=3, **fields)
    assert (answer.code, answer.opaque) == (code, 3)
    assert word in (answer.remark or "")


def subscribe(
    rig: Rig,
    *data: SubscriptionData,
    model: MessageModel = MessageModel.CLUSTERING,
    client: Any = None,
) -> None:
    group = ConsumerGroup(
        "g",
        ConsumeType.CONSUME_PASSIVELY,
        model,
        ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        {one.topic: one for one in data},
    )
    rig.clients.add_consumer(group, client or connection(), ConnectedMember("c", "JAVA", 513, 0.0))


@pytest.mark.proves("client:C-42")
def test_heartbeats_subscription_serves_pulls_without_one(rig: Rig) -> None:
    fill(rig, 1, tags="TagA")
    fill(rig, 1, tags="TagB")
    subscribe(rig, SubscriptionData("TopicTest", "TagB", frozenset({"TagB"}), version=5))
    answer = pull(rig, sysFlag=0, subVersion=5)
    assert len(bodies(answer)) == 1
    assert pull(rig, sysFlag=0, subVersion=6).code == ResponseCode.SUBSCRIPTION_NOT_LATEST


@pytest.mark.parametrize("expression_type", ["TAG", "SQL92"])
def test_clients_clock_that_was_ahead_does_not_keep_its_filter(rig: Rig, expression_type: str) -> None:
    fill(rig, 1, tags="TagA")
    fill(rig, 1, tags="TagB")
    for version, name in ((9_000, "TagA"), (5, "TagB")):
        data = SubscriptionData("TopicTest", name, frozenset({name}), version)
        if expression_type == "SQL92":
            data = SubscriptionData("TopicTest", f"TAGS = '{name}'", frozenset(), version, "SQL92")
        client = connection()
        subscribe(rig, data, client=client)
        rig.filters.register("g", [data])
        (record,) = decode_records(pull(rig, client=client, sysFlag=0, subVersion=version).body)
        assert properties.decode(record.properties)["TAGS"] == name


def test_topic_the_group_does_not_subscribe_to_is_refused(rig: Rig) -> None:
    subscribe(rig, SubscriptionData("Other"))
    assert pull(rig, sysFlag=0).code == ResponseCode.SUBSCRIPTION_NOT_EXIST


@pytest.mark.parametrize("allowed", [True, False])
def test_broadcasting_is_refused_to_groups_without_permission(rig: Rig, allowed: bool) -> None:
    fill(rig, 1)
    run(rig.groups.put([SubscriptionGroupConfig(group_name="g", consume_broadcast_enable=allowed)]))
    subscribe(rig, SubscriptionData("TopicTest"), model=MessageModel.BROADCASTING)
    answer = pull(rig, sysFlag=0)
    if allowed:
        assert answer.code == ResponseCode.SUCCESS
    else:
        assert (answer.code, answer.ext["forbiddenType"]) == (ResponseCode.NO_PERMISSION, "4")


def test_broker_without_read_permission_refuses_pulls(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "store", broker_permission=PERM_WRITE)
    rig.make_topic("TopicTest", 2)
    fill(rig, 1)
    answer = pull(rig)
    assert (answer.code, answer.ext["forbiddenType"]) == (ResponseCode.NO_PERMISSION, "1")
    assert "brokerPermission" in (answer.remark or "")
    rig.close()


def test_pull_commits_its_offset(rig: Rig) -> None:
    fill(rig, 3)
    pull(rig, sysFlag=5, commitOffset=2)
    assert rig.offsets.query("TopicTest", "g", 0) == 2


def test_pull_commits_no_offset_of_an_earlier_life_of_the_queue(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    fill(rig, 3)
    answer = pull(rig, sysFlag=5, commitOffset=15, queueOffset=15)
    assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "0")
    assert rig.offsets.query("TopicTest", "g", 0) is None
    assert "group g committed offset 15 of TopicTest/0, which ends at 3: it is ignored" in caplog.text
    assert "group g asked for offset 15 of TopicTest/0, which ends at 3: it continues at 0" in caplog.text


def test_broker_that_comes_back_on_an_empty_disk_serves_all_new_messages(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "old")
    rig.make_topic("TopicTest", 1)
    fill(rig, 9)
    pull(rig, sysFlag=5, commitOffset=9, queueOffset=9)
    rig.offsets.save()
    rig.close()
    (tmp_path / "new" / "config").mkdir(parents=True)
    for name in ("topics.json", "consumerOffset.json"):
        shutil.copy(tmp_path / "old" / "config" / name, tmp_path / "new" / "config")
    rig = Rig(tmp_path / "new")
    assert rig.offsets.query("TopicTest", "g", 0) == 0
    fill(rig, 3)
    answer = pull(rig, sysFlag=5, commitOffset=9, queueOffset=9)
    assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "0")
    assert rig.offsets.query("TopicTest", "g", 0) == 0
    rig.close()


def test_client_that_does_not_read_is_told_to_wait(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(rig, 3)
    monkeypatch.setattr(module, "UNSENT_BYTES_MAX", 100)
    client = connection()
    rig.pulling.pull(client, frame(opaque=1))
    rig.pulling.pull(client, frame(opaque=2))
    first, second = client.answers()
    assert (first.code, second.code) == (ResponseCode.SUCCESS, ResponseCode.FLOW_CONTROL)
    assert "100" in (second.remark or "") and pull(rig, client).code == ResponseCode.SUCCESS


def test_held_pulls_of_a_client_that_does_not_read_are_told_to_wait(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One message for many pulls of one connection is not copied for each of them."""
    client = connection()
    for opaque in range(5):
        rig.pulling.pull(client, frame(opaque=opaque, sysFlag=6))
    assert rig.pulling.held == 5
    monkeypatch.setattr(module, "UNSENT_BYTES_MAX", 500)
    fill(rig, 1)
    codes = [answer.code for answer in client.answers()]
    assert codes == [ResponseCode.SUCCESS] * 2 + [ResponseCode.FLOW_CONTROL] * 3
    assert (rig.pulling.held, client.charged) == (0, 0)


def test_clients_with_unread_answers_get_no_messages_while_memory_is_short(rig: Rig) -> None:
    fill(rig, 3)
    client = connection()
    client.is_short = True
    rig.pulling.pull(client, frame(opaque=1))
    (answer,) = client.answers()
    assert answer.code == ResponseCode.FLOW_CONTROL
    assert "connectionMemoryMax" in (answer.remark or "")


@pytest.mark.proves("client:D-18", "MUST-01")
def test_held_pull_is_answered_by_the_chunk_with_its_message(rig: Rig) -> None:
    client = connection()
    rig.pulling.pull(client, frame(opaque=11, sysFlag=4 | HOLD))
    assert client.written == b"" and rig.pulling.held == 1
    fill(rig, 1)
    (answer,) = client.answers()
    assert answer.opaque == 11 and len(bodies(answer)) == 1
    assert rig.pulling.held == 0


def test_held_pull_is_not_woken_by_other_tags(rig: Rig) -> None:
    client = connection()
    rig.pulling.pull(client, frame(sysFlag=4 | HOLD, subscription="TagB"))
    fill(rig, 1, tags="TagA")
    assert client.written == b"" and rig.pulling.held == 1
    fill(rig, 1, tags="TagB")
    (answer,) = client.answers()
    assert len(bodies(answer)) == 1 and answer.ext["nextBeginOffset"] == "2"


def test_held_pull_whose_room_is_taken_meanwhile_is_answered(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pull that other tags woke, and that cannot be held again, does not wait for its client's time-out."""
    client = connection()
    rig.pulling.pull(client, frame(sysFlag=4 | HOLD, subscription="TagB"))
    monkeypatch.setattr(type(client), "charge", lambda self, size: size < 0)
    rig.pulling.recheck("g")
    (answer,) = client.answers()
    assert (answer.code, rig.pulling.held) == (ResponseCode.PULL_NOT_FOUND, 0)


def test_pull_with_timeout_0_is_answered_at_the_next_check(rig: Rig) -> None:
    client = connection()
    rig.pulling.pull(client, frame(sysFlag=4 | HOLD, suspendTimeoutMillis=0))
    assert client.written == b""
    rig.pulling.expire()
    (answer,) = client.answers()
    assert answer.code == ResponseCode.PULL_NOT_FOUND and rig.pulling.held == 0


def test_pull_is_held_until_its_timeout(rig: Rig) -> None:
    client = connection()
    rig.pulling.pull(client, frame(sysFlag=4 | HOLD, suspendTimeoutMillis=20_000))
    rig.clock.ms += 19_999
    rig.pulling.expire()
    assert client.written == b"" and rig.pulling.held == 1
    rig.clock.ms += 1
    rig.pulling.expire()
    assert [one.code for one in client.answers()] == [ResponseCode.PULL_NOT_FOUND] and rig.pulling.held == 0


def test_disconnected_client_gets_nothing_and_holds_nothing(rig: Rig) -> None:
    client = connection()
    rig.pulling.pull(client, frame(sysFlag=4 | HOLD))
    client.closed = True
    rig.pulling.drop_connection(client)
    fill(rig, 1)
    assert client.written == b"" and rig.pulling.held == 0


def test_stop_answers_all_held_pulls(rig: Rig) -> None:
    clients = [connection(n) for n in range(1, 4)]
    for client in clients:
        rig.pulling.pull(client, frame(sysFlag=4 | HOLD))
    rig.pulling.release()
    assert [client.answers()[0].code for client in clients] == [ResponseCode.PULL_NOT_FOUND] * 3


def test_unreadable_messages_give_an_error_answer(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection stays open; the producer whose message woke a pull is not affected."""
    fill(rig, 1)
    waiting = connection()
    rig.pulling.pull(waiting, frame(queueOffset=1, sysFlag=4 | HOLD, suspendTimeoutMillis=20_000))
    assert rig.pulling.held == 1

    def busy(*_: object, **__: object) -> None:
        raise StoreBusyError("cannot map it: Too many open files; raise the limit")

    with monkeypatch.context() as patch:
        patch.setattr(rig.store, "get_messages", busy)
        answer = pull(rig)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (
            answer.remark
            == "the messages cannot be read now: cannot map it: Too many open files; raise the limit"
        )
        fill(rig, 1)
        (woken,) = waiting.answers()
        assert woken.code == ResponseCode.SYSTEM_ERROR
    assert pull(rig).code == ResponseCode.SUCCESS
    tagged = connection()
    rig.clients.consumers.clear()
    rig.pulling.pull(
        tagged, frame(queueOffset=2, sysFlag=4 | HOLD, subscription="TagB", suspendTimeoutMillis=20_000)
    )
    with monkeypatch.context() as patch:
        patch.setattr(rig.store, "has_match", busy)
        fill(rig, 1)
    assert tagged.answers()[0].code == ResponseCode.SYSTEM_ERROR
    assert rig.pulling.held == 0


def test_damaged_record_is_skipped_and_logged_once(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    fill(rig, 3)
    store = rig.store
    (segment,) = store._log.files
    second = store.queue("TopicTest", 0).physical_offset(1)
    assert second is not None
    with segment.path.open("r+b") as file:
        file.seek(second + 4)
        file.write(bytes(4))
    for _ in range(2):
        answer = pull(rig)
        assert [record.queue_offset for record in decode_records(answer.body)] == [0, 2]
    assert [text for text in caplog.messages if "damaged" in text] == [
        "TopicTest/0 offset 1: skipped, because its record is damaged"
    ]


def sql_subscribe(rig: Rig, expression: str, version: int = 5) -> None:
    """Register a filter as a heartbeat of a group does."""
    data = SubscriptionData("TopicTest", expression, version=version, expression_type="SQL92")
    subscribe(rig, data)
    rig.filters.register("g", [data])


def send(rig: Rig, *values: object) -> None:
    """Store messages with property `a`."""
    for value in values:
        rig.sending.handle(connection(), send_command(b"%a" % value, properties=f"a\x01{value}\x02"))


SQL_PULL = {"expressionType": "SQL92", "subscription": "a BETWEEN 2 AND 3"}


@pytest.mark.proves("broker:14.2", "broker:5.3")
def test_filter_in_the_pull_is_evaluated_on_the_records(rig: Rig) -> None:
    send(rig, 1, 2, "x", 3, 4)
    answer = pull(rig, **SQL_PULL)
    assert bodies(answer) == [b"2", b"3"] and answer.ext["nextBeginOffset"] == "5"
    none = pull(rig, **SQL_PULL, queueOffset=4)
    assert (none.code, none.ext["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "5")
    wrong = pull(rig, expressionType="SQL92", subscription="a BETWEEN 3 AND 2")
    assert wrong.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED and "column 3" in (wrong.remark or "")


@pytest.mark.proves("broker:14.2", "broker:5.3")
def test_groups_filter_serves_pulls_without_one(rig: Rig) -> None:
    send(rig, 1, 2)
    sql_subscribe(rig, "a = 2")
    assert bodies(pull(rig, sysFlag=0, subVersion=5)) == [b"2"]
    sql_subscribe(rig, "a = 1", version=6)
    newer = SubscriptionData("TopicTest", "a = 1", version=6, expression_type="SQL92")
    rig.clients.consumers["g"].subscribe(connection(), [newer])
    assert bodies(pull(rig, sysFlag=0, subVersion=6)) == [b"1"]


@pytest.mark.proves("broker:14.2", "broker:5.3")
def test_group_with_a_missing_or_outdated_filter_gets_an_error(rig: Rig) -> None:
    data = SubscriptionData("TopicTest", "a >", version=5, expression_type="SQL92")
    subscribe(rig, data)
    rig.filters.register("g", [data])
    missing = pull(rig, sysFlag=0, subVersion=5)
    assert missing.code == ResponseCode.FILTER_DATA_NOT_EXIST and "a >" in (missing.remark or "")
    rig.filters.register("g", [SubscriptionData("TopicTest", "a = 1", version=4, expression_type="SQL92")])
    assert pull(rig, sysFlag=0, subVersion=5).code == ResponseCode.FILTER_DATA_NOT_LATEST
    assert pull(rig, sysFlag=0, subVersion=6).code == ResponseCode.SUBSCRIPTION_NOT_LATEST


@pytest.mark.proves("broker:14.2", "broker:5.3")
def test_broker_without_property_filters_refuses_them(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "store", enable_property_filter=False)
    rig.make_topic("TopicTest", 2)
    sql_subscribe(rig, "a = 2")
    for fields in (SQL_PULL, {"sysFlag": 0, "subVersion": 5}):
        answer = pull(rig, **fields)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "does not support consumer to filter message by SQL92" in (answer.remark or "")
    rig.close()


@pytest.mark.proves("broker:5.6", "broker:14.2")
def test_held_pull_with_a_filter_is_woken_only_by_matching_messages(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connection()
    rig.pulling.pull(client, frame(**SQL_PULL | {"sysFlag": 4 | HOLD, "suspendTimeoutMillis": 20_000}))
    looked: list[int] = []
    read = rig.store.get_messages

    def noting(queue: Any, offset: int, **options: Any) -> Any:
        looked.append(offset)
        return read(queue, offset, **options)

    monkeypatch.setattr(rig.store, "get_messages", noting)
    send(rig, 1, 4, 5)
    assert client.written == b"" and rig.pulling.held == 1
    assert looked == [0, 1, 2], "each message is looked at once"
    send(rig, 2)
    (answer,) = client.answers()
    assert bodies(answer) == [b"2"] and answer.ext["nextBeginOffset"] == "4"
    assert rig.pulling.held == 0


@pytest.mark.proves("broker:5.6")
def test_held_pull_advances_past_many_unwanted_messages(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "store", max_filter_message_size=100)
    rig.make_topic("TopicTest", 2)
    client = connection()
    rig.pulling.pull(client, frame(**SQL_PULL | {"sysFlag": 4 | HOLD, "suspendTimeoutMillis": 20_000}))
    send(rig, *[9] * 5)
    assert client.written == b""
    send(rig, 9)
    (answer,) = client.answers()
    assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "6")
    rig.close()


@pytest.mark.proves("broker:14.1")
def test_class_filter_gets_every_message(rig: Rig) -> None:
    send(rig, 1, 2)
    text = b'{"classFilterMode":true,"subString":"org.x.F","subVersion":3,"topic":"TopicTest"}'
    subscribe(rig, msgspec.json.decode(text, type=WireSubscription).core())
    assert len(bodies(pull(rig, sysFlag=0, subVersion=3))) == 2


class TestTurns:
    """Long pulls do not block other requests: they wait when this turn has no time left for them."""

    @pytest.fixture
    def slices(self, monkeypatch: pytest.MonkeyPatch) -> Slices:
        slices = Slices(turn_seconds=0)
        monkeypatch.setattr(module, "shared", lambda: slices)
        return slices

    @staticmethod
    async def rounds(slices: Slices) -> int:
        """Run the loop until nothing waits; returns the number of turns."""
        count = 0
        while len(slices):
            count += 1
            await asyncio.sleep(0)
        return count

    def test_filters_and_bulk_answers_are_split_into_turns(self, rig: Rig, slices: Slices) -> None:
        send(rig, 1, 2, 3, 4)

        async def main() -> None:
            plain, others = connection(), [connection(), connection(), connection()]
            rig.pulling.pull(others[0], frame(**SQL_PULL))
            rig.pulling.pull(others[1], frame(bulkBytes=1 << 20))
            rig.pulling.pull(others[2], frame(**SQL_PULL))
            rig.pulling.pull(plain, frame())
            assert len(plain.answers()) == 1
            assert not any(client.written for client in others)
            others[2].closed = True
            assert await self.rounds(slices) >= 3
            assert [bodies(*client.answers()) for client in others[:2]] == [
                [b"2", b"3"],
                [b"1", b"2", b"3", b"4"],
            ]
            assert not others[2].written

        run(main())

    def test_many_waiting_pulls_are_woken_over_several_turns(self, rig: Rig, slices: Slices) -> None:
        async def main() -> None:
            count = module.WOKEN_AT_ONCE + 1
            clients = [connection() for _ in range(count)]
            for client in clients:
                rig.pulling.pull(client, frame(sysFlag=HOLD | 4, suspendTimeoutMillis=20_000))
            filtered = connection()
            rig.pulling.pull(
                filtered, frame(queueId=1, sysFlag=HOLD | 4, suspendTimeoutMillis=20_000, **SQL_PULL)
            )
            await self.rounds(slices)
            assert rig.pulling.held == count + 1
            send(rig, 2)
            assert not any(client.written for client in clients)
            assert await self.rounds(slices) >= count
            assert all(len(client.answers()) == 1 for client in clients)
            rig.sending.handle(connection(), send_command(b"x", queue_id=1, properties="a\x012\x02"))
            assert not filtered.written
            assert await self.rounds(slices) >= 1
            assert bodies(*filtered.answers()) == [b"x"]

        run(main())

    def test_filter_without_early_matches_returns_where_to_continue(
        self, rig: Rig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reads, "STEPS_MAX", 60)
        send(rig, *range(40, 60), 2)
        offset, rounds, found = 0, 0, []
        while offset < 21:
            answer = pull(rig, queueOffset=offset, bulkBytes=1 << 20, maxMsgNums=1 << 20, **SQL_PULL)
            found += bodies(answer) if answer.body else []
            assert answer.code in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY)
            assert offset < int(answer.ext["nextBeginOffset"]) <= offset + 3
            offset, rounds = int(answer.ext["nextBeginOffset"]), rounds + 1
        assert found == [b"2"]
        assert rounds >= 7

    def test_long_tag_expressions_are_refused(self, rig: Rig) -> None:
        fits, long = "a||" * (module.TAGS_CHARS_MAX // 3), "a" * (module.TAGS_CHARS_MAX + 1)
        assert pull(rig, subscription=fits, sysFlag=4).code != ResponseCode.SUBSCRIPTION_PARSE_FAILED
        refused = pull(rig, subscription=long, sysFlag=4)
        assert refused.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert f"{len(long)} characters, the limit is {module.TAGS_CHARS_MAX}" in (refused.remark or "")
