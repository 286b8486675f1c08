"""Sends: the hot path and the general path store the same and answer as the reference does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.rig import STORE_HOST, Rig, connection, hot_send, pull_ext, send_command, send_header
from tests.support import run, until

from sparrowmq.core.errors import StoreFullError
from sparrowmq.core.hashing import java_hash
from sparrowmq.core.ids import offset_message_id, parse_offset_message_id
from sparrowmq.core.message import BODY_BYTES_MAX, COPY_BYTES_MAX
from sparrowmq.core.names import HALF_TOPIC
from sparrowmq.files import disk
from sparrowmq.protocol import properties
from sparrowmq.protocol.batch import encode_batch
from sparrowmq.protocol.bodies import TopicConfig
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import FLAG_ONEWAY, Command
from sparrowmq.protocol.headers import to_ext
from sparrowmq.protocol.hot import decode_pull
from sparrowmq.protocol.record import decode_records


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path / "store")
    made.make_topic("TopicTest", 4)
    yield made
    made.close()


def stored(rig: Rig, queue_id: int = 0, topic: str = "TopicTest") -> list[Any]:
    queue = rig.store.queue(topic, queue_id)
    result = rig.store.get_messages(queue, 0, max_count=10_000, max_bytes=1 << 24, codes=None)
    return decode_records(b"".join(result.buffers))


def test_plain_send_is_stored_and_answered_in_one_write(rig: Rig) -> None:
    client = connection(50_123)
    assert rig.sending.store_chunk(client, [hot_send(send_command(b"one", opaque=7, flag=0))]) == []
    (answer,) = client.answers()
    (record,) = stored(rig)
    assert (answer.code, answer.opaque) == (ResponseCode.SUCCESS, 7)
    assert answer.ext["transactionId"] == "AB12"
    assert answer.ext["queueId"] == "0" and answer.ext["queueOffset"] == "0"
    assert parse_offset_message_id(answer.ext["msgId"]) == ("127.0.0.1", 10911, record.physical_offset)
    assert record.body == b"one" and record.topic == "TopicTest"
    assert record.born_timestamp == 1_700_000_000_000 and record.store_timestamp == rig.clock.ms


def test_broker_adds_region_trace_and_cluster(rig: Rig) -> None:
    rig.sending.store_chunk(connection(), [hot_send(send_command())])
    (record,) = stored(rig)
    assert properties.decode(record.properties) == {
        "UNIQ_KEY": "AB12",
        "WAIT": "true",
        "TAGS": "TagA",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
    }


def test_chunk_keeps_the_order_of_each_queue(rig: Rig) -> None:
    client = connection()
    chunk = [hot_send(send_command(b"%d" % n, opaque=n, queue_id=n % 2)) for n in range(64)]
    assert rig.sending.store_chunk(client, chunk) == []
    assert [record.body for record in stored(rig, 0)] == [b"%d" % n for n in range(0, 64, 2)]
    assert [record.body for record in stored(rig, 1)] == [b"%d" % n for n in range(1, 64, 2)]
    assert [answer.opaque for answer in client.answers()] == list(range(64))


def test_one_way_send_is_stored_and_not_answered(rig: Rig) -> None:
    client = connection()
    rig.sending.store_chunk(client, [hot_send(send_command(flag=FLAG_ONEWAY))])
    assert len(stored(rig)) == 1
    assert client.answers() == []


@pytest.mark.parametrize(
    "odd",
    [
        {"topic": "Unknown"},
        {"topic": "SCHEDULE_TOPIC_XXXX"},
        {"queue_id": 4},
        {"queue_id": -1},
        {"batch": True},
        {"body": b""},
        {"properties": "WAIT\x01true\x02"},
        {"properties": "UNIQ_KEY\x01AB"},
        {"properties": 'UNIQ_KEY\x01A"B\x02'},
        {"properties": "XUNIQ_KEY\x01AB\x02"},
        {"properties": "UNIQ_KEY\x01AB\x02DELAY\x013\x02"},
        {"properties": "UNIQ_KEY\x01AB\x02POP_CK\x01x\x02"},
        {"sys_flag": 4},
    ],
)
def test_special_sends_are_handed_back_unchanged(rig: Rig, odd: dict[str, Any]) -> None:
    body = odd.pop("body", b"hello")
    client, send = connection(), hot_send(send_command(body, **odd))
    assert rig.sending.store_chunk(client, [send]) == [send]
    assert client.written == b"" and rig.store.position == 0


def test_long_and_short_headers_store_the_same(rig: Rig) -> None:
    client = connection()
    assert rig.sending.handle(client, send_command(b"short")) is None
    long_form = Command(RequestCode.SEND_MESSAGE, 2, 0, dict(to_ext(send_header())), b"long")
    assert rig.sending.handle(client, long_form) is None
    assert [answer.ext["queueOffset"] for answer in client.answers()] == ["0", "1"]
    first, second = stored(rig)
    assert first.properties == second.properties
    assert (first.body, second.body) == (b"short", b"long")


def test_hot_and_general_path_write_the_same_record(rig: Rig) -> None:
    client = connection()
    rig.sending.store_chunk(client, [hot_send(send_command())])
    rig.sending.handle(client, send_command())
    first, second = stored(rig)
    assert first.properties == second.properties and first.body == second.body
    assert first.sys_flag == second.sys_flag and first.born_host == second.born_host


def test_both_paths_accept_the_smallest_header_numbers(rig: Rig) -> None:
    smallest = send_command(born_timestamp=-(2**63), reconsume_times=-(2**31))
    assert rig.sending.store_chunk(connection(), [hot_send(smallest)]) == []
    assert rig.sending.handle(connection(), smallest) is None
    assert [(r.born_timestamp, r.reconsume_times) for r in stored(rig)] == [(-(2**63), -(2**31))] * 2


def test_tag_codes_are_in_the_queue(rig: Rig) -> None:
    for tags in ("TagA", "中文"):
        text = f"UNIQ_KEY\x01A\x02TAGS\x01{tags}\x02"
        rig.sending.handle(connection(), send_command(properties=text))
    queue = rig.store.queue("TopicTest", 0)
    for tags, wanted in (("TagA", 1), ("中文", 1), ("none", 0)):
        codes = frozenset({java_hash(tags)})
        result = rig.store.get_messages(queue, 0, max_count=32, max_bytes=1 << 20, codes=codes)
        assert result.count == wanted


def test_unknown_topic_is_created_and_answered_once_name_servers_know_it(rig: Rig) -> None:
    client = connection()

    async def scenario() -> None:
        rig.registration.known.clear()
        answer = rig.sending.handle(client, send_command(topic="Fresh", default_topic_queue_nums=3))
        assert answer is not None and not isinstance(answer, Command)
        task = asyncio.ensure_future(answer)
        await until(lambda: rig.registration.waited)
        assert client.written == b"" and len(stored(rig, topic="Fresh")) == 1
        rig.registration.known.set()
        await task

    run(scenario())
    assert client.answers()[0].code == ResponseCode.SUCCESS
    assert rig.topics.configs["Fresh"].write_queue_nums == 3
    assert rig.topics.configs["Fresh"].perm == 6
    rig.sending.store_chunk(client, [hot_send(send_command(topic="Fresh"))])
    assert client.answers()[0].ext["queueOffset"] == "1"


async def _held_send(rig: Rig, client: Any, **fields: Any) -> None:
    """A send whose answer comes later; its topic is not saved yet."""
    command = send_command(topic="Fresh", **fields)
    assert rig.sending.store_chunk(client, [hot_send(command)]) == [hot_send(command)]
    answer = rig.sending.handle(client, command)
    assert answer is not None and not isinstance(answer, Command)
    assert client.written == b""
    await answer


def test_send_is_not_answered_while_a_crash_would_lose_its_topic(rig: Rig) -> None:
    maker, other = connection(1), connection(2)

    async def scenario() -> None:
        await asyncio.gather(_held_send(rig, maker), _held_send(rig, other, opaque=2))

    run(scenario())
    assert rig.registration.waited == 1, "only who made it waits for name servers"
    for client, offset in ((maker, "0"), (other, "1")):
        (answer,) = client.answers()
        assert (answer.code, answer.ext["queueOffset"]) == (ResponseCode.SUCCESS, offset)
    assert rig.sending.store_chunk(other, [hot_send(send_command(topic="Fresh"))]) == []


def test_all_sends_to_a_topic_that_cannot_be_saved_are_refused(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = [connection(number) for number in (1, 2, 3)]

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    async def scenario() -> None:
        flags = (0, 0, FLAG_ONEWAY)
        await asyncio.gather(
            *(_held_send(rig, one, flag=flag) for one, flag in zip(clients, flags, strict=True))
        )

    with monkeypatch.context() as patch:
        patch.setattr(disk, "replace", full)
        run(scenario())
    for client in clients[:2]:
        (answer,) = client.answers()
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "topics.json: No space left on device" in (answer.remark or "")
    assert clients[2].written == b"" and "Fresh" not in rig.topics.configs
    run(_held_send(rig, clients[0]))
    assert clients[0].answers()[0].code == ResponseCode.SUCCESS


def test_topic_created_by_a_refused_send_is_registered_nevertheless(rig: Rig) -> None:
    answer = rig.sending.handle(connection(), send_command(topic="Fresh", queue_id=99))
    assert isinstance(answer, Command) and answer.code == ResponseCode.INVALID_PARAMETER
    assert "Fresh" in rig.topics.configs and rig.registration.soon == 1


def test_unknown_topic_is_refused_without_auto_creation(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "store", auto_create_topic_enable=False)
    answer = rig.sending.handle(connection(), send_command(topic="Fresh"))
    rig.close()
    assert isinstance(answer, Command) and answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert "Fresh" in (answer.remark or "") and "create" in (answer.remark or "")


@pytest.mark.parametrize(
    ("change", "code", "word"),
    [
        ({"topic": "bad topic!"}, ResponseCode.INVALID_PARAMETER, "bad topic!"),
        ({"topic": "x" * 128}, ResponseCode.INVALID_PARAMETER, "127"),
        ({"topic": "SELF_TEST_TOPIC"}, ResponseCode.NO_PERMISSION, "SELF_TEST_TOPIC"),
        ({"queue_id": 4}, ResponseCode.INVALID_PARAMETER, "queueId[4]"),
        ({"body": b""}, ResponseCode.MESSAGE_ILLEGAL, "empty"),
        ({"body": bytes(BODY_BYTES_MAX + 1)}, ResponseCode.MESSAGE_ILLEGAL, "4194304"),
        ({"properties": "K\x01" + "v" * 32_760 + "\x02"}, ResponseCode.MESSAGE_ILLEGAL, "32767"),
        ({"properties": "DELAY\x01soon\x02"}, ResponseCode.SYSTEM_ERROR, "NumberFormatException"),
        (
            {"batch": True, "body": encode_batch([(0, b"a", b"K\x01v\x02DELAY\x013\x02")])},
            ResponseCode.MESSAGE_ILLEGAL,
            "may not hold delayed",
        ),
        (
            {"batch": True, "body": encode_batch([(0, b"a", b"")]), "properties": "TIMER_DELAY_SEC\x013\x02"},
            ResponseCode.MESSAGE_ILLEGAL,
            "may not hold delayed",
        ),
        ({"sys_flag": 4}, ResponseCode.MESSAGE_ILLEGAL, "transactional"),
        ({"batch": True, "body": b"\0" * 21}, ResponseCode.MESSAGE_ILLEGAL, "batch"),
    ],
)
def test_invalid_send_is_refused_by_name_and_nothing_is_stored(
    rig: Rig, change: dict[str, Any], code: ResponseCode, word: str
) -> None:
    body = change.pop("body", b"hello")
    answer = rig.sending.handle(connection(), send_command(body, opaque=9, **change))
    assert isinstance(answer, Command)
    assert answer.code == code and answer.opaque == 9
    assert word in (answer.remark or "")
    assert answer.ext["MSG_REGION"] == "DefaultRegion"
    assert rig.store.position == 0


def test_header_without_its_fields_is_refused(rig: Rig) -> None:
    command = Command(RequestCode.SEND_MESSAGE_V2, 1, 0, {"a": "p", "b": "TopicTest"}, b"x")
    answer = rig.sending.handle(connection(), command)
    assert isinstance(answer, Command) and answer.code == ResponseCode.SYSTEM_ERROR


def test_message_without_a_key_gets_one(rig: Rig) -> None:
    client = connection()
    rig.sending.handle(client, send_command(properties="TAGS\x01warm"))
    key = client.answers()[0].ext["transactionId"]
    assert len(key) == 32
    assert properties.decode(stored(rig)[0].properties)["UNIQ_KEY"] == key
    assert properties.decode(stored(rig)[0].properties)["TAGS"] == "warm"


def test_negative_queue_id_selects_any_queue(rig: Rig) -> None:
    client = connection()
    rig.sending.handle(client, send_command(queue_id=-1))
    assert 0 <= int(client.answers()[0].ext["queueId"]) < 4


def test_clients_pop_receipt_is_not_stored(rig: Rig) -> None:
    rig.sending.handle(connection(), send_command(properties="POP_CK\x01x\x02UNIQ_KEY\x01A\x02"))
    assert "POP_CK" not in properties.decode(stored(rig)[0].properties)


def test_batch_gives_each_message_its_offset_and_id(rig: Rig) -> None:
    client = connection()
    members = [(n, b"body %d" % n, b"UNIQ_KEY\x01M%d\x02TAGS\x01T%d\x02" % (n, n)) for n in range(3)]
    command = send_command(encode_batch(members), batch=True, properties="UNIQ_KEY\x01B0\x02")
    assert rig.sending.handle(client, command) is None
    (answer,) = client.answers()
    records = stored(rig)
    assert [record.body for record in records] == [b"body 0", b"body 1", b"body 2"]
    assert [record.flag for record in records] == [0, 1, 2]
    assert [properties.find(record.properties, b"UNIQ_KEY") for record in records] == [b"M0", b"M1", b"M2"]
    ids = answer.ext["msgId"].split(",")
    assert [parse_offset_message_id(text)[2] for text in ids] == [r.physical_offset for r in records]
    assert answer.ext["transactionId"] == "B0" and answer.ext["queueOffset"] == "0"


def test_batch_without_its_own_key_has_no_transaction_id(rig: Rig) -> None:
    client = connection()
    command = send_command(
        encode_batch([(0, b"x", b"K\x01v\x02")]), batch=True, properties="WAIT\x01true\x02"
    )
    rig.sending.handle(client, command)
    assert "transactionId" not in client.answers()[0].ext


def test_batch_with_one_invalid_message_stores_none(rig: Rig) -> None:
    members = [(0, b"good", b""), (0, b"", b"")]
    answer = rig.sending.handle(connection(), send_command(encode_batch(members), batch=True))
    assert isinstance(answer, Command) and answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert rig.store.position == 0


def test_unique_key_with_quotes_is_returned_unchanged(rig: Rig) -> None:
    client = connection()
    rig.sending.handle(client, send_command(properties='UNIQ_KEY\x01a"b\\\x02'))
    assert client.answers()[0].ext["transactionId"] == 'a"b\\'


def test_full_disk_refuses_the_chunk_and_the_broker_continues(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        raise StoreFullError("no space left on the disk of the store; free some")

    client = connection()
    with monkeypatch.context() as patch:
        patch.setattr(rig.store, "commit_chunk", full)
        rig.sending.store_chunk(client, [hot_send(send_command())])
    (answer,) = client.answers()
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "no space" in (answer.remark or "")


def test_sync_flush_answers_only_after_the_flush(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "store", flush_disk_type="SYNC_FLUSH")
    rig.make_topic("TopicTest", 1)

    async def scenario() -> None:
        rig.flusher.start()
        client = connection()
        rig.sending.store_chunk(client, [hot_send(send_command())])
        assert client.written == b""
        await until(lambda: client.written)
        assert client.answers()[0].code == ResponseCode.SUCCESS
        assert rig.store.flushed_position == rig.store.position
        await rig.flusher.close()

    try:
        run(scenario())
    finally:
        rig.close()


def test_late_flush_wakes_held_pulls_and_sends_no_second_response(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path / "store", flush_disk_type="SYNC_FLUSH")
    rig.make_topic("TopicTest", 1)
    told: list[Callable[[bool], None]] = []
    monkeypatch.setattr(rig.flusher, "after", lambda position, done, size: told.append(done))
    producer, consumer = connection(), connection(50_001)
    waiting = Command(RequestCode.PULL_MESSAGE, 7, 0, dict(pull_ext(sysFlag=6)))
    held = decode_pull(hot_send(waiting)[0])
    assert held is not None
    rig.pulling.pull(consumer, held)
    rig.sending.store_chunk(producer, [hot_send(send_command())])
    (flushed,) = told
    flushed(False)
    (answer,) = producer.answers()
    assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
    assert (consumer.answers(), rig.pulling.held) == ([], 1), "it is not visible yet"
    rig.store.flush()
    flushed(True)
    (found,) = consumer.answers()
    assert (found.code, found.opaque) == (ResponseCode.SUCCESS, 7)
    assert producer.answers() == []
    rig.close()


def test_failed_sync_flush_is_reported_and_later_sends_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path / "store", flush_disk_type="SYNC_FLUSH")
    rig.make_topic("TopicTest", 1)

    def broken() -> int:
        raise OSError(5, "Input/output error")

    async def scenario() -> None:
        rig.flusher.start()
        client = connection()
        rig.sending.store_chunk(client, [hot_send(send_command())])
        await until(lambda: client.written)
        assert client.answers()[0].code == ResponseCode.FLUSH_DISK_TIMEOUT
        answer = rig.sending.handle(client, send_command())
        assert isinstance(answer, Command) and "Input/output error" in (answer.remark or "")
        await rig.flusher.close()

    try:
        with monkeypatch.context() as patch:
            patch.setattr(rig.store, "flush", broken)
            run(scenario())
    finally:
        rig.close()


def test_loop_is_needed_only_for_sync_flush(rig: Rig) -> None:
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()
    rig.sending.store_chunk(connection(), [hot_send(send_command())])
    assert rig.store.position > 0


HALF = "TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01AB12\x02TAGS\x01A\x02"


@pytest.mark.proves("broker:9.1")
@pytest.mark.parametrize("hot", [True, False])
@pytest.mark.parametrize("sys_flag", [4, 4 | 0x301, 0])
def test_half_message_is_stored_invisibly(rig: Rig, sys_flag: int, hot: bool) -> None:
    rig.put_topic(TopicConfig(topic_name="TopicTest", read_queue_nums=4, write_queue_nums=4))
    client = connection()
    for opaque in (1, 2):
        command = send_command(b"half", opaque=opaque, queue_id=2, sys_flag=sys_flag, properties=HALF)
        if hot:
            assert rig.sending.store_chunk(client, [hot_send(command)]) == []
        else:
            assert rig.sending.handle(client, command) is None
    for number, answer in enumerate(client.answers()):
        assert answer.code == ResponseCode.SUCCESS
        assert (answer.ext["queueId"], answer.ext["queueOffset"]) == ("2", str(number))
        assert answer.ext["transactionId"] == "AB12"
    first, second = rig.inner.scan(HALF_TOPIC, 0, 0, 10, 1 << 20).records
    own = properties.decode(first.properties)
    added = {"REAL_TOPIC": "TopicTest", "REAL_QID": "2", "__transactionId__": "AB12"}
    assert added.items() <= own.items() and own["CLUSTER"] == "DefaultCluster"
    assert (first.sys_flag, second.queue_offset, first.body) == (sys_flag & ~4, 1, b"half")
    assert answer.ext["msgId"] == offset_message_id(STORE_HOST, second.physical_offset)
    assert rig.inner.scan("TopicTest", 2, 0, 10, 1 << 20).records == []


def test_half_message_leaves_room_for_properties_of_checks(rig: Rig) -> None:
    def send(size: int) -> Command:
        text = HALF + f"pad\x01{'x' * size}\x02"
        client = connection()
        answer = rig.sending.handle(client, send_command(b"x", properties=text))
        return answer if isinstance(answer, Command) else client.answers()[0]

    assert send(1).code == ResponseCode.SUCCESS
    (stored,) = rig.inner.scan(HALF_TOPIC, 0, 0, 10, 1 << 20).records
    room = 32767 - COPY_BYTES_MAX - len(stored.properties) + 1
    assert send(room).code == ResponseCode.SUCCESS
    answer = send(room + 1)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert f"its copies need {COPY_BYTES_MAX} more; send less of them" in (answer.remark or "")
    assert len(rig.inner.scan(HALF_TOPIC, 0, 0, 10, 1 << 20).records) == 2


@pytest.mark.proves("broker:9.1")
def test_delayed_retry_is_not_a_half_message(rig: Rig) -> None:
    rig.put_topic(TopicConfig(topic_name="TopicTest", read_queue_nums=4, write_queue_nums=4))
    command = send_command(b"x", reconsume_times=1, properties=HALF + "DELAY\x011\x02")
    assert rig.sending.handle(connection(), command) is None
    assert rig.inner.scan(HALF_TOPIC, 0, 0, 10, 1 << 20).records == []


@pytest.mark.proves("broker:9.1")
def test_half_messages_are_refused_where_they_are_not_allowed(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "other", reject_transaction_message=True)
    answer = rig.sending.handle(connection(), send_command(b"x", sys_flag=4, properties=HALF))
    assert isinstance(answer, Command) and answer.code == ResponseCode.NO_PERMISSION
    rig.close()
