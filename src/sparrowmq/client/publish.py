"""Which queue a message goes to: in turn, another broker after a failure, by selector (client:B.6, B.11)."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from sparrowmq.client.sending import SendTarget
from sparrowmq.core.errors import ClientError
from sparrowmq.core.hashing import java_hash
from sparrowmq.core.message import Message, MessageQueue

QueueSelector = Callable[[Sequence[MessageQueue], Message, Any], MessageQueue | None]
"""(queues of the topic in order, message, argument) → one of the queues."""

_INDEX_MASK: Final = 0x7FFFFFFF


class PublishInfo:
    """The queues of one topic a producer may send to, and whose turn it is.

    The index starts at random, so that producers which start together spread over the queues (client:B-20).
    """

    __slots__ = ("_index", "targets", "topic")

    def __init__(self, topic: str, targets: Sequence[SendTarget], index: int) -> None:
        self.topic = topic
        self.targets = tuple(targets)
        self._index = index

    @property
    def index(self) -> int:
        """How many turns were given."""
        return self._index

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues, in the order of the route."""
        return [target.queue for target in self.targets]

    def next(self) -> SendTarget:
        """The next queue in turn."""
        targets = self.targets
        self._index = index = (self._index + 1) & _INDEX_MASK
        return targets[index % len(targets)]

    def give_back(self) -> None:
        """The last turn was not used."""
        self._index = (self._index - 1) & _INDEX_MASK

    def next_other(self, last_broker: str | None) -> SendTarget:
        """The next queue in turn that is not on `last_broker`; on it when all are (client:B-21)."""
        if last_broker is not None:
            for _ in self.targets:
                target = self.next()
                if target.queue.broker_name != last_broker:
                    return target
        return self.next()

    def shuffle(self, rng: random.Random) -> None:
        """Let the turn go on somewhere else (client:B.7-4)."""
        self._index = rng.randrange(2**31)

    def elsewhere(self, failed: SendTarget) -> SendTarget:
        """The queue with the number of `failed` on the next other broker (client:B-29).

        The next other queue when that broker has no such number; `failed` when there is no other broker.
        """
        target = self.next_other(failed.queue.broker_name)
        name, number = target.queue.broker_name, failed.queue.queue_id
        if name == failed.queue.broker_name:
            return failed
        same = self.find(MessageQueue(self.topic, name, number))
        return same or target

    def find(self, queue: MessageQueue) -> SendTarget | None:
        """The target of `queue`, or None when the topic has no such queue to write to."""
        return next((target for target in self.targets if target.queue == queue), None)


def select_by_hash(queues: Sequence[MessageQueue], message: Message, argument: object) -> MessageQueue:
    """`SelectMessageQueueByHash`: abs(hash of the argument's text) modulo the number of queues (client:B-52).

    Java's hash of a string; an integer within 32 bits hashes to itself, as Java's `Integer` does.
    """
    if isinstance(argument, int) and not isinstance(argument, bool) and -(2**31) <= argument < 2**31:
        value = argument
    else:
        value = java_hash(str(argument))
    return queues[abs(value) % len(queues)]


def select_by_random(queues: Sequence[MessageQueue], message: Message, argument: object) -> MessageQueue:
    """`SelectMessageQueueByRandom`: any queue, each as likely (client:B-53)."""
    return random.choice(queues)


def select_target(
    info: PublishInfo, selector: QueueSelector, message: Message, argument: object
) -> SendTarget:
    """The target a selector chose.

    Raises `ClientError` when the selector raises, gives nothing or gives a queue the topic does not have
    (client:B-35).
    """
    name = getattr(selector, "__name__", repr(selector))
    try:
        queue = selector(info.queues, message, argument)
    except Exception as error:
        raise ClientError(
            f"the queue selector {name} failed for topic {info.topic!r}: {type(error).__name__}: {error}"
        ) from error
    target = None if queue is None else info.find(queue)
    if target is None:
        raise ClientError(
            f"the queue selector {name} gave {queue}, which is not one of the {len(info.targets)} queues of "
            f"{info.topic!r}; return one of the queues it was given"
        )
    return target


def one_choice(
    queue: MessageQueue | None, selector: QueueSelector | None, hash_key: object
) -> QueueSelector | None:
    """The selector in effect. Raises `ClientError` when more than one way to choose a queue is given."""
    given = [
        name
        for name, value in (("queue", queue), ("selector", selector), ("hash_key", hash_key))
        if value is not None
    ]
    if len(given) > 1:
        raise ClientError(f"{' and '.join(given)} both choose the queue; give one of them")
    return select_by_hash if hash_key is not None else selector
