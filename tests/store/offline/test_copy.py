"""Copies of directories have the same messages at the same offsets of their queues."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.protocol.archives import CLEAN_4, CLEAN_5, KILLED_5, unpacked
from tests.store.damage import flip
from tests.store.offline.directories import fill, filled, kinds
from tests.store.offline.test_backup import queue_ends, records
from tests.store.rig import LOG_BYTES, ManualClock, open_store, opened, put, read_all
from tests.support import about

from sparrowmq.core.errors import NoStoreError
from sparrowmq.protocol.record import StoredRecord
from sparrowmq.store.offline.copy import copy
from sparrowmq.store.offline.directory import StoreDirectory
from sparrowmq.store.offline.verify import VerifyReport


def copied(root: Path, target: Path, *topics: str) -> VerifyReport:
    directory = StoreDirectory.open(root)
    try:
        return copy(directory, target, ManualClock(), topics=topics)
    finally:
        directory.close()


def facts(found: list[StoredRecord], *topics: str) -> list[tuple[object, ...]]:
    """The properties of records that a copy of topics keeps."""
    return [
        (
            one.topic,
            one.queue_id,
            one.queue_offset,
            one.body,
            one.properties,
            one.store_timestamp,
            one.born_host,
        )
        for one in found
        if not topics or one.topic in topics
    ]


@pytest.mark.parametrize("name", ["ours", CLEAN_5, KILLED_5, CLEAN_4])
def test_full_copy_is_identical(name: str, tmp_path: Path) -> None:
    root = filled() if name == "ours" else unpacked(name)
    report = copied(root, tmp_path / "copy")
    assert kinds(report) == set()
    assert records(tmp_path / "copy") == records(root)
    assert queue_ends(tmp_path / "copy") == queue_ends(root)


@pytest.mark.parametrize("name", [CLEAN_5, CLEAN_4])
def test_copy_of_topics_has_their_messages_at_their_offsets(name: str, tmp_path: Path) -> None:
    root, topics = unpacked(name), ("FxPlainB", "FxBatch")
    report = copied(root, tmp_path / "copy", *topics)
    assert kinds(report) == set()
    assert facts(records(tmp_path / "copy")) == facts(records(root), *topics)
    ends = {key: end for key, end in queue_ends(root).items() if key[0] in topics}
    assert queue_ends(tmp_path / "copy") == ends
    sizes = {"mapped_file_size_commit_log": 1 << 20, "mapped_file_size_consume_queue": 2000}
    with opened(tmp_path / "copy", **sizes, max_hash_slot_num=200, max_index_num=1000) as store:
        assert store.topics() == sorted(topics)
        assert store.recovery.added == store.recovery.dropped == 0
        assert store.recovery.start == store.position, "nothing has to be scanned again"


def test_topic_with_deleted_first_messages_is_copied(tmp_path: Path) -> None:
    root = tmp_path / "store"
    fill(root)
    store = open_store(root)
    store.forget_log_file().path.unlink()
    for queue in store.all_queues():
        for path in store.trim(queue):
            path.unlink()
    store.close()
    report = copied(root, tmp_path / "copy", "Orders")
    assert kinds(report) == set()
    assert facts(records(tmp_path / "copy")) == facts(records(root), "Orders")
    with opened(tmp_path / "copy") as store:
        assert store.min_position == LOG_BYTES
        queue = store.queue("Orders", 0)
        assert queue.min_offset == read_all(store, queue)[0].queue_offset > 0
        assert store.recovery.start == store.position


def test_damaged_messages_are_omitted(tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(filled(), root)
    flip(root, records(root)[6].physical_offset + 90)
    report = copied(root, tmp_path / "copy", "Orders", "Bills")
    assert kinds(report) == set()
    assert report.records == 59
    with opened(tmp_path / "copy") as store:
        assert sum(len(read_all(store, queue)) for queue in store.all_queues()) == 59


def test_deleted_topic_is_not_copied(tmp_path: Path) -> None:
    root = tmp_path / "store"
    fill(root)
    with opened(root) as store:
        store.delete_topic("Orders")
        put(store, store.queue("Orders", 0), b"again")
    copied(root, tmp_path / "copy", "Orders")
    assert [record.body for record in records(tmp_path / "copy")] == [b"again"]
    copied(root, tmp_path / "whole")
    with opened(tmp_path / "whole") as store:
        assert store.queue("Orders", 0).max_offset == 1


def test_impossible_copies_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NoStoreError, check=about(what="topic", value="Nothing")):
        copied(filled(), tmp_path / "copy", "Nothing")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(NoStoreError, check=about(value=tmp_path / "full")):
        copied(filled(), tmp_path / "full")
    assert [path.name for path in tmp_path.iterdir()] == ["full"]
