"""What the hooks share: values that pass from one call of a hook to the next, and the library's version."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from sparrowmq import ConsumeContext, Hook, SendContext


def library_version() -> str | None:
    """SparrowMQ's version, None where it runs from a source tree."""
    try:
        return version("sparrowmq")
    except PackageNotFoundError:
        return None


def keep(context: SendContext | ConsumeContext, owner: Hook, value: object) -> None:
    """Store a value for the matching later call; other hooks have their own entries."""
    if not isinstance(context.data, dict):
        context.data = {}
    context.data[owner] = value


def kept(context: SendContext | ConsumeContext, owner: Hook) -> Any:
    """What `keep` stored; None if that call failed."""
    return context.data.get(owner) if isinstance(context.data, dict) else None
