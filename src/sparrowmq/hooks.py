"""Hooks: objects whose methods a client calls around sends, requests and consumption.

    from sparrowmq.hooks import SendContext, SendHook

    class Slow(SendHook):
        def after_send(self, context: SendContext) -> None:
            ...

    producer = mq.Producer("orders", hooks=[Slow()])

The methods are plain functions; the same hooks serve `sparrowmq` and `sparrowmq.aio`.
"""

from sparrowmq.client.base.hooks import (
    CheckForbiddenContext,
    CheckForbiddenHook,
    ConsumeContext,
    ConsumeHook,
    EndTransactionContext,
    EndTransactionHook,
    FilterMessageContext,
    FilterMessageHook,
    Hook,
    MessageType,
    PopContext,
    PopHook,
    PullLoopContext,
    PullLoopHook,
    RpcHook,
    SendContext,
    SendHook,
    SendMode,
    SettleContext,
)

__all__ = [
    "CheckForbiddenContext",
    "CheckForbiddenHook",
    "ConsumeContext",
    "ConsumeHook",
    "EndTransactionContext",
    "EndTransactionHook",
    "FilterMessageContext",
    "FilterMessageHook",
    "Hook",
    "MessageType",
    "PopContext",
    "PopHook",
    "PullLoopContext",
    "PullLoopHook",
    "RpcHook",
    "SendContext",
    "SendHook",
    "SendMode",
    "SettleContext",
]
