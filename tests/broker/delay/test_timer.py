"""Timed messages: scheduled, delivered at their millisecond, rolled, recalled, and kept across every kind
of stop."""

from __future__ import annotations

import asyncio
import shutil
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.doubles import FakeClock
from tests.broker.rig import Rig, connection, damage, send_command
from tests.protocol.archives import CLEAN_5, unpacked
from tests.store.rig import copy_archive
from tests.support import run, until

from sparrowmq.broker.base.internal_store import InnerMessage
from sparrowmq.broker.delay.recall import parse_handle, recall_handle
from sparrowmq.broker.delay.timer import TimerService
from sparrowmq.broker.delay.timer_slots import BATCH_MESSAGES, LoadedSlot, due_in, plan
from sparrowmq.core.errors import StoreError, StoreFullError
from sparrowmq.core.names import TIMER_TOPIC
from sparrowmq.protocol import properties
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.headers import RecallMessageRequest, to_ext
from sparrowmq.protocol.record import StoredRecord
from sparrowmq.store.timers.timer_log import UNIT_BYTES
from sparrowmq.store.timers.timer_wheel import SLOT_BYTES, SLOTS, SPAN_MS

T0 = 1_700_000_000_000
DAY = 86_400_000
TURNS_MAX = 5000


class Clockwork:
    """A rig with a timer service that tests run step by step."""

    def __init__(
        self, root: Path, *, now: int | None = None, window: int = 172_800, **settings: object
    ) -> None:
        changes = {"recall_message_enable": True, "timer_roll_window_slot": window} | settings
        self.rig = Rig(root, clock=FakeClock(T0 if now is None else now), **changes)
        self.rig.make_topic("TopicTest", 4)
        timers, service = self.rig.delayed.timers, self.rig.delayed.timer
        assert timers is not None and service is not None
        self.timers, self.service = timers, service

    def send(
        self, body: bytes, key: str = "AB", topic: str = "TopicTest", queue_id: int = 0, **own: object
    ) -> Command:
        text = "".join(f"{name}\x01{value}\x02" for name, value in own.items())
        client = connection()
        command = send_command(
            body, topic=topic, queue_id=queue_id, properties=f"UNIQ_KEY\x01{key}\x02{text}"
        )
        assert self.rig.sending.handle(client, command) is None
        (answer,) = client.answers()
        assert answer.code == ResponseCode.SUCCESS
        return answer

    def settle(self) -> None:
        """Run everything that is due now."""
        for _ in range(TURNS_MAX):
            if self.service.turn():
                return
            moments = [min(slot.due) for slot in self.service._loaded.values() if slot.due]
            if moments and min(moments) <= self.rig.clock.ms:
                continue
        raise AssertionError("the timer never comes to rest")

    def at(self, ms: int) -> list[bytes]:
        """The messages delivered at a time."""
        self.rig.clock.ms = ms
        self.settle()
        return self.bodies()

    def delivered(self) -> list[StoredRecord]:
        return self.rig.inner.scan("TopicTest", 0, 0, 10_000, 1 << 24).records

    def bodies(self) -> list[bytes]:
        return [record.body for record in self.delivered()]

    def recall(self, handle: str, topic: str = "TopicTest") -> Command:
        request = RecallMessageRequest(topic=topic, recall_handle=handle, producer_group="p")
        command = Command(RequestCode.RECALL_MESSAGE, 5, 0, to_ext(request))
        return self.rig.delayed.recalls.handle(connection(), command)

    def save(self) -> None:
        check = self.timers.unsaved()
        if check is not None:
            self.timers.write(check)

    def close(self) -> None:
        self.rig.close()

    def kill(self) -> None:
        self.rig.kill()


@pytest.fixture
def clockwork(tmp_path: Path) -> Iterator[Clockwork]:
    made = Clockwork(tmp_path / "store")
    yield made
    made.close()


# Decisions


@pytest.mark.proves("broker:8.2")
@pytest.mark.parametrize(
    ("ahead_s", "slot_s", "magic"),
    [
        (0, 0, 1),
        (172_799, 172_799, 1),
        (172_800, 86_400, 3),
        (200_000, 86_400, 3),
        (172_800 + 57_599, 86_400, 3),
        (172_800 + 57_600, 172_800, 3),
        (259_200, 172_800, 3),
    ],
)
def test_message_beyond_the_window_is_rescheduled_later(ahead_s: int, slot_s: int, magic: int) -> None:
    found = plan(T0 + ahead_s * 1000, T0, 172_800_000, is_delete=False)
    assert found == (T0 + slot_s * 1000, magic)
    assert plan(T0 + ahead_s * 1000, T0, 172_800_000, is_delete=True) == (found.slot, magic + 4)


@given(st.integers(0, 259_200), st.integers(2, 604_740))
def test_schedule_is_never_beyond_the_window_or_the_message(ahead_s: int, window_s: int) -> None:
    slot, magic = plan(T0 + ahead_s * 1000, T0, window_s * 1000, is_delete=False)
    assert slot % 1000 == 0 and T0 <= slot <= T0 + min(ahead_s, window_s) * 1000
    assert (magic == 1) is (slot == T0 + ahead_s * 1000) or ahead_s >= window_s


