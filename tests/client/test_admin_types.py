from __future__ import annotations

from sparrowmq.client.admin_types import QueueProgress, QueueStatus
from sparrowmq.core.message import MessageQueue

QUEUE = MessageQueue("T", "b", 0)


def test_messages_are_what_lies_between_the_offsets() -> None:
    assert QueueStatus(QUEUE, 3, 10, 0).messages == 7


def test_lag_is_what_the_group_has_not_consumed() -> None:
    assert QueueProgress(QUEUE, 10, 4, 0).lag == 6
