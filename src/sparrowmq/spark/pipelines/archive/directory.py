"""An archive's directory: its layout, and the atomic steps that change what readers see.

    data          a link to the generation that readers read
    generations/  00000007/batch=00000012/date=2026-11-21/topic=Orders/part-….parquet, and _unit.json
    staging/      what is not published yet
    checkpoint/   Spark's
    lock          held by the one process that writes

A unit appears by one rename of its directory. Compaction builds a generation beside the current one, of hard
links and merged units, and switches the link by one rename: a reader sees either the old or the new units.
The previous generation is kept until the next compaction, for readers that still use it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow.parquet as parquet

from sparrowmq.spark.pipelines.archive.ledger import ArchiveError, ArchiveLedger, ArchiveUnit
from sparrowmq.spark.pipelines.common import directories
from sparrowmq.spark.pipelines.common.directories import sync, sync_tree

MANIFEST: Final = "_unit.json"
"""Readers ignore names that begin with an underscore."""
_NUMBER: Final = "08d"


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """Rows and bytes of the Parquet files of a directory."""

    rows: int
    size: int


class ArchiveDirectory:
    """One archive on disk."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / "data"
        self.generations = root / "generations"
        self.staging = root / "staging"

    def __repr__(self) -> str:
        return f"<ArchiveDirectory {self.root}>"

    @property
    def exists(self) -> bool:
        """Whether the archive exists."""
        return self.data.is_symlink()

    def current(self) -> Path:
        """The generation that readers see now. Raises `ArchiveError` when there is no archive."""
        if not self.exists:
            raise ArchiveError(
                f"{self.root} does not contain an archive; make one with `sparrow pipe archive`",
                what="archive",
                value=str(self.root),
            )
        return self.data.resolve()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Creates the directory if needed and locks out other writers. Raises `ArchiveError`."""
        with directories.locked(self.root, "archive", ArchiveError):
            self._prepare()
            yield

    def _prepare(self) -> None:
        """Create missing directories; remove files that a killed run left unpublished."""
        shutil.rmtree(self.staging, ignore_errors=True)
        self.staging.mkdir()
        if not self.exists:
            first = self.generations / f"{0:{_NUMBER}}"
            first.mkdir(parents=True, exist_ok=True)
            self._turn(first)
        current = self.current().name
        for path in self.generations.iterdir():
            if path.name > current:
                shutil.rmtree(path)

    def load(self) -> ArchiveLedger:
        """The published units."""
        return read_ledger(self.current())

    def staged(self, number: int) -> Path:
        """An empty directory to write a unit to."""
        path = self.staging / unit_name(number)
        shutil.rmtree(path, ignore_errors=True)
        return path

    def publish(self, staged: Path, unit: ArchiveUnit, generation: Path | None = None) -> None:
        """Let readers of a generation, by default the current one, see a unit whose files are in `staged`.

        It is one rename, after all is on disk.
        """
        seal(staged, unit)
        target = (generation or self.current()) / unit_name(unit.number)
        staged.rename(target)
        sync(target.parent)

    def next_generation(self, without: Sequence[ArchiveUnit]) -> Path:
        """A new generation with everything of the current one except some units, as hard links."""
        current = self.current()
        made = self.generations / f"{int(current.name) + 1:{_NUMBER}}"
        shutil.rmtree(made, ignore_errors=True)
        left_out = {unit_name(unit.number) for unit in without}
        made.mkdir()
        for unit in sorted(current.iterdir()):
            if unit.name not in left_out:
                shutil.copytree(unit, made / unit.name, copy_function=os.link)
        return made

    def switch(self, generation: Path) -> None:
        """Make `generation` the current one; of the others only the previous one is kept."""
        before = self.current()
        sync_tree(generation)
        self._turn(generation)
        for path in self.generations.iterdir():
            if path.name < before.name:
                shutil.rmtree(path)

    def _turn(self, generation: Path) -> None:
        link = self.root / "data.new"
        link.unlink(missing_ok=True)
        link.symlink_to(generation.relative_to(self.root), target_is_directory=True)
        link.rename(self.data)
        sync(self.root)


def unit_name(number: int) -> str:
    """The directory of a unit."""
    return f"batch={number:{_NUMBER}}"


def read_ledger(generation: Path) -> ArchiveLedger:
    """The units in a generation. Raises `ArchiveError` for a directory that is not a unit."""
    units = []
    for path in sorted(generation.glob("batch=*")):
        manifest = path / MANIFEST
        try:
            units.append(ArchiveUnit.from_text(manifest.read_text(), manifest))
        except OSError as error:
            raise ArchiveError(
                f"{manifest} cannot be read: {error.strerror}; restore it from a copy",
                value=manifest,
            ) from error
    return ArchiveLedger(units)


def written(staged: Path) -> WrittenFiles:
    """Rows and bytes of the Parquet files below `staged`, read from their footers."""
    files = sorted(staged.rglob("*.parquet"))
    return WrittenFiles(
        sum(parquet.read_metadata(file).num_rows for file in files),
        sum(file.stat().st_size for file in files),
    )


def seal(staged: Path, unit: ArchiveUnit) -> None:
    """Write a unit's manifest and force all of its files to disk."""
    staged.mkdir(parents=True, exist_ok=True)
    (staged / MANIFEST).write_text(json.dumps(unit.to_json(), separators=(",", ":")))
    sync_tree(staged)
