"""Zeros in properties: those left by a power failure, and those that somebody wrote."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.store.damage import crashed, flip, forget_progress, read_log, write_log
from tests.store.rig import HOST, HOST_V6, START_MS, append, bodies_of, open_store, opened, put
from tests.support import about

from sparrowmq.core.errors import RecordError
from sparrowmq.core.message import PROPERTIES_BYTES_MAX
from sparrowmq.protocol.crc import CRC_MASK, crc32
from sparrowmq.protocol.properties import find
from sparrowmq.protocol.record import decode_record
from sparrowmq.store.log.proof import PROOF_BYTES, SECTOR_BYTES, is_proven, looks_torn, with_room

SIZES = {"mapped_file_size_commit_log": 1 << 16, "mapped_file_size_consume_queue": 2000}
NULS = b"bin\x01" + bytes(512) + b"\x02TAGS\x01A\x02"
MANY = b"bin\x01" + bytes(2000) + b"\x02TAGS\x01A\x02"


@pytest.mark.parametrize("how", ["clean", "killed", "killed, nothing known"])
@pytest.mark.parametrize("properties", [NULS, MANY, MANY[:-1], MANY[:-8]], ids=["512", "2000", "open", "end"])
@pytest.mark.parametrize("host", [HOST, HOST_V6], ids=["v4", "v6"])
def test_acknowledged_message_full_of_zeros_stays(
    how: str, properties: bytes, host: bytes, tmp_path: Path
) -> None:
    store = open_store(tmp_path, **SIZES)
    queue = store.queue("T", 0)
    put(store, queue, b"first")
    put(store, queue, b"second", properties=properties, born_host=host)
    items = [(0, b"third", properties, 0), (0, b"fourth", properties, 0), (0, b"5", b"x\x01y\x02", 0)]
    fields = {"sys_flag": 0, "born_timestamp": 1, "born_host": host, "reconsume_times": 0, "now_ms": START_MS}
    store.append_batch(queue, items, b"more\x01x\x02", **fields)
    store.append_batch(queue, items[:2], b"more\x01x\x02", **fields)
    store.commit_chunk()
    store.close() if how == "clean" else store.abandon()
    if how == "killed, nothing known":
        forget_progress(tmp_path)
    with opened(tmp_path, **SIZES) as store:
        bodies = [b"first", b"second", b"third", b"fourth", b"5", b"third", b"fourth"]
        assert bodies_of(store, "T") == bodies
        assert (store.recovery.cut, store.recovery.damaged) == (0, ())


def foreign(root: Path, store_at: int, size: int) -> None:
    """Remove the checksum from the record, as written by a broker without checksums."""
    whole = read_log(root, store_at, size, file_bytes=1 << 16)
    write_log(root, store_at + size - PROOF_BYTES, b"x\x01%b\x02" % (b"y" * 17), file_bytes=1 << 16)
    assert is_proven(whole)


def test_zeros_of_another_broker_are_not_damage_after_a_clean_stop(tmp_path: Path) -> None:
    with opened(tmp_path, **SIZES) as store:
        _, place = put(store, store.queue("T", 0), b"x", properties=MANY)
        size = store.position - place
    foreign(tmp_path, place, size)
    with opened(tmp_path, **SIZES) as store:
        assert bodies_of(store, "T") == [b"x"]
        put(store, store.queue("T", 0), b"y")
    crashed(tmp_path)  # and after a crash they are none before the safe point
    (tmp_path / "consumequeue/T/0" / ("0" * 20)).unlink()
    with opened(tmp_path, **SIZES) as store:
        assert store.recovery.start == 0
        assert bodies_of(store, "T") == [b"x", b"y"]


@pytest.mark.parametrize("proven", [True, False])
@pytest.mark.parametrize("nuls", [True, False])
def test_sector_lost_in_a_power_failure_is_damage(proven: bool, nuls: bool, tmp_path: Path) -> None:
    text = (
        (MANY if nuls else b"") + b"k\x01" + random.Random(1).randbytes(2500).replace(b"\0", b"a") + b"\x02"
    )
    with opened(tmp_path, **SIZES) as store:
        queue = store.queue("T", 0)
        put(store, queue, b"first")
        _, place = put(store, queue, b"torn", properties=text)
        size = store.position - place
        put(store, queue, b"last")
    if nuls and not proven:
        foreign(tmp_path, place, size)
    inside = place + (2600 if nuls else 600)
    at = inside + -inside % SECTOR_BYTES
    write_log(tmp_path, at, bytes(SECTOR_BYTES), file_bytes=1 << 16)
    crashed(tmp_path)
    forget_progress(tmp_path)
    with opened(tmp_path, **SIZES) as store:
        assert bodies_of(store, "T") == [b"first", b"last"]
        assert store.recovery.damaged == ((place, place + size),)


def test_checksum_is_rocketmqs(tmp_path: Path) -> None:
    with opened(tmp_path, **SIZES) as store:
        _, place = put(store, store.queue("T", 0), b"x", properties=NULS)
        record = store.read_record(place)
        assert record is not None
        text = find(decode_record(record).properties, b"__CRC32#")
        assert text is not None and len(text) == 10
        assert int(text[::-1]) == crc32(record[:-PROOF_BYTES]) & CRC_MASK
        assert record.endswith(b"__CRC32#\x01" + text + b"\x02")


def test_copy_has_one_checksum_of_its_own(tmp_path: Path) -> None:
    with opened(tmp_path, **SIZES) as store:
        queue = store.queue("T", 0)
        first = store.read_record(put(store, queue, b"x", properties=NULS)[1])
        assert first is not None
        second = store.read_record(put(store, queue, b"y", properties=decode_record(first).properties)[1])
        assert second is not None
        assert second.count(b"__CRC32#") == 1
        assert is_proven(second)
        assert not is_proven(second[:-25] + b"!" + second[-24:])


def test_missing_room_for_the_checksum_is_reported(tmp_path: Path) -> None:
    text = b"bin\x01" + bytes(32_767 - 5) + b"\x02"
    with opened(tmp_path, **SIZES) as store:
        queue = store.queue("T", 0)
        with pytest.raises(RecordError, check=about(what="properties", value=len(text))):
            append(store, queue, b"x", properties=text)
        fields = {"sys_flag": 0, "born_timestamp": 1, "born_host": HOST, "reconsume_times": 0, "now_ms": 1}
        with pytest.raises(RecordError, check=about(what="properties", value=len(text))):
            store.append_batch(queue, [(0, b"a", b"", 0), (0, b"b", text, 0)], b"", **fields)
        put(store, queue, b"y")
        assert bodies_of(store, "T") == [b"y"]


@pytest.mark.parametrize("free", [19, 20, 21, 39, 40, 41])
def test_batch_near_the_limit_is_stored_completely_or_not_at_all(free: int, tmp_path: Path) -> None:
    text = b"bin\x01" + bytes(PROPERTIES_BYTES_MAX - free - 5) + b"\x02"
    items = [(0, b"a", NULS, 0), (0, b"b", text, 0)]
    fields = {"sys_flag": 0, "born_timestamp": 1, "born_host": HOST, "reconsume_times": 0, "now_ms": 1}
    with opened(tmp_path, **SIZES) as store:
        queue = store.queue("T", 0)
        if free < PROOF_BYTES:
            with pytest.raises(RecordError):
                store.append_batch(queue, items, b"", **fields)
            assert queue.next_offset == 0
        else:
            places = store.append_batch(queue, items, b"", **fields)
        put(store, queue, b"c")
        assert bodies_of(store, "T") == ([b"c"] if free < PROOF_BYTES else [b"a", b"b", b"c"])
        for place in () if free < PROOF_BYTES else places:
            record = store.read_record(place)
            assert record is not None and record.count(b"__CRC32#") == 1 and is_proven(record)


def test_checksum_displaces_no_other_property() -> None:
    own = MANY + b"my__CRC32#\x011234567890\x02owner\x01alice\x02"
    assert with_room(own) == own + with_room(b"")
    assert with_room(own + b"__CRC32#\x011234567890\x02" * 2) == own + with_room(b"")


def test_torn_records_are_recognised() -> None:
    assert looks_torn(NULS) and looks_torn(b"a\x01\0")
    assert not looks_torn(b"a\x01" + bytes(511) + b"\x02")
    assert with_room(b"") == b"__CRC32#\x01" + bytes(10) + b"\x02"


def test_valid_message_with_a_damaged_checksum_is_served_after_a_clean_stop(tmp_path: Path) -> None:
    with opened(tmp_path, **SIZES) as store:
        put(store, store.queue("T", 0), b"x", properties=NULS)
        end = store.position
    flip(tmp_path, end - 5, file_bytes=1 << 16)
    with opened(tmp_path, **SIZES) as store:
        assert bodies_of(store, "T") == [b"x"]
