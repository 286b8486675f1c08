"""One run of an archive: batches become units, small units are merged, progress is reported to the
brokers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING

from sparrowmq.core.errors import SparrowError
from sparrowmq.spark.bodies.bad_rows import BadRowsCount
from sparrowmq.spark.offsets.losses import GoneQueue, UnreadLoss
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.options.table import ReadOptions
from sparrowmq.spark.pipelines.archive import rows as archive_rows
from sparrowmq.spark.pipelines.archive.ledger import ArchiveError, evolve
from sparrowmq.spark.pipelines.archive.location import Draft, Store
from sparrowmq.spark.pipelines.archive.settings import ArchiveSettings
from sparrowmq.spark.pipelines.common import reading
from sparrowmq.spark.pipelines.common.watch import Watch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("sparrowmq.spark")


class ArchiveJob:
    """One run: the growing ledger, and how batches become units of it."""

    def __init__(self, spark: SparkSession, settings: ArchiveSettings, store: Store, watch: Watch) -> None:
        self._spark = spark
        self._settings = settings
        self._store = store
        self._watch = watch
        self.ledger = store.content().ledger
        self._held: frozenset[tuple[str, str]] = frozenset()

    def prepare(self) -> None:
        """Create the group, make brokers hold messages. Raises errors of the brokers."""
        settings = self._settings
        self._say_gap()
        if settings.hold_hours:
            self._hold()
        elif settings.group:
            reading.prepare(settings.source_options, settings.group)

    def _say_gap(self) -> None:
        """Log what the archive lacks of brokers that are lost for good, as far as it is known."""
        options = ReadOptions.parse(self._settings.source_options, None)
        if not options.lost_brokers:
            return
        last = self._store.checkpoint.last()
        ends = {**last.queues, **self.ledger.ends()}
        lost = {queue: end for queue, end in ends.items() if options.is_lost(queue)}
        gone = (GoneQueue(q, end, last.ends.get(q), "its broker is lost") for q, end in lost.items())
        gap = UnreadLoss.of(gone, last.seen_ms)
        if gap.queues:
            log.warning("archive %s goes on with a gap because of option lostBrokers: %s", self._store, gap)

    def _hold(self) -> None:
        settings = self._settings
        reading.prepare(settings.source_options, settings.group)
        self._held = reading.hold(settings.source_options, settings.group, settings.hold_hours)

    def _hold_new(self, spans: Iterable[Span]) -> None:
        """Make brokers hold messages of topics they got since; a broker that fails is asked again with each
        batch.
        """
        there = {(span.queue.topic, span.queue.broker_name) for span in spans}
        if not self._settings.hold_hours or there <= self._held:
            return
        try:
            self._hold()
        except (SparrowError, FutureTimeoutError) as error:
            log.warning(
                "retention of messages of %s is not secured yet: %r", sorted(there - self._held), error
            )

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Archive one micro-batch; does nothing if it is already in the archive."""
        began = monotonic()
        planned = self._store.checkpoint.batch_spans(batch_id)
        spans = reading.without_lost(self._settings.source_options, planned)
        query = self._store.checkpoint.query_id()
        if not spans or self.ledger.has(query, batch_id):
            return
        self.ledger.check_new(spans)
        self._check_gap(spans)
        self._hold_new(spans)
        waited = self._watch.progress.lag
        left = None if waited is None else max(0, waited - sum(map(len, spans)))
        self._publish(batch, spans, {query: batch_id}, began, left)
        self._compact(batch.sparkSession)

    def fill(self, spans: Sequence[Span], left: int) -> None:
        """Archive missing spans; `left` messages remain after them."""
        began = monotonic()
        options = reading.assigned(self._settings.source_options, spans)
        frame = reading.batch(self._spark, options, self._settings.read_schema)
        self._publish(frame, spans, {}, began, left)
        self._compact(frame.sparkSession)

    def _check_gap(self, spans: Iterable[Span]) -> None:
        ends = self.ledger.ends()
        for span in spans:
            end = ends.get(span.queue, span.start)
            if span.start > end and self._settings.fail_on_data_loss:
                raise ArchiveError(
                    f"archive {self._store} ends at offset {end} of {span.queue}, but its checkpoint "
                    f"continues at {span.start}: remove {self._store.checkpoint.location} to continue "
                    f"where the archive ends"
                )

    def _publish(
        self,
        frame: DataFrame,
        spans: Sequence[Span],
        done: Mapping[str, int],
        began: float,
        left: int | None = None,
    ) -> None:
        """Write a unit and publish it."""
        with self._opened(frame) as rows:
            self._write_unit(rows, spans, done, began, left)

    @contextmanager
    def _opened(self, frame: DataFrame) -> Iterator[DataFrame]:
        """The rows, after undecodable ones were written elsewhere.

        These are identified by the unit's number: until the unit is published, the number and its rows stay
        the same.
        """
        bad_rows = self._settings.bad_rows
        if bad_rows is None:
            yield frame
            return

        def report(count: BadRowsCount) -> None:
            self._watch.bad(count.bad)
            bad_rows.report(count)

        with replace(bad_rows, report=report).copied_aside(frame, self.ledger.next_number) as rows:
            yield rows

    def _write_unit(
        self,
        frame: DataFrame,
        spans: Sequence[Span],
        done: Mapping[str, int],
        began: float,
        left: int | None,
    ) -> None:
        shaped = archive_rows.shaped(frame, self._settings.select)
        columns = archive_rows.columns_of(shaped)
        evolve(self.ledger.columns, columns, self._store)
        self.ledger.check_new(spans)
        whole = self._settings.fail_on_data_loss and not self._is_filtered
        draft = Draft(
            number=self.ledger.next_number,
            spans=tuple(sorted(spans)),
            columns=columns,
            done=done,
            expected=sum(map(len, spans)) if whole else None,
        )
        unit = self._store.publish(shaped, draft)
        self.ledger = self._store.content().ledger
        self.report()
        self._watch.batch(unit.rows, unit.size, monotonic() - began, left)

    def report(self) -> None:
        """Report to the group's brokers which offsets are archived."""
        if self._settings.group and self.ledger.units:
            reading.report(self._settings.source_options, self._settings.group, self.ledger.ends())

    @property
    def _is_filtered(self) -> bool:
        return reading.is_filtered(self._settings.options)

    def _compact(self, spark: SparkSession) -> None:
        """Merge small units when there are enough of them."""
        settings = self._settings
        if not settings.compact_batches:
            return
        merged = self._store.compact(spark, least=settings.compact_batches, size_max=settings.compact_bytes)
        if merged:
            self.ledger = self._store.content().ledger
            log.info("archive %s: %d batches merged", self._store, merged)
