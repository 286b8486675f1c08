"""Ordered POP: a message is not delivered before the earlier ones are consumed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.pop.bench import GROUP, T0, TOPIC, PopBench, Popped
from tests.support import run

from sparrowmq.broker.pop.order import ENTRIES_OF_STEP, NOT_HELD, OUTDATED, OrderInfo, handed_out
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.pop.receipts import ORDER_QUEUE, parse_order_counts, revive_topic
from sparrowmq.protocol.pop.records import BatchAck, BatchAckBody, bits_of


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[PopBench]:
    bench = PopBench(tmp_path)
    yield bench
    bench.close()


def ordered(bench: PopBench, **fields: object) -> list[Popped]:
    return bench.pop(order="true", **fields)


def bodies(messages: list[Popped]) -> list[bytes]:
    return [one.body for one in messages]


def test_queue_is_blocked_until_all_messages_are_acknowledged(bench: PopBench) -> None:
    bench.send(b"1", b"2", b"3", b"4")
    first = ordered(bench, maxMsgNums=2)
    assert bodies(first) == [b"1", b"2"] and {one.receipt.revive_queue for one in first} == {ORDER_QUEUE}
    assert ordered(bench) == []
    bench.ack(first[0])
    assert ordered(bench) == [] and bench.committed() == 1
    bench.ack(first[1])
    assert bench.committed() == 2
    assert bodies(ordered(bench)) == [b"3", b"4"]


def test_acknowledgement_of_an_earlier_topic_takes_nothing_of_the_new_one(bench: PopBench) -> None:
    """Nor do its messages block the new queue, or count as in flight."""
    bench.send(b"1", b"2", b"3")
    one, two = ordered(bench, maxMsgNums=2)
    bench.pop(consumerGroup="other")
    run(bench.rig.deletions.topic(TOPIC))
    bench.rig.make_topic(TOPIC, 1)
    bench.send(b"new1", b"new2", b"new3")
    bench.after(1)
    service = bench.rig.parts.pop
    assert service.order.invisible(TOPIC, GROUP, bench.now) == 0
    assert service.in_flight.invisible(TOPIC, "other", bench.now) is None
    for old in (one, two):
        assert bench.ack_answer(old).code == ResponseCode.MESSAGE_ILLEGAL
    assert bodies(ordered(bench)) == [b"new1", b"new2", b"new3"]
    bench.ack_answer(one)
    assert not bench.committed()


def test_same_messages_come_again_after_their_invisible_time(bench: PopBench) -> None:
    bench.send(b"1", b"2", b"3")
    one, _two = ordered(bench, maxMsgNums=2, invisibleTime=5_000)
    bench.ack(one)
    bench.after(4_999)
    assert ordered(bench) == []
    bench.after(1)
    answer = bench.pop_answer(order="true")
    assert answer is not None and answer.ext["msgOffsetInfo"] == "0 0 1,2"
    assert parse_order_counts(answer.ext["orderCountInfo"]) == {("0", "qo0%1"): 1, ("0", "0"): 0}
    assert bench.ack_answer(one).code == ResponseCode.SUCCESS and bench.committed() == 1


def test_repeated_attempt_gets_the_same_messages_at_once(bench: PopBench) -> None:
    bench.send(b"1", b"2")
    assert bodies(ordered(bench, attemptId="a")) == [b"1", b"2"]
    assert ordered(bench, attemptId="b") == []
    answer = bench.pop_answer(order="true", attemptId="a")
    assert answer is not None and answer.ext["orderCountInfo"] == "0 0 0"


def test_changed_invisible_time_blocks_for_that_long(bench: PopBench) -> None:
    bench.send(b"1")
    (one,) = ordered(bench, invisibleTime=60_000)
    answer = bench.change(one, 2_000)
    assert answer.code == ResponseCode.SUCCESS
    assert (answer.ext["popTime"], answer.ext["invisibleTime"]) == (str(T0), "2000")
    bench.after(1_999)
    assert ordered(bench) == []
    bench.after(1)
    assert bodies(ordered(bench)) == [b"1"]


def test_waiting_request_is_served_when_the_queue_is_free(bench: PopBench) -> None:
    bench.send(b"1", b"2")
    (one,) = ordered(bench, maxMsgNums=1, invisibleTime=3_000)
    waiting = {"order": "true", "pollTime": 20_000, "maxMsgNums": 1, "invisibleTime": 3_000}
    assert bench.pop_answer(**waiting) is None
    bench.ack(one)
    (answer,) = bench.client.answers()
    assert answer.ext["msgOffsetInfo"] == "0 0 1"
    assert bench.pop_answer(**waiting) is None
    bench.rig.clock.ms += 2_999
    bench.rig.parts.waiting_pops.look()
    assert not bench.client.answers()
    bench.rig.clock.ms += 1
    bench.rig.parts.waiting_pops.look()
    (answer,) = bench.client.answers()
    assert answer.ext["msgOffsetInfo"] == "0 0 1", "its invisible time was over"


def test_invalid_acknowledgements_are_refused(bench: PopBench) -> None:
    bench.send(b"1", b"2", b"3")
    one, _two = ordered(bench, maxMsgNums=2)
    assert bench.ack_answer(one, offset=2).code == ResponseCode.MESSAGE_ILLEGAL
    other = one.receipt._replace(pop_time=7).encode()
    assert bench.ack_answer(one, extraInfo=other).code == ResponseCode.SUCCESS
    assert bench.committed() == 0


def test_batch_acknowledgement_is_applied(bench: PopBench) -> None:
    bench.send(b"1", b"2")
    one, two = ordered(bench)
    ack = BatchAck(
        bits=bits_of([0, 1], 0),
        group=GROUP,
        invisible_time=60_000,
        pop_time=one.receipt.pop_time,
        queue_id=0,
        flag="0",
        revive_queue=ORDER_QUEUE,
        start_offset=two.receipt.start_offset,
        topic=TOPIC,
    )
    answer = bench.ask(RequestCode.BATCH_ACK_MESSAGE, BatchAckBody([ack], "broker-a").encode())
    assert answer is not None and answer.code == ResponseCode.SUCCESS and bench.committed() == 2
    stored = bench.rig.store.find_queue(revive_topic("DefaultCluster"), 0)
    assert stored is not None and stored.max_offset == 1, "one record for the batch"


def test_only_messages_of_the_pop_are_hidden(bench: PopBench) -> None:
    bench.send(*(b"%d" % number for number in range(10)))
    (one,) = ordered(bench, maxMsgNums=1, invisibleTime=60_000)
    for offset in range(10):
        assert bench.change(one, 5_000, offset=offset).code == ResponseCode.SUCCESS
    info = bench.rig.parts.pop.order.get(TOPIC, GROUP, 0)
    assert info is not None and list(info.visible_at or {}) == [0]


def test_long_attempt_ids_are_refused(bench: PopBench) -> None:
    """They are stored for each queue."""
    bench.send(b"1")
    answer = bench.pop_answer(order="true", attemptId="a" * 256)
    assert answer is not None and answer.code == ResponseCode.INVALID_PARAMETER
    assert "the limit is 255" in (answer.remark or "")
    assert bodies(ordered(bench, attemptId="a" * 255)) == [b"1"]


def test_large_table_is_cleaned_in_steps(bench: PopBench) -> None:
    table = bench.rig.parts.pop.order
    info = handed_out(None, "a", T0, 60_000, [5, 6])
    for number in range(1_000):
        table.put(f"t{number % 2}", "g", number // 2, info)
    steps = table.collecting()
    assert sum(1 for _ in steps) >= 1_000 // ENTRIES_OF_STEP
    unsaved = table.unsaved()
    assert unsaved is not None
    assert {key: len(queues) for key, queues in unsaved[1]["table"].items()} == {"t0@g": 500, "t1@g": 500}
    table.write(unsaved)
    assert table.unsaved() is None


def test_table_is_stored_in_rocketmqs_format(tmp_path: Path) -> None:
    bench = PopBench(tmp_path)
    bench.send(b"1", b"2")
    ordered(bench, attemptId="a", invisibleTime=5_000)
    bench.rig.parts.pop.save()
    bench.save_offsets()
    bench.close()
    stored = json.loads((tmp_path / "config" / "consumerOrderInfo.json").read_text())
    assert stored == {
        "table": {
            f"{TOPIC}@{GROUP}": {
                "0": {"a": "a", "cm": 0, "i": 5000, "l": T0, "o": [0, 1], "popTime": T0},
            }
        }
    }
    again = PopBench(tmp_path)
    assert ordered(again) == []
    again.rig.clock.ms += 5_000
    assert bodies(ordered(again)) == [b"1", b"2"]
    again.close()


def test_acknowledgement_survives_kill_9(tmp_path: Path) -> None:
    """Nothing was saved: neither the offsets nor the table of ordered pops."""
    bench = PopBench(tmp_path)
    bench.send(b"1", b"2", b"3")
    bench.ack(*ordered(bench, maxMsgNums=1))
    one, two = ordered(bench, maxMsgNums=2, invisibleTime=5_000)
    bench.ack(two)
    bench.kill()
    again = PopBench(tmp_path)
    assert again.committed() == 1
    again.rig.clock.ms += 4_000
    assert ordered(again) == [], "2 is still out"
    again.ack(one)
    assert again.committed() == 3 and ordered(again) == []
    again.close()


def test_decisions_are_correct() -> None:
    info = handed_out(None, None, T0, 1000, [10, 12])
    assert info.offsets == [10, 12] and info.places == [10, 2] and info.next_offset == 10
    assert info.acknowledge(11, T0) == NOT_HELD and info.acknowledge(12, T0 + 1) == OUTDATED
    assert info.acknowledge(12, T0) == 10 and info.acknowledge(10, T0) == 13
    assert info.visible_time(0) == 0 and not info.is_blocked(None, 0, T0)
    later = handed_out(handed_out(info, None, T0, 1, [10]), None, T0, 1, [10, 13])
    assert later.counts == {10: 2}
    assert OrderInfo.decode(later.encode().encode()) == later
