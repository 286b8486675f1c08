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
    _underway: dict[str, int] = field(default_factory=dict)
    storms: int = 0
    """Windows in which all logins together became too many."""

    def begin(self, name: str, now: float) -> None:
        """Count a try, which `failed`, `succeeded` or `broken` ends. Raises `RefusedError` (429) when there
        were too many; those of the name that are underway count as failures, or many at once would pass.
        """
        start, count = self._window
        if now - start >= WINDOW_SECONDS:
            start, count = now, 0
        self._window = (start, count + 1)
        if count >= TRIES_MAX:
            self.storms += count == TRIES_MAX
            raise self._refused("all logins", start, now)
        first, failed = self._failures.get(name, (now, 0))
        if now - first >= WINDOW_SECONDS:
            first, failed = now, 0
        underway = self._underway.get(name, 0)
        if failed + underway >= FAILURES_MAX:
            raise self._refused(f"{name[:64]!r}", first, now)
        self._underway[name] = underway + 1

    def failed(self, name: str, now: float) -> bool:
        """Count a failure of the name; whether it is the one that locks it."""
        self.broken(name)
        first, failed = self._failures.pop(name, (now, 0))
        if now - first >= WINDOW_SECONDS:
            first, failed = now, 0
        self._failures[name] = (first, failed + 1)
        while len(self._failures) > NAMES_MAX:
            self._failures.popitem(last=False)
        return failed + 1 == FAILURES_MAX

    def succeeded(self, name: str) -> None:
        """Forget the name's failures."""
        self.broken(name)
        self._failures.pop(name, None)

    def broken(self, name: str) -> None:
        """A try that ended without an answer: the database did not say."""
        underway = self._underway.pop(name, 0) - 1
        if underway > 0:
            self._underway[name] = underway

    @staticmethod
    def _refused(who: str, start: float, now: float) -> RefusedError:
        wait = max(1, round(start + WINDOW_SECONDS - now))
        return RefusedError(f"too many tries of {who}; wait {wait} s", status=429)
