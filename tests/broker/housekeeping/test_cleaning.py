"""Old files are deleted, and everything that points to them is updated."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.store.rig import LOG_BYTES, ManualClock, append, bodies_of, open_store, opened, query, read_all
from tests.support import run

from sparrowmq.broker.housekeeping import cleaning
from sparrowmq.broker.housekeeping.cleaning import Cleaner, retention
from sparrowmq.broker.housekeeping.unread import UnreadDeletions, UnreadSpan
from sparrowmq.core.settings.servers import BrokerSettings
from sparrowmq.protocol.record import decode_records
from sparrowmq.store.log.retention import HOUR_MS
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.queues.reads import GetStatus
from sparrowmq.store.tables.config_file import ConfigFile
from sparrowmq.store.tables.consumer_offsets import ConsumerOffsets

FOREVER = 2**62
SETTINGS: dict[str, Any] = {
    "delete_when": "00;01;02;03;04;05;06;07;08;09;10;11;12;13;14;15;16;17;18;19;20;21;22;23",
    "disk_max_used_space_ratio": 100,
    "disk_space_clean_forcibly_ratio": 100,
    "delete_commit_log_files_interval": 0,
}


@asynccontextmanager
async def cleaned(root: Path, **changes: Any) -> AsyncIterator[tuple[MessageStore, Cleaner]]:
    clock = ManualClock()
    store = open_store(root, clock=clock)
    settings = BrokerSettings(store_path_root_dir=root, **SETTINGS | changes)
    with ThreadPoolExecutor(1) as pool:
        try:
            yield store, Cleaner(settings, store, pool, clock)
        finally:
            store.close()


def fill(store: MessageStore, count: int, topic: str = "T", first: int = 0) -> None:
    queue = store.queue(topic, 0)
    for number in range(first, first + count):
        append(store, queue, b"%d" % number, properties=b"KEYS\x01k%d\x02" % number)
    store.commit_chunk()
    store.flush()
    store.flush_queues()
    while store.follow_index(1000):
        pass


def age(store: MessageStore, hours: float, files: int = 1000) -> None:
    """Make the log's oldest files appear this many hours old."""
    then = ManualClock().ms / 1000 - hours * HOUR_MS / 1000
    for segment in list(store._log.files)[:files]:
        os.utime(segment.path, (then, then))


def names(root: Path) -> list[int]:
    return sorted(int(path.name) for path in (root / "commitlog").iterdir())


def test_settings_are_used_for_the_decision() -> None:
    settings = BrokerSettings(file_reserved_time=5, delete_when="03;17", delete_file_batch_max=7)
    found = retention(settings)
    assert (found.reserved_hours, found.delete_when, found.batch_max) == (5, frozenset({3, 17}), 7)
    assert (found.used_max, found.forcibly_above, found.forcibly) == (75, 85, True)


@pytest.mark.proves("broker:2.7", "broker:3.4")
def test_expired_files_are_deleted_and_minimum_offsets_advance(tmp_path: Path) -> None:
    async def main() -> None:
        async with cleaned(tmp_path) as (store, cleaner):
            fill(store, 200)
            queue = store.queue("T", 0)
            before = names(tmp_path)
            everything = read_all(store, queue)
            assert await cleaner.clean() == 0
            age(store, 73, files=3)
            assert await cleaner.clean() == 3
            assert names(tmp_path) == before[3:]
            assert store.min_position == 3 * LOG_BYTES
            kept = [record for record in everything if record.physical_offset >= store.min_position]
            assert queue.min_offset == kept[0].queue_offset > 0
            assert read_all(store, queue) == kept
            assert (tmp_path / "consumequeue/T/0" / f"{0:020d}").exists() == (queue.min_offset < 10)
            assert query(store, "T", "k0", 1, 0, FOREVER) == []
            last = decode_records(query(store, "T", "k199", 1, 0, FOREVER)[0])[0]
            assert last.queue_offset == 199

    run(main())


