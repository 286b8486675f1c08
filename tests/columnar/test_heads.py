from __future__ import annotations

import pytest
from tests.columnar.records import HOST, HOST6, record
from tests.support import about

from sparrowmq.columnar.heads import RecordHead, first_head
from sparrowmq.core.errors import RecordError
from sparrowmq.protocol.record import decode_record


@pytest.mark.parametrize("born_host", [HOST, HOST6])
@pytest.mark.parametrize("store_host", [HOST, HOST6])
def test_it_says_what_the_whole_record_says(born_host: bytes, store_host: bytes) -> None:
    one = record(
        7, b"a body", born_host=born_host, store_host=store_host, queue_id=5, flag=9, physical_offset=2**40
    )
    whole = decode_record(one)
    assert first_head(one + record(8)) == RecordHead(
        whole.body_crc,
        whole.queue_offset,
        whole.physical_offset,
        whole.born_timestamp,
        whole.store_timestamp,
    )


def test_there_is_none_without_a_record_and_an_error_for_a_part_of_one() -> None:
    assert first_head(b"") is None
    with pytest.raises(RecordError, check=about(what="head", value=75, limit=76)):
        first_head(record()[:75])
