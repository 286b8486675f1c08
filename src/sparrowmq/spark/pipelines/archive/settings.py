"""Settings of an archive. Values only; `archive` runs it."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from sparrowmq.columnar.schema import DEFAULT_COLUMNS as DEFAULT_COLUMNS
from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.bodies.bad_rows import BadRows
from sparrowmq.spark.bodies.ddl import ddl
from sparrowmq.spark.bodies.schema import SOURCE_COLUMNS, check_columns
from sparrowmq.spark.pipelines.archive.ledger import ArchiveLedger
from sparrowmq.spark.pipelines.archive.location import FORMATS, PARQUET, Store, TableOptions, store_of
from sparrowmq.spark.pipelines.archive.rows import NEEDED
from sparrowmq.spark.pipelines.common.directories import named
from sparrowmq.spark.pipelines.common.source import FollowedSource, check_least


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSettings(FollowedSource):
    """What to archive, and where. Set exactly one of `topics` and `pattern`."""

    directory: str | Path
    """A path that the driver and all executors see under this name, or a URI of any file system of Spark's:
    `s3a://bucket/archive`.
    """
    format: str = PARQUET
    """`parquet`: files that any reader can use; `delta`, `iceberg`: a table with its own commits."""
    table: str = ""
    """The table's name in a catalog; without one, a `delta` table is in the archive's directory."""
    sort: tuple[str, ...] = ()
    """Sort order of the rows of a day and topic in a table's files; by default broker, queue and offset."""
    file_bytes: int = 128 * 1024 * 1024
    """Approximate size of a table's merged files."""
    keep_days: int = 0
    """Rows of a table stored more than this many days ago are deleted; 0: never."""
    history_days: int = 7
    """Versions older than this may be deleted."""
    every: float = 60.0
    batch_rows: int = 1_000_000
    columns: tuple[str, ...] = DEFAULT_COLUMNS
    """The source's columns to keep; those in `NEEDED` are always kept."""
    select: tuple[str, ...] = ()
    """More columns, as SQL expressions: `get_json_object(cast(body as string), '$.id') as id`."""
    compact_batches: int = 32
    """Merge this many adjacent small batches into one; 0: never."""
    compact_bytes: int = 512 * 1024 * 1024
    """Maximum size of a merged directory."""
    group: str = ""
    """A consumer group whose offsets follow the archive: its lag is the archive's lag, and brokers hold
    messages for it.
    """
    hold_hours: int = 0
    """Make the brokers keep each message until it is archived, for at most this many hours; 0: normal
    retention.
    """
    bad_rows: BadRows | None = None
    """Where to write the bytes of bodies that cannot be decompressed; the archive has their rows with a null
    body. Without it such a body ends the run.
    """

    def __post_init__(self) -> None:
        self.check_followed("an archive")
        check_least(self, compact_batches=0, compact_bytes=1, hold_hours=0)
        check_least(self, file_bytes=1, keep_days=0, history_days=0)
        if self.hold_hours and not self.group:
            raise SettingsError(
                f"hold_hours={self.hold_hours} needs a group, whose offsets show what is archived",
                "hold_hours",
                self.hold_hours,
            )
        self._check_format()
        if self.bad_rows is not None and "body" not in self.columns:
            text = "bad_rows concern bodies, but the archive has no column body"
            raise SettingsError(text, "bad_rows", other="columns")
        check_columns(self.columns)

    def _check_format(self) -> None:
        if self.format not in FORMATS:
            raise SettingsError(
                f"format={self.format!r}: must be one of {', '.join(FORMATS)}", "format", self.format
            )
        if self.format == PARQUET and (self.table or self.sort or self.keep_days):
            text = "table, sort and keep_days need a format with tables: delta or iceberg"
            raise SettingsError(text, "format", self.format)
        if self.format == "iceberg" and self.table.count(".") < 2:
            text = f"format=iceberg needs table=catalog.namespace.name, not {self.table!r}"
            raise SettingsError(text, "table", self.table)

    @property
    def store(self) -> Store:
        """Where the archive is stored. Raises `SettingsError` for an invalid location."""
        options = TableOptions(
            format=self.format,
            table=self.table,
            sort=self.sort,
            file_bytes=self.file_bytes,
            keep_days=self.keep_days,
            history_days=self.history_days,
        )
        return store_of(self.directory, options)

    def _options(self) -> dict[str, str]:
        found = FollowedSource._options(self)
        return found if self.bad_rows is None else {**found, "mode": "PERMISSIVE"}

    def ledger(self) -> ArchiveLedger:
        """The content of the archive; empty if it does not exist."""
        store = self.store
        return store.content().ledger if store.exists else ArchiveLedger()

    @property
    def schema(self) -> str:
        """The source's columns as a schema, which prunes them."""
        names = dict.fromkeys((*NEEDED, *self.columns))
        return ddl({name: SOURCE_COLUMNS[name] for name in SOURCE_COLUMNS if name in names})

    @property
    def read_schema(self) -> str:
        """`schema` and, with `bad_rows`, the columns that mark bad rows."""
        if self.bad_rows is None:
            return self.schema
        special = {self.bad_rows.corrupt_column: "binary", self.bad_rows.reason_column: "string"}
        return f"{self.schema}, {ddl(special)}"


def bad_rows_of(directory: str | Path) -> str:
    """A stable name for the bad rows of the archive in a directory."""
    return f"archive-{blake2b(named(directory).encode(), digest_size=8).hexdigest()}"
