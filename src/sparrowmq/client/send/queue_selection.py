"""Selection of the queue for a message: round robin, another broker after a failure, or a selector
(client:B.6, B.11).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from sparrowmq.client.send.encoding import SendTarget
from sparrowmq.core.errors import ClientError
from sparrowmq.core.hashing import java_hash
from sparrowmq.core.message import Message, MessageQueue

QueueSelector = Callable[[Sequence[MessageQueue], Message, Any], MessageQueue | None]
"""(queues of the topic in order, message, argument) → one of the queues."""

_INDEX_MASK: Final = 0x7FFFFFFF


class PublishInfo:
    """The writable queues of one topic, and the index of the round robin.

    The index starts at random, so that producers that start together spread over the queues (client:B-20).
    """

    __slots__ = ("_index", "is_spread", "targets", "topic")

    def __init__(self, topic: str, targets: Sequence[SendTarget], index: int) -> None:
        self.topic = topic
        self.targets = tuple(targets)
        self.is_spread = len({target.queue.broker_name for target in targets}) > 1
        """Whether the queues are on several brokers."""
        self._index = index

    @property
    def index(self) -> int:
        """The number of turns taken."""
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

    def of_key(self, key: str) -> SendTarget:
        """The queue of an ordering key: the one that `select_by_hash` chooses."""
        return self.targets[abs(java_hash(key)) % len(self.targets)]

    def give_back(self) -> None:
        """Return the last turn, which was not used."""
        self._index = (self._index - 1) & _INDEX_MASK

    def next_other(self, last_broker: str | None) -> SendTarget:
        """The next queue in turn that is not on `last_broker`; one on it if all are (client:B-21)."""
        if last_broker is not None:
            for _ in self.targets:
                target = self.next()
                if target.queue.broker_name != last_broker:
                    return target
        return self.next()

    def shuffle(self, rng: random.Random) -> None:
        """Continue the round robin at another index (client:B.7-4)."""
        self._index = rng.randrange(2**31)

    def elsewhere(self, failed: SendTarget) -> SendTarget:
        """The queue with the queue id of `failed` on the next other broker (client:B-29).

        If that broker has no such queue, its next one; `failed` if there is no other broker.
        """
        target = self.next_other(failed.queue.broker_name)
        name, number = target.queue.broker_name, failed.queue.queue_id
        if name == failed.queue.broker_name:
            return failed
        same = self.find(MessageQueue(self.topic, name, number))
        return same or target

    def find(self, queue: MessageQueue) -> SendTarget | None:
        """The target for `queue`, or None if it is not a writable queue of the topic."""
        return next((target for target in self.targets if target.queue == queue), None)


def select_by_hash(queues: Sequence[MessageQueue], message: Message, argument: object) -> MessageQueue:
    """`SelectMessageQueueByHash`: abs(hash of the argument as a string) modulo the number of queues
    (client:B-52).

    Uses Java's hash of a string; an integer within 32 bits hashes to itself, like Java's `Integer`.
    """
    if isinstance(argument, int) and not isinstance(argument, bool) and -(2**31) <= argument < 2**31:
        value = argument
    else:
        value = java_hash(str(argument))
    return queues[abs(value) % len(queues)]


def select_by_random(queues: Sequence[MessageQueue], message: Message, argument: object) -> MessageQueue:
    """`SelectMessageQueueByRandom`: any queue with equal probability (client:B-53)."""
    from sparrowmq.core.randomness import RANDOM  # for code that uses this selector

    return RANDOM.choice(queues)


def select_target(
    info: PublishInfo, selector: QueueSelector, message: Message, argument: object
) -> SendTarget:
    """The target that a selector chose.

    Raises `ClientError` if the selector raises, returns nothing or returns a queue that the topic does not
    have (client:B-35).
    """
    name = getattr(selector, "__name__", repr(selector))
    try:
        queue = selector(info.queues, message, argument)
    except Exception as error:
        raise ClientError(
            f"the queue selector {name} failed for topic {info.topic!r}: {type(error).__name__}: {error}",
            what="selector",
            value=name,
        ) from error
    target = None if queue is None else info.find(queue)
    if target is None:
        raise ClientError(
            f"the queue selector {name} returned {queue}, which is not one of the {len(info.targets)} "
            f"queues of {info.topic!r}; return one of its arguments",
            what="selector",
            value=name,
        )
    return target


def one_choice(
    queue: MessageQueue | None, selector: QueueSelector | None, hash_key: object
) -> QueueSelector | None:
    """The selector to use. Raises `ClientError` if queue selection is given in more than one way."""
    given = [
        name
        for name, value in (("queue", queue), ("selector", selector), ("hash_key", hash_key))
        if value is not None
    ]
    if len(given) > 1:
        text = f"{' and '.join(given)} both select the queue; give one of them"
        raise ClientError(text, what="choice", value=given)
    return select_by_hash if hash_key is not None else selector
