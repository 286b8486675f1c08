"""An archive on any file system that Spark has: object stores, HDFS, and others that Hadoop supports.

    commits/     000000000042.json: one numbered note for each change, made once (`common.commits`, `state`)
    data/        batch=00000012-3f9a2c01/date=2026-11-21/topic=Orders/part-….parquet
    checkpoint/  Spark's

A unit's files are written to their final place, under a unique name; readers see them when a commit names
them. Nothing is renamed. A run begins with a commit: a previous writer finds its next number taken and ends.
So files in `data` without a commit are left over and are removed.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import time
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.spark.pipelines.archive import rows as archive_rows
from sparrowmq.spark.pipelines.archive.directory import unit_name
from sparrowmq.spark.pipelines.archive.ledger import ArchiveError, ArchiveLedger, ArchiveUnit, merged
from sparrowmq.spark.pipelines.archive.local import check_merge, merge_small
from sparrowmq.spark.pipelines.archive.location import Draft, checkpoint_of
from sparrowmq.spark.pipelines.archive.state import ArchiveState, base_of, from_commit, to_commit
from sparrowmq.spark.pipelines.common.commits import Commits, TakenError
from sparrowmq.spark.pipelines.common.files import Files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TRIES: Final = 3
"""Attempts at a read whose base was deleted between two steps."""


@dataclass(frozen=True, slots=True)
class RemoteContent:
    """Content of one commit."""

    location: str
    state: ArchiveState
    ledger: ArchiveLedger

    @property
    def where(self) -> str:
        """The archive's URI."""
        return self.location

    def read(self, spark: SparkSession, units: Sequence[ArchiveUnit]) -> DataFrame:
        """See `Content`."""
        base = f"{self.location}/data"
        paths = [f"{base}/{self.state.kept[unit.number].folder}" for unit in units]
        return archive_rows.read(spark, base, paths, self.ledger.columns)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The newest commit and its content."""

    number: int
    state: ArchiveState
    base: tuple[int, ArchiveState]


class RemoteStore:
    """An archive below a URI."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._data = files.at("data")
        self._commits = Commits(files.at("commits"))
        self._mine: _Seen | None = None
        """The last commit that this writer made."""
        self.location = files.location
        self.name = files.location.rpartition("/")[2]
        self.checkpoint = checkpoint_of(files)
        self._owner = {"host": socket.gethostname(), "process": os.getpid()}

    def __str__(self) -> str:
        return self.location

    @property
    def exists(self) -> bool:
        """See `Store`."""
        return bool(self._commits.numbers())

    def content(self) -> RemoteContent:
        """See `Store`."""
        seen = self._mine or self._look()
        if seen is None:
            text = f"{self} does not contain an archive; make one with `sparrow pipe archive`"
            raise ArchiveError(text, what="archive", value=str(self))
        return RemoteContent(self.location, seen.state, seen.state.ledger)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """See `Store`: a previous writer fails at its next commit."""
        seen = self._look()
        used = self._commits.numbers()
        state = seen.state if seen is not None else ArchiveState()
        self._put(state, used[-1] + 1 if used else 0, None if seen is None else seen.base)
        try:
            for folder in self._data.names():
                if folder not in state.folders:
                    self._data.delete(folder)
            yield
        finally:
            self._mine = None

    def place(self, number: int) -> str:
        """See `Store`."""
        return f"{self.location}/data/{unit_name(number)}-…/date=…/topic=…"

    def publish(self, frame: DataFrame, draft: Draft) -> ArchiveUnit:
        """See `Store`."""
        folder, rows = self._write(frame, draft.number)
        draft.check(rows, f"{self.location}/data/{folder}")
        unit = draft.unit(rows, self._data.size(folder) if rows else 0)
        self._commit(self._held().state.with_unit(unit, folder))
        return unit

    def compact(self, spark: SparkSession, *, least: int, size_max: int) -> int:
        """See `Store`."""
        return merge_small(self, spark, least=least, size_max=size_max)

    def merge(self, spark: SparkSession, group: Sequence[ArchiveUnit]) -> None:
        """Replace several units by one. Files that the previous merge replaced are deleted: no reader can
        have used them for this long.
        """
        state = self._held().state
        ledger = ArchiveLedger(group)
        frame = RemoteContent(self.location, state, ledger).read(spark, group)
        last = max(unit.number for unit in group)
        folder, rows = self._write(archive_rows.clustered(frame), last)
        unit = merged(group, size=self._data.size(folder) if rows else 0, columns=ledger.columns)
        check_merge(group, unit, rows, self)
        self._commit(state.with_merged(group, unit, folder))
        for old in state.dropped:
            self._data.delete(old)

    def _write(self, frame: DataFrame, number: int) -> tuple[str, int]:
        """Write rows to a unique folder; returns its name and the number of rows in its files."""
        folder = f"{unit_name(number)}-{secrets.token_hex(4)}"
        where = f"{self.location}/data/{folder}"
        archive_rows.write(frame, where)
        if not self._data.names(folder):
            return folder, 0  # without a row Spark creates no readable directory
        found = frame.sparkSession.read.option("recursiveFileLookup", "true").schema("queue_offset bigint")
        return folder, int(found.parquet(where).count())

    def _held(self) -> _Seen:
        assert self._mine is not None, "not locked"
        return self._mine

    def _commit(self, state: ArchiveState) -> None:
        """Commit `state`. Raises `ArchiveError` when another run has taken over."""
        held = self._held()
        before = held.base[0]
        self._put(state, held.number + 1, held.base)
        if self._held().base[0] != before:
            self._commits.forget(before)

    def _put(self, state: ArchiveState, number: int, base: tuple[int, ArchiveState] | None) -> None:
        commit = to_commit(state, base)
        commit["owner"] = {**self._owner, "at": int(time())}
        try:
            self._commits.add(number, commit)
        except TakenError as error:
            self._mine = None
            raise ArchiveError(
                f"{error}: archive {self} was taken over by {_owner(error.by)}; only one run may write it; "
                f"this one has ended",
                what="run",
            ) from error
        self._mine = _Seen(number, state, (number, state) if commit["base"] is None or base is None else base)

    def _look(self) -> _Seen | None:
        """The newest commit with its base. Raises `ArchiveError`."""
        where = f"{self.location}/commits"
        for _ in range(_TRIES):
            found = self._commits.newest()
            if found is None:
                return None
            number, commit = found
            base = base_of(commit, where)
            if base is None:
                state = from_commit(commit, ArchiveState(), where)
                return _Seen(number, state, (number, state))
            known = self._commits.read(base)
            if known is not None:
                whole = from_commit(known, ArchiveState(), where)
                state = from_commit(commit, whole, where)
                return _Seen(number, state, (base, whole))
        raise ArchiveError(
            f"{self.location}/commits lacks commit {base}, which others need; restore it from a copy",
            what="commit",
            value=base,
        )


def _owner(commit: dict[str, Any] | None) -> str:
    owner = (commit or {}).get("owner") or {}
    if not owner:
        return "another run"
    return f"process {owner.get('process')} on {owner.get('host')}"
