"""Arguments that had another name. The former name works for one more release, with a warning."""

from __future__ import annotations

import warnings
from datetime import datetime

from sparrowmq.core.clock import epoch_ms


def search_time(timestamp: datetime | int | None, timestamp_ms: int | None) -> int:
    """The time that `search_offset` was given, in epoch milliseconds. Raises `SettingsError`."""
    if timestamp_ms is not None and timestamp is None:
        warnings.warn("search_offset(timestamp_ms=) is now timestamp=", DeprecationWarning, stacklevel=3)
        timestamp = timestamp_ms
    return epoch_ms("timestamp", timestamp)
