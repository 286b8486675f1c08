"""Truncating the end of a log, and opening the store afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.store.rig import bodies_of, opened, put, small
from tests.support import about

from sparrowmq.core.errors import StoreCorruptError, StoreFullError, StoreLockedError
from sparrowmq.files import disk
from sparrowmq.store import cut as cut_module
from sparrowmq.store.cut import cut_log
from sparrowmq.store.tables.epochs import EpochFile, EpochTable

NOW = 1_700_000_000_000


def filled(root: Path, count: int = 60) -> list[int]:
    """Where the messages of a store in two queues begin, and its end."""
    places = []
    with opened(root) as store:
        queues = [store.queue("T", number) for number in range(2)]
        for number in range(count):
            places.append(put(store, queues[number % 2], b"%d" % number + bytes(200))[1])
        places.append(store.position)
    return places


@pytest.mark.parametrize("keep", [1, 7, 29, 59])
def test_records_before_the_cut_stay_and_later_ones_are_saved_aside(tmp_path: Path, keep: int) -> None:
    places = filled(tmp_path)
    position, end = places[keep], places[-1]
    log = b"".join(path.read_bytes() for path in sorted((tmp_path / "commitlog").iterdir()))
    EpochFile(tmp_path).save(EpochTable(((1, 0), (2, position))))
    kept = cut_log(small(tmp_path), position, end, NOW)
    assert kept.name == f"{NOW}-{position:020d}" and kept.read_bytes() == log[position:end]
    assert EpochFile(tmp_path).load().starts == ((1, 0),)
    with opened(tmp_path) as store:
        assert store.position == position
        for number in range(2):
            expected = [b"%d" % one for one in range(keep) if one % 2 == number]
            assert [body.rstrip(b"\0") for body in bodies_of(store, "T", number)] == expected
        assert put(store, store.queue("T", 0), b"new")[1] >= position
    with opened(tmp_path) as store:
        assert bodies_of(store, "T")[-1] == b"new"


def test_interrupted_cut_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = filled(tmp_path)

    def fails(*_: object) -> None:
        raise OSError(5, "gone")

    for step in ("_take_back_progress",):
        with monkeypatch.context() as patched:
            patched.setattr(cut_module, step, fails)
            with pytest.raises(Exception, match="cut"):
                cut_log(small(tmp_path), places[20], places[-1], NOW)
    with opened(tmp_path) as store:
        assert store.position == places[-1]
    cut_log(small(tmp_path), places[20], places[-1], NOW + 1)
    with opened(tmp_path) as store:
        assert store.position == places[20]


def test_cut_where_no_record_begins_changes_nothing(tmp_path: Path) -> None:
    places = filled(tmp_path)
    with pytest.raises(StoreCorruptError, check=about(what="record", value=places[20] + 1)):
        cut_log(small(tmp_path), places[20] + 1, places[-1], NOW)
    with opened(tmp_path) as store:
        assert store.position == places[-1]


def test_cut_without_space_for_the_copy_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = filled(tmp_path)
    monkeypatch.setattr(disk, "room", lambda _: (1000, 1000))
    with pytest.raises(StoreFullError, check=about(limit=1000)):
        cut_log(small(tmp_path), places[20], places[-1], NOW)
    monkeypatch.undo()
    with opened(tmp_path) as store:
        assert store.position == places[-1]


def test_open_store_is_not_cut(tmp_path: Path) -> None:
    places = filled(tmp_path)
    with opened(tmp_path), pytest.raises(StoreLockedError):
        cut_log(small(tmp_path), places[20], places[-1], NOW)
