"""An archive stored in a table with its own commits: Delta Lake's, Iceberg's.

    archive.json   which format, which table; made once
    checkpoint/    Spark's
    lock           held by the one process that writes, below a path
    table/         the rows, where the table has no name in a catalog

Each commit of a batch carries, beside its rows, a note with everything that the archive then covers, so rows
and offsets are published in one step. The newest note is authoritative, whatever other commits (merges,
deletes, other users' commits) surround it. A commit names its batch and the version on which it is based; the
table refuses it if another run has committed the batch in the meantime.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from sparrowmq.spark.bodies.ddl import quoted
from sparrowmq.spark.pipelines.archive.ledger import ArchiveError, ArchiveLedger, ArchiveUnit, merged
from sparrowmq.spark.pipelines.archive.location import DESCRIPTION, VERSION, Draft, checkpoint_of
from sparrowmq.spark.pipelines.archive.rows import empty
from sparrowmq.spark.pipelines.common import directories
from sparrowmq.spark.pipelines.common.files import FAULTS, Files, LocalFiles, java_names, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH: Final = "batch"
"""A column of tables: the number of the batch that wrote the row."""
_UNFIT: Final = frozenset(
    "NoSuchMethodError NoSuchFieldError IncompatibleClassChangeError AbstractMethodError "
    "NoClassDefFoundError ClassNotFoundException VerifyError".split()
)


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a table, and the newest note of its commits."""

    id: str
    """Empty while the table has none."""
    note: Mapping[str, Any] | None = None
    rows: int | None = None
    """Number of rows that the commit with the note added, if known."""
    size: int = 0
    """In bytes."""


class TableFormat(Protocol):
    """Operations on a kind of table that the archive needs. All raise Spark's errors."""

    where: str
    """Its name, for messages."""

    def latest(self, spark: SparkSession) -> Version | None:
        """The newest version; None if the table does not exist."""

    def append(self, frame: DataFrame, number: int, note: str, after: str) -> None:
        """Add the rows of a batch with a note, in one commit based on a version."""

    def read(self, spark: SparkSession, version: str) -> DataFrame:
        """The table as of a version."""

    def tend(self, spark: SparkSession, note: str) -> None:
        """Merge small files, delete data that has expired."""


@dataclass(frozen=True, slots=True)
class TableContent:
    """A version of a table."""

    table: TableFormat
    version: str
    ledger: ArchiveLedger

    @property
    def where(self) -> str:
        """The table."""
        return self.table.where

    def read(self, spark: SparkSession, units: Sequence[ArchiveUnit]) -> DataFrame:
        """See `Content`; there is one unit, which has everything."""
        columns = self.ledger.columns
        if not units or not self.version:
            return empty(spark, columns)
        names = ("topic", "date", *map(quoted, columns))
        return self.table.read(spark, self.version).selectExpr(*names)


