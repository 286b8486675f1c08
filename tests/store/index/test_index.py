from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.store.damage import crashed, flip, forget_progress, forget_safe_point
from tests.store.rig import (
    HOST_V6,
    INDEX_ENTRIES,
    START_MS,
    ManualClock,
    append,
    open_store,
    opened,
    put,
    query,
)
from tests.support import about

from sparrowmq.core.errors import StoreFullError
from sparrowmq.files import disk
from sparrowmq.protocol.record import decode_record
from sparrowmq.protocol.sysflag import TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from sparrowmq.store.index import index, index_file
from sparrowmq.store.index.index import TAG, UNIQUE
from sparrowmq.store.index.index_file import ENTRY, FIRST, HEADER
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.recovery.checkpoint import Checkpoint

FOREVER = 2**62


def text(unique: str | None = None, keys: str | None = None, tags: str | None = None) -> bytes:
    parts = {"UNIQ_KEY": unique, "KEYS": keys, "TAGS": tags}
    return "".join(f"{name}\x01{value}\x02" for name, value in parts.items() if value is not None).encode()


def follow(store: MessageStore, records: int = 1000) -> None:
    while store.follow_index(records):
        pass


def bodies(store: MessageStore, key: str, kind: str = "K", topic: str = "T", count: int = 64) -> list[bytes]:
    return [decode_record(data).body for data in query(store, topic, key, count, 0, FOREVER, kind=kind)]


def filed(store: MessageStore, key: str) -> Sequence[int]:
    """Where the index finds messages with a key, whether they are readable or not."""
    work = store.index.query("T", key, 64, 0, FOREVER)
    while True:
        try:
            next(work)
        except StopIteration as end:
            offsets: Sequence[int] = end.value.offsets
            return offsets


def fill(store: MessageStore, count: int, first: int = 0) -> None:
    """Messages in two topics with a unique key, two keys and a tag each."""
    for number in range(first, first + count):
        queue = store.queue("TU"[number % 2], number % 3)
        properties = text(f"ID{number:04d}", f"k{number} group{number % 5}", f"tag{number % 3}")
        append(store, queue, b"%d" % number, properties=properties, now_ms=START_MS + number * 1000)
    store.commit_chunk()


def check(store: MessageStore, count: int) -> None:
    """Each message is found once by each of its keys."""
    for number in range(count):
        topic = "TU"[number % 2]
        assert bodies(store, f"ID{number:04d}", UNIQUE, topic) == [b"%d" % number]
        assert bodies(store, f"k{number}", topic=topic) == [b"%d" % number]
        other = "UT"[number % 2]
        assert bodies(store, f"k{number}", topic=other) == []
    for group in range(5):
        wanted = [b"%d" % n for n in range(count) if n % 5 == group and n % 2 == 0]
        assert bodies(store, f"group{group}", count=1000) == wanted
    wanted = [b"%d" % n for n in range(count) if n % 3 == 1 and n % 2 == 0]
    assert bodies(store, "tag1", TAG, count=1000) == wanted
    assert bodies(store, "tag1") == []


