"""POP after the broker was killed: no acknowledged message is delivered again, none is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.doubles import FakeClock
from tests.broker.pop.bench import GROUP, T0, TOPIC, PopBench
from tests.broker.rig import damage
from tests.support import run

from sparrowmq.broker.base.internal_store import InnerMessage
from sparrowmq.core.errors import StoreError
from sparrowmq.core.names import TIMER_TOPIC
from sparrowmq.protocol.pop.receipts import REVIVE_GROUP, pop_retry_topic
from sparrowmq.protocol.properties import encode as encode_properties
from sparrowmq.protocol.record import StoredRecord

REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_DefaultCluster"


@pytest.mark.parametrize("saved", [False, True])
def test_pops_since_the_last_save_are_known(tmp_path: Path, saved: bool) -> None:
    bench = PopBench(tmp_path)
    bench.send(b"1", b"2", b"3")
    bench.ack(*bench.pop(maxMsgNums=1))
    if saved:
        bench.save_offsets()
    bench.pop(maxMsgNums=1, invisibleTime=5_000)
    bench.kill()
    again = PopBench(tmp_path)
    assert again.committed() == 2
    assert [one.body for one in again.pop()] == [b"3"]
    again.after(6_000)
    assert [one.body for one in again.pop()] == [b"2"]
    again.close()


def test_repeated_check_point_revives_nothing_twice(tmp_path: Path) -> None:
    bench = PopBench(tmp_path)
    bench.send(b"1", b"2")
    bench.pop(invisibleTime=2_000)
    bench.save_offsets()
    bench.after(2_500)
    bench.ack(*bench.pop(invisibleTime=60_000))
    assert bench.rig.offsets.query("rmq_sys_REVIVE_LOG_DefaultCluster", REVIVE_GROUP, 1) is not None
    bench.kill()
    again = PopBench(tmp_path, clock=FakeClock(T0 + 2_500))
    assert again.rig.offsets.query("rmq_sys_REVIVE_LOG_DefaultCluster", REVIVE_GROUP, 1) is None
    again.after(70_000)
    assert again.pop() == []
    again.close()


def test_acknowledgement_that_cannot_be_checked_once_still_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the copy that it names is in the log could not be read, for example for want of a file."""
    bench = PopBench(tmp_path)
    bench.send(b"1", b"2")
    bench.pop(invisibleTime=2_000)
    bench.save_offsets()
    bench.after(2_500)
    bench.ack(*bench.pop(invisibleTime=60_000))
    bench.kill()
    again = PopBench(tmp_path, clock=FakeClock(T0 + 2_500))
    store = again.rig.store
    read, failures = store.decoded_record, [StoreError("too many open files")]

    def failing(physical_offset: int) -> StoredRecord | None:
        record = read(physical_offset)
        if failures and record is not None and record.topic.startswith("%RETRY%"):
            raise failures.pop()
        return record

    monkeypatch.setattr(store, "decoded_record", failing)
    with pytest.raises(StoreError):
        again.after(70_000)
    again.after(70_000)
    assert again.pop() == []
    again.close()


def test_offsets_in_the_format_of_another_broker_are_kept(tmp_path: Path) -> None:
    bench = PopBench(tmp_path)
    bench.send(b"1", b"2")
    bench.pop()
    bench.rig.offsets.commit(TOPIC, GROUP, 0, 0)
    bench.save_offsets()
    bench.kill()
    path = tmp_path / "config" / "consumerOffset.json"
    path.write_text(path.read_text().replace("logPosition", "other"))
    again = PopBench(tmp_path)
    assert again.committed() == 0
    again.close()


@pytest.mark.parametrize("known", [False, True], ids=["lost", "kept"])
def test_ordered_hand_outs_of_an_earlier_topic_do_not_come_back(tmp_path: Path, known: bool) -> None:
    """The crash kept what was handed out before the topic was deleted, or lost that, too."""
    bench = PopBench(tmp_path)
    bench.send(b"1", b"2", b"3")
    one, *_ = bench.pop(order="true", invisibleTime=60_000)
    if known:
        bench.rig.parts.pop.save()
    bench.after(1)
    run(bench.rig.deletions.topic(TOPIC))
    bench.rig.make_topic(TOPIC, 1)
    bench.send(b"new1", b"new2", b"new3")
    bench.rig.topics.save()
    bench.kill()
    again = PopBench(tmp_path, clock=FakeClock(T0 + 2))
    assert again.rig.topics.births[TOPIC] > T0
    again.ack_answer(one)
    assert not again.committed()
    assert [found.body for found in again.pop(order="true")] == [b"new1", b"new2", b"new3"]
    again.close()


