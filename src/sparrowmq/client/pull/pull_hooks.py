"""Hooks and traces of a pull consumer (client:D-90, E-08, E-33).

Its messages count as consumed when `poll` or `pull` returns them (client:E-34), so the consume hooks for
start and success are called together, just before the return. They cost little when there are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from sparrowmq.client.base.hooks import FilterMessageContext, Hooks, PullLoopContext
from sparrowmq.client.base.settings import PullSettings
from sparrowmq.client.consumer.consume_hooks import ConsumeHooks
from sparrowmq.client.tracing.on_demand import hooks_with, tracing_of
from sparrowmq.core.message import MessageQueue, ReceivedMessage

if TYPE_CHECKING:
    from sparrowmq.client.tracing.dispatcher import Tracing

_NO_LIMIT: Final = float("inf")
"""Seconds; no call here can reach this limit."""


class PullHooks:
    """The hooks of one pull consumer of `group`, including its tracing. Used on one event loop."""

    def __init__(self, group: str | None, settings: PullSettings) -> None:
        """Traces contain the group, so a consumer without a group writes none."""
        self._group = group or ""
        self._unit_mode = settings.unit_mode
        self._tracing: Tracing | None = None if group is None else tracing_of(group, settings, "CONSUME")
        self._hooks = Hooks(hooks_with(settings, self._tracing))
        self._consume = ConsumeHooks(self._hooks, self._group, lambda: _NO_LIMIT, ordered=False)

    def __repr__(self) -> str:
        return f"<PullHooks {self._group!r} {self._tracing or ''!r}>"

    def start(self) -> None:
        """Start sending traces, if enabled."""
        if self._tracing is not None:
            self._tracing.start()

    async def close(self) -> None:
        """Send the waiting traces, for up to 5 seconds."""
        if self._tracing is not None:
            await self._tracing.close()

    def after_pull(self, context: PullLoopContext) -> None:
        """Call the pull hooks."""
        self._hooks.after_pull(context)

    def filtered(self, queue: MessageQueue, messages: list[ReceivedMessage]) -> list[ReceivedMessage]:
        """The pulled messages that pass the filter hooks."""
        if not messages or not self._hooks.filter_message:
            return messages
        context = FilterMessageContext(
            group=self._group, queue=queue, messages=messages, unit_mode=self._unit_mode
        )
        self._hooks.filter(context)
        return list(context.messages)

    def taken(self, queue: MessageQueue, messages: Sequence[ReceivedMessage]) -> None:
        """Call the hooks for messages that are about to be returned to the application as consumed."""
        if messages and self._consume.any:
            self._consume.after(self._consume.before(queue, messages), None, None, 0.0)
