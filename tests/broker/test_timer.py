"""Timed messages: planned, delivered at their millisecond, rolled, taken back, kept over every end."""

from __future__ import annotations

import asyncio
import shutil
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.rig import Rig, connection, damage, send_command
from tests.protocol.archives import CLEAN_5, unpacked
from tests.store.rig import copy_archive
from tests.support import run, until

from sparrowmq.broker.inner import InnerMessage
from sparrowmq.broker.recall import Recalls, parse_handle, recall_handle
from sparrowmq.broker.timer import BATCH_MESSAGES, LoadedSlot, TimerService, due_in, plan
from sparrowmq.core.errors import StoreFullError
from sparrowmq.core.names import TIMER_TOPIC
from sparrowmq.protocol import properties
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.headers import RecallMessageRequest, to_ext
from sparrowmq.protocol.record import StoredRecord
from sparrowmq.store.timers import Timers

T0 = 1_700_000_000_000
DAY = 86_400_000
TURNS_MAX = 5000


class Clockwork:
    """A rig with a timer service that tests drive by hand."""

    def __init__(
        self, root: Path, *, now: int | None = None, window: int = 172_800, **settings: object
    ) -> None:
        self.rig = Rig(root, recall_message_enable=True, **settings)
        self.rig.make_topic("TopicTest", 4)
        if now is not None:
            self.rig.clock.ms = now
        self.timers = Timers.open(root, 4096, self.rig.clock, clean=self.rig.store.recovery.clean)
        self.service = TimerService(self.rig.inner, self.timers, self.rig.clock, window_ms=window * 1000)

    def send(self, body: bytes, key: str = "AB", topic: str = "TopicTest", **own: object) -> Command:
        text = "".join(f"{name}\x01{value}\x02" for name, value in own.items())
        client = connection()
        command = send_command(body, topic=topic, properties=f"UNIQ_KEY\x01{key}\x02{text}")
        assert self.rig.sending.handle(client, command) is None
        (answer,) = client.answers()
        assert answer.code == ResponseCode.SUCCESS
        return answer

    def settle(self) -> None:
        """Do everything that is to be done now."""
        for _ in range(TURNS_MAX):
            if self.service.turn():
                return
            moments = [min(slot.due) for slot in self.service._loaded.values() if slot.due]
            if moments and min(moments) <= self.rig.clock.ms:
                continue
        raise AssertionError("the timer never comes to rest")

    def at(self, ms: int) -> list[bytes]:
        """What is delivered at a time."""
        self.rig.clock.ms = ms
        self.settle()
        return self.bodies()

    def delivered(self) -> list[StoredRecord]:
        return self.rig.inner.scan("TopicTest", 0, 0, 10_000, 1 << 24).records

    def bodies(self) -> list[bytes]:
        return [record.body for record in self.delivered()]

    def recall(self, handle: str, topic: str = "TopicTest") -> Command:
        recalls = Recalls(self.rig.settings, self.rig.inner, self.rig.topics, self.rig.clock)
        request = RecallMessageRequest(topic=topic, recall_handle=handle, producer_group="p")
        return recalls.handle(connection(), Command(RequestCode.RECALL_MESSAGE, 5, 0, to_ext(request)))

    def save(self) -> None:
        check = self.timers.unsaved()
        if check is not None:
            self.timers.write(check)

    def close(self) -> None:
        self.timers.close()
        self.rig.close()

    def kill(self) -> None:
        """Stop as `kill -9` does."""
        self.timers.abandon()
        self.rig.store.abandon()
        self.rig.pool.shutdown()


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
def test_what_is_beyond_the_window_is_planned_again_later(ahead_s: int, slot_s: int, magic: int) -> None:
    found = plan(T0 + ahead_s * 1000, T0, 172_800_000, is_delete=False)
    assert found == (T0 + slot_s * 1000, magic)
    assert plan(T0 + ahead_s * 1000, T0, 172_800_000, is_delete=True) == (found.slot, magic + 4)


@given(st.integers(0, 259_200), st.integers(2, 604_740))
def test_a_plan_is_never_beyond_the_window_nor_the_message(ahead_s: int, window_s: int) -> None:
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
def test_a_message_is_due_within_its_slot_s_second(own: dict[str, str], due: int) -> None:
    assert due_in(T0, own, T0 - 100) == due


