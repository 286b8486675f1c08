"""A warning for times that became null because no reader can hold them."""

from __future__ import annotations

import logging
from collections import Counter

import pyarrow as pa

from sparrowmq.columnar.schema import TIMESTAMP

log = logging.getLogger("sparrowmq.spark")


class OddTimes:
    """Counts the null times of a task: those of messages whose producer's or broker's clock was wrong."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def count(self, batch: pa.RecordBatch) -> None:
        """Add the times of one batch."""
        for field in batch.schema:
            if field.type == TIMESTAMP:
                self._counts[field.name] += batch[field.name].null_count

    def warn(self) -> None:
        """Log how many there were, if any."""
        for name, count in self._counts.items():
            if count:
                log.warning("%d messages have no %s: it is not in the years 1 to 9999", count, name)