class TableStore:
    """An archive with its rows in a table."""

    def __init__(
        self, files: Files, described: Mapping[str, Any], table: TableFormat, *, is_new: bool
    ) -> None:
        self._files = files
        self._described = described
        self._table = table
        self.exists = not is_new
        self.name = files.location.rpartition("/")[2]
        self.checkpoint = checkpoint_of(files)

    def __str__(self) -> str:
        return self._table.where

    def content(self) -> TableContent:
        """See `Store`."""
        if not self.exists:
            text = f"{self} does not contain an archive; make one with `sparrow pipe archive`"
            raise ArchiveError(text, what="archive", value=str(self))
        with self._fitting():
            return self._content(self._table.latest(session(str(self))))

    def _content(self, found: Version | None) -> TableContent:
        if found is None:
            return TableContent(self._table, "", ArchiveLedger())
        note = self._checked(found)
        units = () if note is None else (ArchiveUnit.from_json(note.get("unit"), f"the note of {self}"),)
        return TableContent(self._table, found.id, ArchiveLedger(units))

    def _checked(self, found: Version) -> Mapping[str, Any] | None:
        """The note, if it belongs to this archive. Raises `ArchiveError`."""
        note = found.note
        if note is None and found.id:
            raise ArchiveError(
                f"table {self} has commits, but none of an archive: use a separate table for the archive, "
                f"or restore the table from a copy",
                what="commits",
            )
        if note is not None and note.get("id") != self._described["id"]:
            raise ArchiveError(
                f"table {self} belongs to another archive ({note.get('id')}, this one is "
                f"{self._described['id']}): use a separate table for each archive",
                what="archive",
                value=note.get("id"),
                limit=self._described["id"],
            )
        return note

    @contextmanager
    def locked(self) -> Iterator[None]:
        """See `Store`: in a directory a second writer is refused; elsewhere the table's commits decide."""
        if isinstance(self._files, LocalFiles):
            with directories.locked(self._files.root, "archive", ArchiveError):
                self._describe()
                yield
        else:
            self._describe()
            yield

    def _describe(self) -> None:
        if not self.exists and not self._files.create(DESCRIPTION, json.dumps(self._described)):
            raise ArchiveError(f"{self._files.location} was started by another run; start this one again")
        self.exists = True

    def place(self, number: int) -> str:
        """See `Store`."""
        return f"{self}, {BATCH} {number}"

    def publish(self, frame: DataFrame, draft: Draft) -> ArchiveUnit:
        """See `Store`; the number of rows is known after the commit."""
        from pyspark.sql import functions as F

        spark, token = frame.sparkSession, secrets.token_hex(8)
        with self._fitting():
            known = self._table.latest(spark)
            before = self._content(known)
            if before.ledger.next_number != draft.number:
                raise self._taken()
            unit = draft.unit(sum(map(len, draft.spans)), 0)
            columns = {**before.ledger.columns, **draft.columns}
            whole = merged([*before.ledger.units, unit], size=0, columns=columns)
            numbered = frame.withColumn(BATCH, F.lit(draft.number).cast("int"))
            try:
                self._table.append(numbered, draft.number, self._note(whole, token), before.version)
            except FAULTS as error:
                now = _token(self._table.latest(spark))
                if now == _token(known):
                    raise
                if now != token:  # otherwise the answer to the commit was lost
                    raise self._taken() from error
            found = self._table.latest(spark)
        if found is None or _token(found) != token:
            raise self._taken()
        rows = unit.rows if found.rows is None else found.rows
        if draft.expected is not None and rows != draft.expected:
            raise ArchiveError(
                f"version {found.id} of {self} added {rows} messages instead of {draft.expected}: restore "
                f"the version before it, and run it again",
                what="messages",
                value=rows,
                limit=draft.expected,
            )
        return draft.unit(rows, found.size)

    def _note(self, unit: ArchiveUnit, token: str) -> str:
        note = {"version": VERSION, "id": self._described["id"], "token": token, "unit": unit.to_json()}
        return json.dumps(note, separators=(",", ":"))

    def _taken(self) -> ArchiveError:
        return ArchiveError(
            f"another run has written to {self} in the meantime; only one run may write it, and this one "
            f"has ended",
            what="run",
        )

    def compact(self, spark: SparkSession, *, least: int, size_max: int) -> int:
        """See `Store`: after every `least` batches."""
        with self._fitting():
            found = self._table.latest(spark)
            content = self._content(found)
            number = content.ledger.next_number
            if number % least:
                return 0
            if found is not None:
                self._table.tend(spark, json.dumps(found.note, separators=(",", ":")))
        return least

    @contextmanager
    def _fitting(self) -> Iterator[None]:
        """Turn errors of a jar for another Spark version into advice."""
        try:
            yield
        except FAULTS as error:
            if not _UNFIT & set(java_names(error)) and "DATA_SOURCE_NOT_FOUND" not in str(error):
                raise
            spark: Any = session(str(self))
            raise ArchiveError(
                f"{self._described['format']} does not work with Spark {spark.version} here: its jar is "
                f"missing or was built for another Spark (docs/pipelines/archive.md lists the jars): "
                f"{' '.join(java_names(error)[:1])} {str(error).partition(chr(10))[0][:200]}",
                "format",
                self._described["format"],
            ) from error


def parsed_note(text: str | None) -> dict[str, Any] | None:
    """The note in a commit; None if the commit is not ours."""
    try:
        value = json.loads(text or "")
    except ValueError:
        return None
    return value if isinstance(value, dict) and value.get("version") == VERSION and "unit" in value else None


def _token(found: Version | None) -> object:
    return None if found is None or found.note is None else found.note.get("token")
