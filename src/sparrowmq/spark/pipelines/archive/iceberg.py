"""An Iceberg table as the storage of an archive: `TableFormat` in Spark's SQL and Iceberg's options."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.spark.bodies.ddl import ddl, quoted, type_ddl
from sparrowmq.spark.pipelines.archive import rows as archive_rows
from sparrowmq.spark.pipelines.archive.location import TableOptions
from sparrowmq.spark.pipelines.archive.rows import PARTITIONS
from sparrowmq.spark.pipelines.archive.table import BATCH, Version, parsed_note

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PROPERTY: Final = "sparrowmq.archive"
"""Key of the note in the summary of a snapshot."""
_TRIES: Final = 5
_NEWEST: Final = "ORDER BY committed_at DESC, snapshot_id LIMIT 1"


class IcebergTable:
    """A table of a catalog.

    The commit of a batch replaces the rows with its number, of which there are none. It is refused if such
    rows were added after the snapshot on which it is based: if two writers commit the same batch, one
    succeeds.
    """

    def __init__(self, options: TableOptions) -> None:
        self._options = options
        self.where = self._name = options.table
        self._catalog, _, self._rest = options.table.partition(".")

    def latest(self, spark: SparkSession) -> Version | None:
        """See `TableFormat`."""
        if not spark.catalog.tableExists(self._name):
            return None
        spark.sql(f"REFRESH TABLE {self._name}")
        noted = self._noted(spark)
        for _ in range(_TRIES):
            now: Any = spark.sql(f"SELECT snapshot_id FROM {self._name}.refs WHERE name = 'main'").first()
            again = self._noted(spark)
            if again == noted:  # the snapshot in between has this note as well
                break
            noted = again
        if now is None:
            return Version("")
        if noted is None:
            return Version(str(now["snapshot_id"]))
        rows, size = int(noted["rows"] or 0), int(noted["size"] or 0)
        return Version(str(now["snapshot_id"]), parsed_note(noted["note"]), rows, size)

    def _noted(self, spark: SparkSession) -> Any:
        return spark.sql(
            f"SELECT snapshot_id, committed_at, summary['{PROPERTY}'] AS note,"
            " summary['added-records'] AS rows, summary['added-files-size'] AS size"
            f" FROM {self._name}.snapshots"
            f" WHERE summary['{PROPERTY}'] IS NOT NULL {_NEWEST}"
        ).first()

    def append(self, frame: DataFrame, number: int, note: str, after: str) -> None:
        """See `TableFormat`."""
        from pyspark.sql import functions as F

        spark = frame.sparkSession
        columns = self._make(spark, frame)
        missing = [name for name in columns if name not in frame.columns]
        filled = frame.select("*", *(F.lit(None).cast(columns[name]).alias(name) for name in missing))
        order = [name for name in archive_rows.order(self._options.sort) if name in filled.columns]
        writer = (
            filled.select(*map(quoted, columns))
            .sortWithinPartitions(*order)
            .writeTo(self._name)
            .option(f"snapshot-property.{PROPERTY}", note)
            .option("isolation-level", "serializable")
        )
        if after:
            writer = writer.option("validate-from-snapshot-id", after)
        writer.overwrite(F.col(BATCH) == number)

    def _make(self, spark: SparkSession, frame: DataFrame) -> dict[str, str]:
        """Create the table or add missing columns; returns its columns with their types."""
        kinds = {item.name: type_ddl(item.dataType) for item in frame.schema.fields}
        if not spark.catalog.tableExists(self._name):
            spark.sql(
                f"CREATE TABLE IF NOT EXISTS {self._name} ({ddl(kinds)}) USING iceberg PARTITIONED BY"
                f" ({', '.join(PARTITIONS)}) TBLPROPERTIES ('write.distribution-mode'='none',"
                f" 'write.target-file-size-bytes'='{self._options.file_bytes}',"
                " 'write.metadata.delete-after-commit.enabled'='true')"
            )
        there = {item.name: type_ddl(item.dataType) for item in spark.table(self._name).schema.fields}
        new = {name: kind for name, kind in kinds.items() if name not in there}
        if new:
            spark.sql(f"ALTER TABLE {self._name} ADD COLUMNS ({ddl(new)})")
        return {**there, **new}

    def read(self, spark: SparkSession, version: str) -> DataFrame:
        """See `TableFormat`."""
        return spark.sql(f"SELECT * FROM {self._name} VERSION AS OF {int(version)}")

    def tend(self, spark: SparkSession, note: str) -> None:
        """See `TableFormat`. The snapshot with the newest note is kept, however old it is."""
        options = self._options
        now = datetime.now(UTC)
        if options.keep_days:
            oldest = now.date() - timedelta(days=options.keep_days)
            spark.sql(f"DELETE FROM {self._name} WHERE date < DATE'{oldest}'").collect()
        order = ", ".join(name for name in archive_rows.order(options.sort) if name not in PARTITIONS)
        self._call(
            spark,
            f"rewrite_data_files(table => '{self._rest}', strategy => 'sort', sort_order => '{order}',"
            f" options => map('target-file-size-bytes', '{options.file_bytes}'))",
        )
        noted = self._noted(spark)
        cut = int((now - timedelta(days=options.history_days)).timestamp() * 1000)
        if noted is not None:
            cut = min(cut, int(noted["committed_at"].timestamp() * 1000))
        self._call(
            spark,
            f"expire_snapshots(table => '{self._rest}', older_than => timestamp_millis({cut}),"
            " retain_last => 1)",
        )

    def _call(self, spark: SparkSession, procedure: str) -> None:
        spark.sql(f"CALL {self._catalog}.system.{procedure}").collect()
