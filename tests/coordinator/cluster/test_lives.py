from __future__ import annotations

from typing import cast

import pytest
from tests.coordinator.cluster.explored import MadeUpAdmin, message
from tests.support import about, run

from sparrowmq import aio
from sparrowmq.coordinator.cluster.handmade import once_more, written
from sparrowmq.coordinator.cluster.lives import Life, due_of, is_place, life
from sparrowmq.coordinator.cluster.waiting import open_halves, still_timed, waiting_at
from sparrowmq.core.delay import DEFAULT_LEVELS
from sparrowmq.core.errors import RefusedError
from sparrowmq.core.ids import offset_message_id
from sparrowmq.core.message import ReceivedMessage
from sparrowmq.core.names import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from sparrowmq.protocol.sysflag import COMPRESSED


def copy(topic: str, offset: int, stored: int, **properties: str) -> ReceivedMessage:
    one = message(offset, stored=stored, topic=topic)
    one.properties |= {"UNIQ_KEY": "id", **properties}
    return one


def life_of(*copies: ReceivedMessage) -> Life:
    admin = MadeUpAdmin()
    for one in copies:
        admin.copies.setdefault(one.topic, []).append(one)
    return run(life(cast(aio.Admin, admin), "T", "id"))


def test_dead_letter_shows_storage_retries_and_death() -> None:
    retry = copy("%RETRY%mine", 0, 3000, RETRY_TOPIC="T")
    retry.reconsume_times = 1
    dead = copy("%DLQ%mine", 0, 4000, RETRY_TOPIC="T")
    dead.reconsume_times = 2
    waits = copy(SCHEDULE_TOPIC, 0, 2500, REAL_TOPIC="%RETRY%mine", RETRY_TOPIC="T")
    found = life_of(copy("T", 1, 2000), retry, dead, waits)
    assert [one.what for one in found.stages] == ["born", "stored", "waits", "retry", "dead"]
    assert found.stages[2].group == "mine" and found.stages[2].due_ms == 3500
    assert [(one.group, one.state, one.tries) for one in found.groups] == [("mine", "dead", 2)]


def test_message_is_read_or_waiting_depending_on_the_groups_offset() -> None:
    assert [one.state for one in life_of(copy("T", 1, 2000)).groups] == ["read"], "its place is 3"
    assert [one.state for one in life_of(copy("T", 4, 2000)).groups] == ["waits"]
    assert life_of().stages == [] and life_of().groups[0].state is None


def test_copy_with_the_same_id_in_another_topic_is_not_included() -> None:
    """Senders choose ids; a retry of another topic's message does not belong to this one."""
    strange = copy("%RETRY%mine", 0, 3000, RETRY_TOPIC="U")
    timed = copy(TIMER_TOPIC, 0, 1000, REAL_TOPIC="U")
    assert [one.what for one in life_of(copy("T", 1, 2000), strange, timed).stages] == ["born", "stored"]


@pytest.mark.parametrize(
    ("properties", "due"),
    [
        ({"TIMER_DELAY_SEC": "5"}, 5999),
        ({"TIMER_DELAY_MS": "5"}, 1004),
        ({"TIMER_DELIVER_MS": "7000"}, 7000),
        ({"TIMER_OUT_MS": "8000"}, 8000),
        ({"TIMER_DELIVER_MS": "soon"}, None),
        ({}, None),
    ],
)
def test_due_time_of_a_timed_message_is_shown(properties: dict[str, str], due: int | None) -> None:
    assert due_of(copy(TIMER_TOPIC, 0, 1000, **properties)) == due


def test_delay_levels_with_waiting_messages_are_listed() -> None:
    told = {
        "scheduleMessageOffset_3": "5,9",
        "scheduleMessageOffset_4": "9,9",
        "scheduleMessageOffset_x": "1,2",
        "scheduleMessageOffset_5": "garbage",
        "other": "1,2",
    }
    ((count, first, end),) = waiting_at("a", told, DEFAULT_LEVELS)
    assert (count.level, count.messages, count.delay_ms, first, end) == (3, 4, 10_000, 5, 9)


def test_timed_messages_are_listed_once_and_not_after_a_recall() -> None:
    def timed(key: str, due: int, **more: str) -> ReceivedMessage:
        own = {"UNIQ_KEY": key, "REAL_TOPIC": "T", "TIMER_DELIVER_MS": str(due), **more}
        return copy(TIMER_TOPIC, 0, 1, **own)

    stored = [
        timed("rolled", 9000), timed("rolled", 9000), timed("past", 100), timed("back", 9000),
        timed("mark", 9000, TIMER_DEL_UNIQKEY="back"), timed("other", 9000),
        timed("mark2", 9000, TIMER_DEL_UNIQKEY="T+other"),
    ]  # fmt: skip
    assert [one.message.message_id for one in still_timed(stored, 5000)] == ["rolled"]


def test_half_messages_without_an_op_message_are_listed() -> None:
    def op(body: bytes) -> ReceivedMessage:
        return message(body=body, topic=OP_HALF_TOPIC)

    def half(offset: int, **own: str) -> ReceivedMessage:
        return copy(HALF_TOPIC, offset, 1, REAL_TOPIC="T", PGROUP="g", **own)

    checked = half(7, TRAN_PREPARED_QUEUE_OFFSET="3", TRANSACTION_CHECK_TIMES="2")
    found = open_halves(
        [half(1), half(2), half(3), half(4), checked], [op(b"1"), op(b"2,garbage,"), op(b"x")]
    )
    assert [(one.message.queue_offset, one.checks, one.group) for one in found] == [(7, 2, "g"), (4, 0, "g")]
    assert [one.message.queue_offset for one in open_halves([half(3), checked], [op(b"7")])] == []


def test_offset_id_is_only_queried_at_brokers_of_the_cluster() -> None:
    mine = offset_message_id(bytes((127, 0, 0, 1, 0, 0, 0x27, 0x10)), 5)
    assert is_place(mine, ["127.0.0.1:10000"])
    assert not is_place(mine, ["127.0.0.1:10001"]) and not is_place("x", ["127.0.0.1:10000"])


def test_message_that_is_sent_again_loses_its_trace_properties() -> None:
    one = copy("T", 1, 2000, REAL_TOPIC="T", SPARROW_ERROR="why", own="kept", __SHARDINGKEY="k")
    again = once_more(one)
    assert (again.topic, again.body, again.tags, again.keys) == ("T", b"body", "t", ["k"])
    assert dict(again.properties) == {"own": "kept"} and again.key == "k"
    one.sys_flag = COMPRESSED
    with pytest.raises(RefusedError, check=about(status=422, what="body")):
        once_more(one)


@pytest.mark.parametrize("topic", [SCHEDULE_TOPIC, HALF_TOPIC, "TBW102"])
def test_nothing_is_sent_to_internal_topics(topic: str) -> None:
    with pytest.raises(RefusedError) as found:
        written(topic, b"x")
    assert found.value.status == 422