@pytest.mark.parametrize(
    ("own", "due"),
    [
        ({"TIMER_DELIVER_MS": str(T0 + 1)}, T0 + 1),
        ({"TIMER_DELIVER_MS": str(T0 + 1000)}, T0 + 1000),
        ({"TIMER_DELIVER_MS": str(T0)}, T0 + 1000),
        ({"TIMER_DELIVER_MS": str(T0 + 1001)}, T0 + 1000),
        ({"TIMER_DELAY_MS": "700"}, T0 + 600),
        ({"TIMER_DELAY_SEC": "x"}, T0 + 1000),
        ({}, T0 + 1000),
    ],
)
def test_message_is_due_within_the_second_of_its_slot(own: dict[str, str], due: int) -> None:
    assert due_in(T0, own, T0 - 100) == due


def test_loaded_slot_gives_batches_in_order_of_time() -> None:
    slot = LoadedSlot(T0, -1)
    slot.due = {
        T0 + 2: array("q", [5, 0, 6, 0]),
        T0 + 1: array("q", [1, 0] * BATCH_MESSAGES),
        T0 + 9: array("q", [9, 0]),
    }
    assert slot.take(T0) == []
    assert slot.take(T0 + 2) == [(1, 0)] * BATCH_MESSAGES
    slot.drop(BATCH_MESSAGES)
    assert slot.take(T0 + 2) == [(5, 0), (6, 0)]
    slot.drop(1)
    assert slot.take(T0 + 2) == [(6, 0)]
    slot.drop(1)
    assert slot.take(T0 + 2) == [] and slot.take(T0 + 9) == [(9, 0)]


# Delivery


@pytest.mark.proves("broker:8.2", "client:B-105")
def test_timed_message_is_delivered_at_its_millisecond(clockwork: Clockwork) -> None:
    clockwork.send(b"late", TIMER_DELIVER_MS=T0 + 3456)
    assert clockwork.at(T0) == [] and clockwork.at(T0 + 3455) == []
    assert clockwork.at(T0 + 3456) == [b"late"]
    (record,) = clockwork.delivered()
    own = properties.decode(record.properties)
    assert own["TIMER_OUT_MS"] == str(T0 + 3000) and own["TIMER_DELIVER_MS"] == str(T0 + 3456)
    assert (own["TIMER_ENQUEUE_MS"], own["TIMER_DEQUEUE_MS"]) == (str(T0), str(T0 + 3456))
    assert clockwork.at(T0 + 10_000) == [b"late"]
    assert clockwork.timers.read_time == T0 + 10_000


@pytest.mark.parametrize(
    ("own", "due"),
    [
        ({"TIMER_DELAY_SEC": 2}, 2000),
        ({"TIMER_DELAY_MS": 2000}, 2000),
        ({"TIMER_DELAY_MS": 1}, 1),
        ({"TIMER_DELAY_MS": 999}, 999),
        ({"TIMER_DELIVER_MS": T0 + 1000}, 1000),
        ({"TIMER_DELAY_SEC": 259_200}, 3 * DAY),
    ],
)
def test_no_message_is_early(clockwork: Clockwork, own: dict[str, int], due: int) -> None:
    clockwork.send(b"x", **own)
    clockwork.settle()
    moment = T0
    while T0 + due - moment > 10 * 3_600_000:
        moment += 9 * 3_600_000
        assert clockwork.at(moment) == []
    assert clockwork.at(T0 + due - 1) == []
    assert clockwork.at(T0 + due) == [b"x"]


@pytest.mark.proves("broker:8.2")
def test_time_in_the_past_is_delivered_at_once(clockwork: Clockwork) -> None:
    answer = clockwork.send(b"now", TIMER_DELIVER_MS=T0 - 5)
    assert "recallHandle" not in answer.ext
    assert clockwork.bodies() == [b"now"]


def test_message_due_before_it_is_scheduled_is_delivered(clockwork: Clockwork) -> None:
    clockwork.send(b"a", TIMER_DELAY_SEC=2)
    assert clockwork.at(T0 + 60_000) == [b"a"]
    own = properties.decode(clockwork.delivered()[0].properties)
    assert own["TIMER_ENQUEUE_MS"] == str(2**63 - 1)
    assert clockwork.service.behind_ms == 0


def test_messages_of_one_slot_are_ordered_by_time_then_by_arrival(clockwork: Clockwork) -> None:
    for number, ms in enumerate([5900, 5100, 5100, 5500]):
        clockwork.send(b"%d" % number, TIMER_DELIVER_MS=T0 + ms)
    assert clockwork.at(T0) == []
    assert clockwork.at(T0 + 5100) == [b"1", b"2"]
    clockwork.send(b"4", TIMER_DELIVER_MS=T0 + 5400)  # into a slot that is being worked off
    assert clockwork.at(T0 + 5950) == [b"1", b"2", b"4", b"3", b"0"]


