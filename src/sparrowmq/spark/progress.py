"""Figures from Spark's progress events: Python sources cannot add metrics of their own (spark:S-15)."""

from __future__ import annotations

import json
from typing import Any

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark import offsets
from sparrowmq.spark.offsets import StreamOffset


def lag(progress: Any) -> int | None:
    """Messages that waited when a micro-batch ended, over all sources of this kind; None when not known.

    `progress` is what `query.lastProgress` or a `StreamingQueryListener` gives.
    """
    lags = [_lag(source.endOffset, source.latestOffset) for source in progress.sources]
    known = [found for found in lags if found is not None]
    return sum(known) if known else None


def _lag(end: str | None, latest: str | None) -> int | None:
    try:
        done = StreamOffset.from_json(json.loads(end or "null"))
        there = StreamOffset.from_json(json.loads(latest or "null"))
    except (SettingsError, ValueError):
        return None  # another kind of source
    return offsets.lag(done.queues, there.queues)
