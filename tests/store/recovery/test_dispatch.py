"""What recovery does with each record, also with records no correct broker writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.store.damage import crashed, forget_progress
from tests.store.rig import HOST, HOST_V6, START_MS, bodies_of, open_store, opened, read_all

from sparrowmq.core.delay import DEFAULT_LEVELS
from sparrowmq.core.hashing import java_hash
from sparrowmq.core.names import SCHEDULE_TOPIC
from sparrowmq.protocol.record import decode_record, encode_record
from sparrowmq.store.queues.consume_queue import CORRUPT_CODE, DUMMY_SIZE, ENTRY
from sparrowmq.store.recovery.dispatch import REPORTS_MAX, tags_code_of

LOG = 1 << 16


class LogMaker:
    """Writes a commit log file record by record, without any queue."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = b""

    def add(self, topic: str, queue_id: int, offset: int, body: bytes = b"x", **changes: object) -> int:
        position = len(self.data)
        values: dict[str, object] = {
            "topic": topic.encode(),
            "queue_id": queue_id,
            "queue_offset": offset,
            "physical_offset": position,
            "body": body,
            "properties": b"",
            "flag": 0,
            "sys_flag": 0,
            "born_timestamp": START_MS,
            "born_host": HOST,
            "store_timestamp": START_MS + position,
            "store_host": HOST,
        }
        self.data += encode_record(**(values | changes))
        return position

    def write(self) -> Path:
        directory = self.root / "commitlog"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / ("0" * 20)).write_bytes(self.data + bytes(LOG - len(self.data)))
        crashed(self.root)
        return self.root


def properties_record(topic: str, properties: bytes) -> bytes:
    return encode_record(
        topic=topic.encode(),
        queue_id=0,
        queue_offset=0,
        physical_offset=0,
        body=b"",
        properties=properties,
        flag=0,
        sys_flag=0,
        born_timestamp=0,
        born_host=HOST,
        store_timestamp=START_MS,
        store_host=HOST,
    )


@pytest.mark.proves("broker:3.1")
@pytest.mark.parametrize(
    ("topic", "properties", "code"),
    [
        ("T", b"", 0),
        ("T", b"KEYS\x01k\x02", 0),
        ("T", b"TAGS\x01TagA\x02", java_hash("TagA")),
        ("T", b"TAGS\x01TagA||TagB\x02", java_hash("TagA||TagB")),
        ("T", "TAGS\x01größe".encode(), java_hash("größe")),
        ("T", b"DELAY\x013\x02TAGS\x01A\x02", java_hash("A")),
        (SCHEDULE_TOPIC, b"DELAY\x013\x02TAGS\x01A\x02", START_MS + DEFAULT_LEVELS.delays[2]),
        (SCHEDULE_TOPIC, b"DELAY\x0199\x02", START_MS + DEFAULT_LEVELS.delays[-1]),
        (SCHEDULE_TOPIC, b"DELAY\x010\x02TAGS\x01A\x02", java_hash("A")),
        (SCHEDULE_TOPIC, b"DELAY\x01x\x02", 0),
        (SCHEDULE_TOPIC, b"TAGS\x01A\x02", java_hash("A")),
    ],
)
def test_codes_are_hashes_of_tags_and_due_times(topic: str, properties: bytes, code: int) -> None:
    assert tags_code_of(decode_record(properties_record(topic, properties))) == code


@pytest.mark.proves("broker:3.2", "broker:2.10")
def test_every_kind_of_record_gets_its_entry(tmp_path: Path) -> None:
    maker = LogMaker(tmp_path)
    long_topic = "%RETRY%" + "g" * 140
    maker.add("T", 0, 0, b"v4")
    maker.add("T", 0, 1, b"v6", born_host=HOST_V6)
    maker.add("T", 0, 2, b"both", born_host=HOST_V6, store_host=HOST_V6)
    maker.add(long_topic, 0, 0, b"v2")
    maker.add("T", 0, 0, b"prepared", sys_flag=4)
    maker.add("T", 0, 3, b"committed", sys_flag=8)
    maker.add("T", 0, 0, b"rolled back", sys_flag=12)
    for _ in range(2):
        with opened(maker.write(), mapped_file_size_commit_log=LOG) as store:
            assert bodies_of(store, "T") == [b"v4", b"v6", b"both", b"committed"]
            assert bodies_of(store, long_topic) == [b"v2"]
            assert store.recovery.records == 7
            assert store.position == len(maker.data)
        forget_progress(tmp_path)


