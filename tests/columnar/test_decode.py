from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.columnar.records import HOST6, chunk, ledger_of, log_of, packed, record, records
from tests.support import about

from sparrowmq.columnar import decode as module
from sparrowmq.columnar.decode import ROWS_LOOP_MAX, decode, decode_vectors
from sparrowmq.columnar.rows import MILLIS_MAX, MILLIS_MIN, decode_rows
from sparrowmq.columnar.schema import DEFAULT_COLUMNS, TYPES, arrow_schema
from sparrowmq.core.errors import RecordError
from sparrowmq.protocol.sysflag import CompressionType

EVERYTHING = arrow_schema(tuple(TYPES))
STORES = ["rmq-4.9.7-small-clean", "rmq-5.5.0-small-clean", "rmq-5.5.0-small-kill9"]


def _agree(buffer: bytes, offsets: range | None = None) -> pa.RecordBatch:
    fast = decode_vectors(buffer, EVERYTHING, broker_name="broker-a", offsets=offsets)
    slow = decode_rows(buffer, EVERYTHING, broker_name="broker-a", offsets=offsets)
    fast.validate(full=True)
    assert fast.schema.equals(slow.schema)
    assert [name for name in fast.schema.names if not fast[name].equals(slow[name])] == []
    return fast


@given(st.data(), st.lists(st.integers(0, 40), max_size=12))
def test_rows_and_columns_agree(data: st.DataObject, offsets: list[int]) -> None:
    buffer = b"".join(data.draw(records(offset)) for offset in offsets)
    _agree(buffer)
    _agree(buffer, range(5, 30))


@pytest.mark.parametrize("store", STORES)
def test_logs_of_real_brokers_decode_alike_and_as_clients_saw_them(store: str) -> None:
    batch = _agree(log_of(store))
    rows = {row["physical_offset"]: row for row in batch.to_pylist()}
    seen = ledger_of(store, "seen")
    assert len(seen) > 3000
    for want in seen:
        assert _seen(rows[want["offset"]]) == _expected(want)
    acknowledged = [line for line in ledger_of(store, "send") if line["kind"] == "plain"]
    assert len(acknowledged) > 1000
    for line in acknowledged:
        row = rows[int(line["offsetMsgId"][16:], 16)]
        assert (row["topic"], row["queue_id"], row["queue_offset"]) == (
            line["topic"],
            line["queueId"],
            line["queueOffset"],
        )
        assert (row["msg_id"], row["tags"], row["keys"]) == (
            line["msgId"],
            line.get("tags"),
            line.get("keys"),
        )


def _seen(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "topic": row["topic"],
        "queue": (row["queue_id"], row["queue_offset"]),
        "size": row["store_size"],
        "msg_id": row["msg_id"],
        "flag": row["flag"],
        "sys_flag": row["sys_flag"],
        "born": row["born_timestamp"],
        "store": row["store_timestamp"],
        "born_host": row["born_host"].rpartition(":")[0],
        "reconsume": row["reconsume_times"],
        "properties": dict(row["properties"]),
        "body": hashlib.sha1(row["body"]).hexdigest(),
    }


def _expected(want: dict[str, Any]) -> dict[str, Any]:
    return {
        "topic": want["topic"],
        "queue": (want["queueId"], want["queueOffset"]),
        "size": want["size"],
        "msg_id": want["props"].get("UNIQ_KEY") or want["offsetMsgId"],
        "flag": want["flag"],
        "sys_flag": want["sysFlag"],
        "born": datetime.fromtimestamp(want["born"] / 1000, UTC),
        "store": datetime.fromtimestamp(want["store"] / 1000, UTC),
        "born_host": want["bornHost"],
        "reconsume": want["reconsume"],
        "properties": want["props"],
        "body": want["bodySha1"],
    }


@pytest.mark.parametrize("kind", [None, *CompressionType])
def test_compressed_bodies_are_opened_among_plain_ones(kind: CompressionType | None) -> None:
    body, sys_flag = packed(kind, b"text " * 100)
    batch = _agree(record(0) + record(1, body, sys_flag=sys_flag) + record(2))
    assert batch["body"].to_pylist() == [b"body", b"text " * 100, b"body"]
    assert [value & 1 for value in batch["sys_flag"].to_pylist()] == [0, 0, 0]


