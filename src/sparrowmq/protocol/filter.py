"""Tag expressions: `TagA || TagB` into subscription data (broker:14.1, client:D-04)."""

from __future__ import annotations

from sparrowmq.core.errors import InvalidExpressionError
from sparrowmq.core.subscription import SUBSCRIBE_ALL, SubscriptionData


def parse_tags(topic: str, expression: str | None, version: int) -> SubscriptionData:
    """Subscription data of a tag expression; nothing, blanks or `*` means every message.

    `version` is epoch milliseconds of the subscription's making. Raises `InvalidExpressionError` for an
    expression of separators only.
    """
    if expression is None or expression.strip() in ("", SUBSCRIBE_ALL):
        return SubscriptionData(topic=topic, version=version)
    tags = frozenset(part for part in map(str.strip, expression.split("||")) if part)
    if not tags:
        raise InvalidExpressionError(
            f"the expression {expression!r} for topic {topic!r} has no tag; write `TagA || TagB` or `*`"
        )
    return SubscriptionData(topic=topic, expression=expression, tags=tags, version=version)
