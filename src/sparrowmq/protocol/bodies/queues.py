"""Entries of a consume queue for tools (321; remoting:2.7)."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import field

from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.protocol.bodies.base import Body, Int32, Int64
from sparrowmq.protocol.bodies.clients import wire_subscription
from sparrowmq.protocol.java_json import dumps


class ConsumeQueueData(Body, frozen=True):
    """One entry: the record's position and size, and its tag code; `eval`: whether a filter matches it."""

    physic_offset: Int64 = 0
    physic_size: Int32 = 0
    tags_code: Int64 = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


class QueryConsumeQueueBody(Body, frozen=True):
    """The entries of one queue, and its first and next offset.

    `filter_data` describes the filter of the requested group, as text.
    """

    queue_data: list[ConsumeQueueData] = field(default_factory=list)
    max_queue_index: Int64 = 0
    min_queue_index: Int64 = 0
    filter_data: str | None = None

    def encode_with(self, subscription: SubscriptionData | None) -> bytes:
        """The same with the subscription of the group that was asked for, if it is online."""
        members: dict[str, Any] = msgspec.to_builtins(self)
        if subscription is not None:
            members["subscriptionData"] = wire_subscription(subscription)
        return dumps(members)
