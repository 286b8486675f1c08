"""Lag of a streaming query, from Spark's progress events: a Python source cannot report metrics (spark:S-15).

`progress` is the object of `query.lastProgress` or of a `StreamingQueryListener`. A query may have several
sources; other kinds are ignored (`_queues` gives None for them). Lag counts offsets: with the options
`tags` or `sql92`, fewer rows than that will come.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets import offsets
from sparrowmq.spark.offsets.offsets import Offsets, StreamOffset


def lag(progress: Any) -> int | None:
    """Unread messages when a micro-batch ended, over all RocketMQ sources; None if unknown."""
    lags = [offsets.lag(reached, ends) for reached, ends in _sources(progress) if ends is not None]
    return sum(lags) if lags else None


def queue_lags(progress: Any) -> dict[MessageQueue, int]:
    """Unread messages of each queue when a micro-batch ended; empty if unknown.

    If several sources of the query read a queue, its longest lag.
    """
    reached, ends = reached_and_ends(progress)
    return {queue: max(0, end - reached.get(queue, 0)) for queue, end in ends.items()}


def source_metrics(progress: Any) -> dict[str, float]:
    """The metrics that Spark's Kafka source has in `sources[].metrics`, over all RocketMQ sources.

    `minOffsetsBehindLatest`, `maxOffsetsBehindLatest`, `avgOffsetsBehindLatest`, over queues; empty if
    unknown.
    """
    return behind_latest(queue_lags(progress))


def behind_latest(lags: dict[MessageQueue, int]) -> dict[str, float]:
    """`source_metrics` for lags of queues."""
    if not lags:
        return {}
    return {
        "minOffsetsBehindLatest": min(lags.values()),
        "maxOffsetsBehindLatest": max(lags.values()),
        "avgOffsetsBehindLatest": sum(lags.values()) / len(lags),
    }


def reached_and_ends(progress: Any) -> tuple[dict[MessageQueue, int], dict[MessageQueue, int]]:
    """The next offset that the query reads in each queue, and the end of each queue if known.

    If several sources read a queue, the smallest offset is returned.
    """
    reached: dict[MessageQueue, int] = {}
    ends: dict[MessageQueue, int] = {}
    for source_reached, source_ends in _sources(progress):
        for queue, offset in source_reached.items():
            reached[queue] = min(offset, reached.get(queue, offset))
        for queue, offset in (source_ends or {}).items():
            ends[queue] = max(offset, ends.get(queue, offset))
    return reached, ends


def _sources(progress: Any) -> Iterator[tuple[Offsets, Offsets | None]]:
    """For each RocketMQ source: the offsets it reached, and the ends of its queues if known."""
    for source in progress.sources:
        reached = _queues(source.endOffset)
        if reached is not None:
            yield reached, _queues(source.latestOffset)


def _queues(text: str | None) -> Offsets | None:
    """Parse the offsets in the JSON that this source gave Spark."""
    try:
        return StreamOffset.from_json(json.loads(text or "null")).queues
    except (SettingsError, ValueError):
        return None  # another kind of source, or unknown
