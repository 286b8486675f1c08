"""Many ends at once, and side effects that an end must not have on its chunk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.rig import connection
from tests.broker.transactions.test_check_back import COMMIT, ROLLBACK, Broker
from tests.support import about, run

from sparrowmq.broker.base.internal_store import Placed
from sparrowmq.broker.transactions import half_messages as rules
from sparrowmq.core.errors import NoTopicError, StoreError
from sparrowmq.core.names import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC
from sparrowmq.protocol.bodies import TopicConfig
from sparrowmq.protocol.call_headers import EndTransactionRequest
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import FLAG_ONEWAY, Command, FrameReader, RawFrame, encode
from sparrowmq.protocol.headers import to_ext


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path / "store")
    yield made
    made.rig.close()


def frame(placed: Placed, state: int = COMMIT, **changes: Any) -> RawFrame:
    fields: dict[str, Any] = {
        "producer_group": "p",
        "tran_state_table_offset": placed.queue_offset,
        "commit_log_offset": placed.physical_offset,
        "commit_or_rollback": state,
    }
    ext = to_ext(EndTransactionRequest(**(fields | changes)))
    (raw,) = FrameReader().feed(encode(Command(RequestCode.END_TRANSACTION, 1, FLAG_ONEWAY, ext)))
    return raw


def end_all(broker: Broker, frames: list[RawFrame]) -> list[RawFrame]:
    """End all; returns the ends that could not be done at once."""
    ends = broker.parts.ends
    return ends.append_chunk(frames) + ends.settle(connection())


@pytest.mark.proves("broker:9.3")
def test_op_record_names_at_most_a_hundred_messages(broker: Broker) -> None:
    placed = [broker.prepare(b"%d" % number) for number in range(205)]
    assert end_all(broker, [frame(one, ROLLBACK if one.queue_offset % 2 else COMMIT) for one in placed]) == []
    ops = [rules.op_numbers(record.body) for record in broker.stored(OP_HALF_TOPIC)]
    assert [len(numbers) for numbers in ops] == [100, 100, 5]
    assert sorted(number for numbers in ops for number in numbers) == [*range(205)]
    assert broker.orders == [b"%d" % number for number in range(0, 205, 2)]


@pytest.mark.proves("broker:9.4")
def test_ends_of_one_chunk_are_known_after_a_start_from_any_progress(broker: Broker) -> None:
    placed = [broker.prepare(b"%d" % number) for number in range(4)]
    end_all(broker, [frame(placed[n]) for n in (3, 0)])
    broker.check(0)  # notes that the first is done with, and that its op record still names another
    assert broker.rig.offsets.query(HALF_TOPIC, rules.CHECK_GROUP, 0) == 1
    assert not broker.rig.offsets.query(OP_HALF_TOPIC, rules.CHECK_GROUP, 0)
    broker.again()
    producer = broker.join()
    broker.check(60_000)
    assert len(producer.notices) == 2
    assert broker.orders == [b"3", b"0"]


def test_refused_ends_do_not_affect_the_others_of_their_chunk(broker: Broker) -> None:
    good, wrong, late = (broker.prepare(text) for text in (b"good", b"wrong", b"late"))
    delayed = broker.prepare(b"delayed", DELAY="x")
    frames = [
        frame(wrong, producer_group="stranger"),
        frame(good),
        frame(late, commit_log_offset=1 << 40),
        frame(delayed),
    ]
    assert end_all(broker, frames) == [frames[0], frames[2], frames[3]]
    assert broker.orders == [b"good"]
    assert broker.end(wrong).code == ResponseCode.SUCCESS
    assert broker.orders == [b"good", b"wrong"]


def test_ends_are_counted_by_topic_once_they_are_stored(broker: Broker) -> None:
    first, second, third = (broker.prepare(b"%d" % number) for number in range(3))
    assert end_all(broker, [frame(first), frame(second, ROLLBACK), frame(first)]) != [], (
        "the last is a repeat"
    )
    assert broker.parts.ends.ended == {("Orders", True): 1, ("Orders", False): 1}
    assert broker.end(third).code == ResponseCode.SUCCESS
    assert broker.end(third).code == ResponseCode.SYSTEM_ERROR
    assert broker.parts.ends.ended["Orders", True] == 2


def test_commits_are_counted_by_the_seconds_since_the_birth_of_their_half_messages(broker: Broker) -> None:
    quick, slow, given_up = (broker.prepare(b"%d" % number) for number in range(3))
    assert broker.end(quick).code == ResponseCode.SUCCESS
    broker.rig.clock.ms += 70_999
    assert end_all(broker, [frame(slow), frame(given_up, ROLLBACK)]) == []
    (found,) = broker.parts.ends.latencies.values()
    counts = {bound: count for bound, count in found.by_bound().items() if count}
    assert (counts, found.total) == ({"5.0": 1, "600.0": 1}, 70), "in whole seconds, as in RocketMQ"


def test_topics_whose_ends_are_counted_apart_are_bounded(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparrowmq.broker.transactions.end_transaction.TOPICS_MAX", 0)
    assert broker.end(broker.prepare()).code == ResponseCode.SUCCESS
    assert broker.parts.ends.ended == {("", True): 1}
    assert list(broker.parts.ends.latencies) == [""]


def test_ends_that_cannot_be_stored_are_not_counted(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    placed = broker.prepare()

    def failing() -> None:
        raise StoreError("no space left")

    monkeypatch.setattr(broker.rig.store, "commit_chunk", failing)
    with pytest.raises(StoreError):
        broker.end(placed)
    assert not broker.parts.ends.ended


@pytest.mark.proves("broker:9.2")
def test_committed_message_with_a_delay_waits(broker: Broker) -> None:
    assert end_all(broker, [frame(broker.prepare(b"later", DELAY="3"))]) == []
    assert broker.orders == []
    (waiting,) = broker.stored(SCHEDULE_TOPIC, 2)
    assert waiting.body == b"later"


@pytest.mark.proves("broker:9.5")
def test_any_name_of_a_transaction_ends_its_latest_copy_once(broker: Broker) -> None:
    broker.join()
    first = broker.prepare(b"one")
    broker.check(7000)
    copy = broker.stored(HALF_TOPIC)[1]
    both = [frame(first), frame(Placed(copy.physical_offset, copy.queue_offset))]
    assert end_all(broker, both) == both[1:]
    assert broker.orders == [b"one"] and [op.body for op in broker.stored(OP_HALF_TOPIC)] == [b"1"]


def test_nothing_is_ended_after_the_disk_failed(broker: Broker) -> None:
    placed = broker.prepare(b"x")
    ends = [frame(placed)]
    broker.rig.flusher.failed = OSError("gone")
    assert end_all(broker, ends) == ends
    with pytest.raises(StoreError, check=about(what="disk")):
        broker.end(placed)
    broker.rig.flusher.failed = None
    assert end_all(broker, ends) == [] and broker.orders == [b"x"]


def test_half_message_of_another_broker_is_committed_with_unchanged_properties(broker: Broker) -> None:
    """Also with properties that no encoder writes: the broker that stored them is responsible."""
    placed = broker.prepare(b"x")
    record = broker.rig.inner.read(placed.physical_offset)
    assert record is not None
    half = rules.read_half(b"REAL_QID\x013\x02a\x01b\x01c\x02REAL_TOPIC\x01Orders\x02PGROUP\x01p\x02")
    assert (half.topic, half.queue_id, half.group) == ("Orders", 3, "p")
    assert rules.committed(record, half).properties == b"a\x01b\x01c\x02PGROUP\x01p\x02"


def test_commit_goes_to_a_queue_that_the_topic_has(broker: Broker) -> None:
    placed = broker.prepare(b"x")
    broker.rig.put_topic(TopicConfig(topic_name="Orders", read_queue_nums=1, write_queue_nums=1))
    assert end_all(broker, [frame(placed)]) == []
    assert [record.body for record in broker.stored("Orders", 0)] == [b"x"]
    assert broker.rig.store.find_queue("Orders", 1) is None


def test_commit_for_a_deleted_topic_is_refused_and_leaves_the_transaction_open(broker: Broker) -> None:
    placed = broker.prepare(b"x")
    run(broker.rig.deletions.topic("Orders"))
    ends = [frame(placed)]
    assert end_all(broker, ends) == ends
    with pytest.raises(NoTopicError, check=about(what="topic", value="Orders")):
        broker.end(placed)
    assert broker.rig.store.queues("Orders") == []
    broker.rig.make_topic("Orders", 2)
    assert end_all(broker, ends) == [] and broker.orders == [b"x"]
