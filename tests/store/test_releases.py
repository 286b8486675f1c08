"""Directories of our earlier releases open with today's code, with every message and offset."""

from __future__ import annotations

import json
import lzma
import tarfile
from pathlib import Path

import pytest
from tests.protocol.archives import STORES
from tests.store.offline.directories import checked, kinds
from tests.store.rig import opened, put, query, read_all

from sparrowmq.core.names import SCHEDULE_TOPIC
from sparrowmq.protocol.record import decode_record
from sparrowmq.store.tables.config_file import ConfigFile

SIZES = {
    "mapped_file_size_commit_log": 65536,
    "mapped_file_size_consume_queue": 2000,
    "max_hash_slot_num": 200,
    "max_index_num": 1000,
}
RELEASES = sorted(path.name.removesuffix(".tar.xz") for path in STORES.glob("sparrow-*.tar.xz"))


def test_directories_of_earlier_releases_exist() -> None:
    assert len(RELEASES) >= 2


@pytest.mark.parametrize("name", RELEASES)
def test_directory_of_an_earlier_release_is_intact_and_can_be_continued(name: str, tmp_path: Path) -> None:
    with tarfile.open(STORES / f"{name}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    root = tmp_path / name / "store"
    with lzma.open(STORES / f"{name}.jsonl.xz", "rt", encoding="utf-8") as ledger:
        lines = [json.loads(line) for line in ledger]
    assert len(lines) == 300
    assert kinds(checked(root)) == set()
    with opened(root, **SIZES) as store:
        assert store.recovery.clean
        assert store.recovery.added == store.recovery.dropped == store.recovery.replaced == 0
        for topic, queue_id, offset, body, key in lines:
            record = read_all(store, store.queue(topic, queue_id), offset)[0]
            assert (record.queue_offset, record.body.decode()) == (offset, body)
            (found,) = query(store, topic, key, 2, 0, 2**62)
            assert decode_record(found).physical_offset == record.physical_offset
        assert "Gone" not in store.topics()
        assert sum(queue.max_offset for queue in store.queues(SCHEDULE_TOPIC)) == 2
        assert [record.body for queue in store.queues("Later") for record in read_all(store, queue)] == [
            b"level 1"
        ]
        put(store, store.queue("Orders", 0), b"today")
    assert kinds(checked(root)) == set()
    table = ConfigFile(root / "config" / "consumerOffset.json").load()["offsetTable"]["Orders@readers"]
    assert sum(table.values()) == 300
