"""Bodies that cannot be opened, in records of both versions and address families."""

from __future__ import annotations

import pytest
from tests.columnar.records import HOST6, packed, record

from sparrowmq.columnar.decode import decode
from sparrowmq.columnar.undecompressable import as_stored
from sparrowmq.core.errors import CompressedBodyError, RecordError
from sparrowmq.protocol.sysflag import CompressionType


def test_only_what_cannot_be_opened_is_marked_as_plain() -> None:
    good, flag = packed(CompressionType.ZLIB, b"opened")
    chunk = b"".join(
        [
            record(0, b"plain"),
            record(1, good, sys_flag=flag),
            record(2, b"shut", sys_flag=flag),
            record(3, b"shut6", sys_flag=flag, store_host=HOST6, born_host=HOST6),
        ]
    )
    with pytest.raises(CompressedBodyError):
        decode(chunk)
    opened, reasons = as_stored(chunk)
    assert list(reasons) == [2, 3]
    assert reasons[2].startswith("a compressed body of 4 bytes cannot be read: ")
    assert decode(opened)["body"].to_pylist() == [b"plain", b"opened", b"shut", b"shut6"]
    assert as_stored(record(0)) == (record(0), {})


def test_bytes_that_are_no_record_are_refused() -> None:
    with pytest.raises(RecordError):
        as_stored(b"\0" * 200)
