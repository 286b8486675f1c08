"""The data source: `format("rocketmq")`, or `format("sparrowmq")` after `register`.

Only names are here; what does the work is imported when Spark asks for it, because Spark imports every
`pyspark_*` module to look for sources.
"""

from __future__ import annotations

from importlib import import_module

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
)
from pyspark.sql.types import StructType
from pyspark.sql.utils import is_remote

from sparrowmq.core.errors import SettingsError


class RocketMQSource(DataSource):
    """Topics of RocketMQ clusters, SparrowMQ's or Apache's; `options` documents the options."""

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "rocketmq"

    def schema(self) -> str:
        """The columns when the user gives none. Raises `SettingsError` on wrong options (spark:S-32)."""
        _need_packages()
        from sparrowmq.spark.options import ReadOptions
        from sparrowmq.spark.schema import source_ddl

        return source_ddl(ReadOptions.parse(self.options, None))

    def reader(self, schema: StructType) -> DataSourceReader:
        """For batch reads."""
        _need_packages()
        from sparrowmq.spark.options import ReadOptions
        from sparrowmq.spark.reader import RocketMQReader
        from sparrowmq.spark.store_reader import StoreReader

        options = ReadOptions.parse(self.options, "batch")
        return StoreReader(options, schema) if options.store else RocketMQReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For streaming reads."""
        _need_packages()
        from sparrowmq.spark.compat import check_limits
        from sparrowmq.spark.options import ReadOptions
        from sparrowmq.spark.stream import RocketMQStreamReader

        options = ReadOptions.parse(self.options, "stream")
        check_limits(options)
        return RocketMQStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """For batch writes."""
        _need_packages()
        from sparrowmq.spark.delivery import announce, batch_choice
        from sparrowmq.spark.options import WriteOptions
        from sparrowmq.spark.schema import sink_columns
        from sparrowmq.spark.writer import RocketMQWriter

        _refuse_overwrite(overwrite)
        options = WriteOptions.parse(self.options)
        columns = sink_columns(schema, options)
        announce(options, stream=False, later=columns.has_later)
        return RocketMQWriter(options, schema, batch_choice(options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """For streaming writes; `overwrite` is output mode `complete`."""
        _need_packages()
        from sparrowmq.spark.compat import check_stream_writer
        from sparrowmq.spark.delivery import announce, stream_choice
        from sparrowmq.spark.options import WriteOptions
        from sparrowmq.spark.schema import sink_columns
        from sparrowmq.spark.writer import RocketMQStreamWriter

        check_stream_writer()
        _refuse_overwrite(overwrite)
        options = WriteOptions.parse(self.options)
        columns = sink_columns(schema, options)
        announce(options, stream=True, later=columns.has_later)
        return RocketMQStreamWriter(options, schema, stream_choice(options))


class SparrowMQSource(RocketMQSource):
    """The same under a name that no other connector has (spark:B-15)."""

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "sparrowmq"


def register(spark: SparkSession) -> None:
    """Make both names known to a session: for `sparrowmq`, and where Spark does not find `rocketmq`.

    Raises `SettingsError` when the driver has this package from `--py-files` only.
    """
    from pyspark import SparkFiles

    from sparrowmq.spark.shipping import check_driver

    if not is_remote():
        check_driver(SparkFiles.getRootDirectory())
    spark.dataSource.register(RocketMQSource)
    spark.dataSource.register(SparrowMQSource)


def _need_packages() -> None:
    for name in ("pyarrow", "numpy"):
        try:
            import_module(name)
        except ImportError:
            raise SettingsError(
                f"the rocketmq source needs {name}, which is not installed: pip install 'sparrowmq[spark]'"
            ) from None


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise SettingsError(
            "a topic cannot be overwritten, messages are only added: use mode append (batch) or output mode "
            "append or update (stream)"
        )
