"""Spark finds the data source `rocketmq` through this module's `DefaultSource` (spark:H-01).

It must import everywhere: one `pyspark_*` module that fails hides the sources of all others (spark:H-02).
Without pyspark or pyarrow there is just no source.
"""

try:
    from sparrowmq.spark.source import RocketMQSource as DefaultSource
except Exception:  # whatever an incomplete installation raises
    __all__: list[str] = []
else:
    __all__ = ["DefaultSource"]
