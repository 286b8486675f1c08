"""Tracing on demand: the tracing code is loaded only if the settings enable it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrowmq.client.base.hooks import Hook
from sparrowmq.client.base.settings import ClientSettings

if TYPE_CHECKING:
    from sparrowmq.client.tracing.dispatcher import Tracing


def tracing_of(group: str, settings: ClientSettings, kind: str) -> Tracing | None:
    """A `Tracing` for a producer or consumer if its settings enable it; the caller starts and closes it."""
    if not settings.trace:
        return None
    from sparrowmq.client.tracing.dispatcher import Tracing

    return Tracing(group, settings, kind)


def hooks_with(settings: ClientSettings, tracing: Tracing | None) -> tuple[Hook, ...]:
    """The hooks of the settings, followed by the one for tracing."""
    return tuple(settings.hooks) if tracing is None else (*settings.hooks, tracing.hook)