@pytest.mark.proves("broker:2.7", "broker:5.1")
def test_read_below_the_minimum_returns_the_next_offset(tmp_path: Path) -> None:
    async def main() -> None:
        async with cleaned(tmp_path) as (store, cleaner):
            fill(store, 200)
            age(store, 100, files=2)
            await cleaner.clean()
            queue = store.queue("T", 0)
            low = queue.min_offset
            for offset in (0, low - 1, -5):
                result = store.get_messages(queue, offset, max_count=1, max_bytes=1)
                assert (result.status, result.next_offset) == (GetStatus.OFFSET_TOO_SMALL, low)

    run(main())


@pytest.mark.proves("broker:2.7")
def test_reader_keeps_its_buffers_when_their_file_is_deleted(tmp_path: Path) -> None:
    async def main() -> None:
        async with cleaned(tmp_path) as (store, cleaner):
            fill(store, 200)
            result = store.get_messages(store.queue("T", 0), 0, max_count=20, max_bytes=10_000)
            copies = [bytes(view) for view in result.buffers]
            age(store, 100)
            assert await cleaner.clean() > 0
            assert store.min_position > 0
            assert [bytes(view) for view in result.buffers] == copies
            assert [record.body for record in decode_records(b"".join(copies))][:2] == [b"0", b"1"]

    run(main())


@pytest.mark.proves("broker:2.7")
def test_current_file_stays_and_an_empty_queue_remembers_its_end(tmp_path: Path) -> None:
    async def main() -> None:
        async with cleaned(tmp_path) as (store, cleaner):
            fill(store, 30, "Old")
            fill(store, 200)
            age(store, 100)
            while await cleaner.clean():
                pass
            assert len(names(tmp_path)) == 1
            old = store.queue("Old", 0)
            assert (old.min_offset, old.max_offset) == (30, 30)
            status = store.get_messages(old, 29, max_count=1, max_bytes=1).status
            assert status is GetStatus.OFFSET_TOO_SMALL
            assert (
                store.get_messages(old, 30, max_count=1, max_bytes=1).status is GetStatus.OFFSET_OVERFLOW_ONE
            )
            assert len(list((tmp_path / "consumequeue/Old/0").iterdir())) == 1
            fill(store, 1, "Old", 30)
            assert (old.min_offset, old.max_offset) == (30, 31)
            assert len(store.index.files) <= 2

    run(main())


