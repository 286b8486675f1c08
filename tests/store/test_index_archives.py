"""The index of real brokers: ours reads it, and indexes the same log to the same bytes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.protocol.archives import CLEAN_4, CLEAN_5, KILLED_5, ledger, unpacked
from tests.store.rig import ARCHIVE_SIZES, ManualClock, copy_archive, open_store, opened, query

from sparrowmq.protocol.properties import decode as decode_properties
from sparrowmq.protocol.record import StoredRecord, decode_record
from sparrowmq.store.index.index import KEY, TAG
from sparrowmq.store.index.index_file import FIRST
from sparrowmq.store.message_store import MessageStore

SIZES: dict[str, Any] = {**ARCHIVE_SIZES, "max_hash_slot_num": 200, "max_index_num": 1000}
FOREVER = 2**62
KEYS = {CLEAN_5: 10381, KILLED_5: 10750, CLEAN_4: 6890}


def archive(name: str, root: Path, *, index: bool = True) -> Path:
    """A copy of a real broker's directory, with or without its index files."""
    copy_archive(name, root)
    if index:
        shutil.copytree(unpacked(name) / "index", root / "index")
    return root


def found(store: MessageStore, topic: str, key: str, kind: str = KEY) -> list[StoredRecord]:
    """The results a client would keep of a query: records that really have the key."""
    records = [decode_record(data) for data in query(store, topic, key, 64, 0, FOREVER, kind=kind)]
    kept = []
    for record in records:
        own = decode_properties(record.properties)
        keys = [*own.get("KEYS", "").split(" "), own.get("UNIQ_KEY")]
        if key in ([own.get("TAGS")] if kind == TAG else keys) and record.topic == topic:
            kept.append(record)
    return kept


def check_ledger(store: MessageStore, name: str) -> int:
    """Check that every acknowledged send is found by its unique key and each of its keys; returns the
    number of look-ups."""
    looked = 0
    for line in ledger(name, "send"):
        if line["kind"] not in ("plain", "compressed", "ordered") or "queueOffset" not in line:
            continue
        for key in {line["msgId"], *(line.get("keys") or "").split(" ")} - {""}:
            looked += 1
            places = [(r.queue_id, r.queue_offset) for r in found(store, line["topic"], key)]
            assert (line["queueId"], line["queueOffset"]) in places or len(places) == 64, (key, line)
    return looked


@pytest.mark.proves("broker:4.1", "broker:4.3")
@pytest.mark.parametrize("name", [CLEAN_5, CLEAN_4])
def test_index_of_a_real_broker_is_read(name: str, tmp_path: Path) -> None:
    root = archive(name, tmp_path / "store")
    with opened(root, **SIZES) as store:
        assert sum(file.header.count - FIRST for file in store.index.files) == KEYS[name]
        assert check_ledger(store, name) > 100


@pytest.mark.proves("broker:4.3")
@pytest.mark.parametrize("name", [CLEAN_5, CLEAN_4, KILLED_5])
def test_queries_find_what_java_clients_found(name: str, tmp_path: Path) -> None:
    root = archive(name, tmp_path / "store")
    with opened(root, **SIZES) as store:
        while store.follow_index(10_000):
            pass
        lines = ledger(name, "query")
        assert lines
        for line in lines:
            told = set(line["found"]) - {"none"}
            last = max((int(text.rpartition("@")[2]) for text in told), default=-1)
            answers = {
                f"{decode_properties(r.properties)['UNIQ_KEY']}@{r.queue_id}:{r.queue_offset}@{r.physical_offset}"
                for r in found(store, line["topic"], line["key"])
                if r.physical_offset <= last  # transactions were checked again after the question
            }
            assert answers == told, line


@pytest.mark.proves("broker:4.1", "broker:4.2")
def test_same_log_gives_the_same_files(tmp_path: Path) -> None:
    """Equal to the last byte; only the names differ, which are creation times."""
    root = archive(CLEAN_5, tmp_path / "store", index=False)
    with opened(root, **SIZES) as store:
        while store.follow_index(37):
            pass
    theirs = [path.read_bytes() for path in sorted((unpacked(CLEAN_5) / "index").iterdir())]
    ours = [path.read_bytes() for path in sorted((root / "index").iterdir())]
    assert len(ours) == len(theirs) == 11
    assert ours == theirs


@pytest.mark.proves("broker:1.5", "broker:4.2")
def test_newest_file_is_rebuilt_after_a_crash(tmp_path: Path) -> None:
    """It was never flushed as a whole, so nothing in it is trusted (broker:18-1)."""
    root = archive(KILLED_5, tmp_path / "store")
    newest = max((root / "index").iterdir())
    store = open_store(root, **SIZES)
    assert len(store.index.files) == 10
    assert not newest.exists()
    assert 0 < store.index.behind < 400_000
    while store.follow_index(100):
        pass
    assert sum(file.header.count - FIRST for file in store.index.files) >= KEYS[KILLED_5] - 2
    assert check_ledger(store, KILLED_5) > 100
    store.close()


@pytest.mark.proves("broker:4.1")
def test_directory_with_files_of_other_sizes_gets_a_new_index(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = archive(CLEAN_5, tmp_path / "store")
    with opened(root, **{**SIZES, "max_index_num": 20_000}) as store:
        assert "maxHashSlotNum and maxIndexNum" in caplog.text
        assert store.index.files == []
        while store.follow_index(10_000):
            pass
        (file,) = store.index.files
        assert file.header.count - FIRST == KEYS[CLEAN_5]
        assert check_ledger(store, CLEAN_5) > 100


def test_opening_and_closing_changes_no_index_file(tmp_path: Path) -> None:
    root = archive(CLEAN_5, tmp_path / "store")
    open_store(root, clock=ManualClock(), **SIZES).close()
    for path in sorted((unpacked(CLEAN_5) / "index").iterdir()):
        assert (root / "index" / path.name).read_bytes() == path.read_bytes()
    assert len(list((root / "index").iterdir())) == 11


@pytest.mark.proves("broker:4.1")
def test_tags_are_found_too(tmp_path: Path) -> None:
    root = archive(CLEAN_5, tmp_path / "store")
    with opened(root, **SIZES) as store:
        records = found(store, "FxPlainA", "TagA", TAG)
        assert len(records) > 10
        assert found(store, "FxPlainA", "TagA", KEY) == []
