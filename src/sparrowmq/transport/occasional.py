"""Log lines about what a stranger can cause, at most one a minute of each kind."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

PERIOD_SECONDS: Final = 60.0


class OccasionalLog:
    """Passes the first line of a kind, then counts, and passes the next with the count after a period.

    `kind` must come from a small fixed set: one entry is kept for each.
    """

    def __init__(
        self,
        logger: logging.Logger,
        *,
        period: float = PERIOD_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logger = logger
        self._period = period
        self._monotonic = monotonic
        self._last: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def write(self, level: int, kind: str, text: str, *, error: BaseException | None = None) -> None:
        """Log `text` at `level` unless one of its kind was logged within the period."""
        now = self._monotonic()
        last = self._last.get(kind)
        if last is not None and now - last < self._period:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return
        self._last[kind] = now
        left_out = self._left_out.pop(kind, 0)
        more = f" ({left_out} more of this kind since the last line)" if left_out else ""
        self._logger.log(level, "%s%s", text, more, exc_info=error)
