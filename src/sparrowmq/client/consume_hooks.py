"""Consume hooks around calls of handlers (client:D-91). Cheap when there are none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparrowmq.client.hooks import ConsumeContext, Hooks
from sparrowmq.client.outcomes import ReturnType, return_type
from sparrowmq.core.message import MessageQueue, ReceivedMessage

CONTEXT_TYPE = "ConsumeContextType"
"""The property that says how a call ended."""
_CONCURRENT = ("RECONSUME_LATER", "CONSUME_SUCCESS")
_ORDERED = ("SUSPEND_CURRENT_QUEUE_A_MOMENT", "SUCCESS")


class ConsumeHooks:
    """The consume hooks of one consumer; `limit` is `consume_timeout` in seconds."""

    def __init__(self, hooks: Hooks, group: str, limit: float, *, ordered: bool) -> None:
        self._hooks = hooks
        self._group = group
        self.limit = limit
        """Seconds after which a call that succeeded counts as timed out."""
        self._statuses = _ORDERED if ordered else _CONCURRENT
        self.any = bool(hooks.consume)
        """Whether there are hooks at all."""

    def before(self, queue: MessageQueue, messages: Sequence[ReceivedMessage]) -> ConsumeContext:
        """A handler is about to be called; give the context to `after`."""
        context = ConsumeContext(group=self._group, queue=queue, messages=messages)
        self._hooks.before_consume(context)
        return context

    def after(
        self, context: ConsumeContext, result: Any, error: BaseException | None, seconds: float
    ) -> None:
        """The handler ended."""
        kind = return_type(result, error, seconds, self.limit)
        context.success = kind is ReturnType.SUCCESS or (kind is ReturnType.TIME_OUT and error is None)
        context.status = self._statuses[context.success]
        context.elapsed_ms = round(seconds * 1000)
        context.properties[CONTEXT_TYPE] = kind.value
        self._hooks.after_consume(context)
