"""Half messages among the plain sends of a chunk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.rig import Rig, connection, hot_send, send_command

from sparrowmq.core.names import HALF_TOPIC
from sparrowmq.protocol import properties
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import FLAG_ONEWAY
from sparrowmq.protocol.record import StoredRecord

HALF = "TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01AB12\x02TAGS\x01A\x02"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path / "store")
    made.make_topic("TopicTest", 4)
    yield made
    made.close()


def halves(rig: Rig) -> list[StoredRecord]:
    return rig.inner.scan(HALF_TOPIC, 0, 0, 100, 1 << 20).records


@pytest.mark.proves("broker:9.1")
def test_fast_path_and_general_path_store_the_same(rig: Rig) -> None:
    command = send_command(b"half", queue_id=2, sys_flag=4, reconsume_times=1, properties=HALF)
    fast, general = connection(), connection()
    assert rig.sending.store_chunk(fast, [hot_send(command)]) == []
    assert rig.sending.handle(general, command) is None
    one, two = halves(rig)
    same = {name for name in StoredRecord.__struct_fields__ if getattr(one, name) == getattr(two, name)}
    assert {*StoredRecord.__struct_fields__} - same <= {"queue_offset", "physical_offset", "properties"}
    assert properties.decode(one.properties) == properties.decode(two.properties)
    (answer,), (other,) = fast.answers(), general.answers()
    different = {"msgId", "queueOffset"}
    assert {name: answer.ext[name] for name in answer.ext.keys() - different} == {
        name: other.ext[name] for name in other.ext.keys() - different
    }
    first, second = (rig.store.find_queue(HALF_TOPIC, 0).entry(n) for n in (0, 1))  # type: ignore[union-attr]
    assert first is not None and second is not None and first.tags_code == second.tags_code != 0


@pytest.mark.proves("broker:9.1")
@pytest.mark.parametrize(
    "changes",
    [
        {"properties": HALF + "DELAY\x013\x02"},
        {"properties": HALF + "TIMER_DELIVER_MS\x0119\x02"},
        {"properties": HALF + "REAL_TOPIC\x01Other\x02"},
        {"properties": HALF.replace("true", "TRUE")},
        {"properties": HALF.replace("true", "false")},
        {"properties": HALF.replace("AB12", "A B")},
        {"properties": HALF.replace("UNIQ_KEY", "KEY")},
        {"properties": HALF[:-1]},
        {"properties": "UNIQ_KEY\x01AB12\x02"},
        {"queue_id": 4},
        {"queue_id": -1},
        {"batch": True},
        {"body": b""},
        {"body": b"x" * (4 * 1024 * 1024 + 1)},
        {"topic": "%RETRY%g"},
        {"topic": "Unknown"},
    ],
)
def test_special_messages_take_the_general_path(rig: Rig, changes: dict[str, Any]) -> None:
    rig.make_topic("%RETRY%g", 1)
    send = hot_send(send_command(**({"properties": HALF, "sys_flag": 4} | changes)))
    client = connection()
    assert rig.sending.store_chunk(client, [send]) == [send]
    assert halves(rig) == [] and client.written == b""


def test_half_messages_take_the_general_path_where_they_are_not_allowed(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "other", reject_transaction_message=True)
    rig.make_topic("TopicTest", 1)
    send = hot_send(send_command(sys_flag=4, properties=HALF))
    assert rig.sending.store_chunk(connection(), [send]) == [send]
    rig.close()


def test_message_that_fits_no_record_takes_the_general_path(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "other", max_message_size=4 * 1024 * 1024)
    rig.make_topic("TopicTest", 1)
    large = hot_send(send_command(b"x" * (1 << 20), sys_flag=4, properties=HALF))  # a log file's size
    small = hot_send(send_command(b"x", sys_flag=4, properties=HALF))
    assert rig.sending.store_chunk(connection(), [large, small]) == [large]
    assert [record.body for record in halves(rig)] == [b"x"]
    rig.close()


def test_one_way_half_message_is_not_answered(rig: Rig) -> None:
    client = connection()
    command = send_command(b"half", flag=FLAG_ONEWAY, sys_flag=4, properties=HALF)
    answered = send_command(b"other", sys_flag=4, properties=HALF, opaque=9)
    assert rig.sending.store_chunk(client, [hot_send(command), hot_send(answered)]) == []
    (answer,) = client.answers()
    assert (answer.opaque, answer.code, answer.ext["queueOffset"]) == (9, ResponseCode.SUCCESS, "1")
    assert len(halves(rig)) == 2
