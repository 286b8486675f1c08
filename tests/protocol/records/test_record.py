"""Stored records: test vectors, round trips, every length wrong, damage."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import about

from sparrowmq.core.errors import RecordError
from sparrowmq.core.ids import pack_host
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.protocol import properties
from sparrowmq.protocol import record as r
from sparrowmq.protocol.compression import compress
from sparrowmq.protocol.sysflag import CompressionType, with_compression, without_compressed_bit

V1 = bytes.fromhex(
    "00000074daa320a73610a686000000010000000000000000000000050000000000000400000000000000018bcfe56800"
    "7f000001000013880000018bcfe568017f00000100002a9f0000000000000000000000000000000568656c6c6f06546f"
    "70696341000e6b01760254414753015461674102"
)
V6 = bytes.fromhex(
    "00000075daa320a70cdc1683000000000000000000000000000000000000000000000400000000300000000000000001"
    "000000000000000000000000000000010000138800000000000000020000000000000000000000000000000100002a9f"
    "000000000000000000000000000000017801540000"
)
FIELDS: dict[str, Any] = {
    "topic": b"TopicA",
    "queue_id": 1,
    "queue_offset": 5,
    "physical_offset": 1024,
    "body": b"hello",
    "properties": b"k\x01v\x02TAGS\x01TagA\x02",
    "flag": 0,
    "sys_flag": 0,
    "born_timestamp": 1700000000000,
    "born_host": pack_host("127.0.0.1", 5000),
    "store_timestamp": 1700000000001,
    "store_host": pack_host("127.0.0.1", 10911),
}
LONG_TOPIC = b"%RETRY%" + b"g" * 140
V2 = r.encode_record(**FIELDS | {"topic": LONG_TOPIC})
BLANK = struct.pack(">iI", 900, r.BLANK_MAGIC)

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
HOSTS = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
RECORDS = st.fixed_dictionaries(
    {
        "topic": st.text(st.characters(exclude_categories=["Cs"]), max_size=160).map(str.encode),
        "queue_id": INT32,
        "queue_offset": INT64,
        "physical_offset": INT64,
        "body": st.binary(max_size=60),
        "properties": st.binary(max_size=60),
        "flag": INT32,
        "sys_flag": st.integers(0, 0x7FF),
        "born_timestamp": INT64,
        "born_host": HOSTS,
        "store_timestamp": INT64,
        "store_host": HOSTS,
        "reconsume_times": INT32,
        "prepared_offset": INT64,
    }
)


def test_the_ipv4_vector_of_the_reference() -> None:
    assert r.encode_record(**FIELDS) == V1
    record = r.decode_record(V1, check_crc=True)
    assert record.body_crc == 907060870 == r.body_crc(b"hello")
    assert (record.size, record.magic) == (116, r.RECORD_MAGIC_V1)
    assert {name: getattr(record, name) for name in FIELDS} == FIELDS | {"topic": "TopicA"}
    message = r.to_message(record, "broker-a")
    assert message.offset_message_id == "7F00000100002A9F0000000000000400"
    assert message.message_id == message.offset_message_id
    assert message.queue == MessageQueue("TopicA", "broker-a", 1)
    assert (message.tags, message.properties["k"]) == ("TagA", "v")
    assert (message.born_host, message.store_host) == ("127.0.0.1:5000", "127.0.0.1:10911")


def test_consumers_see_every_field() -> None:
    fields = FIELDS | {"flag": 7, "reconsume_times": 3, "prepared_offset": 99, "sys_flag": 8}
    data = r.encode_record(**fields)
    assert r.to_message(r.decode_record(data), "b") == ReceivedMessage(
        queue=MessageQueue("TopicA", "b", 1),
        queue_offset=5,
        physical_offset=1024,
        topic="TopicA",
        body=b"hello",
        properties={"k": "v", "TAGS": "TagA"},
        flag=7,
        sys_flag=8,
        born_timestamp=1700000000000,
        born_host="127.0.0.1:5000",
        store_timestamp=1700000000001,
        store_host="127.0.0.1:10911",
        reconsume_times=3,
        store_size=len(data),
        prepared_transaction_offset=99,
        offset_message_id="7F00000100002A9F0000000000000400",
    )


def test_the_ipv6_vector_of_the_reference() -> None:
    fields = FIELDS | {
        "topic": b"T",
        "queue_id": 0,
        "queue_offset": 0,
        "body": b"x",
        "properties": b"",
        "born_timestamp": 1,
        "born_host": pack_host("::1", 5000),
        "store_timestamp": 2,
        "store_host": pack_host("::1", 10911),
    }
    assert r.encode_record(**fields) == V6
    record = r.decode_record(V6, check_crc=True)
    assert record.sys_flag == 0x30
    message = r.to_message(record, "b")
    assert message.offset_message_id == "0000000000000000000000000000000100002A9F0000000000000400"
    assert (message.born_host, message.store_host) == ("[::1]:5000", "[::1]:10911")
    assert r.check_record(V6, 0, len(V6)) == len(V6)


@pytest.mark.parametrize("born_host", [FIELDS["born_host"], pack_host("::1", 5000)])
@pytest.mark.parametrize("store_host", [FIELDS["store_host"], pack_host("::2", 10911)])
@pytest.mark.parametrize(("size", "magic"), [(127, r.RECORD_MAGIC_V1), (128, r.RECORD_MAGIC_V2)])
def test_v2_begins_above_127_bytes_of_topic(
    size: int, magic: int, born_host: bytes, store_host: bytes
) -> None:
    hosts = {"born_host": born_host, "store_host": store_host}
    data = r.encode_record(**FIELDS | {"topic": b"t" * size} | hosts)
    record = r.decode_record(data)
    assert record.magic == magic
    assert (record.born_host, record.store_host) == (born_host, store_host)
    assert record.store_timestamp == FIELDS["store_timestamp"]
    assert record.topic == "t" * size


@given(RECORDS)
def test_what_is_written_is_read_back(fields: dict[str, Any]) -> None:
    data = r.encode_record(**fields)
    record = r.decode_record(data, check_crc=True)
    host_bits = 0x10 * (len(fields["born_host"]) == 20) | 0x20 * (len(fields["store_host"]) == 20)
    expected = fields | {
        "topic": fields["topic"].decode(),
        "sys_flag": fields["sys_flag"] & ~0x30 | host_bits,
    }
    assert {name: getattr(record, name) for name in expected} == expected
    assert record.size == len(data) == r.check_record(data, 0, len(data))


@given(st.lists(RECORDS, max_size=4), st.binary(max_size=5), st.sampled_from([bytes, bytearray, memoryview]))
def test_records_are_read_from_any_buffer_at_any_place(
    items: list[dict[str, Any]], lead: bytes, buffer: Any
) -> None:
    parts = [r.encode_record(**fields) for fields in items]
    records = r.decode_records(buffer(b"".join(parts)))
    assert records == [r.decode_record(part) for part in parts]
    position = len(lead)
    for record in records:
        assert r.decode_record(buffer(lead + b"".join(parts)), position) == record
        position += record.size


@pytest.mark.parametrize("data", [V1, V6, V2], ids=["v1", "v6", "v2"])
def test_a_record_cut_anywhere_is_refused(data: bytes) -> None:
    for end in range(len(data)):
        for cut in (data[:end], memoryview(data)[:end]):
            with pytest.raises(RecordError):
                r.decode_record(cut)
            with pytest.raises(RecordError):
                r.check_record(cut, 0, end)
        with pytest.raises(RecordError):
            r.check_record(data, 0, end)


@pytest.mark.parametrize("data", [V1, V6, V2], ids=["v1", "v6", "v2"])
def test_a_record_with_a_tail_is_read_and_its_size_says_where_it_ends(data: bytes) -> None:
    assert r.decode_record(data + b"tail") == r.decode_record(data)
    assert r.check_record(data + b"tail", 0, len(data) + 4) == len(data)
    with pytest.raises(RecordError, check=about(value=len(data))):
        r.decode_records(data + b"tail")


def broken(data: bytes, place: int, form: str, value: int) -> bytes:
    """`data` with one field replaced."""
    copy = bytearray(data)
    struct.pack_into(form, copy, place, value)
    return bytes(copy)


@pytest.mark.parametrize(
    ("data", "place", "form", "right"),
    [
        (V1, 0, ">i", 116),
        (V1, 84, ">i", 5),
        (V1, 93, ">b", 6),
        (V1, 100, ">h", 14),
        (V6, 0, ">i", 117),
        (V6, 108, ">i", 1),
        (V6, 113, ">b", 1),
        (V6, 115, ">h", 0),
        (V2, 0, ">i", len(V2)),
        (V2, 84, ">i", 5),
        (V2, 93, ">h", 147),
        (V2, 242, ">h", 14),
    ],
)
def test_every_length_wrong_is_refused(data: bytes, place: int, form: str, right: int) -> None:
    assert struct.unpack_from(form, data, place)[0] == right
    bits = struct.calcsize(form) * 8 - 1
    for value in {-1, -(2**bits), right - 1, right + 1, 2**bits - 1, right - 2, right + 2} - {right}:
        if not -(2**bits) <= value < 2**bits:
            continue
        copy = broken(data, place, form, value)
        for long in (copy, copy + bytes(70_000)):
            with pytest.raises(RecordError, check=about(value=0)):
                r.decode_record(long)
            with pytest.raises(RecordError, check=about(value=0)):
                r.check_record(long, 0, len(long))


@pytest.mark.parametrize(("data", "place"), [(V1, 84), (V6, 108), (V2, 84)], ids=["v1", "v6", "v2"])
def test_a_body_that_ends_where_the_record_does_leaves_no_room_for_the_rest(data: bytes, place: int) -> None:
    for room in range(-4, 3):
        copy = broken(data, place, ">i", len(data) - place - 4 - room)
        with pytest.raises(RecordError, check=about(what="body", value=0)):
            r.decode_record(copy)
        with pytest.raises(RecordError, check=about(what="body", value=0)):
            r.check_record(copy, 0, len(copy))


def test_a_negative_topic_is_refused_though_the_parts_add_up() -> None:
    """Its end lies in the body, where the length of the properties seems to stand."""
    data = bytearray(r.encode_record(**FIELDS | {"topic": LONG_TOPIC, "body": bytes(20)}))
    topic_at = 88 + 20
    struct.pack_into(">h", data, topic_at, -10)
    struct.pack_into(">h", data, topic_at + 2 - 10, len(data) - (topic_at + 2 - 10) - 2)
    for read in (r.decode_record, lambda copy: r.find_properties(copy, 0)):
        with pytest.raises(RecordError, check=about(what="topic", value=0)):
            read(bytes(data))


@pytest.mark.parametrize("magic", [0, 1, 0xDAA320A8, 0xFFFFFFFF])
def test_an_unknown_magic_is_refused(magic: int) -> None:
    data = broken(V1, 4, ">I", magic)
    with pytest.raises(RecordError, check=about(what="magic", value=0)):
        r.decode_record(data)
    with pytest.raises(RecordError, check=about(what="magic", value=0)):
        r.check_record(data, 0, len(data))


def test_a_record_is_checked_wherever_it_starts() -> None:
    for data in (V1, V6, V2):
        assert r.check_record(b"abc" + data, 3, len(data) + 3) == len(data)
        with pytest.raises(RecordError, check=about(value=3)):
            r.check_record(b"abc" + data, 3, len(data) + 2)


def test_a_blank_ends_a_file() -> None:
    data = V1 + BLANK
    assert r.check_record(data, len(V1), len(data)) == 0
    assert r.check_record(data + V1, len(V1), len(data)) == 0
    with pytest.raises(RecordError, check=about(what="blank")):
        r.decode_record(data, len(V1))
    with pytest.raises(RecordError, check=about(what="blank")):
        r.decode_record(BLANK + V1)
    with pytest.raises(RecordError, check=about(what="size", value=len(V1))):
        r.check_record(data, len(V1), len(data) - 1)


def test_zeros_are_no_record() -> None:
    with pytest.raises(RecordError, check=about(what="magic", value=0)):
        r.check_record(bytes(4096), 0, 4096)


@pytest.mark.parametrize("place", range(88, 93))
def test_a_changed_body_is_noticed(place: int) -> None:
    data = broken(V1, place, ">B", 0)
    assert r.decode_record(data).body != b"hello"
    with pytest.raises(RecordError, check=about(what="CRC")):
        r.decode_record(data, check_crc=True)
    with pytest.raises(RecordError, check=about(what="CRC")):
        r.check_record(data, 0, len(data))


def test_an_empty_body_needs_no_crc() -> None:
    data = r.encode_record(**FIELDS | {"body": b""})
    assert r.decode_record(data, check_crc=True).body_crc == 0
    assert r.check_record(data, 0, len(data)) == len(data)


def test_a_crc_has_no_top_bit() -> None:
    body = next(str(n).encode() for n in range(100) if zlib.crc32(str(n).encode()) >> 31)
    assert r.body_crc(body) == zlib.crc32(body) - 2**31
    data = r.encode_record(**FIELDS | {"body": body})
    assert r.check_record(data, 0, len(data)) == len(data)


def test_a_topic_that_is_no_text_is_refused() -> None:
    data = r.encode_record(**FIELDS | {"topic": b"\xff\xfe"})
    with pytest.raises(RecordError, check=about(value=0)):
        r.decode_record(data)
    with pytest.raises(RecordError, check=about(value=0)):
        r.check_record(data, 0, len(data))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"properties": b"p" * 32768}, "properties of 32768 bytes"),
        ({"topic": b"t" * 32768}, "topic of 32768 bytes"),
        ({"queue_id": 2**31}, "does not fit its field"),
        ({"topic": b"t" * 32767, "flag": 2**40}, "does not fit its field"),
        ({"properties": b"p" * 32767, "flag": 2**40}, "does not fit its field"),
        ({"queue_offset": 2**63}, "does not fit its field"),
        ({"born_host": b"1234567"}, "8 or 20 bytes, not 7"),
        ({"store_host": bytes(16)}, "8 or 20 bytes, not 16"),
        ({"topic": LONG_TOPIC, "flag": 2**40}, "does not fit its field"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Any], text: str) -> None:
    with pytest.raises(RecordError, match=text):
        r.encode_record(**FIELDS | change)


@given(st.binary(max_size=120), st.integers(0, 130), st.sampled_from([V1, V6, V2]))
def test_damage_is_a_record_error_or_a_record(noise: bytes, place: int, data: bytes) -> None:
    copy = data[:place] + noise + data[place + len(noise) :]
    try:
        record = r.decode_record(copy)
        r.to_message(record, "b")
    except RecordError:
        pass
    try:
        size = r.check_record(copy, 0, len(copy))
    except RecordError:
        return
    assert size == 0 or r.decode_record(copy, check_crc=True).size == size


@given(st.binary(max_size=300))
def test_noise_is_a_record_error_or_records(noise: bytes) -> None:
    try:
        assert sum(record.size for record in r.decode_records(noise)) == len(noise)
    except RecordError:
        pass


@pytest.mark.parametrize("kind", list(CompressionType))
def test_a_compressed_body_is_decompressed_for_consumers(kind: CompressionType) -> None:
    flag = with_compression(0, kind)
    data = r.encode_record(**FIELDS | {"body": compress(b"hello" * 50, kind), "sys_flag": flag})
    record = r.decode_record(data)
    message = r.to_message(record, "b")
    assert message.body == b"hello" * 50
    assert message.sys_flag == without_compressed_bit(flag)
    assert message.store_size == len(data)
    kept = r.to_message(record, "b", decompress=False)
    assert (kept.body, kept.sys_flag) == (record.body, flag)


def test_a_body_that_only_looks_compressed_stays_as_it_is() -> None:
    body = compress(b"hello" * 50, CompressionType.ZLIB)
    assert r.to_message(r.decode_record(r.encode_record(**FIELDS | {"body": body})), "b").body == body


def test_a_body_that_cannot_be_decompressed_is_refused() -> None:
    data = r.encode_record(**FIELDS | {"sys_flag": with_compression(0, CompressionType.ZLIB)})
    with pytest.raises(RecordError, match="cannot be read"):
        r.to_message(r.decode_record(data), "b")


def test_the_unique_key_is_the_message_id() -> None:
    text = properties.encode({"UNIQ_KEY": "7F00", "KEYS": "a b"})
    message = r.to_message(r.decode_record(r.encode_record(**FIELDS | {"properties": text})), "b")
    assert message.message_id == "7F00"
    assert message.keys == ["a", "b"]


@given(RECORDS, st.binary(max_size=5), st.sampled_from([bytes, bytearray, memoryview]))
def test_properties_are_found_without_decoding_the_rest(
    fields: dict[str, Any], before: bytes, kind: type
) -> None:
    data = r.encode_record(**fields)
    assert r.find_properties(kind(before + data + b"tail"), len(before)) == fields["properties"]
    assert r.find_properties(kind(before + V2 + data), len(before)) == FIELDS["properties"]


@given(st.binary(max_size=120), st.integers(0, 130), st.sampled_from([V1, V6, V2]))
def test_properties_of_a_damaged_record_are_its_properties_or_an_error(
    noise: bytes, place: int, data: bytes
) -> None:
    damaged = data[:place] + noise + data[place + len(noise) :]
    try:
        found = r.find_properties(damaged, 0)
    except RecordError:
        return
    assert damaged.endswith(found) or int.from_bytes(damaged[:4], "big") < len(damaged)


@pytest.mark.parametrize(
    ("data", "place", "form", "value"),
    [
        *((V1, 84, ">i", -20), (V1, 84, ">i", -1), (V2, 84, ">i", -1000), (V1, 100, ">h", -2)),
        *((V2, 93, ">h", -40), (V2, 93, ">h", -1), (V2, 93, ">h", -4)),
    ],
)
def test_negative_lengths_hide_no_properties(data: bytes, place: int, form: str, value: int) -> None:
    with pytest.raises(RecordError, check=about(value=3)):
        r.find_properties(b"abc" + broken(data, place, form, value), 3)