def test_many_messages_of_one_second_take_bounded_turns(clockwork: Clockwork) -> None:
    count = 5 * BATCH_MESSAGES + 3
    for number in range(count):
        clockwork.send(b"%d" % number, TIMER_DELIVER_MS=T0 + 2500)
    clockwork.rig.clock.ms = T0 + 2500
    most, turns = 0, 0
    while len(clockwork.bodies()) < count:
        before = len(clockwork.bodies())
        clockwork.service.turn()
        most, turns = max(most, len(clockwork.bodies()) - before), turns + 1
        assert turns < TURNS_MAX
    assert most <= 2 * BATCH_MESSAGES
    assert clockwork.bodies() == [b"%d" % number for number in range(count)]


@pytest.mark.proves("broker:8.2")
def test_message_beyond_the_window_is_rescheduled_and_delivered_once(tmp_path: Path) -> None:
    clockwork = Clockwork(tmp_path / "store", window=10)
    clockwork.send(b"far", TIMER_DELAY_SEC=60)
    for second in range(60):
        assert clockwork.at(T0 + second * 1000) == []
    assert clockwork.at(T0 + 60_000) == [b"far"]
    own = properties.decode(clockwork.delivered()[0].properties)
    assert int(own["TIMER_ROLL_TIMES"]) >= 5
    assert clockwork.at(T0 + 200_000) == [b"far"]
    clockwork.close()


def test_message_for_a_queue_that_is_gone_goes_to_one_that_is_written_to(clockwork: Clockwork) -> None:
    """So a topic may shrink while timed messages wait."""
    clockwork.send(b"late", queue_id=3, TIMER_DELAY_MS=1000)
    clockwork.rig.make_topic("TopicTest", 3)
    assert clockwork.at(T0 + 5000) == [b"late"]


def test_large_messages_are_delivered_in_pieces(clockwork: Clockwork) -> None:
    for number in range(6):
        clockwork.send(bytes([number]) * 200_000, TIMER_DELAY_SEC=2)
    clockwork.rig.clock.ms = T0 + 2000
    assert [body[0] for body in clockwork.at(T0 + 2000)] == list(range(6))


def test_invalid_records_in_the_timer_topic_are_ignored(clockwork: Clockwork) -> None:
    host = connection().born_host
    for text in (
        b"",
        b"TIMER_OUT_MS\x01soon\x02",
        b"TIMER_OUT_MS\x01" + b"9" * 40 + b"\x02",
        b"TIMER_OUT_MS\x01%d\x02" % (T0 + 1000),
        b"TIMER_OUT_MS\x01%d\x02REAL_TOPIC\x01TopicTest\x02REAL_QID\x01x\x02" % (T0 - 9000),
        b"TIMER_OUT_MS\x01%d\x02REAL_TOPIC\x01../escape\x02REAL_QID\x010\x02" % (T0 - 9000),
        b"TIMER_OUT_MS\x01%d\x02REAL_TOPIC\x01a/b\x02REAL_QID\x010\x02" % T0,
        b"TIMER_OUT_MS\x01%d\x02REAL_TOPIC\x01%s\x02REAL_QID\x010\x02" % (T0, b"t" * 300),
        b"TIMER_OUT_MS\x01%d\x02REAL_TOPIC\x01TopicTest\x02REAL_QID\x010\x02" % (T0 + 10**12),
    ):
        clockwork.rig.inner.put([InnerMessage(TIMER_TOPIC, 0, b"junk", text, 0, 0, T0, host)])
    clockwork.send(b"good", TIMER_DELAY_SEC=1)
    assert clockwork.at(T0 + 1000) == [b"good"]


@pytest.mark.parametrize("planned", [True, False])
@pytest.mark.parametrize("part", ["body", "length"])
def test_damaged_message_is_skipped(
    clockwork: Clockwork, planned: bool, part: str, caplog: pytest.LogCaptureFixture
) -> None:
    at = clockwork.rig.store.position
    clockwork.send(b"damaged", TIMER_DELAY_SEC=1)
    clockwork.send(b"good", TIMER_DELAY_SEC=1)
    if planned:
        clockwork.settle()
    damage(clockwork.rig, at, part)
    assert clockwork.at(T0 + 5000) == [b"good"]
    assert str(at) in caplog.text


def test_messages_are_later_but_not_lost_when_the_clock_goes_back(clockwork: Clockwork) -> None:
    assert clockwork.at(T0 + 100_000) == []
    clockwork.rig.clock.ms = T0
    clockwork.send(b"x", TIMER_DELAY_SEC=1)
    assert clockwork.at(T0 + 999) == []
    assert clockwork.at(T0 + 1000) == [b"x"]


