"""A Delta Lake table as the storage of an archive: `TableFormat` in Spark's SQL and Delta's options.

The ledger of the archive is a note in the metadata of commits (`userMetadata`). Other writers and table
services make commits without a note, so the newest note may be some commits back.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.spark.bodies.ddl import quoted
from sparrowmq.spark.pipelines.archive import rows as archive_rows
from sparrowmq.spark.pipelines.archive.location import TableOptions
from sparrowmq.spark.pipelines.archive.rows import PARTITIONS, setting
from sparrowmq.spark.pipelines.archive.table import Version, parsed_note
from sparrowmq.spark.pipelines.common.files import Files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NEWEST: Final = 30
"""Commits that are searched for a note before the whole history is searched."""
_METADATA: Final = "spark.databricks.delta.commitInfo.userMetadata"
_TASKS: Final = "16"
"""Tasks that list files for VACUUM; Spark's default is 10,000."""


class DeltaTable:
    """The table `<archive>/table`, or one of a catalog.

    Each batch is a transaction with `txnAppId` (`app`) and `txnVersion` (the batch's number). Delta skips a
    transaction whose number is already committed, and lets only one of two concurrent ones commit. So a
    repeated batch is written once.
    """

    def __init__(self, files: Files, options: TableOptions, app: str) -> None:
        self._files = files
        self._options = options
        self._app = app
        self._path = f"{files.location}/table"
        self.where = options.table or self._path
        self._name = options.table or f"delta.{quoted(self._path)}"

    def latest(self, spark: SparkSession) -> Version | None:
        """See `TableFormat`."""
        if not self._is_there(spark):
            return None
        for limit in (f" LIMIT {_NEWEST}", ""):
            rows = spark.sql(f"DESCRIBE HISTORY {self._name}{limit}")
            rows = rows.select("version", "operation", "userMetadata", "operationMetrics")
            found: list[Any] = sorted(rows.collect(), key=lambda row: -int(row["version"]))
            for row in found:
                note = parsed_note(row["userMetadata"])
                if note is not None:
                    return _version(str(found[0]["version"]), note, row)
            if len(found) < _NEWEST:
                break
        return Version(str(found[0]["version"]))

    def _is_there(self, spark: SparkSession) -> bool:
        if self._options.table:
            return bool(spark.catalog.tableExists(self._options.table))
        return bool(self._files.names("table/_delta_log"))

    def append(self, frame: DataFrame, number: int, note: str, after: str) -> None:
        """See `TableFormat`; `after` is not needed, because `number` excludes other writers."""
        order = [name for name in archive_rows.order(self._options.sort) if name in frame.columns]
        writer = (
            frame.sortWithinPartitions(*order)
            .write.format("delta")
            .mode("append")
            .partitionBy(*PARTITIONS)
            .option("mergeSchema", "true")
            .option("txnAppId", self._app)
            .option("txnVersion", str(number))
            .option("userMetadata", note)
        )
        if self._options.table:
            writer.saveAsTable(self._options.table)
        else:
            writer.save(self._path)

    def read(self, spark: SparkSession, version: str) -> DataFrame:
        """See `TableFormat`."""
        return spark.sql(f"SELECT * FROM {self._name} VERSION AS OF {int(version)}")

    def tend(self, spark: SparkSession, note: str) -> None:
        """See `TableFormat`; uses DELETE, OPTIMIZE and VACUUM. Their commits repeat the note."""
        options = self._options
        settings = {
            _METADATA: note,
            "spark.databricks.delta.optimize.maxFileSize": str(options.file_bytes),
            "spark.databricks.delta.retentionDurationCheck.enabled": "false",
            "spark.sql.sources.parallelPartitionDiscovery.parallelism": _TASKS,
        }
        with setting(spark, settings):
            if options.keep_days:
                oldest = datetime.now(UTC).date() - timedelta(days=options.keep_days)
                spark.sql(f"DELETE FROM {self._name} WHERE date < DATE'{oldest}'").collect()
            spark.sql(f"OPTIMIZE {self._name}").collect()
            spark.sql(f"VACUUM {self._name} RETAIN {24 * options.history_days} HOURS").collect()


def _version(newest: str, note: dict[str, Any], row: Any) -> Version:
    """The newest version that has the note of commit `row`, and its number of rows if the commit writes a
    batch.
    """
    metrics = row["operationMetrics"] or {}
    rows = metrics.get("numOutputRows") if row["operation"] in ("WRITE", "CREATE TABLE AS SELECT") else None
    size = int(metrics.get("numOutputBytes") or 0)
    return Version(newest, note, None if rows is None else int(rows), size)
