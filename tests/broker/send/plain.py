"""`PlainSends` for any topic, without a store."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.broker.rig import hot_send, send_command

from sparrowmq.broker.send.batch_limits import BatchLimits
from sparrowmq.broker.send.half_sends import HalfSends
from sparrowmq.broker.send.plain_sends import PlainSend, PlainSends
from sparrowmq.broker.send.send_items import SendItems

QUEUES = 100


class AnyTopic:
    """A table of topics: every topic exists, with `QUEUES` queues."""

    def get(self, name: str) -> Any:
        queues = [SimpleNamespace(topic=name, queue_id=number) for number in range(QUEUES)]
        return SimpleNamespace(special=False, queue_count=QUEUES, queues=queues)

    def own_queue(self, name: str, queue_id: int) -> Any:
        return SimpleNamespace(topic=name, queue_id=queue_id, next_offset=0)


def plain_sends(added: bytes = b"", body_max: int = 1000, kind: type[PlainSends] = PlainSends) -> PlainSends:
    topics: Any = AnyTopic()
    halves = HalfSends(topics, added, is_full=lambda end: False, are_refused=False)
    return kind(topics, halves, BatchLimits(body_max, len(added)), added, body_max)


def send_items(added: bytes = b"", body_max: int = 1000) -> SendItems:
    limits = BatchLimits(body_max, len(added))
    return SendItems(plain_sends(added, body_max), limits, len(added), body_max)


def find(sends: PlainSends, text: bytes, body: bytes = b"x", **fields: Any) -> PlainSend | None:
    """The decision about a send with these properties."""
    header, _ = hot_send(send_command(body, properties=text.decode(), **fields))
    return sends.find(header, body)
