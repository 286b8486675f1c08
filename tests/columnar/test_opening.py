"""Bodies that are larger once they are decompressed, and those that cannot be decompressed."""

from __future__ import annotations

import zlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.columnar.records import HOST6, chunk, packed, record

from sparrowmq.columnar import opening
from sparrowmq.columnar.decode import decode, decode_batches
from sparrowmq.columnar.layout import layout
from sparrowmq.columnar.opening import opened_spans
from sparrowmq.columnar.rows import decode_rows
from sparrowmq.columnar.schema import TYPES, arrow_schema
from sparrowmq.core.errors import CompressedBodyError, RecordError
from sparrowmq.protocol.compression import decompress
from sparrowmq.protocol.sysflag import CompressionType

OPENED, LIMIT = 4000, 10_000
EVERYTHING = arrow_schema(tuple(TYPES))
KINDS = ["plain", None, *CompressionType]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the bodies that were decompressed, in order."""
    sizes: list[int] = []

    def noted(body: bytes, sys_flag: int) -> bytes:
        data = decompress(body, sys_flag)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(opening, "decompress", noted)
    return sizes


def test_a_small_chunk_of_large_bodies_is_opened_piece_by_piece(opened: list[int]) -> None:
    buffer = b"".join(record(offset, zlib.compress(bytes(OPENED)), sys_flag=1) for offset in range(100))
    given = 0
    for batch, shut in decode_batches(buffer, bytes_max=LIMIT):
        assert not shut
        sizes = [len(body) for body in batch["body"].to_pylist()]
        assert sizes == [OPENED] * 2
        given += sum(sizes)
        assert sum(opened) - given <= OPENED, "more than the next body is held beside the batch"
    assert given == sum(opened) == 100 * OPENED


def test_a_body_over_the_limit_has_a_batch_of_its_own() -> None:
    large, flag = packed(CompressionType.ZSTD, bytes(3 * LIMIT))
    buffer = record(0) + record(1, large, sys_flag=flag) + record(2) + record(3, bytes(LIMIT)) + record(4)
    batches = [batch for batch, _ in decode_batches(buffer, bytes_max=LIMIT)]
    assert [batch["queue_offset"].to_pylist() for batch in batches] == [[0], [1], [2], [3], [4]]
    assert batches[1]["body"].to_pylist() == [bytes(3 * LIMIT)]


def test_what_is_not_read_is_not_opened(opened: list[int]) -> None:
    buffer = b"".join(record(offset, zlib.compress(bytes(OPENED)), sys_flag=1) for offset in range(100))
    found = decode_batches(buffer, arrow_schema(["queue_offset"]), bytes_max=LIMIT)
    assert sum(batch.num_rows for batch, _ in found) == 100
    assert opened == []


def test_an_empty_layout_is_one_empty_span() -> None:
    [span] = opened_spans(b"", layout(b""), LIMIT)
    assert (span.start, span.stop) == (0, 0)
    [(batch, _)] = decode_batches(chunk(3), bytes_max=1, offsets=range(7, 9))
    assert batch.num_rows == 0


def test_only_what_cannot_be_opened_stays_as_it_is() -> None:
    good, flag = packed(CompressionType.ZLIB, b"opened")
    buffer = b"".join(
        [
            record(0, b"plain"),
            record(1, good, sys_flag=flag),
            record(2, b"shut", sys_flag=flag),
            record(3, b"shut6", sys_flag=flag, store_host=HOST6, born_host=HOST6),
        ]
    )
    with pytest.raises(CompressedBodyError, match="topic TopicTest, queue 3, offset 2: the body cannot be"):
        decode(buffer)
    [(batch, shut)] = decode_batches(buffer, bytes_max=LIMIT)
    assert batch["body"].to_pylist() == [b"plain", b"opened", b"shut", b"shut6"]
    assert {row: body.queue_offset for row, body in shut.items()} == {2: 2, 3: 3}
    assert shut[2].reason.startswith("a compressed body of 4 bytes cannot be read: ")
    each = [sorted(shut) for _, shut in decode_batches(buffer, bytes_max=1)]
    assert each == [[], [], [0], [0]], "rows count from the first of their batch"


def test_a_body_that_inflates_beyond_a_message_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "decompress", lambda body, flag: decompress(body, flag, bytes_max=100))
    bomb, flag = packed(CompressionType.LZ4, bytes(101))
    [(batch, shut)] = decode_batches(record(7, bomb, sys_flag=flag), bytes_max=LIMIT)
    assert batch["body"].to_pylist() == [bomb]
    assert "holds more than the limit of 100 bytes" in shut[0].reason


def test_bytes_that_are_no_record_are_refused() -> None:
    with pytest.raises(RecordError):
        list(decode_batches(b"\0" * 200, bytes_max=LIMIT))


@given(
    st.lists(st.tuples(st.integers(1, 3000), st.sampled_from(KINDS)), min_size=1, max_size=90),
    st.sampled_from([1, 500, 3000, 20_000, 10**6]),
    st.booleans(),
)
def test_any_limit_gives_the_same_rows_in_batches_within_it(
    bodies: list[tuple[int, CompressionType | str | None]], limit: int, cut: bool
) -> None:
    stored, opened = [], []
    for offset, (size, kind) in enumerate(bodies):
        body = bytes([offset]) * size
        data, flag = (body, 0) if isinstance(kind, str) else packed(kind, body)
        stored.append(record(offset, data, sys_flag=flag))
        opened.append(len(stored[-1]) - len(data) + size)
    offsets = range(len(bodies) // 3, len(bodies)) if cut else range(len(bodies))
    buffer = b"".join(stored)
    found = [batch for batch, _ in decode_batches(buffer, EVERYTHING, bytes_max=limit, offsets=offsets)]
    assert (
        pa.Table.from_batches(found)
        .combine_chunks()
        .equals(pa.Table.from_batches([decode_rows(buffer, EVERYTHING, offsets=offsets)]))
    )
    for batch in found:
        size = sum(opened[offset] for offset in batch["queue_offset"].to_pylist())
        assert batch.num_rows == 1 or size <= limit
