"""The frames of one audit: computed once, cached until it ends, and counted for progress."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Self

from sparrowmq.spark.pipelines.audit.settings import AuditSettings
from sparrowmq.spark.pipelines.common.watch import Watch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Frames:
    """Caches frames until the block ends; `waiting` is the number of messages to read."""

    def __init__(self, watch: Watch, waiting: int = 0) -> None:
        self._watch = watch
        self._waiting = waiting
        self._persisted = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._persisted.close()

    def persist(self, frame: DataFrame) -> DataFrame:
        """The frame, computed at its first use and cached."""
        self._watch.batch(0, 0, 0.0, self._waiting)
        return self._persist(frame)

    def read(self, messages: DataFrame) -> DataFrame:
        """The frame, read from the current source of the messages, and cached."""
        began = monotonic()
        kept = self._persist(messages)
        rows = int(kept.count())
        self._waiting = max(0, self._waiting - rows)
        self._watch.batch(rows, 0, monotonic() - began, self._waiting)
        return kept

    def _persist(self, frame: DataFrame) -> DataFrame:
        kept = frame.persist()
        self._persisted.callback(kept.unpersist)
        return kept


@dataclass(frozen=True, slots=True)
class AuditRun:
    """Values that every part of an audit needs; `now` is its start, epoch ms."""

    spark: SparkSession
    settings: AuditSettings
    frames: Frames
    now: int

    @property
    def margin(self) -> int:
        """Maximum difference between clocks, ms."""
        return int(self.settings.margin_seconds * 1000)
