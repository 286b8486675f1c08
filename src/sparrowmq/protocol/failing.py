"""Queues in which a member's handlers fail, as listed in its running info (307). Java's members report only
topics.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from sparrowmq.core.message import MessageQueue

FAILING_PROPERTY: Final = "failingQueues"
"""The property in the running info; members without it do not report failing queues."""
TOLD_MAX: Final = 200
"""Maximum number of reported queues: those that have failed longest."""


class FailingQueue(NamedTuple):
    """A queue without success since its first failure `seconds` ago, and the number of failed
    messages since.
    """

    queue: MessageQueue
    failed: int
    seconds: int


def failing_text(queues: Iterable[FailingQueue]) -> str:
    """The value of the property."""
    longest = sorted(queues, key=lambda one: (-one.seconds, one.queue))[:TOLD_MAX]
    return msgspec.json.encode(
        [
            (one.queue.topic, one.queue.broker_name, one.queue.queue_id, one.failed, one.seconds)
            for one in longest
        ]
    ).decode()


def failing_of(text: str) -> list[FailingQueue]:
    """The queues in that value; empty for invalid text."""
    try:
        found = msgspec.json.decode(text, type=list[tuple[str, str, int, int, int]])
    except msgspec.DecodeError:
        return []
    return [
        FailingQueue(MessageQueue(topic, broker, number), failed, seconds)
        for topic, broker, number, failed, seconds in found[:TOLD_MAX]
    ]
