"""Results of sends and pulls."""

from __future__ import annotations

import dataclasses

import pytest

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
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.queue_offset = 6  # type: ignore[misc]
    batch = RawBatch(PullStatus.FOUND, b"", 0, 1, 0, 1)
    assert batch == dataclasses.replace(batch)
