"""Subscription data: which messages of a topic a consumer receives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sparrowmq.core.hashing import java_hash

TAG: Final = "TAG"
SQL92: Final = "SQL92"
SUBSCRIBE_ALL: Final = "*"
TAG_SEPARATOR: Final = "||"


@dataclass(frozen=True, slots=True)
class Sql:
    """A SQL92 filter over message properties, instead of a tag expression.

        consumer.subscribe("orders", mq.Sql("amount >= 100 AND region IN ('eu', 'us')"))

    The grammar and type rules are RocketMQ's; the client guide shows them. It is checked when it is used; the
    broker must have property filters enabled (`enablePropertyFilter`).
    """

    expression: str

    def __str__(self) -> str:
        return self.expression


Expression = str | Sql
"""What to subscribe to: a tag expression (`*`, `TagA || TagB`) or a SQL92 filter."""


@dataclass(frozen=True, slots=True)
class SubscriptionData:
    """One topic with an expression; `version` is its creation time in epoch milliseconds (client:D-03)."""

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
        """Whether a message with `tags` matches, by the tag's text (the broker compares only codes)."""
        return not self.tags or tags in self.tags