@pytest.mark.parametrize("topic", ["..", "a/b", "/etc", "%bad\x01", "größe", "t" * 300, " "])
def test_illegal_topics_get_no_queue_and_no_directory(
    topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    maker = LogMaker(tmp_path / "root")
    maker.add("T", 0, 0, b"a")
    maker.add(topic, 0, 0)
    maker.add("T", 0, 1, b"b")
    with opened(maker.write(), mapped_file_size_commit_log=LOG) as store:
        assert store.recovery.refused == 1
        assert bodies_of(store, "T") == [b"a", b"b"]
        assert store.topics() == ["T"]
    assert "gets no queue entry: its topic or queue id is illegal" in caplog.text
    assert [path.name for path in (tmp_path / "root" / "consumequeue").iterdir()] == ["T"]


def test_negative_queue_ids_are_refused(tmp_path: Path) -> None:
    maker = LogMaker(tmp_path)
    maker.add("T", -1, 0)
    maker.add("T", 0, 0, b"a")
    with opened(maker.write(), mapped_file_size_commit_log=LOG) as store:
        assert (store.recovery.refused, bodies_of(store, "T")) == (1, [b"a"])


def test_missing_offsets_are_gaps_if_their_records_could_have_existed(tmp_path: Path) -> None:
    maker = LogMaker(tmp_path)
    maker.add("T", 0, 0, b"a")
    maker.add("U", 0, 0, b"u" * 500)
    maker.add("T", 0, 4, b"b")
    with opened(maker.write(), mapped_file_size_commit_log=LOG) as store:
        queue = store.queue("T", 0)
        assert [(record.queue_offset, record.body) for record in read_all(store, queue)] == [
            (0, b"a"),
            (4, b"b"),
        ]
        assert queue.max_offset == 5
        assert all(queue.entry(offset).size == DUMMY_SIZE for offset in (1, 2, 3))


def test_offsets_that_jump_too_far_are_refused(tmp_path: Path) -> None:
    maker = LogMaker(tmp_path)
    maker.add("T", 0, 0, b"a")
    maker.add("T", 0, 1 << 50, b"nonsense")
    maker.add("T", 0, 2, b"b")
    with opened(maker.write(), mapped_file_size_commit_log=LOG) as store:
        assert store.recovery.refused == 1
        records = read_all(store, store.queue("T", 0))
        assert [(record.queue_offset, record.body) for record in records] == [(0, b"a"), (2, b"b")]


@pytest.mark.proves("broker:3.1")
def test_queue_may_begin_anywhere(tmp_path: Path) -> None:
    maker = LogMaker(tmp_path)
    for offset in range(1234, 1260):
        maker.add("T", 0, offset, b"%d" % offset)
    for _ in range(2):
        with opened(maker.write(), mapped_file_size_commit_log=LOG) as store:
            queue = store.queue("T", 0)
            assert (queue.min_offset, queue.max_offset) == (1234, 1260)
            assert len(read_all(store, queue)) == 26
        forget_progress(tmp_path)


def test_repeated_offsets_keep_the_first_but_zero_restarts(tmp_path: Path) -> None:
    maker = LogMaker(tmp_path)
    for offset, body in ((0, b"a"), (1, b"b"), (2, b"c"), (1, b"again"), (3, b"d")):
        maker.add("T", 0, offset, body)
    for offset, body in ((0, b"old"), (1, b"old"), (0, b"new")):
        maker.add("U", 0, offset, body)
    for _ in range(2):
        with opened(maker.write(), mapped_file_size_commit_log=LOG) as store:
            assert bodies_of(store, "T") == [b"a", b"b", b"c", b"d"]
            assert bodies_of(store, "U") == [b"new"]
            assert store.recovery.refused == 1
        forget_progress(tmp_path)


@pytest.mark.proves("broker:3.3")
def test_entries_with_another_brokers_filter_address_are_not_changed(tmp_path: Path) -> None:
    maker = LogMaker(tmp_path)
    place = maker.add("T", 0, 0, b"a", properties=b"TAGS\x01A\x02")
    size = len(maker.data) - place
    address = -(2**63) + 64
    with opened(maker.write(), mapped_file_size_commit_log=LOG) as store:
        store.queue("T", 0).restore(0, ENTRY.pack(place, size, address))
    for code, kept in ((address, address), (CORRUPT_CODE, java_hash("A")), (7, java_hash("A"))):
        with opened(tmp_path, mapped_file_size_commit_log=LOG) as store:
            store.queue("T", 0).restore(0, ENTRY.pack(place, size, code))
        forget_progress(tmp_path)
        crashed(tmp_path)
        with opened(tmp_path, mapped_file_size_commit_log=LOG) as store:
            assert store.queue("T", 0).entry(0) == (place, size, kept)


def test_only_some_unusual_records_are_reported_one_by_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    maker = LogMaker(tmp_path)
    for number in range(REPORTS_MAX + 5):
        maker.add("T", -1, number)
    store = open_store(maker.write(), mapped_file_size_commit_log=LOG)
    assert store.recovery.refused == REPORTS_MAX + 5
    assert sum("gets no queue entry" in record.message for record in caplog.records) == REPORTS_MAX
    store.close()