def test_a_loaded_slot_gives_batches_in_order_of_time() -> None:
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
def test_a_timed_message_is_delivered_at_its_millisecond(clockwork: Clockwork) -> None:
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
def test_a_time_in_the_past_is_delivered_at_once(clockwork: Clockwork) -> None:
    answer = clockwork.send(b"now", TIMER_DELIVER_MS=T0 - 5)
    assert "recallHandle" not in answer.ext
    assert clockwork.bodies() == [b"now"]


def test_what_is_due_before_it_is_planned_is_delivered_too(clockwork: Clockwork) -> None:
    clockwork.send(b"a", TIMER_DELAY_SEC=2)
    assert clockwork.at(T0 + 60_000) == [b"a"]
    own = properties.decode(clockwork.delivered()[0].properties)
    assert own["TIMER_ENQUEUE_MS"] == str(2**63 - 1)
    assert clockwork.service.behind_ms == 0


def test_messages_of_one_slot_come_by_time_and_then_by_arrival(clockwork: Clockwork) -> None:
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
def test_a_message_beyond_the_window_is_planned_again_and_arrives_once(tmp_path: Path) -> None:
    clockwork = Clockwork(tmp_path / "store", window=10)
    clockwork.send(b"far", TIMER_DELAY_SEC=60)
    for second in range(60):
        assert clockwork.at(T0 + second * 1000) == []
    assert clockwork.at(T0 + 60_000) == [b"far"]
    own = properties.decode(clockwork.delivered()[0].properties)
    assert int(own["TIMER_ROLL_TIMES"]) >= 5
    assert clockwork.at(T0 + 200_000) == [b"far"]
    clockwork.close()


def test_big_messages_are_delivered_in_pieces(clockwork: Clockwork) -> None:
    for number in range(6):
        clockwork.send(bytes([number]) * 200_000, TIMER_DELAY_SEC=2)
    clockwork.rig.clock.ms = T0 + 2000
    assert [body[0] for body in clockwork.at(T0 + 2000)] == list(range(6))


