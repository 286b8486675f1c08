"""How often somebody may try a password: bounded per name and in all, so that a storm costs little (pure).

A window is counted per name, known or not: an attacker must not learn which names there are, nor lock the
owner out for longer than the window.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from sparrowmq.core.errors import RefusedError

WINDOW_SECONDS: Final = 60.0
FAILURES_MAX: Final = 5
"""Failed tries per name and window."""
TRIES_MAX: Final = 120
"""Tries of everybody together per window: each costs tens of milliseconds of a processor."""
NAMES_MAX: Final = 10_000


@dataclass(slots=True)
class Tries:
    """Counts tries. Times are monotonic seconds."""

    _failures: OrderedDict[str, tuple[float, int]] = field(default_factory=OrderedDict)
    _window: tuple[float, int] = (0.0, 0)
    storms: int = 0
    """Windows in which all logins together became too many."""

    def begin(self, name: str, now: float) -> None:
        """Count a try. Raises `RefusedError` (429) when there were too many."""
        start, count = self._window
        if now - start >= WINDOW_SECONDS:
            start, count = now, 0
        self._window = (start, count + 1)
        if count >= TRIES_MAX:
            self.storms += count == TRIES_MAX
            raise self._refused("all logins", start, now)
        first, failed = self._failures.get(name, (now, 0))
        if failed >= FAILURES_MAX and now - first < WINDOW_SECONDS:
            raise self._refused(f"{name[:64]!r}", first, now)

    def failed(self, name: str, now: float) -> bool:
        """Count a failure of the name; whether it is the one that locks it."""
        first, failed = self._failures.pop(name, (now, 0))
        if now - first >= WINDOW_SECONDS:
            first, failed = now, 0
        self._failures[name] = (first, failed + 1)
        while len(self._failures) > NAMES_MAX:
            self._failures.popitem(last=False)
        return failed + 1 == FAILURES_MAX

    def succeeded(self, name: str) -> None:
        """Forget the name's failures."""
        self._failures.pop(name, None)

    @staticmethod
    def _refused(who: str, start: float, now: float) -> RefusedError:
        wait = max(1, round(start + WINDOW_SECONDS - now))
        return RefusedError(f"too many tries of {who}; wait {wait} s", status=429)
