"""Log lines about events that unauthenticated clients can cause: at most one per minute and kind."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

PERIOD_SECONDS: Final = 60.0
KINDS_MAX: Final = 64
FIELDS: Final = "fields"
"""Attribute of a log record with the figures of its text, by name."""
OTHERS: Final = "others"
"""The kind of lines beyond the maximum number of kinds."""


class OccasionalLog:
    """Logs the first line of a kind, then counts, and logs the next one with the count after a period.

    Kinds may contain names of groups or topics. Within a period, 64 kinds are counted separately; all others
    count as one. So there are at most 65 lines per period, whatever names clients choose.
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

    def write(
        self,
        level: int,
        kind: str,
        text: str,
        *,
        error: BaseException | None = None,
        fields: Mapping[str, object] | None = None,
    ) -> None:
        """Log `text` at `level` unless a line of its kind was logged within the period.

        `fields` are the figures of the text, for logs in JSON.
        """
        now = self._monotonic()
        kind = self._known(kind, now)
        last = self._last.get(kind)
        if last is not None and now - last < self._period:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return
        self._last[kind] = now
        left_out = self._left_out.pop(kind, 0)
        more = f" ({left_out} more of this kind since the last line)" if left_out else ""
        self._logger.log(level, "%s%s", text, more, exc_info=error, extra={FIELDS: fields or {}})

    def _known(self, kind: str, now: float) -> str:
        """The kind, or `OTHERS` if there are too many kinds. Kinds of earlier periods are removed first."""
        if kind in self._last or len(self._last) < KINDS_MAX:
            return kind
        for old in [old for old, last in self._last.items() if now - last >= self._period]:
            del self._last[old]
            self._left_out.pop(old, None)
        return kind if len(self._last) < KINDS_MAX else OTHERS