def test_junk_in_the_timer_topic_harms_nobody(clockwork: Clockwork) -> None:
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
def test_a_damaged_message_is_left_out_and_stops_nobody(
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


def test_a_clock_that_goes_back_delivers_later_and_not_never(clockwork: Clockwork) -> None:
    assert clockwork.at(T0 + 100_000) == []
    clockwork.rig.clock.ms = T0
    clockwork.send(b"x", TIMER_DELAY_SEC=1)
    assert clockwork.at(T0 + 1000) == [b"x"] or clockwork.at(T0 + 101_000) == [b"x"]


@pytest.mark.proves("broker:8.2")
def test_a_clock_that_jumps_ahead_and_back_loses_nothing_and_repeats_nothing(clockwork: Clockwork) -> None:
    """What is sent for the time that was skipped comes at once, as with the reference; the rest in time."""
    clockwork.send(b"near", TIMER_DELAY_SEC=60)
    clockwork.send(b"far", TIMER_DELAY_SEC=3 * 86_400)
    clockwork.settle()
    assert clockwork.at(T0 + DAY) == [b"near"]
    clockwork.rig.clock.ms = T0 + 1000
    clockwork.send(b"skipped", TIMER_DELAY_SEC=30)
    clockwork.send(b"later", TIMER_DELIVER_MS=T0 + DAY + 5000)
    assert clockwork.at(T0 + 1000) == [b"near", b"skipped"]
    assert clockwork.at(T0 + DAY + 4999) == [b"near", b"skipped"]
    assert clockwork.at(T0 + DAY + 5000) == [b"near", b"skipped", b"later"]
    assert clockwork.at(T0 + 3 * DAY) == [b"near", b"skipped", b"later", b"far"]


def test_a_clock_that_is_days_behind_after_a_restart_keeps_no_message_for_ever(tmp_path: Path) -> None:
    first = Clockwork(tmp_path / "store")
    first.send(b"waits", TIMER_DELAY_SEC=60)
    assert first.at(T0 + 10_000) == []
    first.close()
    second = Clockwork(tmp_path / "store", now=T0 - 10 * DAY)
    second.send(b"new", TIMER_DELAY_SEC=5)
    assert second.at(T0 - 10 * DAY) == [b"new"]
    assert second.at(T0 + 59_999) == [b"new"]
    assert second.at(T0 + 60_000) == [b"new", b"waits"]
    second.close()


def test_a_full_disk_stops_delivery_until_there_is_room(
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


@pytest.mark.parametrize("clean", [True, False])
def test_messages_that_wait_are_counted(tmp_path: Path, clean: bool) -> None:
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
def test_after_a_power_cut_new_messages_take_the_places_of_lost_ones(tmp_path: Path, wait: int) -> None:
    """The timer files reached the disk, the last message of the log did not."""
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


def _replace(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.rmtree(target)
        shutil.copytree(source, target)
    else:
        shutil.copy2(source, target)


@pytest.mark.parametrize("days", [1, 5, 8, 13, 15, 40])
def test_after_a_long_stop_everything_overdue_is_delivered_at_once(tmp_path: Path, days: int) -> None:
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


def test_lost_timer_files_cost_no_message(tmp_path: Path) -> None:
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
def test_a_message_can_be_taken_back_before_it_is_due(clockwork: Clockwork) -> None:
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
def test_a_marker_takes_back_nothing_of_another_topic(clockwork: Clockwork, value: str, late: bool) -> None:
    """Any client may write the property, into a topic that it may send to."""
    clockwork.rig.make_topic("Other", 1)
    clockwork.send(b"theirs", key="AAAA", TIMER_DELAY_SEC=5)
    if late:
        clockwork.settle()
    clockwork.send(b"x", topic="Other", key="M", TIMER_DELAY_SEC=5, TIMER_DEL_UNIQKEY=value)
    clockwork.send(b"own", topic="Other", key="AAAA", TIMER_DELAY_SEC=5)
    assert clockwork.at(T0 + 5000) == [b"theirs"]
    own = [record.body for record in clockwork.rig.inner.scan("Other", 0, 0, 9, 1 << 20).records]
    assert own == ([] if value in ("AAAA", "Other+AAAA") else [b"own"])


def test_a_marker_that_is_planned_late_still_counts(clockwork: Clockwork) -> None:
    """As when the broker was down when the message became due."""
    answer = clockwork.send(b"mistake", key="AAAA", TIMER_DELAY_SEC=5)
    clockwork.settle()
    assert clockwork.recall(answer.ext["recallHandle"]).code == 0
    assert clockwork.at(T0 + 60_000) == []


def test_a_far_message_is_taken_back_where_it_is_planned_again(tmp_path: Path) -> None:
    clockwork = Clockwork(tmp_path / "store", window=10)
    answer = clockwork.send(b"far", key="AAAA", TIMER_DELAY_SEC=60)
    clockwork.settle()
    assert clockwork.recall(answer.ext["recallHandle"]).code == 0
    for second in range(0, 90, 5):
        assert clockwork.at(T0 + second * 1000) == []
    clockwork.close()


def test_a_marker_that_comes_too_late_is_no_message(clockwork: Clockwork) -> None:
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
def test_what_cannot_be_taken_back_is_refused(
    clockwork: Clockwork, handle: str | bytes, topic: str, code: int, remark: str
) -> None:
    text = handle.decode() if isinstance(handle, bytes) else handle
    answer = clockwork.recall(text, topic)
    assert answer.code == code and remark in (answer.remark or "")
    assert answer.ext == {"MSG_REGION": "DefaultRegion"}


# The task


def test_the_task_delivers_and_survives_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        monkeypatch.setattr("sparrowmq.broker.timer.RETRY_SECONDS", 0.001)
        clockwork.send(b"a", TIMER_DELAY_SEC=1)
        task = asyncio.create_task(clockwork.service.run())
        await until(lambda: clockwork.timers.queue_offset == 1)
        clockwork.rig.clock.ms += 1000
        await until(lambda: clockwork.bodies() == [b"a"])
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        clockwork.close()

    run(scenario())
