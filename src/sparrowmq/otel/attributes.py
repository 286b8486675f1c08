"""Attributes of spans: those of RocketMQ's OpenTracing hooks, under their names, and OpenTelemetry's own.

RocketMQ's attributes have the original spelling (`rocketmq.mgs_id`), so that one dashboard works for clients
in Java and Python (client:B-120). OpenTelemetry's attributes follow its conventions for messaging.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sparrowmq import (
    ConsumeContext,
    EndTransactionContext,
    Message,
    MessageType,
    ReceivedMessage,
    SendContext,
    SendResult,
    SendStatus,
)

Value = str | int | bool
SERVICE: Final = "rocketmq"
_TYPES: Final = {
    MessageType.NORMAL: "Normal_Msg",
    MessageType.HALF: "Trans_Msg_Half",
    MessageType.COMMIT: "Trans_msg_Commit",
    MessageType.DELAY: "Delay_Msg",
    MessageType.ORDER: "Order_Msg",
}
"""Names of message types in Java."""


def send_attributes(context: SendContext) -> dict[str, Value]:
    """Attributes known when an attempt begins."""
    found = _common(context.message, context.message.keys_text, "send")
    found |= {
        "rocketmq.store_host": context.address,
        "rocketmq.mgs_type": _TYPES[context.message_type],
        "rocketmq.body_length": context.body_bytes,
        "messaging.message.body.size": context.body_bytes,
    }
    if len(context.messages) > 1:
        found["messaging.batch.message_count"] = len(context.messages)
    else:
        found["messaging.message.id"] = context.message_id
    return found


def result_attributes(result: SendResult) -> dict[str, Value]:
    """Attributes from the answer to a send."""
    return {
        "rocketmq.success": result.status is SendStatus.SEND_OK,
        "rocketmq.mgs_id": result.message_id,
        "rocketmq.region_id": result.region,
        "messaging.message.id": result.message_id,
    }


def end_attributes(context: EndTransactionContext) -> dict[str, Value]:
    """The end of a transaction."""
    message = context.message
    keys = message.keys_text if isinstance(message, Message) else message.properties.get("KEYS", "")
    return _common(message, keys, "settle") | {
        "rocketmq.store_host": context.address,
        "rocketmq.mgs_id": context.message_id,
        "rocketmq.mgs_type": _TYPES[MessageType.COMMIT],
        "rocketmq.transaction_id": context.transaction_id,
        "rocketmq.transaction_state": context.state,
        "rocketmq.is_from_transaction_check": context.from_check,
        "messaging.message.id": context.message_id,
    }


def consume_attributes(context: ConsumeContext, message: ReceivedMessage) -> dict[str, Value]:
    """One message that a consumer received."""
    properties = message.properties
    found = _common(message, properties.get("KEYS", ""), "process") | {
        "rocketmq.mgs_id": message.message_id,
        "rocketmq.body_length": len(message.body),
        "rocketmq.retry_times": message.reconsume_times,
        "messaging.message.id": message.message_id,
        "messaging.message.body.size": len(message.body),
        "messaging.consumer.group.name": context.group,
    }
    if region := properties.get("MSG_REGION"):
        found["rocketmq.region_id"] = region
    return found


def _common(message: Message | ReceivedMessage, keys: str, operation: str) -> dict[str, Value]:
    found: dict[str, Value] = {
        "peer.service": SERVICE,
        "message_bus.destination": message.topic,
        "messaging.system": SERVICE,
        "messaging.destination.name": message.topic,
        "messaging.operation.type": operation,
    }
    pairs: Sequence[tuple[str, str | None]] = (("rocketmq.tags", message.tags), ("rocketmq.keys", keys))
    return found | {name: value for name, value in pairs if value}