@pytest.mark.parametrize("back", [1, 999, 1000, 1001, 3_600_000, 13 * DAY, 15 * DAY, 400 * DAY])
def test_no_message_is_early_however_far_the_clock_goes_back(back: int, clockwork: Clockwork) -> None:
    clockwork.send(b"before", TIMER_DELAY_SEC=600)
    clockwork.settle()
    now = T0 + 100_000 - back
    assert clockwork.at(T0 + 100_000) == []
    clockwork.rig.clock.ms = now
    clockwork.send(b"x", TIMER_DELAY_SEC=5)
    assert clockwork.at(now + 4999) == []
    assert clockwork.at(now + 5000) == [b"x"]
    assert clockwork.at(T0 + 599_999) == [b"x"]
    assert clockwork.at(T0 + 600_000) == [b"x", b"before"]


def test_occupied_slot_is_skipped_and_not_overwritten(clockwork: Clockwork) -> None:
    clockwork.send(b"waits", TIMER_DELAY_SEC=100)
    clockwork.settle()
    now = T0 - SPAN_MS + 60_000
    clockwork.rig.clock.ms = now
    clockwork.send(b"x", TIMER_DELAY_SEC=40)
    assert clockwork.at(now + 39_999) == []
    assert clockwork.at(now + 42_000) == [b"x"]
    assert clockwork.at(T0 + 99_999) == [b"x"]
    assert clockwork.at(T0 + 100_000) == [b"x", b"waits"]


@pytest.mark.parametrize("saved", [True, False])
def test_crash_after_the_clock_went_back_loses_no_timed_message(saved: bool, tmp_path: Path) -> None:
    first = Clockwork(tmp_path / "store")
    first.send(b"delivered", TIMER_DELAY_SEC=60)
    first.settle()
    assert first.at(T0 + 3_600_000) == [b"delivered"]
    first.save()
    first.rig.clock.ms = T0 + 1000
    first.send(b"x", TIMER_DELAY_SEC=120)
    first.settle()
    if saved:
        first.save()
    first.kill()
    second = Clockwork(tmp_path / "store", now=T0 + 2000)
    assert second.at(T0 + 120_999) == [b"delivered"]
    assert second.at(T0 + 121_000) == [b"delivered", b"x"]
    assert second.at(T0 + 3_700_000) == [b"delivered", b"x"]
    second.close()


@pytest.mark.proves("broker:8.2")
def test_clock_that_jumps_forward_and_back_loses_and_repeats_nothing(clockwork: Clockwork) -> None:
    """Unlike in the reference, messages for a repeated time are delivered at that time."""
    clockwork.send(b"near", TIMER_DELAY_SEC=60)
    clockwork.send(b"far", TIMER_DELAY_SEC=3 * 86_400)
    clockwork.settle()
    assert clockwork.at(T0 + DAY) == [b"near"]
    clockwork.rig.clock.ms = T0 + 1000
    clockwork.send(b"skipped", TIMER_DELAY_SEC=30)
    clockwork.send(b"later", TIMER_DELIVER_MS=T0 + DAY + 5000)
    assert clockwork.at(T0 + 30_999) == [b"near"]
    assert clockwork.at(T0 + 31_000) == [b"near", b"skipped"]
    assert clockwork.at(T0 + DAY + 4999) == [b"near", b"skipped"]
    assert clockwork.at(T0 + DAY + 5000) == [b"near", b"skipped", b"later"]
    assert clockwork.at(T0 + 3 * DAY) == [b"near", b"skipped", b"later", b"far"]


def test_messages_still_expire_when_the_clock_is_days_behind_after_a_restart(tmp_path: Path) -> None:
    first = Clockwork(tmp_path / "store")
    first.send(b"waits", TIMER_DELAY_SEC=60)
    assert first.at(T0 + 10_000) == []
    first.close()
    second = Clockwork(tmp_path / "store", now=T0 - 10 * DAY)
    second.send(b"new", TIMER_DELAY_SEC=5)
    assert second.at(T0 - 10 * DAY + 4999) == []
    assert second.at(T0 - 10 * DAY + 5000) == [b"new"]
    assert second.at(T0 + 59_999) == [b"new"]
    assert second.at(T0 + 60_000) == [b"new", b"waits"]
    second.close()


