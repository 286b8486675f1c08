"""Queues in which a member's handlers fail, as its running info (307) tells them beside what Java's members
tell: those know topics only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from sparrowmq.core.message import MessageQueue

FAILING_PROPERTY: Final = "failingQueues"
"""In the running info's properties; a member that does not have it cannot tell."""
TOLD_MAX: Final = 200
"""Queues that a member tells of at most, those that fail longest."""


class FailingQueue(NamedTuple):
    """A queue without a success since its first failure `seconds` ago, and how many messages failed since."""

    queue: MessageQueue
    failed: int
    seconds: int


def failing_text(queues: Iterable[FailingQueue]) -> str:
    """The property's value."""
    longest = sorted(queues, key=lambda one: (-one.seconds, one.queue))[:TOLD_MAX]
    return msgspec.json.encode(
        [
            (one.queue.topic, one.queue.broker_name, one.queue.queue_id, one.failed, one.seconds)
            for one in longest
        ]
    ).decode()


def failing_of(text: str) -> list[FailingQueue]:
    """What that value says; nothing for a text that is none."""
    try:
        found = msgspec.json.decode(text, type=list[tuple[str, str, int, int, int]])
    except msgspec.DecodeError:
        return []
    return [
        FailingQueue(MessageQueue(topic, broker, number), failed, seconds)
        for topic, broker, number, failed, seconds in found[:TOLD_MAX]
    ]
