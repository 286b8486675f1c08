"""Directories of real Apache brokers open, and every message is where its clients saw it."""

from __future__ import annotations

import filecmp
import hashlib
import shutil
from pathlib import Path

import pytest
from tests.protocol.archives import CLEAN_4, CLEAN_5, KILLED_5, ledger, unpacked
from tests.store.rig import ARCHIVE_SIZES, copy_archive, open_store, opened, put, read_all

from sparrowmq.core.hashing import tags_code
from sparrowmq.protocol.compression import decompress
from sparrowmq.protocol.properties import decode as decode_properties
from sparrowmq.protocol.record import decode_record
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.queues.reads import GetStatus
from sparrowmq.store.tables.config_file import ConfigFile
from sparrowmq.store.tables.consumer_offsets import ConsumerOffsets

END = {CLEAN_5: 2807183, KILLED_5: 2902859, CLEAN_4: 2604639}
RECORDS = {CLEAN_5: 3626, KILLED_5: 3749, CLEAN_4: 3486}
ENTRIES = {CLEAN_5: 3586, KILLED_5: 3709, CLEAN_4: 3446}
ALL = (CLEAN_5, KILLED_5, CLEAN_4)


def queue_files(root: Path) -> dict[str, bytes]:
    """Every queue file that holds entries, by path."""
    found = {}
    for path in sorted((root / "consumequeue").rglob("*")):
        if path.is_file() and path.read_bytes().strip(b"\0"):
            found[str(path.relative_to(root))] = path.read_bytes()
    return found


def check_ledger(store: MessageStore, name: str) -> None:
    """Check what clients were told about queues and messages."""
    for line in ledger(name, "queue"):
        queue = store.find_queue(line["topic"], line["queueId"])
        if queue is None:
            assert (line["min"], line["max"]) == (0, 0), line
            continue
        assert queue.min_offset == line["min"]
        assert queue.max_offset >= line["max"]
    for line in ledger(name, "seen"):
        queue = store.find_queue(line["topic"], line["queueId"])
        assert queue is not None, line
        result = store.get_messages(queue, line["queueOffset"], max_count=1, max_bytes=1)
        assert (result.status, result.count) == (GetStatus.FOUND, 1)
        record = decode_record(b"".join(result.buffers), check_crc=True)
        assert (record.physical_offset, record.size) == (line["offset"], line["size"])
        assert (record.store_timestamp, record.born_timestamp) == (line["store"], line["born"])
        assert decode_properties(record.properties) == line["props"]
        body = decompress(record.body, record.sys_flag) if record.sys_flag & 1 else record.body
        assert hashlib.sha1(body).hexdigest() == line["bodySha1"]
        assert store.store_time(queue, line["queueOffset"]) == line["store"]
    for line in ledger(name, "send"):
        if line["kind"] == "transaction" or "queueOffset" not in line or line.get("offsetMsgId") is None:
            continue
        if line["topic"] == "FxGone":
            continue
        physical = int(line["offsetMsgId"][-16:], 16)
        data = store.read_record(physical)
        assert data is not None, line
        assert decode_record(data).queue_offset == line["queueOffset"]


@pytest.mark.proves("broker:1.1", "broker:2.8", "broker:18")
@pytest.mark.parametrize("name", ALL)
def test_real_directory_opens_with_all_messages(name: str, tmp_path: Path) -> None:
    root = copy_archive(name, tmp_path / "store")
    with opened(root, **ARCHIVE_SIZES) as store:
        assert store.position == END[name]
        assert store.recovery.clean is (name != KILLED_5)
        assert store.recovery.damaged == ()
        assert store.recovery.dropped == 0
        assert (
            sum(queue.max_offset for topic in store.topics() for queue in store.queues(topic))
            >= ENTRIES[name]
        )
        check_ledger(store, name)


@pytest.mark.parametrize("name", [CLEAN_5, CLEAN_4])
def test_opening_and_closing_leaves_a_clean_directory_unchanged(name: str, tmp_path: Path) -> None:
    root = copy_archive(name, tmp_path / "store")
    open_store(root, **ARCHIVE_SIZES).close()
    original = unpacked(name)
    for directory in ("commitlog", "config"):
        compared = filecmp.dircmp(original / directory, root / directory)
        assert not (compared.left_only or compared.right_only or compared.diff_files)
    assert queue_files(root) == queue_files(original)
    assert not (root / "abort").exists()
    assert (root / "lock").read_bytes() == b"lock"
    assert (root / "checkpoint").stat().st_size == 4096