@pytest.mark.proves("broker:4.1", "broker:4.2", "broker:4.3")
@pytest.mark.parametrize("records", [1, 3, 1000])
def test_messages_are_found_by_every_key(records: int, tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        fill(store, 60)
        assert store.index.behind == store.position
        follow(store, records)
        assert store.index.behind == 0
        check(store, 60)
        assert len(store.index.files) == 60 * 4 // (INDEX_ENTRIES - FIRST) + 1
        fill(store, 40, 60)
        follow(store)
        check(store, 100)
        names = [file.path.name for file in store.index.files]
        assert names == sorted(set(names))
        assert all(len(name) == 17 and name.isdigit() for name in names)


@pytest.mark.proves("broker:4.3")
def test_newest_messages_are_returned_oldest_first(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        fill(store, 60)
        follow(store)
        everything = bodies(store, "group0", count=1000)
        assert bodies(store, "group0", count=2) == everything[-2:]
        assert bodies(store, "group0", count=0) == []


@pytest.mark.proves("broker:4.3")
def test_store_times_limit_a_query(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        fill(store, 60)
        follow(store)
        for low, high in ((0, 60), (10, 40), (20, 20), (61, 70)):
            begin, end = START_MS + low * 1000, START_MS + high * 1000
            found = [decode_record(data).body for data in query(store, "T", "group0", 64, begin, end)]
            wanted = [b"%d" % n for n in range(60) if n % 10 == 0 and low <= n <= high]
            # The first entry of a file counts its seconds from the file before it.
            assert set(wanted) <= set(found) or low == high
            assert len(set(found) - set(wanted)) <= len(store.index.files)


@pytest.mark.proves("broker:4.1")
def test_messages_without_a_key_and_rolled_back_ones_are_not_indexed(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        put(store, queue, b"plain")
        put(store, queue, b"empty", properties=b"KEYS\x01\x02XKEYS\x01x\x02TAGS\x01\x02")
        put(store, queue, b"back", properties=text("B"), sys_flag=TRANSACTION_ROLLBACK)
        follow(store)
        assert store.index.files == []
        put(store, queue, b"half", properties=text("H"), sys_flag=TRANSACTION_PREPARED)
        put(store, queue, b"done", properties=text("D"), sys_flag=TRANSACTION_COMMIT)
        follow(store)
        assert [len(filed(store, key)) for key in "BHD"] == [0, 1, 1]
        assert [bodies(store, key) for key in "BHD"] == [[], [], [b"done"]]  # a half one is in no queue


def test_messages_of_a_deleted_topic_are_not_found_in_its_successor(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        place = put(store, store.queue("T", 0), b"old", properties=text("K"))[1]
        follow(store)
        assert bodies(store, "K") == [b"old"]
        store.delete_topic("T")
        assert bodies(store, "K") == []
        queue = store.queue("T", 0)
        for again in range(3):
            put(store, queue, b"new %d" % again)
            assert bodies(store, "K") == []
            assert store.read_record(place) is None and store.decoded_record(place) is None


def test_unusual_properties_and_records_are_indexed(tmp_path: Path) -> None:
    """The last of equal names wins, a missing separator at the end is allowed, long topics and IPv6 too."""
    with opened(tmp_path) as store:
        queue, retry = store.queue("T", 0), store.queue("%RETRY%" + "g" * 130, 0)
        put(store, queue, b"twice", properties=b"UNIQ_KEY\x01old\x02UNIQ_KEY\x01new\x02")
        put(store, queue, b"open", properties=b"A\x01KEYS\x02KEYS\x01a  b")
        put(store, queue, b"late", properties=b"KEYS\x01c\x02KEYS\x01\x02TAGS\x01t")
        put(store, queue, b"v6", properties=text("V6"), born_host=HOST_V6)
        put(store, queue, "ключ".encode(), properties=text("ключ0"))
        put(store, retry, b"v2", properties=text("V2"))
        follow(store, 2)
        assert bodies(store, "old") == []
        assert bodies(store, "new") == [b"twice"]
        assert bodies(store, "a") == bodies(store, "b") == [b"open"]
        assert bodies(store, "c") == bodies(store, "t", TAG) == [b"late"]
        assert bodies(store, "V6") == [b"v6"]
        assert bodies(store, "ключ0") == ["ключ".encode()]
        assert bodies(store, "V2", topic=retry.topic) == [b"v2"]


@pytest.mark.proves("broker:4.2")
def test_clean_stop_indexes_everything_and_the_next_start_continues(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        fill(store, 30)
    for known in (True, False):
        if not known:
            forget_safe_point(tmp_path)
        with opened(tmp_path) as store:
            assert store.index.behind == 0
            check(store, 30)
    with opened(tmp_path) as store:
        fill(store, 30, 30)
    with opened(tmp_path) as store:
        check(store, 60)


@pytest.mark.proves("broker:1.2", "broker:17")
def test_checkpoint_names_the_newest_message_in_the_flushed_index(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        fill(store, 30)
        follow(store)
        store.flush_queues(safe_point=True)
        assert Checkpoint.load(tmp_path / "checkpoint").index == START_MS + 29_000


@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_missing_or_duplicated_after_a_crash(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    store = open_store(tmp_path)
    done = 0
    for _ in range(4):
        count = rng.randrange(40)
        fill(store, count, done)
        done += count
        store.follow_index(rng.randrange(60))
        if rng.random() < 0.5:
            store.flush()
            store.flush_queues(safe_point=True)
        if rng.random() < 0.5:
            store.abandon()
            store = open_store(tmp_path)
    follow(store)
    check(store, done)
    store.close()


def test_without_a_safe_point_unflushed_messages_are_indexed_again(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        fill(store, 60)
    for forget in (forget_safe_point, forget_progress):
        crashed(tmp_path)
        forget(tmp_path)
        with opened(tmp_path) as store:
            follow(store)
            check(store, 60)


def test_file_without_its_header_hides_no_lost_entries(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        fill(store, 60)
    *_, damaged, newest = sorted((tmp_path / "index").iterdir())
    with newest.open("r+b") as file:
        file.write(bytes(HEADER.size))
    data = bytearray(damaged.read_bytes())
    for at in range(len(data) - ENTRY.size * INDEX_ENTRIES, len(data), ENTRY.size):
        data[at + 4 : at + 12] = bytes(8)  # a sector ended behind the hash: it names the first record
    damaged.write_bytes(data)
    crashed(tmp_path)
    forget_progress(tmp_path)
    with opened(tmp_path) as store:
        follow(store)
        check(store, 60)


def test_header_older_than_its_slots_loses_no_chain(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store, 26)
    follow(store)
    store.flush()
    store.flush_queues(safe_point=True)
    newest = store.index.files[-1].path
    header, checkpoint = newest.read_bytes()[: HEADER.size], (tmp_path / "checkpoint").read_bytes()
    fill(store, 4, 26)
    follow(store)
    assert newest == store.index.files[-1].path
    store.flush()
    store.abandon()
    with newest.open("r+b") as file:
        file.write(header)
    (tmp_path / "checkpoint").write_bytes(checkpoint)
    forget_safe_point(tmp_path)
    with opened(tmp_path) as store:
        follow(store)
        check(store, 30)


def test_lost_files_are_rebuilt(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        fill(store, 60)
    shutil.rmtree(tmp_path / "index")
    with opened(tmp_path) as store:
        assert store.index.behind == store.position
        follow(store)
        check(store, 60)


def test_files_of_a_longer_log_are_rebuilt(tmp_path: Path) -> None:
    with opened(tmp_path / "long") as store:
        fill(store, 60)
    with opened(tmp_path / "short") as store:
        fill(store, 30)
    shutil.rmtree(tmp_path / "short" / "index")
    shutil.copytree(tmp_path / "long" / "index", tmp_path / "short" / "index")
    with opened(tmp_path / "short") as store:
        follow(store)
        check(store, 30)


def test_damage_in_the_log_only_affects_damaged_messages(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store, 30)
    physical = store.queue("T", 0).physical_offset(1)
    assert physical is not None
    store.abandon()
    flip(tmp_path, physical + 5)
    with opened(tmp_path) as again:
        assert again.recovery.damaged
        follow(again, 1)
        lost = [n for n in range(30) if not bodies(again, f"k{n}", topic="TU"[n % 2])]
        assert len(lost) == 1


@pytest.mark.proves("broker:4.2")
def test_disabled_index_stores_nothing_and_catches_up_later(tmp_path: Path) -> None:
    with opened(tmp_path, message_index_enable=False) as store:
        fill(store, 20)
        assert store.index.behind == 0
        assert store.follow_index(100) == 0
        assert bodies(store, "k0") == []
    assert not (tmp_path / "index").exists()
    with opened(tmp_path) as store:
        assert store.index.behind == store.position
        follow(store)
        check(store, 20)


def test_full_disk_delays_the_index_and_loses_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as store:
        fill(store, 20)
        real = disk.create

        def full(path: Path, size: int) -> None:
            if path.parent.name == "index":
                raise OSError(28, "No space left on device")
            real(path, size)

        with monkeypatch.context() as patch:
            patch.setattr(disk, "create", full)
            with pytest.raises(StoreFullError, check=about(what="extend the index in")):
                store.follow_index(100)
        store.follow_index(3)
        with monkeypatch.context() as patch:
            patch.setattr(disk, "create", full)
            with pytest.raises(StoreFullError):
                follow(store)
        follow(store)
        check(store, 20)


def test_closing_with_a_full_disk_is_still_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(tmp_path)
    fill(store, 20)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("sparrowmq.store.index.index.IndexFile.create", full)
        store.close()
    assert "the last keys are not in the index yet" in caplog.text
    with opened(tmp_path) as again:
        assert again.recovery.clean
        follow(again)
        check(again, 20)


def test_duration_of_a_clean_stop_is_limited(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Hasty(ManualClock):
        def monotonic(self) -> float:
            self.ms += 60_000
            return self.ms / 1000

    store = open_store(tmp_path, clock=Hasty())
    fill(store, 20)
    monkey = store.index.follow
    store.index.follow = lambda records: monkey(1)
    store.close()
    assert "are not in the index yet" in caplog.text
    with opened(tmp_path) as again:
        follow(again)
        check(again, 20)


@pytest.mark.proves("broker:2.7")
def test_files_of_deleted_records_are_deleted(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        fill(store, 100)
        follow(store)
        files = store.index.files
        assert store.index.drop_before(files[2].header.end_offset) == [files[0].path, files[1].path]
        assert store.index.drop_before(10**9) == [file.path for file in files[2:-1]]
        assert store.index.files == files[-1:]
        assert "1 files" in repr(store.index)


def test_keys_are_compared_and_not_only_their_hashes(tmp_path: Path) -> None:
    """`Aa` and `BB` have the same hash in Java: neither another topic's messages nor another key's are
    found."""
    with opened(tmp_path) as store:
        for number, (topic, own) in enumerate(
            (
                ("BB", text("IDAa", "order1 Aa", "tag1")),
                ("T", text("BB", None, "BB")),
                ("Aa", text("other", "order2", "tag2")),
            )
        ):
            append(store, store.queue(topic, 0), b"%d" % number, properties=own)
        store.commit_chunk()
        follow(store)
        assert bodies(store, "order1", topic="Aa") == []
        assert bodies(store, "tag1", TAG, topic="Aa") == []
        assert bodies(store, "IDAa", UNIQUE, topic="Aa") == []
        assert bodies(store, "Aa", topic="T") == [], "another key of the same topic"
        assert bodies(store, "Aa", TAG, topic="T") == []
        assert bodies(store, "order1", topic="BB") == bodies(store, "tag1", TAG, topic="BB") == [b"0"]
        assert bodies(store, "order", topic="BB") == [], "a part of a key"


def test_other_messages_with_the_same_hash_do_not_use_up_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as store:
        append(store, store.queue("Aa", 0), b"wanted", properties=text(None, "k", None))
        for _ in range(10):
            append(store, store.queue("BB", 0), b"other", properties=text(None, "k", None))
        store.commit_chunk()
        follow(store)
        assert bodies(store, "k", topic="Aa", count=1) == [b"wanted"]
        monkeypatch.setattr(index, "STRANGERS_MAX", 10)
        assert bodies(store, "k", topic="Aa", count=1) == [], "a search has an end"


def stored_at(store: MessageStore, number: int, now_ms: int) -> None:
    append(store, store.queue("T", 0), b"%d" % number, properties=text(keys=f"k{number}"), now_ms=now_ms)


@pytest.mark.parametrize("at_once", [True, False])
def test_clock_that_was_ahead_hides_no_message_from_time_queries(at_once: bool, tmp_path: Path) -> None:
    year = 365 * 86_400_000
    times = [START_MS, START_MS + year, START_MS + 5000, START_MS - 3_600_000, START_MS - 3_599_000]
    with opened(tmp_path) as store:
        for number, now_ms in enumerate(times):
            stored_at(store, number, now_ms)
            if not at_once:
                store.commit_chunk()
                follow(store)
        store.commit_chunk()
        follow(store)
        for number, now_ms in enumerate(times):
            found = query(store, "T", f"k{number}", 10, now_ms - 1000, now_ms + 1000)
            assert [decode_record(data).body for data in found] == [b"%d" % number]
            assert query(store, "T", f"k{number}", 10, now_ms + 20_000, now_ms + 30_000) == []


def test_empty_index_file_does_no_further_harm(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        fill(store, 30)
        follow(store)
        kept = [file.path for file in store.index.files]
    (tmp_path / "index" / "99991231000000000").touch()  # killed in the middle of making it
    crashed(tmp_path)
    with opened(tmp_path) as store:
        assert [file.path for file in store.index.files][: len(kept) - 1] == kept[:-1]
        assert store.index.behind == 0
        follow(store)
        check(store, 30)


def test_messages_with_many_keys_are_indexed_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Indexing runs on the broker's loop: its duration depends on the number of keys."""
    monkeypatch.setattr(index, "KEYS_MAX", 20)
    with opened(tmp_path) as store:
        for number in range(5):
            keys = " ".join(f"k{number}-{key}" for key in range(20))
            append(store, store.queue("T", 0), b"%d" % number, properties=text(keys=keys))
        store.commit_chunk()
        calls = 1
        while store.follow_index(1000):
            calls += 1
        assert calls == 5
        assert bodies(store, "k4-7") == [b"4"]


def test_search_is_limited_and_reports_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_file, "LOOK_ENTRIES", 4)
    monkeypatch.setattr(index, "LOOK_ENTRIES", 4)
    with opened(tmp_path, max_hash_slot_num=1) as store:  # one chain for all keys
        for number in range(40):
            append(store, store.queue("T", 0), b"x", properties=b"KEYS\x01k%d\x02" % number)
        store.commit_chunk()
        store.follow_index(100)

        def search(key: str) -> tuple[int, bool, int]:
            steps, work = 0, store.query("T", key, 1, 0, FOREVER)
            while True:
                try:
                    next(work)
                    steps += 1
                except StopIteration as end:
                    records, whole = end.value
                    return len(records), whole, steps

        assert search("k0")[:2] == (1, True)
        assert search("k0")[2] >= 40 / 4, "all of it was looked at in one step"
        assert search("none")[:2] == (0, True)
        monkeypatch.setattr(index, "LOOKED_MAX", 20)
        assert search("k0")[:2] == search("none")[:2] == (0, False)
        assert search("k39")[:2] == (1, True)
