"""An archive's directory: what lies where, and the single steps that change what readers see.

    data          a link to the generation that readers read
    generations/  00000007/batch=00000012/date=2026-11-21/topic=Orders/part-….parquet, and _unit.json
    staging/      what is not published yet
    checkpoint/   Spark's
    lock          held by the one process that writes

A unit appears by one rename of its directory. Compaction builds a generation beside the current one, of hard
links and merged units, and turns the link by one rename: a reader sees the units of before or of after. The
generation before is kept until the next compaction, for those who still read it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow.parquet as parquet

from sparrowmq.spark.offsets import Span
from sparrowmq.spark.pipelines import checkpoints, homes
from sparrowmq.spark.pipelines.homes import sync, sync_tree
from sparrowmq.spark.pipelines.ledger import ArchiveError, Ledger, Unit

MANIFEST: Final = "_unit.json"
"""Readers leave out names that begin with an underscore."""
_NUMBER: Final = "08d"


@dataclass(frozen=True, slots=True)
class Written:
    """What is in the Parquet files of a directory."""

    rows: int
    size: int


def directory(text: str | Path) -> Path:
    """The path that `text` names. Raises `SettingsError` on other file systems than mounted ones."""
    return homes.directory(text, "archive")


class ArchiveHome:
    """One archive on disk."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / "data"
        self.generations = root / "generations"
        self.staging = root / "staging"
        self.checkpoint = root / "checkpoint"

    def __repr__(self) -> str:
        return f"<ArchiveHome {self.root}>"

    @property
    def exists(self) -> bool:
        """Whether there is an archive."""
        return self.data.is_symlink()

    def current(self) -> Path:
        """The generation that readers see now. Raises `ArchiveError` when there is no archive."""
        if not self.exists:
            raise ArchiveError(f"{self.root} holds no archive; make one with `sparrow pipe archive`")
        return self.data.resolve()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Makes the directory if need be and keeps other writers out. Raises `ArchiveError`."""
        with homes.locked(self.root, "archive", ArchiveError):
            self._prepare()
            yield

    def _prepare(self) -> None:
        """Make what is missing; remove what a run that was killed left unpublished."""
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

    def load(self) -> Ledger:
        """The units that are published."""
        return read_ledger(self.current())

    def staged(self, number: int) -> Path:
        """An empty place to write a unit to."""
        path = self.staging / unit_name(number)
        shutil.rmtree(path, ignore_errors=True)
        return path

    def publish(self, staged: Path, unit: Unit, generation: Path | None = None) -> None:
        """Let readers of a generation, by default the current one, see a unit whose files are in `staged`.

        It is one rename, after all is on disk.
        """
        seal(staged, unit)
        target = (generation or self.current()) / unit_name(unit.number)
        staged.rename(target)
        sync(target.parent)

    def next_generation(self, without: Sequence[Unit]) -> Path:
        """A new generation with everything of the current one, as hard links, but for some units."""
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
        """Readers see `generation` from now on; only the one they saw before is kept beside it."""
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

    def query_id(self) -> str:
        """The id of the streaming query that the checkpoint belongs to."""
        return checkpoints.query_id(self.checkpoint)

    def batch_spans(self, batch: int) -> list[Span]:
        """What a micro-batch reads. Raises `ArchiveError`."""
        try:
            return checkpoints.batch_spans(self.checkpoint, batch)
        except ValueError as error:
            raise ArchiveError(
                f"{error}: remove {self.checkpoint}, the archive goes on where it ends without it"
            ) from error


def unit_name(number: int) -> str:
    """The directory of a unit."""
    return f"batch={number:{_NUMBER}}"


def read_ledger(generation: Path) -> Ledger:
    """The units in a generation. Raises `ArchiveError` for a directory that is none."""
    units = []
    for path in sorted(generation.glob("batch=*")):
        manifest = path / MANIFEST
        try:
            units.append(Unit.from_text(manifest.read_text(), manifest))
        except OSError as error:
            raise ArchiveError(
                f"{manifest} cannot be read: {error.strerror}; restore it from a copy"
            ) from error
    return Ledger(units)


def written(staged: Path) -> Written:
    """Rows and bytes of the Parquet files below `staged`, by their footers."""
    files = sorted(staged.rglob("*.parquet"))
    return Written(
        sum(parquet.read_metadata(file).num_rows for file in files),
        sum(file.stat().st_size for file in files),
    )


def seal(staged: Path, unit: Unit) -> None:
    """Write a unit's manifest and force all of its files to disk."""
    staged.mkdir(parents=True, exist_ok=True)
    (staged / MANIFEST).write_text(json.dumps(unit.to_json(), separators=(",", ":")))
    sync_tree(staged)


def ddl(columns: Mapping[str, str]) -> str:
    """A Spark schema of columns, names quoted."""
    return ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in columns.items())
