"""Messages that wait until they are old enough. `test_dynamic_settings.py` and `test_polling.py` test
consumers with a minimum age."""

from __future__ import annotations

import pytest

from sparrowmq.client.consumer.min_age import Young, first_young
from sparrowmq.core.errors import RecordError
from sparrowmq.core.ids import pack_host
from sparrowmq.protocol.record import encode_record

V4, V6 = pack_host("127.0.0.1", 10911), pack_host("::1", 10911)


def records(*stored_ms: int, host: bytes = V4, sys_flag: int = 0) -> bytes:
    """Records with queue offsets from 0, stored at these times."""
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
def test_first_too_young_message_is_found(host: bytes, sys_flag: int) -> None:
    buffer = records(100, 200, 300, host=host, sys_flag=sys_flag)
    one = len(buffer) // 3
    assert first_young(buffer, 99) == Young(0, 0, 100)
    assert first_young(buffer, 100) == Young(one, 1, 200)
    assert first_young(buffer, 299.9) == Young(2 * one, 2, 300)
    assert first_young(buffer, 300) is None
    assert first_young(b"", 0) is None


def test_old_message_after_a_young_one_waits_with_it() -> None:
    assert first_young(records(100, 300, 200), 250) == Young(len(records(1)), 1, 300)


@pytest.mark.parametrize("broken", [b"\0" * 200, records(100)[:-1], records(100) + b"xy"])
def test_incomplete_records_are_refused(broken: bytes) -> None:
    with pytest.raises(RecordError):
        first_young(broken, 1000)
