"""Consume hooks around handler calls (client:D-91). They cost little when there are none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sparrowmq.client.base.hooks import ConsumeContext, Hooks
from sparrowmq.client.consumer.outcomes import ReturnType, return_type
from sparrowmq.client.consumer.statistics import ConsumeStatistics
from sparrowmq.core.message import MessageQueue, ReceivedMessage

CONTEXT_TYPE = "ConsumeContextType"
"""The property that holds the result of a call."""
_CONCURRENT = ("RECONSUME_LATER", "CONSUME_SUCCESS")
_ORDERED = ("SUSPEND_CURRENT_QUEUE_A_MOMENT", "SUCCESS")


class ConsumeHooks:
    """The consume hooks of one consumer. `limit()` is the current `consume_timeout` in seconds: a call that
    succeeded later than that counts as timed out.
    """

    def __init__(self, hooks: Hooks, group: str, limit: Callable[[], float], *, ordered: bool) -> None:
        self._hooks = hooks
        self._group = group
        self._limit = limit
        self._statuses = _ORDERED if ordered else _CONCURRENT
        self.any = bool(hooks.consume)
        """Whether there are any hooks."""

    def before(self, queue: MessageQueue, messages: Sequence[ReceivedMessage]) -> ConsumeContext:
        """Call the hooks before a handler; pass the returned context to `after`."""
        context = ConsumeContext(group=self._group, queue=queue, messages=messages)
        self._hooks.before_consume(context)
        return context

    def after(
        self, context: ConsumeContext, result: Any, error: BaseException | None, seconds: float
    ) -> None:
        """Call the hooks after a handler."""
        kind = return_type(result, error, seconds, self._limit())
        context.success = kind is ReturnType.SUCCESS or (kind is ReturnType.TIME_OUT and error is None)
        context.status = self._statuses[context.success]
        context.elapsed_ms = round(seconds * 1000)
        context.properties[CONTEXT_TYPE] = kind.value
        self._hooks.after_consume(context)


@dataclass(frozen=True, slots=True)
class CallRecords:
    """Where the handler calls of one consumer are recorded: its hooks and its statistics."""

    hooks: ConsumeHooks
    statistics: ConsumeStatistics
