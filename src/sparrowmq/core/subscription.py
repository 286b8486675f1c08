"""Subscription data: what a consumer wants of one topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sparrowmq.core.hashing import java_hash

TAG: Final = "TAG"
SQL92: Final = "SQL92"
SUBSCRIBE_ALL: Final = "*"


@dataclass(frozen=True, slots=True)
class Sql:
    """A SQL92 filter over the properties of messages, in place of a tag expression.

        consumer.subscribe("orders", mq.Sql("amount >= 100 AND region IN ('eu', 'us')"))

    The grammar and the rules of types are RocketMQ's; the client guide shows them. It is checked where it is
    used; the broker must have property filters on (`enablePropertyFilter`).
    """

    expression: str

    def __str__(self) -> str:
        return self.expression


Expression = str | Sql
"""What to subscribe to: a tag expression (`*`, `TagA || TagB`) or a SQL92 filter."""


@dataclass(frozen=True, slots=True)
class SubscriptionData:
    """One topic with an expression; `version` is epoch milliseconds of its making (client:D-03)."""

    topic: str
    expression: str = SUBSCRIBE_ALL
    tags: frozenset[str] = frozenset()
    version: int = 0
    expression_type: str = TAG

    @property
    def codes(self) -> frozenset[int]:
        """Tag codes that match, signed 32 bit; empty means every message."""
        return frozenset(java_hash(tag) for tag in self.tags)

    def matches(self, tags: str | None) -> bool:
        """Whether a message with `tags` is wanted, by the tag's text (the broker compares only codes)."""
        return not self.tags or tags in self.tags
