"""Delayed messages: delivered when due, in order, once, across restarts and changed levels."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.rig import Rig, connection, damage, send_command
from tests.protocol.archives import CLEAN_5, KILLED_5
from tests.store.rig import copy_archive
from tests.support import run, until

from sparrowmq.broker.base.internal_store import InnerMessage
from sparrowmq.broker.delay.schedule import BATCH_MESSAGES, Schedule, due_at
from sparrowmq.core.errors import StoreFullError
from sparrowmq.core.hashing import java_hash
from sparrowmq.core.names import SCHEDULE_TOPIC
from sparrowmq.protocol import properties
from sparrowmq.protocol.bodies import TopicConfig
from sparrowmq.protocol.record import StoredRecord


class Delays:
    """A rig with a delay schedule that tests run step by step."""

    def __init__(self, root: Path, levels: str | None = None, **settings: object) -> None:
        if levels is not None:
            settings["message_delay_level"] = levels
        self.rig = Rig(root, **settings)
        self.rig.make_topic("TopicTest", 4)
        self.offsets, self.schedule = self.rig.delayed.offsets, self.rig.delayed.schedule

    def send(self, body: bytes, level: int, *, queue_id: int = 0, tags: str = "TagA") -> None:
        text = f"UNIQ_KEY\x01AB\x02TAGS\x01{tags}\x02DELAY\x01{level}\x02"
        client = connection()
        command = send_command(body, properties=text, queue_id=queue_id)
        assert self.rig.sending.handle(client, command) is None
        (answer,) = client.answers()
        assert answer.code == 0 and answer.ext["queueId"] == str(queue_id)

    def delivered(self, queue_id: int = 0, topic: str = "TopicTest") -> list[StoredRecord]:
        return self.rig.inner.scan(topic, queue_id, 0, 10_000, 1 << 24).records

    def bodies(self, queue_id: int = 0) -> list[bytes]:
        return [record.body for record in self.delivered(queue_id)]

    def close(self, *, save: bool = True) -> None:
        if save:
            self.offsets.save()
        self.rig.close()


@pytest.fixture
def delays(tmp_path: Path) -> Iterator[Delays]:
    made = Delays(tmp_path / "store")
    yield made
    made.close()


@pytest.mark.proves("client:D-103", "client:D-104", "broker:8.1", "client:B-104")
def test_message_is_delivered_when_due_and_not_before(delays: Delays) -> None:
    delays.send(b"late", 1, queue_id=2)
    entry = delays.rig.store.queue(SCHEDULE_TOPIC, 0).entry(0)
    assert entry is not None and entry.tags_code == delays.rig.clock.ms + 1000
    assert delays.schedule.deliver(1) == (0, False, entry.tags_code)
    delays.rig.clock.ms += 999
    assert delays.schedule.deliver(1).delivered == 0 and delays.bodies(2) == []
    delays.rig.clock.ms += 1
    assert delays.schedule.deliver(1) == (1, False, None)
    (record,) = delays.delivered(2)
    own = properties.decode(record.properties)
    assert (record.body, own["DELAY"], own["REAL_TOPIC"], own["REAL_QID"]) == (b"late", "1", "TopicTest", "2")
    real = delays.rig.store.queue("TopicTest", 2).entry(0)
    assert real is not None and real.tags_code == java_hash("TagA")
    assert delays.schedule.deliver(1) == (0, False, None)


@pytest.mark.proves("client:D-105", "broker:8.1")
def test_level_keeps_the_order_and_each_turn_is_bounded(delays: Delays) -> None:
    for number in range(BATCH_MESSAGES + 5):
        delays.send(b"%d" % number, 2)
    delays.rig.clock.ms += 5000
    assert delays.schedule.deliver(2) == (BATCH_MESSAGES, True, None)
    assert delays.schedule.deliver(2) == (5, False, None)
    assert delays.bodies() == [b"%d" % number for number in range(BATCH_MESSAGES + 5)]


@pytest.mark.parametrize(("writes", "to"), [(2, 1), (3, 0), (8, 0)])
def test_message_for_a_queue_that_is_gone_goes_to_one_that_is_written_to(
    delays: Delays, writes: int, to: int
) -> None:
    """So a topic may shrink while delayed messages wait. Queues that nobody reads do not count."""
    delays.send(b"late", 1, queue_id=3)
    delays.rig.put_topic(TopicConfig(topic_name="TopicTest", read_queue_nums=3, write_queue_nums=writes))
    delays.rig.clock.ms += 1000
    assert delays.schedule.deliver(1).delivered == 1
    assert delays.bodies(to) == [b"late"] and delays.delivered(3) == []


def test_large_messages_take_several_turns(delays: Delays) -> None:
    for _ in range(5):
        delays.send(bytes(200_000), 1)
    delays.rig.clock.ms += 1000
    turns = []
    while (turn := delays.schedule.deliver(1)).delivered:
        turns.append(turn.delivered)
    assert sum(turns) == 5 and max(turns) < 5


def test_levels_do_not_wait_for_each_other(delays: Delays) -> None:
    delays.send(b"slow", 3)
    delays.send(b"fast", 1)
    delays.rig.clock.ms += 1000
    assert [delays.schedule.deliver(level).delivered for level in (3, 1)] == [0, 1]
    assert delays.bodies() == [b"fast"]


@pytest.mark.proves("broker:8.1")
def test_progress_survives_a_restart(tmp_path: Path) -> None:
    first = Delays(tmp_path / "store")
    for number in range(4):
        first.send(b"%d" % number, 1)
        first.rig.clock.ms += 500
    assert first.schedule.deliver(1).delivered == 3  # at 0, 500 and 1000
    assert first.schedule.progress()[1] == (3, 4)
    first.close()
    second = Delays(tmp_path / "store")
    second.rig.clock.ms += 60_000
    assert second.schedule.deliver(1).delivered == 1
    assert second.bodies() == [b"0", b"1", b"2", b"3"]
    second.close()


@pytest.mark.proves("broker:8.1")
def test_messages_may_repeat_but_are_not_lost_after_a_crash(tmp_path: Path) -> None:
    first = Delays(tmp_path / "store")
    first.send(b"a", 1)
    first.send(b"b", 4)
    first.rig.clock.ms += 1000
    assert first.schedule.deliver(1).delivered == 1
    first.close(save=False)
    second = Delays(tmp_path / "store")
    second.rig.clock.ms += 60_000
    assert [second.schedule.deliver(level).delivered for level in (1, 4)] == [1, 1]
    assert second.bodies() == [b"a", b"a", b"b"]
    second.close()


@pytest.mark.parametrize(("saved", "delivered"), [(-5, 2), (99, 0)])
def test_progress_outside_the_queue_is_moved_to_its_ends(delays: Delays, saved: int, delivered: int) -> None:
    delays.send(b"a", 1)
    delays.send(b"b", 1)
    delays.rig.clock.ms += 1000
    delays.offsets.set(1, saved)
    assert delays.schedule.deliver(1).delivered == delivered
    assert delays.offsets.get(1) == 2


@pytest.mark.parametrize(
    ("code", "waited", "due"),
    [
        (1500, None, 1500),
        (5000, None, 5000),
        (5000, 0, 1000 + 4000),  # stored at 1000
        (9000, 2000, 1000 + 6000),
        (9000, 8000, 1000),
        (1500, 0, 1500),
        (9**15, None, 1000),
    ],
)
def test_message_waits_for_the_delay_it_was_stored_with(code: int, waited: int | None, due: int) -> None:
    assert due_at(code, 1000, 1000, waited) == due


@pytest.mark.parametrize("part", ["body", "length"])
def test_damaged_message_is_skipped_and_its_level_continues(
    delays: Delays, part: str, caplog: pytest.LogCaptureFixture
) -> None:
    at = delays.rig.store.position
    for body in (b"damaged", b"good"):
        delays.send(body, 1)
    damage(delays.rig, at, part)
    delays.rig.clock.ms += 1000
    assert delays.schedule.deliver(1).delivered == 1 and delays.bodies() == [b"good"]
    assert f"the message at {at} is damaged" in caplog.text
    assert delays.schedule.progress()[1] == (2, 2)


YEAR_MS = 365 * 86_400_000


@pytest.mark.parametrize("restart", [False, True])
def test_no_message_of_a_level_is_early_or_waits_long_after_the_clock_was_set_back(
    tmp_path: Path, restart: bool
) -> None:
    delays = Delays(tmp_path / "store")
    delays.rig.clock.set_by(YEAR_MS)
    for body in (b"one of the wrong year", b"another"):
        delays.send(body, 4)
    delays.rig.clock.set_by(-YEAR_MS)
    if restart:
        now = delays.rig.clock.ms
        delays.close()
        delays = Delays(tmp_path / "store")
        delays.rig.clock.ms = now
    assert delays.schedule.deliver(4).next_due == delays.rig.clock.ms + 30_000
    delays.rig.clock.ms += 10_000
    delays.send(b"in time", 4)
    delays.rig.clock.ms += 19_999
    assert delays.schedule.deliver(4) == (0, False, delays.rig.clock.ms + 1)
    delays.rig.clock.ms += 1
    assert delays.schedule.deliver(4).delivered == 2
    delays.rig.clock.ms += 9_999
    assert delays.schedule.deliver(4).delivered == 0
    delays.rig.clock.ms += 1
    assert delays.schedule.deliver(4).delivered == 1
    assert delays.bodies() == [b"one of the wrong year", b"another", b"in time"]
    delays.close()


def test_new_messages_replace_messages_lost_in_a_power_failure(tmp_path: Path) -> None:
    """The progress was written to disk, the messages it counts were not."""
    delays = Delays(tmp_path / "store")
    delays.send(b"kept", 1)
    delays.offsets.set(1, 5)
    delays.close()
    delays = Delays(tmp_path / "store")
    for number in range(6):
        delays.send(b"%d" % number, 1)
    delays.rig.clock.ms += 1000
    assert delays.schedule.deliver(1).delivered == 6
    assert delays.bodies() == [b"%d" % number for number in range(6)]
    delays.close()


def test_messages_of_a_removed_level_are_delivered_at_their_time(tmp_path: Path) -> None:
    first = Delays(tmp_path / "store")
    first.send(b"a", 5)
    first.close()
    second = Delays(tmp_path / "store", "1s 5s")
    assert second.schedule.deliver(5).delivered == 0
    second.rig.clock.ms += 60_000
    assert second.schedule.deliver(5).delivered == 1
    second.send(b"b", 5)
    assert second.schedule.progress()[2] == (0, 1)
    second.close()


def test_shorter_level_leaves_waiting_messages_their_delay(tmp_path: Path) -> None:
    first = Delays(tmp_path / "store", "30s")
    first.send(b"a", 1)
    first.close()
    second = Delays(tmp_path / "store", "8s")
    second.rig.clock.ms += 29_999
    assert second.schedule.deliver(1).delivered == 0
    second.rig.clock.ms += 1
    assert second.schedule.deliver(1).delivered == 1
    second.close()


def test_unreadable_message_and_impossible_due_time_do_not_stop_a_level(delays: Delays) -> None:
    at = delays.rig.store.position
    delays.send(b"damaged", 1)
    damage(delays.rig, at, "length")
    delays.rig.inner.put([_raw(b"DELAY\x011\x02REAL_TOPIC\x01TopicTest\x02REAL_QID\x010\x02", 9**18)])
    assert delays.schedule.deliver(1).delivered == 1 and delays.bodies() == [b"raw"]


def test_due_times_survive_a_rebuild_with_other_levels(tmp_path: Path) -> None:
    first = Delays(tmp_path / "store")
    first.send(b"a", 2)
    due = first.rig.clock.ms + 5000
    first.rig.store.flush()
    first.rig.store.abandon()
    first.rig.pool.shutdown()
    second = Delays(tmp_path / "store", "1s 60s")
    entry = second.rig.store.queue(SCHEDULE_TOPIC, 1).entry(0)
    assert entry is not None and entry.tags_code == due
    second.close()


def test_more_than_eighteen_levels_are_supported(tmp_path: Path) -> None:
    delays = Delays(tmp_path / "store", " ".join(f"{n}s" for n in range(1, 31)))
    delays.send(b"x", 30)
    assert delays.schedule.deliver(30).next_due == delays.rig.clock.ms + 30_000
    delays.rig.clock.ms += 30_000
    assert delays.schedule.deliver(30).delivered == 1
    delays.close()


def test_message_without_its_target_or_for_the_half_topic_is_skipped(delays: Delays) -> None:
    delays.send(b"a", 1)
    for text in (b"DELAY\x011\x02", b"DELAY\x011\x02REAL_TOPIC\x01TopicTest\x02REAL_QID\x01x\x02"):
        delays.rig.inner.put([_raw(text)])
    delays.rig.inner.put([_raw(b"DELAY\x011\x02REAL_TOPIC\x01RMQ_SYS_TRANS_HALF_TOPIC\x02REAL_QID\x010\x02")])
    delays.send(b"b", 1)
    delays.rig.clock.ms += 1000
    assert delays.schedule.deliver(1).delivered == 2
    assert delays.bodies() == [b"a", b"b"]


def _raw(text: bytes, code: int = 1) -> InnerMessage:
    host = connection().born_host
    return InnerMessage(SCHEDULE_TOPIC, 0, b"raw", text, 0, 0, 1, host, tags_code=code)


def test_message_that_no_longer_fits_is_skipped_alone(tmp_path: Path) -> None:
    first = Delays(tmp_path / "store")
    for body in (b"a", bytes(300_000), b"c"):
        first.send(body, 1)
    first.close()
    second = Delays(tmp_path / "store")
    second.rig.store.append = _refusing(second.rig.store.append)
    second.rig.clock.ms += 1000
    second.schedule.deliver(1)
    assert second.bodies() == [b"a", b"c"] and second.offsets.get(1) == 3
    second.close()


def _refusing(append: Callable[..., Any]) -> Callable[..., Any]:
    from sparrowmq.core.errors import RecordError

    def limited(queue: Any, body: bytes, *args: Any, **kwargs: Any) -> Any:
        if len(body) > 1000:
            raise RecordError("too large now")
        return append(queue, body, *args, **kwargs)

    return limited


def test_full_disk_stops_a_level_until_there_is_space(
    delays: Delays, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays.send(b"a", 1)
    delays.rig.clock.ms += 1000

    def full() -> None:
        delays.rig.store.drop_chunk()
        raise StoreFullError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(delays.rig.store, "commit_chunk", full)
        with pytest.raises(StoreFullError):
            delays.schedule.deliver(1)
    assert delays.offsets.get(1) == 0
    assert delays.schedule.deliver(1).delivered == 1


@pytest.mark.parametrize("name", [CLEAN_5, KILLED_5])
def test_delayed_messages_of_a_real_brokers_directory_are_delivered(name: str, tmp_path: Path) -> None:
    root = copy_archive(name, tmp_path / "store")
    delays = Delays(root, mapped_file_size_consume_queue=2000)
    waits = {level: end - offset for level, (offset, end) in delays.schedule.progress().items()}
    assert sum(waits.values()) > 30
    delays.rig.clock.ms = 4_000_000_000_000
    before = {level: delays.offsets.get(level) for level in waits}
    delivered = dict.fromkeys(waits, 0)
    for level in waits:
        while (turn := delays.schedule.deliver(level)).delivered:
            delivered[level] += turn.delivered
    assert delivered == waits, before
    topics = {record.topic for record in delays.delivered(topic="FxDelay")}
    assert topics == {"FxDelay"}
    delays.close()


def test_task_delivers_and_survives_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        delays = Delays(tmp_path / "store")
        failures = iter([StoreFullError("full"), ValueError("odd")])
        real = Schedule.deliver

        def faulty(self: Schedule, level: int) -> Any:
            error = next(failures, None)
            if error is not None:
                raise error
            return real(self, level)

        monkeypatch.setattr(Schedule, "deliver", faulty)
        delays.send(b"a", 1)
        task = asyncio.create_task(delays.schedule.run())
        await until(lambda: next(failures, None) is None)
        assert delays.bodies() == []
        delays.rig.clock.ms += 1000
        await until(lambda: delays.bodies() == [b"a"])
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        delays.close()

    run(scenario())
