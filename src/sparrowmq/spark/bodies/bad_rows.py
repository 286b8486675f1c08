"""Rows that cannot be decoded are written to a topic or a table and counted; too many of them stop the query.

For `foreachBatch` and for batch reads whose frame has the column `_corrupt_record`, best with
`_corrupt_reason` beside it. Each batch is checked on its own before any of it is written. So a batch with too
many bad rows fails again at every restart, until the cause is fixed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.core.errors import SettingsError, SparrowError
from sparrowmq.core.message import PROPERTY_START_DELIVER_TIME, SYSTEM_PROPERTIES
from sparrowmq.spark.options import values as kinds
from sparrowmq.spark.options.table import CORRUPT_REASON, CORRUPT_RECORD

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

log = logging.getLogger("sparrowmq.spark")

MARK_REASON: Final = "SPARROW_BAD_REASON"
"""Property of a bad row in a topic: the reason."""
MARK_NAME: Final = "SPARROW_BAD_NAME"
"""Property of a bad row in a topic: the `name` of the `BadRows` that wrote it."""
MARK_ORIGIN: Final = "SPARROW_ORIGIN"
"""Property of a bad row in a topic: topic/broker/queue/offset from which it was read, in the format of a
replay.
"""
SHARE_FROM: Final = 100
"""A batch needs at least this many rows before its share of bad rows is checked."""
_PLACE: Final = ("topic", "broker", "queue_id", "queue_offset")
_ROWS_OFF: Final = (*SYSTEM_PROPERTIES, PROPERTY_START_DELIVER_TIME, MARK_REASON, MARK_NAME, MARK_ORIGIN)
_KEPT: Final = ("store_timestamp", "born_timestamp", "msg_id", "tags", "keys")


class TooManyBadRowsError(SparrowError):
    """A batch has more undecodable rows than allowed; nothing of the batch was written."""


@dataclass(frozen=True, slots=True)
class BadRowsCount:
    """The result of checking one batch."""

    name: str
    batch: int
    rows: int
    bad: int
    example: str = ""
    """Position and reason of one of the bad rows."""


Report = Callable[[BadRowsCount], None]


def silent(count: BadRowsCount) -> None:
    """Does nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRows:
    """Where bad rows go, and how many there may be.

    `name` identifies the rows that are set aside and must be the same at every start of the query: 1 to 200
    letters, digits, `.`, `_` and `-`. Bad rows go to `topic`, with `options` of the sink (`nameServer`, …),
    or to `table`, a directory or URI of Parquet; a batch that runs again stores them once (in a topic, only
    on brokers that check sequence numbers, such as SparrowMQ's).
    """

    name: str
    topic: str = ""
    table: str = ""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    most: int | None = None
    """Maximum number of bad rows in a batch."""
    share: float | None = None
    """Maximum share of bad rows in a batch, 0 to 1; checked for batches of `share_from` rows or more."""
    share_from: int = SHARE_FROM
    corrupt_column: str = CORRUPT_RECORD
    """Column with the bytes of a bad body; null in good rows."""
    reason_column: str = CORRUPT_REASON
    report: Report = silent
    """Called with the result of each batch; `MetricsListener.bad_rows` exports it to Prometheus."""

    def __post_init__(self) -> None:
        kinds.job_id("name", self.name)
        if bool(self.topic) == bool(self.table):
            raise SettingsError("give either a topic or a table for bad rows, not both")
        if self.topic:
            kinds.topic("topic", self.topic)
        elif self.options:
            raise SettingsError("options apply only to bad rows that go to a topic")
        for name, value in (("most", self.most), ("share_from", self.share_from)):
            if value is not None and value < 0:
                raise SettingsError(f"{name}={value}: must be 0 or more", name, value)
        if self.share is not None and not 0 <= self.share <= 1:
            raise SettingsError(
                f"share={self.share}: must be a share of the rows from 0 to 1, such as 0.01",
                "share",
                self.share,
            )

    @property
    def where(self) -> str:
        """Where bad rows go and how many are allowed, for display."""
        limits = [f"at most {self.most:,} of a batch"] if self.most is not None else []
        limits += [f"at most {self.share:.2%} of a batch"] if self.share is not None else []
        return ", ".join([f"topic {self.topic}" if self.topic else self.table, *limits])

    @contextmanager
    def set_aside(self, batch: DataFrame, batch_id: int = 0, *, cache: bool = True) -> Iterator[DataFrame]:
        """The good rows of a batch, without the columns of bad ones, after the bad ones were written
        elsewhere.

            def write(batch, batch_id):
                with bad_rows.set_aside(batch, batch_id) as good:
                    good.write…

        The batch is cached (`persist`) during the block, because it is read two or three times; with `cache`
        off it is read and decoded each time. Raises `TooManyBadRowsError`, and `SettingsError` for a frame
        that lacks columns.
        """
        with self.copied_aside(batch, batch_id, cache=cache) as rows:
            good = batch[self.corrupt_column].isNull()
            yield batch.where(good).select(*rows.columns)

    @contextmanager
    def copied_aside(self, batch: DataFrame, batch_id: int = 0, *, cache: bool = True) -> Iterator[DataFrame]:
        """Like `set_aside`, but yields all rows, the bad ones with a null body: for callers that must not
        miss a row.
        """
        self._check(batch)
        keep = cache and not batch.is_cached
        if keep:
            batch.persist()
        try:
            count = self.count(batch, batch_id)
            self.report(count)
            self.judge(count)
            if count.bad:
                log.warning(
                    "%s: %d of %d rows of batch %d could not be decoded and are set aside",
                    *(self.name, count.bad, count.rows, batch_id),
                )
                self._write(batch.where(self._is_bad(batch)), batch_id)
            yield batch.drop(self.corrupt_column, self.reason_column)
        finally:
            if keep:
                batch.unpersist()

    def count(self, batch: DataFrame, batch_id: int = 0) -> BadRowsCount:
        """Counts the rows of a batch. Raises `SettingsError` if the batch was read from the topic to which
        bad rows go.
        """
        from pyspark.sql import functions as F

        bad = self._is_bad(batch)
        place = F.concat_ws("/", *_PLACE)
        found: Any = batch.agg(
            F.count(F.lit(1)).alias("rows"),
            F.count_if(bad).alias("bad"),
            F.first(
                F.when(bad, F.struct(place.alias("place"), self._reason(batch).alias("why"))), True
            ).alias("one"),
            F.count_if(F.col("topic") == self.topic).alias("own"),
        ).first()
        if found.own:
            raise SettingsError(
                f"bad rows of {self.topic} would go to {self.topic} itself; give another topic",
                "topic",
                self.topic,
            )
        example = f"{found.one.place}: {found.one.why or 'unknown reason'}" if found.one else ""
        return BadRowsCount(self.name, batch_id, found.rows, found.bad, example)

    def judge(self, count: BadRowsCount) -> None:
        """Raise `TooManyBadRowsError` when a batch has more bad rows than allowed."""
        limit = ""
        if self.most is not None and count.bad > self.most:
            limit = f"most={self.most}"
        elif self.share is not None and count.rows >= self.share_from and count.bad > self.share * count.rows:
            limit = f"share={self.share}"
        if limit:
            raise TooManyBadRowsError(
                f"{self.name}: {count.bad:,} of {count.rows:,} rows of batch {count.batch} cannot be "
                f"decoded, and the limit is {limit}; for instance {count.example}. Nothing of the batch "
                f"was written: correct the decoding, or raise the limit, and start the query again"
            )

    def _check(self, batch: DataFrame) -> None:
        missing = [name for name in (*_PLACE, self.corrupt_column) if name not in batch.columns]
        if missing:
            raise SettingsError(
                f"column {missing[0]!r} is missing: bad rows are identified by {', '.join(_PLACE)} and "
                f"{self.corrupt_column}; keep these columns",
                what=missing[0],
            )

    def _is_bad(self, batch: DataFrame) -> Column:
        return batch[self.corrupt_column].isNotNull()

    def _reason(self, batch: DataFrame) -> Column:
        from pyspark.sql import functions as F

        if self.reason_column not in batch.columns:
            return F.lit("")
        return F.coalesce(F.regexp_replace(batch[self.reason_column], r"[\x00-\x1f]", " "), F.lit(""))

    def _write(self, bad: DataFrame, batch_id: int) -> None:
        # One task in a fixed order, whatever the cluster: a retry writes the same rows with the same numbers.
        columns = self._message(bad) if self.topic else self._row(bad)
        ordered = bad.repartition(1).sortWithinPartitions(*_PLACE).select(*columns)
        if self.table:
            ordered.write.mode("overwrite").parquet(f"{self.table.rstrip('/')}/batch={batch_id:08d}")
            return
        own = {"topic": self.topic, "jobId": self.name, "jobBatch": str(batch_id)}
        ordered.write.format("rocketmq").options(**{**self.options, **own}).mode("append").save()

    def _row(self, bad: DataFrame) -> list[Column]:
        body = bad[self.corrupt_column].cast("binary").alias("body")
        kept = [bad[name] for name in (*_PLACE, *_KEPT) if name in bad.columns]
        return [*kept, body, self._reason(bad).alias("reason")]

    def _message(self, bad: DataFrame) -> list[Column]:
        from pyspark.sql import functions as F

        origin = F.concat_ws("/", *_PLACE)
        marks = F.create_map(
            *(F.lit(MARK_REASON), self._reason(bad)),
            *(F.lit(MARK_NAME), F.lit(self.name)),
            *(F.lit(MARK_ORIGIN), origin),
        )
        if "properties" in bad.columns:
            nothing = F.from_json(F.lit("{}"), "map<string,string>")
            own = F.map_filter(F.coalesce("properties", nothing), lambda name, value: ~name.isin(*_ROWS_OFF))
            marks = F.map_concat(own, marks)
        kept = [bad[name] for name in ("tags", "keys") if name in bad.columns]
        return [bad[self.corrupt_column].cast("binary").alias("body"), marks.alias("properties"), *kept]
