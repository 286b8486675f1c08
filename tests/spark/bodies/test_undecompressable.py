"""Bodies that say they are compressed and are not, among good ones."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType
from tests.columnar.records import packed, record

from sparrowmq.columnar.decode import ROWS_LOOP_MAX
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.sysflag import CompressionType
from sparrowmq.spark.bodies.decoding import BadBodyError
from sparrowmq.spark.bodies.schema import read_shape
from sparrowmq.spark.options.table import ReadOptions
from sparrowmq.spark.read.fetch import RecordChunk, decode_chunk

QUEUE = MessageQueue("t", "broker-a", 2)
OFFSET, BODY = StructField("queue_offset", LongType()), StructField("body", BinaryType())
REASON = StructField("_corrupt_reason", StringType())
TEXT, CORRUPT = StructField("body", StringType()), StructField("_corrupt_record", BinaryType())


def _read(count: int, fields: list[StructField], **options: str) -> pa.RecordBatch:
    """`count` records; the second is whole and compressed, the third says so and holds plain text."""
    good, flag = packed(CompressionType.ZSTD, b"opened")
    records = [
        record(0, b"plain"),
        record(1, good, sys_flag=flag),
        record(2, b"shut", sys_flag=flag),
        *(record(offset, b"plain", properties=b"TAGS\x01B\x02") for offset in range(3, count)),
    ]
    parsed = ReadOptions.parse({"nameServer": "a:1", "subscribe": "t", **options}, None, {})
    shape = read_shape(StructType(fields), parsed)
    [stored] = decode_chunk(RecordChunk(QUEUE, 0, count, 0, b"".join(records)), shape.stored, parsed)
    batch = shape.fit(stored, QUEUE)
    assert batch.schema == shape.given
    return batch


@pytest.mark.proves("spark:D-04")
@pytest.mark.parametrize("count", [4, ROWS_LOOP_MAX + 10])
def test_each_mode_does_what_it_says(count: int) -> None:
    rest = [b"plain"] * (count - 3)
    kept = _read(count, [OFFSET, BODY], mode="PERMISSIVE")
    assert kept["body"].to_pylist() == [b"plain", b"opened", None, *rest]
    assert kept["queue_offset"].to_pylist() == list(range(count))
    left_out = _read(count, [BODY], mode="DROPMALFORMED")
    assert left_out["body"].to_pylist() == [b"plain", b"opened", *rest]
    with pytest.raises(
        BadBodyError,
        match=r"queue t/broker-a/2: the body at offset 2 cannot be decompressed: a compressed body of 4 .*"
        r"mode=PERMISSIVE keeps such rows with a null body, DROPMALFORMED drops them",
    ):
        _read(count, [BODY])


@pytest.mark.parametrize("count", [4, ROWS_LOOP_MAX + 10])
def test_decoded_bodies_keep_the_stored_bytes_beside_null(count: int) -> None:
    batch = _read(count, [TEXT, CORRUPT], bodyFormat="text")
    assert batch["body"].to_pylist()[:4] == ["plain", "opened", None, "plain"]
    assert batch["_corrupt_record"].to_pylist()[:4] == [None, None, b"shut", None]
    assert _read(count, [TEXT], bodyFormat="text", mode="DROPMALFORMED").num_rows == count - 1
    with pytest.raises(BadBodyError, match="the body at offset 2 cannot be decompressed"):
        _read(count, [TEXT], bodyFormat="text", mode="FAILFAST")


@pytest.mark.parametrize("body", [BODY, TEXT], ids=["binary", "text"])
def test_why_a_body_is_shut_is_told(body: StructField) -> None:
    batch = _read(
        4, [body, CORRUPT, REASON], bodyFormat="text" if body is TEXT else "binary", mode="PERMISSIVE"
    )
    assert batch["_corrupt_record"].to_pylist() == [None, None, b"shut", None]
    [none, also_none, why, again_none] = batch["_corrupt_reason"].to_pylist()
    assert (none, also_none, again_none) == (None, None, None)
    assert why.startswith("a compressed body of 4 bytes")


def test_bodies_that_are_not_read_are_not_opened() -> None:
    for count in (4, ROWS_LOOP_MAX + 10):
        assert _read(count, [OFFSET])["queue_offset"].to_pylist() == list(range(count))


def test_a_filter_by_tag_leaves_shut_bodies_out_or_in() -> None:
    good = _read(10, [OFFSET, BODY], tags="B", mode="PERMISSIVE")
    assert good["queue_offset"].to_pylist() == list(range(3, 10))
    tagged = _read(10, [OFFSET, BODY], tags="TagA", mode="PERMISSIVE")
    assert tagged["queue_offset"].to_pylist() == [0, 1, 2]
    assert tagged["body"].to_pylist()[2] is None
