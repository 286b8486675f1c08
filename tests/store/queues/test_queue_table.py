from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from tests.store.damage import crashed
from tests.store.rig import bodies_of, fill, open_store, opened
from tests.support import about

from sparrowmq.core.errors import StoreCorruptError, StoreError


def test_queues_are_created_on_demand_and_once(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        assert store.find_queue("T", 0) is None
        queue = store.queue("T", 0)
        assert store.queue("T", 0) is queue
        assert store.find_queue("T", 0) is queue
        assert store.find_queue("T", 1) is None
        assert store.queues("T") == [queue]
        assert store.queues("U") == []
        store.queue("T", 11), store.queue("T", 2), store.queue("A", 0)
        assert [queue.queue_id for queue in store.queues("T")] == [0, 2, 11]
        assert store.topics() == ["A", "T"]
        assert [[queue.queue_id for queue in topic] for topic in store.each_topic()] == [[0, 11, 2], [0]]
        topics = store.each_topic()
        next(topics)
        store.queue("B", 0)
        store.delete_topic("A")
        assert list(topics) == [[]], "the loop may change the table meanwhile"
    assert not (tmp_path / "consumequeue").exists()


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "/", "a\0b"])
def test_names_that_are_no_directory_are_refused(topic: str, tmp_path: Path) -> None:
    with opened(tmp_path) as store, pytest.raises(StoreError, check=about(what="queue", value=(topic, 0))):
        store.queue(topic, 0)


@pytest.mark.parametrize("queue_id", [-1, 1 << 31])
def test_queue_ids_have_31_bits(queue_id: int, tmp_path: Path) -> None:
    with (
        opened(tmp_path) as store,
        pytest.raises(StoreError, check=about(what="queue", value=("T", queue_id))),
    ):
        store.queue("T", queue_id)


@pytest.mark.parametrize("topic", ["%RETRY%g", "%DLQ%g", "a|b", "T-1_x", "t" * 127, "%RETRY%" + "g" * 120])
def test_all_legal_names_are_directories(topic: str, tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        bodies = fill(store, store.queue(topic, 0), 2)
    assert (tmp_path / "consumequeue" / topic / "0").is_dir()
    with opened(tmp_path) as store:
        assert bodies_of(store, topic) == bodies


def test_foreign_files_and_directories_are_not_changed(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        fill(store, store.queue("T", 0), 2)
    foreign = [tmp_path / "consumequeue" / "T" / name for name in ("notes", "x1", "²")]
    for directory in foreign:
        directory.mkdir()
    (tmp_path / "consumequeue" / "file").write_bytes(b"x")
    crashed(tmp_path)
    with opened(tmp_path) as store:
        assert store.topics() == ["T"]
        store.delete_topic("T")
    assert all(directory.exists() for directory in foreign)


def test_wrong_file_size_names_the_setting(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        fill(store, store.queue("T", 0), 2)
    with pytest.raises(
        StoreCorruptError, check=about(what="mappedFileSizeConsumeQueue", value=200, limit=400)
    ):
        open_store(tmp_path, mapped_file_size_consume_queue=400)
    with opened(tmp_path) as store:
        assert bodies_of(store, "T") == [b"m0", b"m1"]


def test_unreadable_directory_is_a_store_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as store:
        fill(store, store.queue("T", 0), 2)
    real = os.scandir

    def refused(path: object) -> object:
        if str(path).endswith("consumequeue"):
            raise OSError(errno.EACCES, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(StoreError, check=about(what="read", value=tmp_path / "consumequeue")):
        open_store(tmp_path)


def test_deleting_removes_only_the_topic(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        for topic in ("A", "B"):
            for queue_id in (0, 1):
                fill(store, store.queue(topic, queue_id), 12)
        old = store.queue("A", 0)
        store.delete_topic("A")
        store.delete_topic("A")
        store.delete_topic("Never")
        assert [path.name for path in (tmp_path / "consumequeue").iterdir()] == ["B"]
        assert store.topics() == ["B"]
        assert store.queue("A", 0) is not old
        bodies = fill(store, store.queue("A", 0), 3)
    with opened(tmp_path) as store:
        assert bodies_of(store, "A") == bodies
        assert [queue.max_offset for queue in store.queues("B")] == [12, 12]
