from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.columnar.records import HOST6, chunk, record, records
from tests.support import about

from sparrowmq.columnar import layout as layouts
from sparrowmq.columnar.layout import layout, record_count, walk
from sparrowmq.core.errors import RecordError
from sparrowmq.protocol.record import BLANK_MAGIC, decode_records

LONG_TOPIC = b"%RETRY%" + b"g" * 121


def test_walk_finds_every_record() -> None:
    one, two = record(0), record(1, b"longer body")
    assert walk(one + two).tolist() == [0, len(one)]
    assert walk(one + one).tolist() == [0, len(one)]
    assert walk(b"").tolist() == []


@given(st.lists(records(), max_size=6))
def test_places_are_those_of_the_reference(parts: list[bytes]) -> None:
    buffer = b"".join(parts)
    found = layout(buffer)
    expected = decode_records(buffer)
    assert len(found) == len(expected)
    for row, want in enumerate(expected):
        assert buffer[found.body[row] : found.body_end[row]] == want.body
        assert buffer[found.topic[row] : found.topic_end[row]].decode() == want.topic
        assert buffer[found.properties[row] : found.properties_end[row]] == want.properties
        assert found.heads["born_host"][row].tobytes()[: len(want.born_host)] == want.born_host
        assert found.heads["store_host"][row].tobytes()[: len(want.store_host)] == want.store_host
        numbers = [
            ("queue_id", want.queue_id),
            ("flag", want.flag),
            ("queue_offset", want.queue_offset),
            ("physical_offset", want.physical_offset),
            ("sys_flag", want.sys_flag),
            ("born_timestamp", want.born_timestamp),
            ("store_timestamp", want.store_timestamp),
            ("reconsume_times", want.reconsume_times),
            ("store_size", want.size),
        ]
        assert [int(found.heads[name][row]) for name, _ in numbers] == [value for _, value in numbers]


@pytest.mark.parametrize("cut", range(1, len(record())))
def test_a_cut_record_names_its_position(cut: int) -> None:
    whole = record()
    with pytest.raises(RecordError, check=about(value=len(whole))):
        layout(whole + whole[:cut])


@pytest.mark.parametrize("size", [-1, 0, 1, 90, 2**31 - 1])
def test_a_wrong_size_names_its_position(size: int) -> None:
    whole = record()
    with pytest.raises(RecordError, check=about(value=len(whole))):
        layout(whole + struct.pack(">i", size) + whole[4:])


@pytest.mark.parametrize("magic", [0, BLANK_MAGIC, 0xDAA320A8])
def test_an_unknown_magic_is_refused(magic: int) -> None:
    whole = record()
    with pytest.raises(RecordError, check=about(what="magic", value=len(whole))):
        layout(whole + whole[:4] + struct.pack(">I", magic) + whole[8:])


def _with(data: bytes, at: int, field: bytes) -> bytes:
    return data[:at] + field + data[at + len(field) :]


@pytest.mark.parametrize("topic", [b"TopicTest", LONG_TOPIC])
@pytest.mark.parametrize("length", [-1, -(2**31), 5, 3, 10_000, 2**31 - 1])
def test_a_wrong_body_length_is_refused(topic: bytes, length: int) -> None:
    with pytest.raises(RecordError, check=about(value=0)):
        layout(_with(record(topic=topic), 84, struct.pack(">i", length)))


@pytest.mark.parametrize("length", [0, 8, 10, 127, 128, 255])
def test_a_wrong_topic_length_is_refused(length: int) -> None:
    with pytest.raises(RecordError, check=about(value=0)):
        layout(_with(record(), 88 + 4, bytes([length])))


@pytest.mark.parametrize("length", [0, 127, 129, 32767, 32768, 65535])
def test_a_wrong_topic_length_of_two_bytes_is_refused(length: int) -> None:
    with pytest.raises(RecordError, check=about(value=0)):
        layout(_with(record(topic=LONG_TOPIC), 88 + 4, length.to_bytes(2, "big")))


@pytest.mark.parametrize("length", [0, 1, 32767, 32768, 65535])
def test_a_wrong_properties_length_is_refused(length: int) -> None:
    with pytest.raises(RecordError, check=about(value=0)):
        layout(_with(record(), 88 + 4 + 1 + len(b"TopicTest"), length.to_bytes(2, "big")))


def test_a_record_too_short_for_its_ipv6_hosts_is_refused() -> None:
    short = record(body=b"", topic=b"T", properties=b"")
    with pytest.raises(RecordError, check=about(what="header", value=0)):
        layout(_with(short, 36, struct.pack(">i", 0x30)))
    assert len(layout(record(born_host=HOST6, store_host=HOST6, body=b"", topic=b"", properties=b""))) == 1


def test_a_chunk_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "CHUNK_BYTES_MAX", 100)
    with pytest.raises(RecordError, check=about(what="chunk", limit=100)):
        layout(chunk(2))


def test_record_count_stops_at_the_limit_and_at_a_wrong_size() -> None:
    assert record_count(chunk(5), 3) == 3
    assert record_count(chunk(5), 10) == 5
    assert record_count(chunk(2) + bytes(200), 10) == 2
    assert record_count(b"", 10) == 0