def test_recreated_topic_is_read_from_its_beginning(tmp_path: Path) -> None:
    bench = PopBench(tmp_path)
    bench.send(b"1", b"2")
    bench.pop()
    bench.rig.store.delete_topic(TOPIC)
    bench.rig.offsets.forget_topic(TOPIC)
    bench.rig.topics.close(TOPIC)
    bench.send(b"3", b"4", b"5")
    bench.kill()
    again = PopBench(tmp_path)
    assert [one.body for one in again.pop()] == [b"3", b"4", b"5"]
    again.close()


def test_check_point_of_a_deleted_topic_skips_nothing_of_the_next_one(tmp_path: Path) -> None:
    """It becomes due, and so is stored again, after the next topic was created."""
    bench = PopBench(tmp_path)
    bench.send(b"1", b"2")
    bench.pop(invisibleTime=5000)
    bench.make_again()
    bench.send(b"3", b"4", b"5")
    bench.after(6000)
    bench.kill()
    again = PopBench(tmp_path)
    assert [one.body for one in again.pop()] == [b"3", b"4", b"5"]
    again.close()


def test_retry_topic_lost_in_the_crash_is_recreated(tmp_path: Path) -> None:
    bench = PopBench(tmp_path)
    bench.send(b"1")
    bench.pop(invisibleTime=2_000)
    bench.save_offsets()
    bench.after(2_500)
    assert pop_retry_topic(GROUP, TOPIC) in bench.rig.topics.configs
    bench.kill()
    again = PopBench(tmp_path, clock=FakeClock(T0 + 2_500))
    assert pop_retry_topic(GROUP, TOPIC) not in again.rig.topics.configs
    assert [one.body for one in again.pop()] == [b"1"]
    again.close()


def test_ordered_pop_lost_in_the_crash_is_acknowledged(tmp_path: Path) -> None:
    bench = PopBench(tmp_path)
    bench.send(b"1", b"2")
    (one,) = bench.pop(order="true", maxMsgNums=1)
    bench.kill()
    again = PopBench(tmp_path)
    assert again.rig.parts.pop.order.get(TOPIC, GROUP, 0) is None
    again.ack(one)
    assert again.committed() == 1
    again.kill()
    third = PopBench(tmp_path)
    assert third.committed() == 1
    assert [found.body for found in third.pop(order="true")] == [b"2"]
    third.close()


def test_check_point_delivered_again_by_the_timer_revives_nothing(tmp_path: Path) -> None:
    """The timer's progress is saved less often than settled check points, so its last deliveries repeat."""
    bench = PopBench(tmp_path)
    bench.send(b"1")
    bench.pop(invisibleTime=2_000)
    bench.after(2_500)
    (again,) = bench.pop(invisibleTime=60_000)
    assert again.record.reconsume_times == 1
    bench.ack(again)
    bench.save_offsets()
    settled = bench.rig.offsets.query(REVIVE_TOPIC, REVIVE_GROUP, 1)
    assert settled is not None and settled > 0
    bench.kill()
    second = PopBench(tmp_path, clock=FakeClock(T0 + 2_500))
    second.after(70_000)
    queue = second.rig.store.find_queue(REVIVE_TOPIC, 1)
    assert queue is not None and queue.max_offset > settled + 1, "the check point came a second time"
    assert second.pop() == []
    second.close()


@pytest.mark.parametrize("where", ["revive topic", "timer topic"])
def test_damaged_check_point_does_not_prevent_the_start(tmp_path: Path, where: str) -> None:
    bench = PopBench(tmp_path)
    bench.send(b"1", b"2", b"3")
    bench.ack(*bench.pop(maxMsgNums=1, invisibleTime=2_000))
    if where == "revive topic":
        bench.after(3_000)
    topic = REVIVE_TOPIC if where == "revive topic" else "rmq_sys_wheel_timer"
    places = [
        position
        for queue in bench.rig.store.all_queues()
        if queue.topic == topic and (position := queue.physical_offset(0)) is not None
    ]
    assert places
    bench.pop(maxMsgNums=1, invisibleTime=5_000)
    for position in places:
        damage(bench.rig, position, "body")
    bench.kill()
    again = PopBench(tmp_path, clock=FakeClock(T0 + 4_000))
    assert again.committed() == 2, "the check point that is whole counts"
    again.after(10_000)
    assert sorted(one.body for one in again.pop()) == [b"2", b"3"]
    again.close()


