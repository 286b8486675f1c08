"""Messages that consumers send back: they go to the retry topic with growing delays, and finally to the
dead letter queue."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.broker.rig import STORE_HOST, Rig, connection, send_command
from tests.protocol import recorded
from tests.support import run

from sparrowmq.broker.base.internal_store import InnerMessage
from sparrowmq.broker.delay.send_back import SendBackRequests, retry_level
from sparrowmq.core.errors import StoreFullError
from sparrowmq.core.ids import offset_message_id
from sparrowmq.core.message import COPY_BYTES_MAX, PROPERTIES_BYTES_MAX, MessageQueue
from sparrowmq.core.names import SCHEDULE_TOPIC
from sparrowmq.files import disk
from sparrowmq.protocol import properties
from sparrowmq.protocol.batch import encode_batch
from sparrowmq.protocol.bodies import TopicConfig
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.headers import ConsumerSendMsgBackRequest, to_ext
from sparrowmq.protocol.record import StoredRecord


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path / "store")
    made.make_topic("TopicTest", 4)
    yield made
    made.close()


def handler(rig: Rig) -> SendBackRequests:
    return rig.delayed.send_back


def back_command(offset: int = 0, *, version: int = 475, **fields: Any) -> Command:
    values: dict[str, Any] = {"offset": offset, "group": "g", "delay_level": 0} | fields
    request = ConsumerSendMsgBackRequest(**values)
    return Command(RequestCode.CONSUMER_SEND_MSG_BACK, 7, 0, to_ext(request), version=version)


def back(rig: Rig, offset: int = 0, **fields: Any) -> Command:
    """Send the message at a physical offset back as group `g`."""
    answer = handler(rig).handle(connection(), back_command(offset, **fields))
    if not isinstance(answer, Command):
        answer = run(answer)
    assert answer.opaque == 7
    return answer


def sent(rig: Rig, body: bytes = b"hello", **fields: Any) -> StoredRecord:
    """A stored message."""
    at = rig.store.position
    assert rig.sending.handle(connection(), send_command(body, **fields)) is None
    record = rig.inner.read(at)
    assert record is not None
    return record


def waiting(rig: Rig, level: int) -> list[StoredRecord]:
    return rig.inner.scan(SCHEDULE_TOPIC, level - 1, 0, 100, 1 << 20).records


def dead(rig: Rig) -> list[StoredRecord]:
    return rig.inner.scan("%DLQ%g", 0, 0, 100, 1 << 20).records


@pytest.mark.proves("broker:7", "client:D-101", "client:D-106", "client:D-57")
def test_returned_message_keeps_all_its_contents(rig: Rig) -> None:
    original = sent(rig, b"\0body", sys_flag=1)
    assert back(rig, original.physical_offset).code == ResponseCode.SUCCESS
    (record,) = waiting(rig, 3)
    assert (record.body, record.flag, record.sys_flag) == (b"\0body", 0, 1)
    assert (record.born_timestamp, record.born_host) == (original.born_timestamp, original.born_host)
    assert record.reconsume_times == 1
    own = properties.decode(original.properties) | {
        "RETRY_TOPIC": "TopicTest",
        "ORIGIN_MESSAGE_ID": offset_message_id(original.store_host, original.physical_offset),
        "WAIT": "false",
        "DELAY": "3",
        "REAL_TOPIC": "%RETRY%g",
        "REAL_QID": "0",
    }
    assert properties.decode(record.properties) == own
    config = rig.topics.configs["%RETRY%g"]
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (1, 1, 6)
    assert rig.registration.soon == 1
    entry = rig.store.queue(SCHEDULE_TOPIC, 2).entry(0)
    assert entry is not None and entry.tags_code == record.store_timestamp + 10_000


@pytest.mark.proves("client:D-57", "client:D-101")
@pytest.mark.parametrize(
    ("asked", "reconsumed", "level"), [(0, 0, 3), (0, 1, 4), (0, 15, 18), (1, 5, 1), (18, 0, 18), (25, 0, 25)]
)
def test_delay_level_grows_unless_the_consumer_sets_one(asked: int, reconsumed: int, level: int) -> None:
    assert retry_level(asked, reconsumed) == level


def test_retries_count_as_lag_before_the_group_has_asked_for_them(rig: Rig) -> None:
    """Its members may leave before."""
    original = sent(rig)
    assert back(rig, original.physical_offset).code == ResponseCode.SUCCESS
    assert rig.offsets.query("%RETRY%g", "g", 0) == 0
    rig.offsets.commit("%RETRY%g", "g", 0, 7)
    assert back(rig, original.physical_offset).code == ResponseCode.SUCCESS
    assert rig.offsets.query("%RETRY%g", "g", 0) == 7
    assert back(rig, original.physical_offset, delay_level=-1).code == ResponseCode.SUCCESS
    assert rig.offsets.query("%DLQ%g", "g", 0) is None, "nobody is meant to read it"


def test_first_topic_and_first_id_are_kept_through_all_retries(rig: Rig) -> None:
    text = "UNIQ_KEY\x01A\x02RETRY_TOPIC\x01First\x02ORIGIN_MESSAGE_ID\x01FF01\x02"
    original = sent(rig, properties=text, reconsume_times=2)
    back(rig, original.physical_offset)
    (record,) = waiting(rig, 5)
    own = properties.decode(record.properties)
    assert (own["RETRY_TOPIC"], own["ORIGIN_MESSAGE_ID"]) == ("First", "FF01")
    assert record.reconsume_times == 3


@pytest.mark.proves("client:D-102", "client:D-57", "broker:7")
@pytest.mark.parametrize(
    ("fields", "level", "most", "version", "is_dead"),
    [
        ({}, -1, None, 475, True),
        ({"reconsume_times": 15}, 0, None, 475, False),
        ({"reconsume_times": 16}, 0, None, 475, True),
        ({"reconsume_times": 2}, 1, 2, 475, True),
        ({"reconsume_times": 2}, 1, 3, 475, False),
        ({"reconsume_times": 16}, 1, 2**31 - 1, 475, False),
        ({"reconsume_times": 2}, 1, 2, 121, True),
        ({"reconsume_times": 2}, 1, 2, 120, False),
        ({}, 1, 0, 475, True),
    ],
)
def test_message_goes_to_the_dead_letter_queue_after_the_last_retry(
    rig: Rig, fields: dict[str, Any], level: int, most: int | None, version: int, is_dead: bool
) -> None:
    original = sent(rig, **fields)
    answer = back(rig, original.physical_offset, delay_level=level, max_reconsume_times=most, version=version)
    assert answer.code == ResponseCode.SUCCESS
    assert bool(dead(rig)) is is_dead
    if is_dead:
        (record,) = dead(rig)
        own = properties.decode(record.properties)
        assert own["DELAY"] == "0" and own["RETRY_TOPIC"] == "TopicTest"
        assert "REAL_TOPIC" not in own and "DLQ_ORIGIN_TOPIC" not in own
        config = rig.topics.configs["%DLQ%g"]
        assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (1, 1, 6)
        assert record.queue_id == 0 and record.reconsume_times == original.reconsume_times + 1


def test_groups_own_limits_apply(rig: Rig) -> None:
    group = rig.groups.get("g")
    assert group is not None
    run(rig.groups.put([replace(group, retry_max_times=1, retry_queue_nums=8)]))
    first = sent(rig)
    for _ in range(40):
        back(rig, first.physical_offset)
    assert rig.topics.configs["%RETRY%g"].write_queue_nums == 8
    queues = {properties.decode(record.properties)["REAL_QID"] for record in waiting(rig, 3)}
    assert len(queues) > 1 and queues <= set("01234567")
    again = sent(rig, reconsume_times=1)
    back(rig, again.physical_offset)
    assert len(dead(rig)) == 1


def test_group_without_retry_queues_drops_the_message(rig: Rig) -> None:
    group = rig.groups.get("g")
    assert group is not None
    run(rig.groups.put([replace(group, retry_queue_nums=0)]))
    end = rig.store.position
    assert back(rig, 12345).code == ResponseCode.SUCCESS
    assert rig.store.position == end and "%RETRY%g" not in rig.topics.configs


def test_unit_mode_is_set_on_the_retry_topic(rig: Rig) -> None:
    back(rig, sent(rig).physical_offset, unit_mode=True)
    assert rig.topics.configs["%RETRY%g"].topic_sys_flag == 2


@pytest.mark.proves("broker:7")
@pytest.mark.parametrize("offset", [99_999_999, -1, 5])
def test_missing_message_is_refused_with_its_offset(rig: Rig, offset: int) -> None:
    sent(rig)
    answer = back(rig, offset)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == f"look message by offset failed, {offset}"


def test_remark_for_a_missing_message_is_the_references() -> None:
    answers = [answer for exchange, answer in recorded.answers(36) if "bad offset" in exchange.note]
    assert [answer.remark for answer in answers] == ["look message by offset failed, 99999999"]


def test_unknown_group_is_refused_without_auto_creation(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "strict")
    rig.groups._auto_create = False
    answer = back(rig, 0, group="nobody")
    rig.close()
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert (answer.remark or "").startswith("subscription group not exist, nobody")


def test_read_only_broker_refuses_returned_messages(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "readonly", broker_permission=4)
    answer = back(rig, 0)
    rig.close()
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark == "the broker[127.0.0.1] sending message is forbidden"


def test_read_only_retry_topic_refuses_messages(rig: Rig) -> None:
    rig.put_topic(TopicConfig(topic_name="%RETRY%g", perm=4))
    answer = back(rig, sent(rig).physical_offset)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark == "the topic[%RETRY%g] sending message is forbidden"


@pytest.mark.parametrize("level", [0, -1])
def test_message_to_a_new_topic_waits_until_the_topic_is_on_disk(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, level: int
) -> None:
    original = sent(rig)
    topic = "%DLQ%g" if level < 0 else "%RETRY%g"

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "replace", full)
        answer = back(rig, original.physical_offset, delay_level=level)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (answer.remark or "").startswith(f"topic[{topic}] not exist: ")
        assert dead(rig) == waiting(rig, 3) == [] and rig.topics.is_unsaved(topic)
    assert back(rig, original.physical_offset, delay_level=level).code == ResponseCode.SUCCESS
    assert len(dead(rig) + waiting(rig, 3)) == 1 and not rig.topics.is_unsaved(topic)
    handled = handler(rig).handle(connection(), back_command(original.physical_offset, delay_level=level))
    assert isinstance(handled, Command), "the next one waits for nothing"


def test_return_to_a_topic_that_is_being_deleted_is_refused(rig: Rig) -> None:
    original = sent(rig)
    rig.make_topic("%RETRY%g", 1)

    async def main() -> Command | Awaitable[Command]:
        going = asyncio.create_task(rig.topics.delete("%RETRY%g"))
        await asyncio.sleep(0)
        try:
            return handler(rig).handle(connection(), back_command(original.physical_offset))
        finally:
            await going

    answer = run(main())
    assert isinstance(answer, Command) and answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "topic[%RETRY%g] not exist: it is being deleted"


def test_full_disk_is_reported_and_the_client_keeps_the_message(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = sent(rig)

    def full() -> None:
        rig.store.drop_chunk()
        raise StoreFullError("no space left")

    monkeypatch.setattr(rig.store, "commit_chunk", full)
    answer = back(rig, original.physical_offset)
    assert answer.code == ResponseCode.SYSTEM_ERROR and "no space left" in (answer.remark or "")


def test_messages_of_a_batch_are_returned_one_by_one(rig: Rig) -> None:
    body = encode_batch([(0, b"a", b"UNIQ_KEY\x01A1\x02"), (0, b"b", b"UNIQ_KEY\x01B2\x02")])
    client = connection()
    assert rig.sending.handle(client, send_command(body, batch=True)) is None
    ids = client.answers()[0].ext["msgId"].split(",")
    for message_id in ids:
        assert back(rig, int(message_id[-16:], 16)).code == ResponseCode.SUCCESS
    assert [record.body for record in waiting(rig, 3)] == [b"a", b"b"]
    origins = [properties.decode(record.properties)["ORIGIN_MESSAGE_ID"] for record in waiting(rig, 3)]
    assert origins == ids


def full_text(size: int) -> str:
    return f"UNIQ_KEY\x01A\x02K\x01{'x' * size}\x02"


def test_properties_that_just_fit_leave_room_for_a_retry_and_a_dead_letter(rig: Rig) -> None:
    added = len(sent(rig, properties="UNIQ_KEY\x01A\x02").properties) - len("UNIQ_KEY.A.")
    room = PROPERTIES_BYTES_MAX - COPY_BYTES_MAX - added - len("UNIQ_KEY.A.K..")
    over = rig.sending.handle(connection(), send_command(b"x", properties=full_text(room + 1)))
    assert over is not None and over.code == ResponseCode.MESSAGE_ILLEGAL
    assert "1024 of them for retries and other copies" in (over.remark or "")
    original = sent(rig, properties=full_text(room))
    assert back(rig, original.physical_offset).code == ResponseCode.SUCCESS
    (first,) = waiting(rig, 3)
    assert back(rig, first.physical_offset, delay_level=-1).code == ResponseCode.SUCCESS
    assert len(dead(rig)) == 1


@pytest.mark.parametrize("name", ["MSG_REGION", "needed"])
def test_full_message_of_an_older_store_is_returned_without_optional_properties(rig: Rig, name: str) -> None:
    optional = f"{name}\x01{'r' * 300}\x02"
    text = full_text(PROPERTIES_BYTES_MAX - len(full_text(0) + optional)) + optional
    (placed,) = rig.inner.put([InnerMessage("TopicTest", 0, b"x", text.encode(), 0, 0, 0, STORE_HOST)])
    answer = back(rig, placed.physical_offset)
    if name == "MSG_REGION":
        assert answer.code == ResponseCode.SUCCESS and len(waiting(rig, 3)) == 1
    else:
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL and "32767" in (answer.remark or "")


# Direct sends to a retry topic


def test_last_handler_error_is_kept_in_one_short_line(rig: Rig) -> None:
    original = sent(rig)
    back(rig, original.physical_offset, sparrow_error="ValueError:\n\x01bad\x02 price\u2028" + "x" * 5000)
    (first,) = waiting(rig, 3)
    told = properties.decode(first.properties)["SPARROW_ERROR"]
    assert told.startswith("ValueError: bad price xxx") and len(told) == 300 and told.endswith("…")
    assert properties.decode(first.properties).keys() - properties.decode(original.properties).keys() >= {
        "DELAY"
    }
    back(rig, first.physical_offset, delay_level=-1)
    (letter,) = dead(rig)
    assert "SPARROW_ERROR" not in properties.decode(letter.properties), "the last try said nothing"


def test_message_without_room_for_its_error_is_returned_without_it(rig: Rig) -> None:
    original = sent(rig, properties=f"UNIQ_KEY\x01A\x02own\x01{'x' * 30_000}\x02")
    assert back(rig, original.physical_offset, sparrow_error="why").code == ResponseCode.SUCCESS
    (record,) = waiting(rig, 3)
    assert "SPARROW_ERROR" not in properties.decode(record.properties)


def retry_send(
    rig: Rig, *, times: int, most: int | None = None, version: int = 475, **fields: Any
) -> Command:
    command = send_command(
        topic="%RETRY%g", reconsume_times=times, max_reconsume_times=most, default_topic="TBW102", **fields
    )
    command.version = version
    client = connection()
    answer = rig.sending.handle(client, command)
    if isinstance(answer, Command):
        return answer
    if answer is not None:
        run(answer)
    return client.answers()[0]


@pytest.mark.proves("broker:6.6", "client:D-108")
@pytest.mark.parametrize(
    ("times", "most", "version", "is_dead"),
    [
        (16, None, 475, False),
        (17, None, 475, True),
        (1, 1, 475, False),
        (2, 1, 475, True),
        (2, 1, 100, False),
        (17, 2**31 - 1, 475, False),
    ],
)
def test_direct_retry_allows_one_attempt_more_than_a_send_back(
    rig: Rig, times: int, most: int | None, version: int, is_dead: bool
) -> None:
    answer = retry_send(
        rig, times=times, most=most, version=version, properties="UNIQ_KEY\x01AB\x02DELAY\x014\x02"
    )
    assert answer.code == ResponseCode.SUCCESS
    assert bool(dead(rig)) is is_dead and bool(waiting(rig, 4)) is not is_dead
    for record in dead(rig):
        assert properties.decode(record.properties)["DELAY"] == "-1"
    assert rig.topics.configs["%DLQ%g" if is_dead else "%RETRY%g"].write_queue_nums == 1


@pytest.mark.proves("broker:6.6")
def test_ordered_group_with_queue_locks_is_not_retried_here(rig: Rig) -> None:
    rig.locks.claim("g", "somebody", [MessageQueue("TopicTest", "broker-a", 0)])
    retry_send(rig, times=1)
    assert len(dead(rig)) == 1
    retry_send(rig, times=0, most=0)
    assert len(dead(rig)) == 2, "a group without retries sends a copy after the first failure"


def test_dead_letter_of_an_ordered_group_that_is_sent_again_is_consumed_again(rig: Rig) -> None:
    rig.locks.claim("g", "somebody", [MessageQueue("TopicTest", "broker-a", 0)])
    retry_send(rig, times=0)
    assert dead(rig) == []


def test_direct_retry_of_an_unknown_group_is_refused(rig: Rig) -> None:
    rig.groups._auto_create = False
    answer = retry_send(rig, times=0)
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


@pytest.mark.parametrize(
    ("stored", "asked", "is_marked"),
    [
        ("%RETRY%g_TopicTest", None, True),
        ("TopicTest", "%RETRY%g_TopicTest", True),
        ("TopicTest", "%RETRY%other_TopicTest", False),
        ("TopicTest", None, False),
    ],
)
def test_dead_letter_says_that_its_group_received_it_by_pop(
    rig: Rig, stored: str, asked: str | None, is_marked: bool
) -> None:
    rig.make_topic(stored, 4)
    original = sent(rig, topic=stored)
    back(rig, original.physical_offset, delay_level=-1, origin_topic=asked)
    (letter,) = dead(rig)
    own = properties.decode(letter.properties)
    assert (own["RETRY_TOPIC"], "1ST_POP_TIME" in own) == ("TopicTest", is_marked)


def test_dead_letter_of_pop_is_sent_again_without_making_a_group(rig: Rig) -> None:
    assert rig.groups.get("g") is not None
    client = connection()
    command = send_command(topic="%RETRY%g_TopicTest", default_topic="TBW102", queue_id=-1)
    waits = rig.sending.handle(client, command)
    answer = waits if isinstance(waits, Command) else None
    if waits is not None and answer is None:
        run(waits)
    assert (answer or client.answers()[0]).code == ResponseCode.SUCCESS
    assert len(rig.inner.scan("%RETRY%g_TopicTest", 0, 0, 100, 1 << 20).records) == 1
    assert "g_TopicTest" not in rig.groups.configs


def test_permission_that_changes_while_the_broker_runs_decides(rig: Rig) -> None:
    """A drained broker gets no retries, and one whose drain ended takes them again."""
    original = sent(rig)
    for permission, code in (("4", ResponseCode.NO_PERMISSION), ("6", ResponseCode.SUCCESS)):
        change = Command(RequestCode.UPDATE_BROKER_CONFIG, body=f"brokerPermission={permission}".encode())
        rig.parts.handlers[RequestCode.UPDATE_BROKER_CONFIG](connection(), change)
        assert back(rig, original.physical_offset).code == code
    assert len(waiting(rig, 3)) == 1


def test_retry_topic_is_widened_before_it_gets_more_queues(rig: Rig) -> None:
    """A group's `retryQueueNums` was raised: the retries must lie in queues that have a route."""
    original = sent(rig)
    back(rig, original.physical_offset)
    run(rig.groups.put([replace(rig.groups.configs["g"], retry_queue_nums=4)]))
    told = rig.registration.soon
    back(rig, original.physical_offset)
    assert rig.registration.soon == told + 1 and not rig.topics.is_unsaved("%RETRY%g")
    for _ in range(20):
        back(rig, original.physical_offset)
    config = rig.topics.configs["%RETRY%g"]
    assert (config.read_queue_nums, config.write_queue_nums) == (4, 4)
    targets = {int(properties.decode(record.properties)["REAL_QID"]) for record in waiting(rig, 3)}
    assert targets - {0} and targets <= set(range(4))


def test_retries_use_the_queues_that_the_retry_topic_has(rig: Rig) -> None:
    rig.make_topic("%RETRY%g", 2)
    rig.topics._queues_max = rig.topics.queue_count
    original = sent(rig)
    back(rig, original.physical_offset)
    run(rig.groups.put([replace(rig.groups.configs["g"], retry_queue_nums=9)]))
    for _ in range(20):
        assert back(rig, original.physical_offset).code == ResponseCode.SUCCESS
    targets = {properties.decode(record.properties)["REAL_QID"] for record in waiting(rig, 3)}
    assert targets <= {"0", "1"}
