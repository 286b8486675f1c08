"""Messages that wait until they are old enough. `tests/client/test_knobs.py` and `test_lite_pull.py` have
consumers that do.
"""

from __future__ import annotations

import pytest

from sparrowmq.client.aging import Young, first_young
from sparrowmq.core.errors import RecordError
from sparrowmq.core.ids import pack_host
from sparrowmq.protocol.record import encode_record

V4, V6 = pack_host("127.0.0.1", 10911), pack_host("::1", 10911)


def records(*stored_ms: int, host: bytes = V4, sys_flag: int = 0) -> bytes:
    """Records of queue offsets from 0 on, stored at these times."""
    return b"".join(
        encode_record(
            topic=b"T",
            queue_id=2,
            queue_offset=offset,
            physical_offset=offset * 100,
            body=b"body",
            properties=b"",
            flag=0,
            sys_flag=sys_flag,
            born_timestamp=stored - 5,
            born_host=host,
            store_timestamp=stored,
            store_host=host,
            reconsume_times=0,
            prepared_offset=0,
        )
        for offset, stored in enumerate(stored_ms)
    )


@pytest.mark.parametrize(("host", "sys_flag"), [(V4, 0), (V6, 0x30)], ids=["v4", "v6"])
def test_the_first_that_is_too_young_is_found_at_its_place(host: bytes, sys_flag: int) -> None:
    buffer = records(100, 200, 300, host=host, sys_flag=sys_flag)
    one = len(buffer) // 3
    assert first_young(buffer, 99) == Young(0, 0, 100)
    assert first_young(buffer, 100) == Young(one, 1, 200)
    assert first_young(buffer, 299.9) == Young(2 * one, 2, 300)
    assert first_young(buffer, 300) is None
    assert first_young(b"", 0) is None


def test_an_old_one_after_a_young_one_waits_with_it() -> None:
    assert first_young(records(100, 300, 200), 250) == Young(len(records(1)), 1, 300)


@pytest.mark.parametrize("broken", [b"\0" * 200, records(100)[:-1], records(100) + b"xy"])
def test_what_is_not_whole_records_is_refused(broken: bytes) -> None:
    with pytest.raises(RecordError):
        first_young(broken, 1000)
