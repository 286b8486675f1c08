"""What hooks and traces see of a pull consumer: messages it took (client:D-90, E-08, E-33).

Its messages count as consumed once `poll` or `pull` has returned them (client:E-34), so consume hooks hear of
the beginning and of a success in one go, just before. Cheap when there are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sparrowmq.client.consume_hooks import ConsumeHooks
from sparrowmq.client.hooks import FilterMessageContext, Hooks
from sparrowmq.client.settings import PullSettings
from sparrowmq.client.tracing import Tracing, hooks_with, tracing_of
from sparrowmq.core.message import MessageQueue, ReceivedMessage

_NO_LIMIT: Final = float("inf")
"""Nothing here can take too long."""


class PullHooks:
    """The hooks of one pull consumer of `group`, its tracing included. Lives on one event loop."""

    def __init__(self, group: str | None, settings: PullSettings) -> None:
        """Records of traces name the group, so a consumer without one writes none."""
        self._group = group or ""
        self._unit_mode = settings.unit_mode
        self._tracing: Tracing | None = None if group is None else tracing_of(group, settings, "CONSUME")
        self._hooks = Hooks(hooks_with(settings, self._tracing))
        self._consume = ConsumeHooks(self._hooks, self._group, _NO_LIMIT, ordered=False)

    def __repr__(self) -> str:
        return f"<PullHooks {self._group!r} {self._tracing or ''!r}>"

    def start(self) -> None:
        """Begin to send traces, if they are asked for."""
        if self._tracing is not None:
            self._tracing.start()

    async def close(self) -> None:
        """Send the traces that wait, for up to 5 seconds."""
        if self._tracing is not None:
            await self._tracing.close()

    def filtered(self, queue: MessageQueue, messages: list[ReceivedMessage]) -> list[ReceivedMessage]:
        """What the filter hooks leave of pulled messages."""
        if not messages or not self._hooks.filter_message:
            return messages
        context = FilterMessageContext(
            group=self._group, queue=queue, messages=messages, unit_mode=self._unit_mode
        )
        self._hooks.filter(context)
        return list(context.messages)

    def taken(self, queue: MessageQueue, messages: Sequence[ReceivedMessage]) -> None:
        """Messages are about to be returned to the application: for hooks they are consumed."""
        if messages and self._consume.any:
            self._consume.after(self._consume.before(queue, messages), None, None, 0.0)
