"""Subscription data from expressions: tags (`TagA || TagB`) and SQL92 (broker:14, client:D-04)."""

from __future__ import annotations

from sparrowmq.core.errors import InvalidExpressionError
from sparrowmq.core.subscription import SQL92, SUBSCRIBE_ALL, TAG_SEPARATOR, Expression, Sql, SubscriptionData


def parse_tags(topic: str, expression: str | None, version: int) -> SubscriptionData:
    """Subscription data of a tag expression; empty text, blanks or `*` match every message.

    `version` is the subscription's creation time in epoch milliseconds. Raises `InvalidExpressionError` for
    an expression of separators only.
    """
    if expression is None or expression.strip() in ("", SUBSCRIBE_ALL):
        return SubscriptionData(topic=topic, version=version)
    tags = frozenset(part for part in map(str.strip, expression.split(TAG_SEPARATOR)) if part)
    if not tags:
        raise InvalidExpressionError(
            f"the expression {expression!r} for topic {topic!r} has no tag; write `TagA || TagB` or `*`"
        )
    return SubscriptionData(topic=topic, expression=expression, tags=tags, version=version)


def parse_expression(topic: str, expression: Expression, version: int) -> SubscriptionData:
    """Subscription data of a user's subscription; `version` as in `parse_tags`.

    Stricter than a broker: a SQL92 filter must be one complete expression, and `||` stands between two tags.
    Raises `InvalidExpressionError`, for SQL92 with the position and the token.
    """
    if isinstance(expression, Sql):
        from sparrowmq.protocol.sql92 import parse  # a parser and its tables: most readers never need it

        parse(expression.expression, whole=True)
        return SubscriptionData(topic, expression.expression, version=version, expression_type=SQL92)
    if not isinstance(expression, str):
        raise InvalidExpressionError(
            f"topic {topic!r} cannot be subscribed with a {type(expression).__name__}; give tags as text or "
            "a SQL92 filter as Sql(text); filters by class are no longer supported"
        )
    data = parse_tags(topic, expression, version)
    if data.tags and not all(map(str.strip, expression.split(TAG_SEPARATOR))):
        raise InvalidExpressionError(
            f"the expression {expression!r} for topic {topic!r} has `||` without a tag before or after it; "
            "write `TagA || TagB`: no tag contains `||`"
        )
    return data
