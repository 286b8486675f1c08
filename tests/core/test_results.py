"""Results of sends and pulls."""

from __future__ import annotations

import dataclasses

import pytest
from tests.support import about

from sparrowmq.core.errors import RecordError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.results import PullStatus, RawBatch, SendResult, SendStatus


@pytest.mark.parametrize(
    ("status", "code"),
    [("SEND_OK", 0), ("FLUSH_DISK_TIMEOUT", 10), ("SLAVE_NOT_AVAILABLE", 11), ("FLUSH_SLAVE_TIMEOUT", 12)],
)
def test_send_statuses_are_response_codes(status: str, code: int) -> None:
    assert SendStatus(code).name == status


def test_results_are_values() -> None:
    result = SendResult(SendStatus.SEND_OK, "U", "O", MessageQueue("T", "b", 1), 5)
    assert result == SendResult(SendStatus.SEND_OK, "U", "O", MessageQueue("T", "b", 1), 5, None)
    with pytest.raises(AttributeError):
        result.queue_offset = 6  # type: ignore[misc]
    batch = RawBatch(PullStatus.FOUND, b"", 1, 0, 1)
    assert batch == dataclasses.replace(batch)


def _record(size: int) -> bytes:
    return size.to_bytes(4, "big") + bytes(size - 4)


def test_raw_batch_counts_its_records() -> None:
    for sizes in ([], [91], [91, 200, 91]):
        buffer = b"".join(map(_record, sizes))
        assert RawBatch(PullStatus.FOUND, buffer, 0, 0, 0).count == len(sizes)


def test_counting_broken_records_of_a_raw_batch_raises() -> None:
    whole = _record(91) + _record(120)
    for cut in range(1, len(whole)):
        if cut != 91:
            with pytest.raises(RecordError, check=about(value=91 if cut > 91 else 0, limit=cut)):
                _ = RawBatch(PullStatus.FOUND, whole[:cut], 0, 0, 0).count
    for size in (0, 1, 90, 2**31 - 1, -1):
        broken = whole[:91] + size.to_bytes(4, "big", signed=True) + whole[95:]
        with pytest.raises(RecordError, check=about(value=91)):
            _ = RawBatch(PullStatus.FOUND, broken, 0, 0, 0).count
