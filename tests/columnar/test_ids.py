from __future__ import annotations

import zlib

import numpy as np
import pyarrow as pa
import pytest

from sparrowmq.columnar.ids import IDS_MAX, UniqueIdColumns, body_checksums, hex_column
from sparrowmq.core.ids import UniqueIds

NOW = 1_700_000_000_000


def test_ids_have_the_form_of_the_reference() -> None:
    column = UniqueIdColumns("10.1.2.3").next(3, NOW)
    column.validate(full=True)
    first, second, third = column.to_pylist()
    reference = UniqueIds("10.1.2.3").next(NOW)
    assert first[:8] == reference[:8] == "0A010203"
    assert first[20:28] == reference[20:28]
    assert [first[28:], second[28:], third[28:]] == ["0000", "0001", "0002"]
    assert first[:28] == third[:28]


def test_an_ipv6_address_makes_longer_ids() -> None:
    assert len(UniqueIdColumns("::1").next(1)[0].as_py()) == 56


def test_calls_in_one_millisecond_never_repeat_an_id() -> None:
    ids = UniqueIdColumns("127.0.0.1")
    columns = [ids.next(IDS_MAX, NOW), ids.next(10, NOW), ids.next(10, NOW - 5), ids.next(0, NOW)]
    texts = [text for column in columns for text in column.to_pylist()]
    assert len(set(texts)) == len(texts) == IDS_MAX + 20
    assert texts[IDS_MAX - 1].endswith("FFFF")


@pytest.mark.parametrize("count", [-1, IDS_MAX + 1])
def test_a_count_out_of_range_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match="the limit is 65536"):
        UniqueIdColumns("127.0.0.1").next(count)


def test_bytes_become_hex() -> None:
    rows = np.arange(256, dtype=np.uint8).reshape(16, 16)
    column = hex_column(rows)
    column.validate(full=True)
    assert column.to_pylist() == [bytes(row).hex().upper() for row in rows]
    assert hex_column(rows[:0]).to_pylist() == []


def test_checksums_are_those_of_each_body() -> None:
    bodies = pa.array([b"", b"hello", None, b"x" * 1000], pa.binary())
    assert body_checksums(bodies).tolist() == [zlib.crc32(value or b"") for value in bodies.to_pylist()]
    assert body_checksums(bodies.slice(1, 1)).tolist() == [zlib.crc32(b"hello")]
