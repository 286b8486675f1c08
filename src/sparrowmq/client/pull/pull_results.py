"""Results of a pull by offset: messages, or records as they are stored."""

from __future__ import annotations

from sparrowmq.client.cluster.broker_api import PullAnswer
from sparrowmq.client.cluster.namespaces import unwrap_messages
from sparrowmq.client.pull.pull_hooks import PullHooks
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.core.results import PullResult, PullStatus, RawBatch
from sparrowmq.core.subscription import Expression
from sparrowmq.protocol.filter import parse_expression


def raw_batch(answer: PullAnswer) -> RawBatch:
    """Stored records as the broker sent them; empty unless the status is FOUND."""
    body = answer.body if answer.status is PullStatus.FOUND else b""
    return RawBatch(answer.status, body, answer.next_offset, answer.min_offset, answer.max_offset)


def pull_result(
    answer: PullAnswer, queue: MessageQueue, expression: Expression, namespace: str | None, hooks: PullHooks
) -> PullResult:
    """The messages after filtering by tags and hooks. Consume hooks are called for them."""
    messages: list[ReceivedMessage] = []
    if answer.status is PullStatus.FOUND:
        from sparrowmq.client.consumer.decoding import decode_messages  # not for readers of stored records

        tags = parse_expression(queue.topic, expression, 0).tags
        messages = decode_messages(
            answer.body, queue, ReceivedMessage, tags, answer.min_offset, answer.max_offset
        )
        unwrap_messages(namespace, messages)
        messages = hooks.filtered(queue, messages)
        hooks.taken(queue, messages)
    return PullResult(answer.status, messages, answer.next_offset, answer.min_offset, answer.max_offset)