@pytest.mark.proves("broker:2.7", "broker:2.8", "broker:2.9")
@pytest.mark.parametrize("clean", [True, False])
def test_store_without_its_first_files_opens(clean: bool, tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        store = open_store(tmp_path, clock=clock)
        with ThreadPoolExecutor(1) as pool:
            cleaner = Cleaner(BrokerSettings(**SETTINGS), store, pool, clock)
            fill(store, 30, "Old")
            fill(store, 200)
            age(store, 100, files=4)
            assert await cleaner.clean() == 4
            expected, low = bodies_of(store, "T"), store.queue("T", 0).min_offset
            store.close() if clean else store.abandon()
            with opened(tmp_path) as again:
                assert again.recovery.clean is clean
                assert (again.recovery.damaged, again.recovery.refused) == ((), 0)
                assert bodies_of(again, "T") == expected
                assert again.queue("T", 0).min_offset == low
                assert again.queue("Old", 0).max_offset == 30

    run(main())


def test_lost_queues_begin_at_their_first_record(tmp_path: Path) -> None:
    async def main() -> None:
        async with cleaned(tmp_path) as (store, cleaner):
            fill(store, 200)
            age(store, 100, files=4)
            await cleaner.clean()
            store.close()
            expected = [b"%d" % n for n in range(store.queue("T", 0).min_offset, 200)]
            shutil.rmtree(tmp_path / "consumequeue")
            with opened(tmp_path) as again:
                assert bodies_of(again, "T") == expected

    run(main())


@pytest.mark.proves("broker:2.7")
def test_manual_request_runs_twenty_passes(tmp_path: Path) -> None:
    async def main() -> None:
        hour = "05" if asyncio.get_running_loop() and _hour() != 5 else "06"
        async with cleaned(tmp_path, delete_when=hour, delete_file_batch_max=1) as (store, cleaner):
            fill(store, 200)
            age(store, 100)
            assert await cleaner.clean() == 0
            cleaner.ask()
            assert await cleaner.clean() == 1
            for _ in range(18):
                await cleaner.clean()
            fill(store, 200, "U")
            age(store, 100)
            assert await cleaner.clean() == 1
            assert await cleaner.clean() == 0

    run(main())


def _hour() -> int:
    import time

    return time.localtime(ManualClock().ms / 1000).tm_hour


@pytest.mark.proves("broker:2.7")
def test_full_disk_deletes_the_oldest_file_and_logs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with cleaned(tmp_path, disk_space_clean_forcibly_ratio=85) as (store, cleaner):
            fill(store, 200)
            age(store, 0)
            monkeypatch.setattr(store, "used_percent", lambda: 85)
            assert await cleaner.clean() == 0
            monkeypatch.setattr(store, "used_percent", lambda: 86)
            assert await cleaner.clean() > 0
            assert "messages are deleted before their retention time" in caplog.text

    run(main())


def test_file_that_cannot_be_deleted_stays_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with cleaned(tmp_path) as (store, cleaner):
            fill(store, 200)
            before = bodies_of(store, "T")
            age(store, 100, files=3)

            def refuse(paths: object) -> None:
                raise PermissionError(1, "Operation not permitted")

            with monkeypatch.context() as patch:
                patch.setattr(cleaning, "_delete", refuse)
                with pytest.raises(PermissionError):
                    await cleaner.clean()
            assert "cannot be deleted: Operation not permitted" in caplog.text
            assert bodies_of(store, "T") == before
            assert await cleaner.clean() == 3
            assert len(bodies_of(store, "T")) < 200

    run(main())


def counted(root: Path, store: MessageStore, cleaner: Cleaner, **bounds: int) -> UnreadDeletions:
    """Let the cleaner count what group `g` had not consumed."""
    offsets = ConsumerOffsets(ConfigFile(root / "offsets.json"))
    offsets.commit("T", "g", 0, 5)
    cleaner._unread = unread = UnreadDeletions(store, offsets, **bounds)
    return unread


def test_deleted_messages_that_a_group_had_not_consumed_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with cleaned(tmp_path) as (store, cleaner):
            fill(store, 200)
            unread = counted(tmp_path, store, cleaner)
            queue = store.queue("T", 0)
            unread._offsets.commit("T", "at the end", 0, 200)
            unread._offsets.commit("%DLQ%T", "g", 0, 0)
            times = [record.store_timestamp for record in read_all(store, queue)]
            age(store, 73, files=3)
            assert await cleaner.clean() == 3
            first = queue.min_offset
            expected = UnreadSpan(first - 5, times[5], times[first - 1])
            assert unread.by_pair == {("T", "g"): expected}
            assert "messages of T that group g had not consumed, stored from 2023-11-14T" in caplog.text
            age(store, 73, files=1)
            await cleaner.clean()
            assert unread.by_pair["T", "g"].messages == queue.min_offset - 5 > first - 5
            unread._offsets.commit("T", "g", 0, 200)
            age(store, 73, files=1)
            assert await cleaner.clean() == 1
            assert unread.by_pair["T", "g"].messages < queue.min_offset - 5, "it had consumed these"

    run(main())


def test_messages_of_a_file_that_stays_do_not_count_as_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with cleaned(tmp_path) as (store, cleaner):
            fill(store, 200)
            unread = counted(tmp_path, store, cleaner)
            age(store, 100, files=3)

            def refuse(paths: object) -> None:
                raise PermissionError(1, "Operation not permitted")

            with monkeypatch.context() as patch:
                patch.setattr(cleaning, "_delete", refuse)
                with pytest.raises(PermissionError):
                    await cleaner.clean()
            assert unread.by_pair == {}

    run(main())


def test_pairs_beyond_the_limit_count_together(tmp_path: Path) -> None:
    async def main() -> None:
        async with cleaned(tmp_path) as (store, cleaner):
            unread = counted(tmp_path, store, cleaner, pairs_max=1)
            lost = UnreadSpan(2, 7, 8)
            assert list(unread.adding({("T", "gone"): lost})) == []
            more = {("T", "g"): lost, ("T", "h"): UnreadSpan(3), ("T", "i"): UnreadSpan(4, 5, 6)}
            assert list(unread.adding(more)) == []
            assert unread.by_pair == {("T", "g"): lost, ("", ""): UnreadSpan(7, 5, 6)}

    run(main())