def test_the_sharding_key_is_a_column_of_its_own() -> None:
    batch = _agree(record(0) + record(1, properties=b"__SHARDINGKEY\x01customer 7\x02TAGS\x01a\x02"))
    assert batch["sharding_key"].to_pylist() == [None, "customer 7"]


def test_a_damaged_compressed_body_is_refused() -> None:
    with pytest.raises(RecordError, match="cannot be read"):
        decode_vectors(record(0, b"not zlib", sys_flag=1))


def test_a_topic_that_is_not_utf8_is_refused_by_both() -> None:
    for read in (decode_vectors, decode_rows):
        with pytest.raises(RecordError):
            read(record(topic=b"\xff\xfe"), EVERYTHING)


def test_a_record_without_unique_key_gets_the_offset_id() -> None:
    batch = _agree(record(1, properties=b"") + record(2) + record(3, properties=b"", store_host=HOST6))
    first, second, third = batch["msg_id"].to_pylist()
    assert first == "7F00000100002710" + f"{1000:016X}"
    assert second == "id"
    assert len(third) == 56


def test_times_that_readers_cannot_hold_are_null() -> None:
    first, last = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, 23, 59, 59, 999_000, UTC)
    times = [
        -(2**63),
        MILLIS_MIN - 1,
        MILLIS_MIN,
        -1,
        0,
        MILLIS_MAX,
        MILLIS_MAX + 1,
        1_764_000_000_000_000,
        2**63 - 1,
    ]
    buffer = b"".join(
        record(offset, born_timestamp=at, store_timestamp=-at - 1) for offset, at in enumerate(times)
    )
    batch = _agree(buffer)
    born = batch["born_timestamp"].to_pylist()
    assert [number for number, at in enumerate(born) if at is None] == [0, 1, 6, 7, 8]
    assert (born[2], born[5]) == (first, last)
    assert batch["store_timestamp"].null_count == 5


def test_joined_answers_that_overlap_lose_their_doubles() -> None:
    def span(first: int, end: int) -> bytes:
        return b"".join(record(offset) for offset in range(first, end))

    buffer = span(0, 50) + span(32, 64) + span(64, 120)
    assert _agree(buffer, range(10, 100))["queue_offset"].to_pylist() == list(range(10, 100))
    assert _agree(buffer, range(200, 300)).num_rows == 0
    assert _agree(span(0, 100), range(100))["queue_offset"].to_pylist() == list(range(100))


@pytest.mark.parametrize("count", [0, 1, ROWS_LOOP_MAX - 1, ROWS_LOOP_MAX, 300])
def test_small_chunks_take_the_loop_and_large_ones_the_vectors(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[str] = []

    def noted(name: str) -> Callable[..., Any]:
        original = getattr(module, name)

        def call(*args: Any, **more: Any) -> Any:
            used.append(name)
            return original(*args, **more)

        return call

    for name in ("decode_rows", "decode_vectors"):
        monkeypatch.setattr(module, name, noted(name))
    batch = decode(chunk(count), broker_name="b")
    assert batch.num_rows == count
    assert batch.schema.names == list(DEFAULT_COLUMNS)
    assert used == ["decode_rows" if count < ROWS_LOOP_MAX else "decode_vectors"]


def test_only_the_wanted_columns_are_made() -> None:
    batch = decode(chunk(200), arrow_schema(["body", "queue_offset"]))
    assert batch.schema.names == ["body", "queue_offset"]
    assert batch["queue_offset"].to_pylist() == list(range(200))


def test_properties_are_not_read_when_no_column_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: pa.Array) -> None:
        raise AssertionError("properties were read")

    monkeypatch.setattr(module, "read_properties", fail)
    names = [name for name in TYPES if name not in ("properties", "tags", "keys", "msg_id", "sharding_key")]
    assert decode(chunk(200), arrow_schema(names)).num_rows == 200


@pytest.mark.parametrize("count", [2, 200])
def test_damage_names_the_byte(count: int) -> None:
    good = chunk(count)
    with pytest.raises(RecordError, check=about(value=len(good))):
        decode(good + struct.pack(">i", 91) + bytes(87))
