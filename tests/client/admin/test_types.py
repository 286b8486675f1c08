from __future__ import annotations

from sparrowmq.client.admin.types import QueueProgress, QueueStatus
from sparrowmq.core.message import MessageQueue

QUEUE = MessageQueue("T", "b", 0)


def test_message_count_is_the_difference_of_offsets() -> None:
    assert QueueStatus(QUEUE, 3, 10, 0).messages == 7


def test_lag_is_what_the_group_has_not_consumed() -> None:
    assert QueueProgress(QUEUE, 10, 4, 0).lag == 6