@pytest.mark.proves("broker:18", "broker:2.9")
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("abort", [True, False])
def test_lost_queues_are_rebuilt_with_the_checkpoint_kept(name: str, abort: bool, tmp_path: Path) -> None:
    root = copy_archive(name, tmp_path / "store")
    shutil.rmtree(root / "consumequeue")
    (root / "abort").unlink(missing_ok=True)
    if abort:
        (root / "abort").touch()
    with opened(root, **ARCHIVE_SIZES) as store:
        assert store.position == END[name]
        assert store.recovery.records == RECORDS[name]
        assert store.recovery.refused == 0
        check_ledger(store, name)
        store.delete_topic("FxGone")  # its records are in the log, so rebuilding brings it back
    assert queue_files(root) == queue_files(unpacked(name))


@pytest.mark.proves("broker:18", "broker:2.9")
def test_killed_store_is_scanned_only_from_its_checkpoint(tmp_path: Path) -> None:
    root = copy_archive(KILLED_5, tmp_path / "store")
    with opened(root, **ARCHIVE_SIZES) as store:
        assert store.recovery.start == 2097152
        assert store.recovery.cut == 0
        assert store.recovery.added == 40  # the deleted topic's, as in the reference (broker:18-2)
        assert sum(queue.max_offset for queue in store.queues("FxGone")) == 40
        assert not (root / "commitlog" / "00000000000003145728").exists()


@pytest.mark.proves("broker:18")
def test_one_lost_queue_is_found_by_the_gap_before_its_later_records(tmp_path: Path) -> None:
    root = copy_archive(KILLED_5, tmp_path / "store")
    shutil.rmtree(root / "consumequeue" / "FxPlainA" / "0")
    with opened(root, **ARCHIVE_SIZES) as store:
        assert store.recovery.start == 0
        check_ledger(store, KILLED_5)
    assert queue_files(root).items() >= queue_files(unpacked(KILLED_5)).items()


@pytest.mark.proves("broker:2.11")
def test_new_messages_follow_those_of_the_real_broker(tmp_path: Path) -> None:
    root = copy_archive(CLEAN_5, tmp_path / "store")
    with opened(root, **ARCHIVE_SIZES) as store:
        queue = store.queue("FxPlainA", 1)
        before = [record.body for record in read_all(store, queue)]
        last = queue.max_offset
        assert put(store, queue, b"ours") == (last, END[CLEAN_5])
    with opened(root, **ARCHIVE_SIZES) as store:
        queue = store.queue("FxPlainA", 1)
        assert [record.body for record in read_all(store, queue)] == [*before, b"ours"]


@pytest.mark.proves("broker:3.1")
@pytest.mark.parametrize("name", ALL)
def test_entries_have_the_codes_of_the_tags(name: str, tmp_path: Path) -> None:
    root = copy_archive(name, tmp_path / "store")
    with opened(root, **ARCHIVE_SIZES) as store:
        queue = store.queue("FxPlainA", 0)
        wanted = [r for r in read_all(store, queue) if decode_properties(r.properties).get("TAGS") == "TagA"]
        codes = frozenset({tags_code("TagA")})
        found = []
        offset = 0
        while offset < queue.max_offset:
            result = store.get_messages(queue, offset, max_count=32, max_bytes=1 << 20, codes=codes)
            data = b"".join(result.buffers)
            while data:
                found.append(decode_record(data))
                data = data[found[-1].size :]
            offset = result.next_offset
        assert wanted
        assert found == wanted


@pytest.mark.parametrize("name", ALL)
def test_consumer_offsets_of_real_brokers_are_read(name: str) -> None:
    offsets = ConsumerOffsets.load(ConfigFile(unpacked(name) / "config" / "consumerOffset.json"))
    lines = [line for line in ledger(name, "offset") if line["topic"] != "FxGone" and line["offset"] >= 0]
    assert lines
    for line in lines:
        assert offsets.query(line["topic"], line["group"], line["queueId"]) == line["offset"]