def test_unreadable_check_point_does_not_prevent_the_start(tmp_path: Path) -> None:
    bench = PopBench(tmp_path)
    bench.send(b"1", b"2")
    own = encode_properties({"TAGS": "ck", "UNIQ_KEY": "x"})
    host = bench.rig.store.store_host
    for body in (b"", b"{", b'{"so": "x"}', b"[]", b'{"d":[9],"n":-1}'):
        bench.rig.inner.put([InnerMessage(REVIVE_TOPIC, 1, body, own, 0, 0, T0, host)])
    bench.pop(maxMsgNums=1, invisibleTime=2_000)
    bench.kill()
    again = PopBench(tmp_path)
    assert again.committed() == 1
    again.after(3_000)
    assert sorted(one.body for one in again.pop()) == [b"1", b"2"]
    again.close()


def place_of(bench: PopBench, topic: str, offset: int) -> int:
    """The physical offset of a message."""
    queue = bench.rig.store.find_queue(topic, 0)
    assert queue is not None
    place = queue.physical_offset(offset)
    assert place is not None
    return place


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_copy_lost_in_a_power_failure_is_made_again(tmp_path: Path, lost: int) -> None:
    """The acknowledgement of the originals was stored with the copies, and still exists."""
    bench = PopBench(tmp_path)
    bench.send(b"0", b"1", b"2")
    bench.pop(invisibleTime=2_000)
    bench.after(2_500)
    damage(bench.rig, place_of(bench, pop_retry_topic(GROUP, TOPIC), lost), "body")
    bench.kill()
    again = PopBench(tmp_path, clock=FakeClock(T0 + 2_500))
    again.after(1_000)
    assert sorted(one.body for one in again.pop()) == [b"0", b"1", b"2"], "each once"
    again.close()


@pytest.mark.parametrize("lost", [False, True])
def test_changed_time_survives_the_loss_of_its_check_point(tmp_path: Path, lost: bool) -> None:
    """Then the first check point is not acknowledged, and the message is visible after the first time."""
    bench = PopBench(tmp_path)
    bench.send(b"1")
    (one,) = bench.pop(invisibleTime=5_000)
    bench.save_offsets()
    bench.change(one, 60_000)
    if lost:
        damage(bench.rig, place_of(bench, TIMER_TOPIC, 1), "body")
    bench.kill()
    again = PopBench(tmp_path)
    again.after(6_000)
    assert [found.body for found in again.pop(invisibleTime=1_000)] == ([b"1"] if lost else [])
    if not lost:
        again.after(60_000)
        assert [found.body for found in again.pop()] == [b"1"]
    again.close()


@pytest.mark.parametrize("first", ["lost", "lost, acknowledged", "whole"])
def test_pop_whose_check_point_was_lost_in_a_power_failure_is_repeated(tmp_path: Path, first: str) -> None:
    """The check point of the next pop still exists, and says nothing about the first one."""
    bench = PopBench(tmp_path)
    bench.send(b"1", b"2", b"3")
    (one,) = bench.pop(maxMsgNums=1)
    bench.pop(maxMsgNums=1)
    if first == "lost, acknowledged":
        bench.ack(one)
    if first != "whole":
        damage(bench.rig, place_of(bench, TIMER_TOPIC, 0), "body")
    bench.kill()
    wanted = 0 if first == "lost" else 2
    again = PopBench(tmp_path)
    assert again.committed() == (wanted or None)
    again.rig.store.flush_queues(safe_point=True)
    again.kill()
    third = PopBench(tmp_path)
    assert third.rig.store.recovery.damaged == ()
    assert third.committed() == (wanted or None), "a further start does not know of damage, but sees the gap"
    assert [found.body for found in third.pop()] == [b"1", b"2", b"3"][wanted:]
    third.close()


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_pops_before_a_lost_check_point_are_known(tmp_path: Path, lost: int) -> None:
    bench = PopBench(tmp_path)
    bench.send(b"0", b"1", b"2", b"3")
    for _ in range(3):
        bench.pop(maxMsgNums=1)
    damage(bench.rig, place_of(bench, TIMER_TOPIC, lost), "body")
    bench.kill()
    again = PopBench(tmp_path)
    assert again.committed() == (lost or None)
    assert [one.body for one in again.pop()] == [b"0", b"1", b"2", b"3"][lost:]
    again.close()


def test_lost_message_of_other_groups_does_not_affect_a_new_group(tmp_path: Path) -> None:
    """A group that began at the last message has no saved offset: it continues where its check points end."""
    bench = PopBench(tmp_path)
    bench.send(b"0", b"1")
    lost = bench.rig.store.queue(TOPIC, 0).physical_offset(0)
    assert lost is not None
    bench.rig.offsets.commit(TOPIC, GROUP, 0, 1)
    bench.pop(maxMsgNums=1)
    bench.send(b"2", b"3")
    bench.pop(maxMsgNums=1)
    damage(bench.rig, lost, "body")
    bench.kill()
    again = PopBench(tmp_path)
    assert again.committed() == 3
    again.close()
