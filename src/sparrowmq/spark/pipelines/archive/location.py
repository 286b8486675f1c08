"""Where an archive is stored: the interface that writers and readers use, and how a name selects a
location.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.pipelines.archive.ledger import ArchiveError, ArchiveLedger, ArchiveUnit
from sparrowmq.spark.pipelines.common import directories
from sparrowmq.spark.pipelines.common.checkpoints import QueryCheckpoint
from sparrowmq.spark.pipelines.common.files import Files, LocalFiles, files_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


PARQUET: Final = "parquet"
FORMATS: Final = (PARQUET, "delta", "iceberg")
VERSION: Final = 1
DESCRIPTION: Final = "archive.json"
"""Of archives that are tables: format, table and id. Created once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """How a table is created and maintained."""

    format: str
    table: str = ""
    """Its name in a catalog; Delta's may be below the archive's directory instead."""
    sort: tuple[str, ...] = ()
    """Sort order of rows in files, after `date` and `topic`."""
    file_bytes: int = 128 * 1024 * 1024
    """Approximate size of merged files."""
    keep_days: int = 0
    """Rows older than this many days are deleted; 0: never."""
    history_days: int = 7
    """Versions of the table older than this may be deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A unit before its rows are written."""

    number: int
    spans: tuple[Span, ...]
    """Sorted."""
    columns: Mapping[str, str]
    done: Mapping[str, int] = field(default_factory=dict)
    expected: int | None = None
    """Expected number of rows; None if unknown."""

    def check(self, rows: int, where: object) -> None:
        """Raise `ArchiveError` if the number of rows is different."""
        if self.expected is not None and rows != self.expected:
            raise ArchiveError(
                f"{where} has {rows} messages instead of {self.expected}: nothing was published; run it "
                f"again",
                what="messages",
                value=rows,
                limit=self.expected,
            )

    def unit(self, rows: int, size: int) -> ArchiveUnit:
        """The unit after it was written."""
        return ArchiveUnit(
            number=self.number, spans=self.spans, rows=rows, size=size, columns=self.columns, done=self.done
        )


class ArchiveContent(Protocol):
    """A snapshot of an archive."""

    @property
    def ledger(self) -> ArchiveLedger:
        """The offsets it covers."""

    @property
    def where(self) -> str:
        """Its location, for messages."""

    def read(self, spark: SparkSession, units: Sequence[ArchiveUnit]) -> DataFrame:
        """Some of its units as a table of `topic`, `date` and the ledger's columns."""


class Store(Protocol):
    """One archive."""

    @property
    def name(self) -> str:
        """The last part of its location."""

    def __str__(self) -> str:
        """Its location."""

    @property
    def exists(self) -> bool:
        """Whether the archive exists."""

    def content(self) -> ArchiveContent:
        """The content that readers see now. Raises `ArchiveError` when the archive does not exist."""

    def locked(self) -> AbstractContextManager[None]:
        """Create it if needed, and lock out or fence other writers. Raises `ArchiveError`."""

    def place(self, number: int) -> str:
        """Where a unit will be stored, for messages."""

    def publish(self, frame: DataFrame, draft: Draft) -> ArchiveUnit:
        """Write a unit's rows and let readers see them, in one step. Raises `ArchiveError`."""

    def compact(self, spark: SparkSession, *, least: int, size_max: int) -> int:
        """Merge small batches if there are at least `least`; returns how many. Raises `ArchiveError`."""

    @property
    def checkpoint(self) -> QueryCheckpoint:
        """The checkpoint of the query that writes it; raises `ArchiveError`."""


def store_of(location: str | Path, wanted: TableOptions | None = None) -> Store:
    """The archive at a path, or at a URI of any file system that Spark has.

    `wanted` says how to create and maintain a table; without it an existing archive is used as it is. Raises
    `ArchiveError` if the archive has another format, `SettingsError` if the location is invalid.
    """
    from sparrowmq.spark.pipelines.archive.local import LocalStore
    from sparrowmq.spark.pipelines.archive.remote import RemoteStore

    files = files_of(location, "archive")
    plain = LocalStore(files.root) if isinstance(files, LocalFiles) else RemoteStore(files)
    described = _described(files)
    if described is None:
        if wanted is None or wanted.format == PARQUET:
            return plain
        if plain.exists:
            text = f"{location} contains an archive of format {PARQUET}, not {wanted.format}"
            raise ArchiveError(text, what="format", value=PARQUET, limit=wanted.format)
        described = {
            "version": VERSION,
            "format": wanted.format,
            "table": wanted.table,
            "id": secrets.token_hex(8),
        }
        return _table(files, described, wanted, is_new=True)
    if wanted is None:
        wanted = TableOptions(format=str(described["format"]), table=str(described["table"]))
    if (wanted.format, wanted.table) != (described["format"], described["table"]):
        raise ArchiveError(
            f"{location} contains an archive of format {described['format']}, table "
            f"{described['table']!r}, not "
            f"{wanted.format}, {wanted.table!r}: use the same format and table, or give another directory",
            what="format",
            value=described["format"],
            limit=wanted.format,
        )
    return _table(files, described, wanted, is_new=False)


def _table(files: Files, described: Mapping[str, Any], options: TableOptions, *, is_new: bool) -> Store:
    from sparrowmq.spark.pipelines.archive.delta import DeltaTable
    from sparrowmq.spark.pipelines.archive.iceberg import IcebergTable
    from sparrowmq.spark.pipelines.archive.table import TableStore

    if options.format == "delta":
        return TableStore(
            files, described, DeltaTable(files, options, f"sparrowmq-{described['id']}"), is_new=is_new
        )
    return TableStore(files, described, IcebergTable(options), is_new=is_new)


def _described(files: Files) -> dict[str, Any] | None:
    """The content of `archive.json`; None for an archive of Parquet files, and if there is none."""
    text = files.read(DESCRIPTION)
    if text is None:
        return None
    try:
        value: dict[str, Any] = json.loads(text)
        if value["version"] == VERSION and value["format"] in FORMATS and value["id"]:
            return {**value, "table": str(value.get("table", ""))}
    except (ValueError, KeyError, TypeError):
        pass
    raise ArchiveError(
        f"{files.location}/{DESCRIPTION} cannot be read by this release; use a newer release, or restore "
        f"it from a copy",
        what=DESCRIPTION,
    )


def needs_session(location: str | Path) -> bool:
    """Whether the content of that archive can only be read through Spark."""
    return directories.is_uri(location) or _described(files_of(location, "archive")) is not None


def content_of(location: str | Path) -> ArchiveContent:
    """The content of the archive that readers see. Raises `ArchiveError` when it does not exist."""
    return store_of(location).content()


def checkpoint_of(files: Files) -> QueryCheckpoint:
    """The checkpoint of an archive below `files`."""
    return QueryCheckpoint(
        files.at("checkpoint"), ArchiveError, "without it the archive continues where it ends"
    )
