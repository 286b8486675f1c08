"""Differences between Spark versions: limits came with 4.2, streaming Arrow writers with 4.1 (spark:11).

A missing class is replaced by an empty one, so that our classes work with all versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql import datasource

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.options.table import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

limits: Any
"""The module of Spark's read limits; None before Spark 4.2."""
try:
    from pyspark.sql.streaming import datasource as limits
except ImportError:
    limits = None


class _Nothing:
    """Replacement for a base class that this Spark does not have."""


if not TYPE_CHECKING:
    SupportsTriggerAvailableNow = _Nothing if limits is None else limits.SupportsTriggerAvailableNow
    DataSourceStreamArrowWriter = getattr(datasource, "DataSourceStreamArrowWriter", _Nothing)

__all__ = [
    "DataSourceStreamArrowWriter",
    "SupportsTriggerAvailableNow",
    "check_limits",
    "check_stream_writer",
    "limits",
]


def check_limits(options: ReadOptions) -> None:
    """Raise `SettingsError` when limits are set for a stream and this Spark does not support them."""
    if limits is not None:
        return
    for name, value in (
        ("maxOffsetsPerTrigger", options.max_offsets),
        ("minOffsetsPerTrigger", options.min_offsets),
        ("maxBytesPerTrigger", options.max_bytes),
    ):
        if value is not None:
            raise SettingsError(
                f"option {name}={value} needs Spark 4.2 or later, this is {pyspark.__version__}; leave it "
                "out or upgrade",
                name,
                value,
            )


def check_stream_writer() -> None:
    """Raise `SettingsError` when this Spark does not support streaming Arrow writers."""
    if not hasattr(datasource, "DataSourceStreamArrowWriter"):
        raise SettingsError(
            f"streaming writes need Spark 4.1 or later, this is {pyspark.__version__}; use foreachBatch with "
            "a batch write, or upgrade",
            what="pyspark",
            value=pyspark.__version__,
        )