def test_full_disk_stops_delivery_until_there_is_space(
    clockwork: Clockwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    clockwork.send(b"a", TIMER_DELAY_SEC=1)
    clockwork.settle()

    def full() -> None:
        clockwork.rig.store.drop_chunk()
        raise StoreFullError("no space left")

    clockwork.rig.clock.ms = T0 + 1000
    with monkeypatch.context() as patched:
        patched.setattr(clockwork.rig.store, "commit_chunk", full)
        with pytest.raises(StoreFullError):
            clockwork.settle()
    assert clockwork.at(T0 + 1500) == [b"a"]
    assert clockwork.at(T0 + 9000) == [b"a"]


def test_message_that_could_not_be_read_once_is_delivered(
    clockwork: Clockwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    for body in (b"a", b"b"):
        clockwork.send(body, TIMER_DELAY_SEC=3)
    clockwork.settle()
    store = clockwork.rig.store
    read, failures = store.decoded_record, [StoreError("too many open files")]

    def failing(physical_offset: int) -> StoredRecord | None:
        if failures:
            raise failures.pop()
        return read(physical_offset)

    monkeypatch.setattr(store, "decoded_record", failing)
    clockwork.rig.clock.ms = T0 + 3000
    with pytest.raises(StoreError):
        clockwork.settle()
    assert clockwork.at(T0 + 3500) == [b"a", b"b"]


# Over the end of a broker


@pytest.mark.proves("broker:8.2")
def test_waiting_messages_survive_a_restart(tmp_path: Path) -> None:
    first = Clockwork(tmp_path / "store")
    first.send(b"a", TIMER_DELAY_SEC=5)
    first.send(b"b", TIMER_DELAY_SEC=1)
    assert first.at(T0 + 1000) == [b"b"]
    first.close()
    second = Clockwork(tmp_path / "store", now=T0 + 2000)
    assert second.at(T0 + 4999) == [b"b"]
    assert second.at(T0 + 5000) == [b"b", b"a"]
    second.close()


@pytest.mark.parametrize("damaged", [0, 3, 9, 10])
@pytest.mark.parametrize("field", [0, 4, 12, 16])
def test_damaged_unit_loses_no_message_of_another_unit(
    tmp_path: Path, damaged: int, field: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The units of a second form a chain; `field` is the offset of size, previous, magic or time."""
    first = Clockwork(tmp_path / "store", mapped_file_size_timer_log=4096)
    for number in range(10):
        first.send(b"%d" % number, TIMER_DELAY_SEC=5)
        first.send(b"later", TIMER_DELAY_SEC=9)
    first.settle()
    first.close()
    (path, *_) = sorted((tmp_path / "store" / "timerlog").iterdir())
    data = bytearray(path.read_bytes())
    data[2 * damaged * UNIT_BYTES + field] ^= 0x40
    path.write_bytes(data)
    second = Clockwork(tmp_path / "store", now=T0 + 2000, mapped_file_size_timer_log=4096)
    second.rig.clock.ms = T0 + 4000
    second.settle()
    second.send(b"new", TIMER_DELAY_SEC=1)  # into the slot whose units are looked for
    found = second.at(T0 + 5000)
    wanted = [b"%d" % number for number in range(10)]
    assert b"new" in found and len(found) == len(set(found))
    assert set(wanted) - set(found) <= {b"%d" % damaged}
    assert set(second.at(T0 + 9000)) >= {b"later"}
    is_first = (field, damaged) == (4, 0)  # nothing was before it anyway
    assert ("timer log is damaged" in caplog.text) == (damaged < 10 and not is_first)
    second.close()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("kind", ["zeros", "ones"])
def test_damaged_sector_of_the_wheel_loses_no_message(tmp_path: Path, clean: bool, kind: str) -> None:
    first = Clockwork(tmp_path / "store")
    for number in range(20):
        first.send(b"%d" % number, TIMER_DELAY_SEC=5 + number)
    first.send(b"first", TIMER_DELAY_SEC=1)
    first.at(T0 + 2000)
    first.save()
    first.send(b"last", TIMER_DELAY_SEC=30)
    first.settle()
    first.close() if clean else first.kill()
    path = tmp_path / "store" / "timerwheel"
    with path.open("r+b") as file:
        file.seek((T0 // 1000 + 8) % SLOTS * SLOT_BYTES // 512 * 512)
        file.write(bytes(512) if kind == "zeros" else b"\xff" * 512)
    second = Clockwork(tmp_path / "store", now=T0 + 3000)
    assert second.service.waiting == 21
    found = second.at(T0 + 60_000)
    assert sorted(found) == sorted([b"first", b"last", *(b"%d" % number for number in range(20))])
    second.close()


@pytest.mark.parametrize("clean", [True, False])
def test_waiting_messages_are_counted(tmp_path: Path, clean: bool) -> None:
    first = Clockwork(tmp_path / "store")
    assert first.service.waiting == 0
    first.send(b"soon", TIMER_DELAY_SEC=1)
    answer = first.send(b"mistake", key="AAAA", TIMER_DELAY_SEC=5)
    first.send(b"late", key="BBBB", TIMER_DELAY_SEC=5)
    first.send(b"last", key="CCCC", TIMER_DELAY_SEC=9)
    first.settle()
    assert first.service.waiting == 4
    first.recall(answer.ext["recallHandle"])
    first.settle()
    assert first.service.waiting == 3
    first.at(T0 + 2000)
    assert first.service.waiting == 2
    first.save()
    if clean:
        first.close()
    else:
        first.kill()
    second = Clockwork(tmp_path / "store", now=T0 + 2000)
    second.settle()
    assert second.service.waiting == 2
    assert second.at(T0 + 7000) == [b"soon", b"late"]
    assert second.service.waiting == 1
    assert second.at(T0 + 11_000)[-1] == b"last"
    assert second.service.waiting == 0
    second.close()


@pytest.mark.proves("broker:8.2")
@pytest.mark.parametrize("saved", [True, False])
@pytest.mark.parametrize("planned", [True, False])
def test_kill_9_loses_nothing_and_delivers_nothing_early(tmp_path: Path, saved: bool, planned: bool) -> None:
    first = Clockwork(tmp_path / "store")
    first.send(b"a", TIMER_DELAY_SEC=5)
    if planned:
        first.settle()
    if saved:
        first.save()
    first.send(b"b", TIMER_DELAY_SEC=6)
    if planned:
        first.settle()
    first.kill()
    second = Clockwork(tmp_path / "store", now=T0 + 1000)
    assert second.at(T0 + 4999) == []
    assert second.at(T0 + 5999) == [b"a"]
    assert second.at(T0 + 6000) == [b"a", b"b"]
    assert second.at(T0 + 20_000) == [b"a", b"b"]
    second.close()


def test_kill_9_before_the_first_checkpoint_loses_nothing(tmp_path: Path) -> None:
    first = Clockwork(tmp_path / "store")
    first.send(b"a", TIMER_DELAY_SEC=2)
    first.settle()
    first.kill()
    second = Clockwork(tmp_path / "store", now=T0 + 60_000)
    assert second.at(T0 + 60_000) == [b"a"]
    second.close()


@pytest.mark.parametrize("wait", [2, 30])
def test_new_messages_replace_messages_lost_in_a_power_failure(tmp_path: Path, wait: int) -> None:
    """The timer files were written to disk, the last message of the log was not."""
    root = tmp_path / "store"
    first = Clockwork(root)
    first.send(b"kept", TIMER_DELAY_SEC=50)
    first.settle()
    shutil.copytree(root, tmp_path / "cut")
    first.send(b"lost", TIMER_DELAY_SEC=5)
    first.settle()
    first.save()
    for name in ("timerlog", "timerwheel", "config/timercheck"):
        _replace(root / name, tmp_path / "cut" / name)
    first.kill()
    second = Clockwork(tmp_path / "cut", now=T0 + 1000)
    second.send(b"mine", TIMER_DELAY_SEC=wait)  # as long as the lost one, so it begins where that began
    second.send(b"more", TIMER_DELAY_SEC=wait)
    second.settle()
    early = second.at(T0 + 1000 * wait + 999)
    assert early == []
    assert second.at(T0 + 1000 * wait + 1000) == [b"mine", b"more"]
    assert second.at(T0 + 49_999) == [b"mine", b"more"]
    assert second.at(T0 + 50_000) == [b"mine", b"more", b"kept"]
    second.close()


def test_message_due_when_scheduled_is_delivered_after_a_power_failure(tmp_path: Path) -> None:
    """The units of later messages were written to disk, its own delivery was not."""
    root = tmp_path / "store"
    first = Clockwork(root)
    first.send(b"due", TIMER_DELAY_SEC=1)
    first.send(b"early", TIMER_DELAY_SEC=50)
    first.rig.clock.ms += 3000
    shutil.copytree(root, tmp_path / "cut")
    assert first.at(T0 + 3000) == [b"due"]
    shutil.copytree(root / "timerlog", tmp_path / "cut" / "timerlog")
    shutil.copy(root / "timerwheel", tmp_path / "cut" / "timerwheel")
    first.kill()
    second = Clockwork(tmp_path / "cut", now=T0 + 4000)
    assert second.at(T0 + 4000) == [b"due"]
    assert second.service.waiting == 1
    assert second.at(T0 + 60_000) == [b"due", b"early"]
    second.close()


def _replace(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.rmtree(target)
        shutil.copytree(source, target)
    else:
        shutil.copy2(source, target)


@pytest.mark.parametrize("days", [1, 5, 8, 13, 15, 40])
def test_everything_overdue_is_delivered_at_once_after_a_long_stop(tmp_path: Path, days: int) -> None:
    first = Clockwork(tmp_path / "store")
    for hours in (0, 20, 47, 71):
        first.send(b"%d" % hours, TIMER_DELIVER_MS=T0 + 5000 + hours * 3_600_000)
    first.settle()
    first.close()
    now = T0 + days * DAY
    second = Clockwork(tmp_path / "store", now=now)
    second.send(b"new", TIMER_DELAY_SEC=2)
    second.settle()
    overdue = [b"%d" % hours for hours in (0, 20, 47, 71) if hours * 3_600_000 + 5000 <= days * DAY]
    assert sorted(second.bodies()) == sorted(overdue)
    assert sorted(second.at(now + 2000)) == sorted([*overdue, b"new"])
    second.close()


def test_lost_timer_files_lose_no_message(tmp_path: Path) -> None:
    first = Clockwork(tmp_path / "store")
    first.send(b"a", TIMER_DELAY_SEC=1)
    first.send(b"b", TIMER_DELAY_SEC=50)
    assert first.at(T0 + 2500) == [b"a"]
    first.close()
    shutil.rmtree(tmp_path / "store" / "timerlog")
    (tmp_path / "store" / "timerwheel").unlink()
    second = Clockwork(tmp_path / "store", now=T0 + 10_000)
    assert second.at(T0 + 49_999) == [b"a"]
    assert second.at(T0 + 50_000) == [b"a", b"b"]
    second.close()


@pytest.mark.proves("broker:8.2")
def test_timers_of_a_real_broker_are_delivered(tmp_path: Path) -> None:
    root = copy_archive(CLEAN_5, tmp_path / "store")
    source = unpacked(CLEAN_5)
    shutil.copytree(source / "timerlog", root / "timerlog")
    shutil.copy2(source / "timerwheel", root / "timerwheel")
    clockwork = Clockwork(root, now=1_795_254_450_000, mapped_file_size_consume_queue=2000)
    seen = clockwork.rig.inner.scan("FxTimer", 0, 0, 1000, 1 << 24).records

    def later(ms: int) -> list[StoredRecord]:
        clockwork.rig.clock.ms = ms
        clockwork.settle()
        return [
            record
            for queue in range(8)
            for record in clockwork.rig.inner.scan("FxTimer", queue, 0, 1000, 1 << 24).records
        ]

    before = later(1_795_254_450_000)
    assert len(before) >= len(seen)
    hour = later(1_795_257_950_000)
    assert len(hour) > len(before)
    last = later(1_795_254_349_000 + 4 * DAY)
    own = [properties.decode(record.properties) for record in last]
    assert sum("TIMER_ROLL_TIMES" in one for one in own) >= 1
    assert not any("TIMER_DEL_UNIQKEY" in one for one in own)
    keys = [one["UNIQ_KEY"] for one in own]
    assert len(keys) == len(set(keys))
    clockwork.close()


# Recall


@pytest.mark.proves("broker:8.3", "client:B-106", "client:B-107")
def test_message_can_be_recalled_before_it_is_due(clockwork: Clockwork) -> None:
    answer = clockwork.send(b"mistake", key="AAAA", TIMER_DELAY_SEC=5)
    clockwork.send(b"good", key="BBBB", TIMER_DELAY_SEC=5)
    handle = parse_handle(answer.ext["recallHandle"])
    assert handle == ("TopicTest", "broker-a", T0 + 4001, "AAAA")
    clockwork.settle()
    recalled = clockwork.recall(answer.ext["recallHandle"])
    assert (recalled.code, recalled.ext) == (0, {"msgId": "AAAA", "MSG_REGION": "DefaultRegion"})
    assert clockwork.at(T0 + 5000) == [b"good"]
    assert clockwork.at(T0 + 50_000) == [b"good"]
    marker = clockwork.rig.inner.scan(TIMER_TOPIC, 0, 2, 1, 1 << 20).records[0]
    own = properties.decode(marker.properties)
    assert (marker.body, own["TAGS"], own["TIMER_DEL_UNIQKEY"]) == (b"0", "_RECALL_TAG_", "AAAA")
    assert own["TIMER_OUT_MS"] == str(T0 + 4000)


@pytest.mark.proves("broker:8.2", "broker:8.3")
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("value", ["AAAA", "TopicTest+AAAA", "Other+AAAA", "Other+TopicTest+AAAA", "+"])
def test_marker_recalls_nothing_of_another_topic(clockwork: Clockwork, value: str, late: bool) -> None:
    """Any client may set the property on messages to a topic that it may send to."""
    clockwork.rig.make_topic("Other", 1)
    clockwork.send(b"theirs", key="AAAA", TIMER_DELAY_SEC=5)
    if late:
        clockwork.settle()
    clockwork.send(b"x", topic="Other", key="M", TIMER_DELAY_SEC=5, TIMER_DEL_UNIQKEY=value)
    clockwork.send(b"own", topic="Other", key="AAAA", TIMER_DELAY_SEC=5)
    assert clockwork.at(T0 + 5000) == [b"theirs"]
    own = [record.body for record in clockwork.rig.inner.scan("Other", 0, 0, 9, 1 << 20).records]
    assert own == ([] if value in ("AAAA", "Other+AAAA") else [b"own"])


def test_late_marker_still_takes_effect(clockwork: Clockwork) -> None:
    """For example when the broker was down at the time the message became due."""
    answer = clockwork.send(b"mistake", key="AAAA", TIMER_DELAY_SEC=5)
    clockwork.settle()
    assert clockwork.recall(answer.ext["recallHandle"]).code == 0
    assert clockwork.at(T0 + 60_000) == []


@pytest.mark.parametrize("days", [24, 26, 365])
def test_marker_is_scheduled_after_the_clock_jumped_far_ahead(clockwork: Clockwork, days: int) -> None:
    """The timer log can store a wait of 25 days in both directions."""
    answer = clockwork.send(b"mistake", key="AAAA", TIMER_DELAY_SEC=5)
    clockwork.settle()
    assert clockwork.recall(answer.ext["recallHandle"]).code == 0
    clockwork.rig.clock.ms = T0 + days * DAY
    for _ in range(days):
        clockwork.settle()
    assert clockwork.bodies() == []
    clockwork.send(b"later", key="BBBB", TIMER_DELAY_SEC=2)
    assert clockwork.at(T0 + days * DAY + 5000) == [b"later"]


def test_distant_message_is_recalled_when_it_is_rescheduled(tmp_path: Path) -> None:
    clockwork = Clockwork(tmp_path / "store", window=10)
    answer = clockwork.send(b"far", key="AAAA", TIMER_DELAY_SEC=60)
    clockwork.settle()
    assert clockwork.recall(answer.ext["recallHandle"]).code == 0
    for second in range(0, 90, 5):
        assert clockwork.at(T0 + second * 1000) == []
    clockwork.close()


def test_late_deletion_marker_is_not_delivered(clockwork: Clockwork) -> None:
    answer = clockwork.send(b"x", TIMER_DELAY_SEC=2)
    assert clockwork.at(T0 + 1500) == []
    assert clockwork.recall(answer.ext["recallHandle"]).code == ResponseCode.ILLEGAL_OPERATION
    assert clockwork.at(T0 + 9000) == [b"x"]


@pytest.mark.proves("broker:8.3")
@pytest.mark.parametrize(
    ("handle", "topic", "code", "remark"),
    [
        ("bm8=", "TopicTest", 604, "recall handle is invalid"),
        ("%%%", "TopicTest", 604, "recall handle is invalid"),
        (recall_handle("Other", "broker-a", T0 + 5000, "A"), "TopicTest", 604, "topic not match"),
        (
            recall_handle("TopicTest", "broker-b", T0 + 5000, "A"),
            "TopicTest",
            604,
            "broker service not available",
        ),
        (recall_handle("TopicTest", "broker-a", T0 - 5000, "A"), "TopicTest", 604, "timestamp invalid"),
        (recall_handle("TopicTest", "broker-a", T0 + 4 * DAY, "A"), "TopicTest", 604, "timestamp invalid"),
        (recall_handle("Gone", "broker-a", T0 + 5000, "A"), "Gone", 17, "the topic[Gone] not exist"),
    ],
)
def test_invalid_recalls_are_refused(
    clockwork: Clockwork, handle: str | bytes, topic: str, code: int, remark: str
) -> None:
    text = handle.decode() if isinstance(handle, bytes) else handle
    answer = clockwork.recall(text, topic)
    assert answer.code == code and remark in (answer.remark or "")
    assert answer.ext == {"MSG_REGION": "DefaultRegion"}


# The task


def test_task_delivers_and_survives_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        clockwork = Clockwork(tmp_path / "store")
        failures = iter([StoreFullError("full"), ValueError("odd")])
        real = TimerService.work_off

        def faulty(self: TimerService) -> bool:
            error = next(failures, None)
            if error is not None:
                raise error
            return real(self)

        monkeypatch.setattr(TimerService, "work_off", faulty)
        monkeypatch.setattr("sparrowmq.broker.delay.timer.RETRY_SECONDS", 0.001)
        clockwork.send(b"a", TIMER_DELAY_SEC=1)
        task = asyncio.create_task(clockwork.service.run())
        await until(lambda: clockwork.timers.queue_offset == 1)
        clockwork.rig.clock.ms += 1000
        await until(lambda: clockwork.bodies() == [b"a"])
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        clockwork.close()

    run(scenario())


def test_everything_due_since_a_lost_log_is_delivered(tmp_path: Path) -> None:
    """As on a slave that becomes master: its messages take several turns, during which the clock advances."""
    root = tmp_path / "store"
    made = Clockwork(root)
    made.send(b"before", TIMER_DELIVER_MS=T0 + 1000)
    count = 3 * BATCH_MESSAGES
    for number in range(count):
        made.send(b"%d" % number, f"K{number}", TIMER_DELIVER_MS=T0 + 10_000)
    assert made.at(T0 + 5000) == [b"before"]
    made.close()
    shutil.rmtree(root / "timerlog")
    (root / "timerwheel").unlink()
    again = Clockwork(root, now=T0 + 60_000)
    begun = again.timers.check_for_slaves
    again.service.turn()
    assert again.timers.check_for_slaves == begun
    again.settle()
    assert sorted(again.bodies()) == sorted([b"before", *(b"%d" % number for number in range(count))])
    assert again.timers.check_for_slaves.read_time > begun.read_time
    again.close()


@pytest.mark.parametrize("is_due", [False, True])
def test_marker_far_behind_its_message_takes_effect_in_a_full_reschedule(
    tmp_path: Path, is_due: bool
) -> None:
    """As on a slave that becomes master at about the time the message is due."""
    root, due, count = tmp_path / "store", T0 + 10_000, 12 * BATCH_MESSAGES
    made = Clockwork(root)
    answer = made.send(b"mistake", key="AAAA", TIMER_DELIVER_MS=due)
    for number in range(count):
        made.send(b"%d" % number, f"K{number}", TIMER_DELIVER_MS=due)
    assert made.recall(answer.ext["recallHandle"]).code == 0
    assert made.at(T0 + 5000) == []
    made.close()
    shutil.rmtree(root / "timerlog")
    (root / "timerwheel").unlink()
    again = Clockwork(root, now=due + 60_000 if is_due else due - 1000)
    again.service.turn()
    found = again.at(due + 60_000)
    again.close()
    assert len(found) == count
    assert b"mistake" not in found
