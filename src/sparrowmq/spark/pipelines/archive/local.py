"""An archive in a directory of a mounted file system: units appear by one rename (`directory`)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from sparrowmq.spark.pipelines.archive import compaction
from sparrowmq.spark.pipelines.archive import rows as archive_rows
from sparrowmq.spark.pipelines.archive.directory import ArchiveDirectory, read_ledger, unit_name, written
from sparrowmq.spark.pipelines.archive.ledger import ArchiveError, ArchiveLedger, ArchiveUnit, merged
from sparrowmq.spark.pipelines.archive.location import ArchiveContent, Draft, checkpoint_of
from sparrowmq.spark.pipelines.common.directories import spark_path
from sparrowmq.spark.pipelines.common.files import LocalFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class LocalContent:
    """A generation; it is kept until the second merge after it."""

    generation: Path
    ledger: ArchiveLedger

    @property
    def where(self) -> str:
        """The generation's directory."""
        return str(self.generation)

    def read(self, spark: SparkSession, units: Sequence[ArchiveUnit]) -> DataFrame:
        """See `ArchiveContent`."""
        paths = [spark_path(self.generation / unit_name(unit.number)) for unit in units]
        return archive_rows.read(spark, spark_path(self.generation), paths, self.ledger.columns)


class LocalStore:
    """An archive in a directory."""

    def __init__(self, root: Path) -> None:
        self.home = ArchiveDirectory(root)
        self.name = root.name
        self.checkpoint = checkpoint_of(LocalFiles(root))

    def __str__(self) -> str:
        return str(self.home.root)

    @property
    def exists(self) -> bool:
        """See `Store`."""
        return self.home.exists

    def content(self) -> LocalContent:
        """See `Store`."""
        generation = self.home.current()
        return LocalContent(generation, read_ledger(generation))

    def locked(self) -> AbstractContextManager[None]:
        """See `Store`: a second writer is refused."""
        return self.home.locked()

    def place(self, number: int) -> str:
        """See `Store`."""
        return str(self.home.data / unit_name(number) / "date=…" / "topic=…")

    def publish(self, frame: DataFrame, draft: Draft) -> ArchiveUnit:
        """See `Store`."""
        staged = self.home.staged(draft.number)
        archive_rows.write(frame, spark_path(staged))
        found = written(staged)
        draft.check(found.rows, staged)
        unit = draft.unit(found.rows, found.size)
        self.home.publish(staged, unit)
        return unit

    def compact(self, spark: SparkSession, *, least: int, size_max: int) -> int:
        """See `Store`."""
        return merge_small(self, spark, least=least, size_max=size_max)

    def merge(self, spark: SparkSession, group: Sequence[ArchiveUnit]) -> None:
        """Replace several units by one, in one step. Raises `ArchiveError`."""
        columns = ArchiveLedger(group).columns
        last = max(unit.number for unit in group)
        staged = self.home.staged(last)
        frame = LocalContent(self.home.current(), ArchiveLedger(group)).read(spark, group)
        archive_rows.write(archive_rows.clustered(frame), spark_path(staged))
        found = written(staged)
        unit = merged(group, size=found.size, columns=columns)
        check_merge(group, unit, found.rows, self)
        made = self.home.next_generation(group)
        self.home.publish(staged, unit, made)
        self.home.switch(made)


class Merging(Protocol):
    """A store of units in directories."""

    def content(self) -> ArchiveContent:
        """See `Store`."""

    def merge(self, spark: SparkSession, group: Sequence[ArchiveUnit]) -> None:
        """Replace several units by one, in one step."""


def merge_small(store: Merging, spark: SparkSession, *, least: int, size_max: int) -> int:
    """Merge every run of at least `least` small units; returns the number of merged units."""
    groups = compaction.groups(store.content().ledger.units, least=least, size_max=size_max)
    for group in groups:
        store.merge(spark, group)
    return sum(map(len, groups))


def check_merge(group: Sequence[ArchiveUnit], unit: ArchiveUnit, rows: int, where: object) -> None:
    """Raise `ArchiveError` if a merged unit has other rows than the units it replaces."""
    if rows != unit.rows:
        raise ArchiveError(
            f"merging batches {group[0].number} to {unit.number} of {where} gave {rows} messages instead "
            f"of {unit.rows}: the archive is unchanged; check it for damaged files"
        )
