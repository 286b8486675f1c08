"""Changes of the cluster itself, which no database transaction covers: recorded first, then made.

The audit entry with user, change and reason is saved before the first request; the result is a second entry.
So nothing changes without an entry, and a change that failed midway is recorded as such.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparrowmq.coordinator.api.shared import ApiCaller
from sparrowmq.coordinator.records.audit import Actor, record
from sparrowmq.core.errors import RefusedError


@dataclass(frozen=True, slots=True)
class Change:
    """A change: what is changed, the values before and after; `action` is its name in the audit log."""

    action: str
    object_: tuple[str, str]
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    reason: str = field(default="", kw_only=True)


async def carry_out(who: ApiCaller, change: Change, act: Callable[[], Awaitable[Any]]) -> Any:
    """Record the change, make it, and record it again if it failed; returns the result of `act`.

    Raises what `ApiCaller.change` raises, before anything is done, and `act`'s `RefusedError`.
    """
    await _note(who, change, change.action, change.after)
    try:
        return await act()
    except RefusedError as error:
        await _note(who, change, f"{change.action}.failed", {"error": str(error)})
        raise


async def note_end(who: ApiCaller, change: Change, action: str, after: Mapping[str, Any]) -> None:
    """Record the result of a change that continued after it was answered."""
    await _note(who, change, action, after)


async def _note(who: ApiCaller, change: Change, action: str, after: Mapping[str, Any] | None) -> None:
    actor = Actor(who.person.name, change.reason)

    def work() -> None:
        with who.context.database.write() as connection:
            if action == change.action:
                who.check(connection)
            record(connection, actor, action, change.object_, before=change.before, after=after)

    await who.context.database.run(work)
