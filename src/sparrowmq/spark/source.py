"""The data source: `format("rocketmq")`, or `format("sparrowmq")` after `register`.

Only names are here; the modules that do the work are imported when Spark asks for them, because Spark imports
every `pyspark_*` module to find sources.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException
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

if TYPE_CHECKING:
    from sparrowmq.spark.options.table import ReadOptions

_REGISTERED: Final = "spark.sparrowmq.registered"
"""Set in sessions that know both names: Spark keeps and clones a session's settings and its sources alike."""


class RocketMQSource(DataSource):
    """Topics of RocketMQ clusters, SparrowMQ's or Apache's; `options` documents the options."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "rocketmq"

    def schema(self) -> str:
        """The columns when the user gives none. Raises `SettingsError` on wrong options (spark:S-32)."""
        _need_packages()
        from sparrowmq.spark.bodies.schema import source_ddl
        from sparrowmq.spark.options.table import ReadOptions

        return source_ddl(_settled(ReadOptions.parse(self.options, None)))

    def reader(self, schema: StructType) -> DataSourceReader:
        """For batch reads."""
        _need_packages()
        from sparrowmq.spark.options.table import ReadOptions

        options = _settled(ReadOptions.parse(self.options, "batch"))
        if options.store:
            from sparrowmq.spark.read.store_reader import StoreReader

            return StoreReader(options, schema)
        from sparrowmq.spark.read.reader import RocketMQReader

        return RocketMQReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For streaming reads."""
        _need_packages()
        from sparrowmq.spark.options.table import ReadOptions
        from sparrowmq.spark.options.versions import check_limits
        from sparrowmq.spark.read.stream import RocketMQStreamReader

        options = _settled(ReadOptions.parse(self.options, "stream"))
        check_limits(options)
        return RocketMQStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """For batch writes."""
        _need_packages()
        from sparrowmq.spark.options.table import WriteOptions
        from sparrowmq.spark.write.plan import batch_plan
        from sparrowmq.spark.write.writer import RocketMQWriter

        _refuse_overwrite(overwrite)
        return RocketMQWriter(batch_plan(WriteOptions.parse(self.options), schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """For streaming writes; `overwrite` is output mode `complete`."""
        _need_packages()
        from sparrowmq.spark.options.table import WriteOptions
        from sparrowmq.spark.options.versions import check_stream_writer
        from sparrowmq.spark.write.plan import stream_plan
        from sparrowmq.spark.write.writer import RocketMQStreamWriter

        check_stream_writer()
        _refuse_overwrite(overwrite)
        return RocketMQStreamWriter(stream_plan(WriteOptions.parse(self.options), schema))


class SparrowMQSource(RocketMQSource):
    """The same under a name that no other connector has (spark:B-15)."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "sparrowmq"


def register(spark: SparkSession) -> None:
    """Make both names known to a session, on a Python that has this package: see `interpreter`.

    On one machine that is the Python of the program, unless `PYSPARK_PYTHON` names another. A session made by
    `newSession()` needs its own registration. Raises `SettingsError` when the driver has this package from
    `--py-files` only, or when Spark runs sources with a Python that does not have it.
    """
    if not is_remote():
        from pyspark import SparkFiles

        from sparrowmq.spark.interpreter import settle
        from sparrowmq.spark.shipping import check_driver

        check_driver(SparkFiles.getRootDirectory())
        settle(spark)
    for source in (RocketMQSource, SparrowMQSource):
        _register_one(spark, source)
    spark.conf.set(_REGISTERED, "true")


def ensure_registered(spark: SparkSession) -> None:
    """The same once for each session, and for those cloned from it; nothing over Spark Connect.

    A server of Spark Connect finds the source with its own Python.
    """
    if not is_remote() and spark.conf.get(_REGISTERED, "false") != "true":
        register(spark)


def _settled(options: ReadOptions) -> ReadOptions:
    """The options with the reader's schema, if a registry has it."""
    if not options.schema_registry:
        return options
    from sparrowmq.spark.bodies.registry.reading import settled

    return settled(options)


def _register_one(spark: SparkSession, source: type[DataSource]) -> None:
    """Spark asks the active session whether a name is taken, which may be another one that has ours."""
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise
        spark.createDataFrame([], "nothing int")  # makes `spark` the active session
        spark.dataSource.register(source)


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
            "a topic cannot be overwritten; use mode append (batch) or output mode append or update (stream)"
        )
