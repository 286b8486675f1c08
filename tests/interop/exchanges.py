"""Ordered consumers, failing consumers and transactions of Java's and our clients, behind one face each."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from tests.interop.driver import JavaDriver
from tests.interop.ours import CONSUMER, OurClients
from tests.support import until_sync

from sparrowmq import aio
from sparrowmq.client.base.settings import ConsumerSettings
from sparrowmq.client.consumer.outcomes import Retry
from sparrowmq.client.producer.transaction import HalfMessage, TransactionState
from sparrowmq.core.message import Message, ReceivedMessage

Side = JavaDriver | OurClients
Seen = Callable[[], list[tuple[int, str]]]
Try = tuple[str, int, bytes]
"""Topic, how often it failed before, and body of a message that a failing consumer was given."""

STATES: Final = {"C": TransactionState.COMMIT, "R": TransactionState.ROLLBACK, "U": TransactionState.UNKNOWN}


@contextmanager
def ordered(side: Side, namesrv: str, group: str, topic: str) -> Iterator[Seen]:
    """A running ordered consumer; the function gives queue id and body of all that came, in that order."""
    if isinstance(side, JavaDriver):
        handle = side.call("Exchanges.orderly", namesrv=namesrv, group=group, topic=topic)
        try:
            yield lambda: [(queue, body) for queue, body in side.call("Exchanges.seen", handle=handle)]
        finally:
            side.call("Exchanges.stop", handle=handle)
        return
    came: list[tuple[int, str]] = []
    settings = replace(CONSUMER, ordered=True, lock_interval=1.0)
    consumer = aio.PushConsumer(group, namesrv=namesrv, settings=settings)
    consumer.subscribe(topic, "*", lambda one: came.append((one.queue.queue_id, one.body.decode())))
    side.run(consumer.start())
    try:
        yield lambda: list(came)
    finally:
        side.run(consumer.close())


def failing(side: Side, namesrv: str, group: str, topic: str, *, retries: int) -> list[Try]:
    """Let a consumer fail, each time for a second, until it was given a message `1 + retries` times."""
    if isinstance(side, JavaDriver):
        arguments = {"namesrv": namesrv, "group": group, "topic": topic}
        answer = side.call("Exchanges.fail", seconds=90, retries=retries, count=1 + retries, **arguments)
        return [(one["topic"], one["reconsume_times"], base64.b64decode(one["body"])) for one in answer]
    tries: list[Try] = []

    def handle(message: ReceivedMessage) -> None:
        tries.append((message.topic, message.reconsume_times, message.body))
        raise Retry("it fails", after=1)

    settings = ConsumerSettings(consume_from="first", max_reconsume_times=retries)
    consumer = aio.PushConsumer(group, namesrv=namesrv, settings=settings)
    consumer.subscribe(topic, "*", handle)
    side.run(consumer.start())
    try:
        until_sync(lambda: len(tries) > retries)
    finally:
        side.run(consumer.close())
    return tries


class _Listener:
    """The first letter of a body is the local state, the second what a check says: C, R, else unknown."""

    def execute(self, message: HalfMessage, argument: Any) -> TransactionState:
        return STATES[message.body.decode()[0]]

    def check(self, message: ReceivedMessage) -> TransactionState:
        return STATES[message.body.decode()[1]]


@contextmanager
def transactions(side: Side, namesrv: str, group: str, topic: str, texts: Sequence[str]) -> Iterator[None]:
    """Send each text in a transaction that ends as its letters say; answers checks as long as it lasts."""
    if isinstance(side, JavaDriver):
        arguments = {"namesrv": namesrv, "group": group, "topic": topic}
        handle = side.call("Exchanges.transactions", texts=list(texts), **arguments)
        try:
            yield
        finally:
            side.call("Exchanges.stop", handle=handle)
        return
    producer = aio.Producer(group, namesrv=namesrv, send_timeout=10.0, transaction_listener=_Listener())
    side.run(producer.start())
    try:
        for text in texts:
            side.run(producer.send_in_transaction(Message(topic, text.encode())))
        yield
    finally:
        side.run(producer.close())
