"""Settings of a backfill: which messages, how they are cut into windows, and where the result goes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.bodies.schema import check_columns
from sparrowmq.spark.options.table import connection_options
from sparrowmq.spark.pipelines.common import reading
from sparrowmq.spark.pipelines.common.source import TopicSource, check_least, check_times

ROWS: Final = 5_000_000
"""Default number of messages in a window, if neither `window` nor `window_rows` is given."""
_FREE: Final = frozenset(
    "failondataloss batchrows batchbytes prefetchbatches pullsinflight pulltimeoutms minpartitions readfrom "
    "maxpartitions maxrecordsperpartition pushfilters fetchoffset.numretries "
    "fetchoffset.retryintervalms".split()
)
"""Options of the source that do not affect which messages are read, besides connection options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillSettings(TopicSource):
    """Which messages are processed in which windows. Set exactly one of `topics` and `pattern`."""

    directory: str | Path
    """Location of the result and the ledger: a path or a URI that Spark can reach, the same on all of its
    machines.
    """
    since: int | None = None
    """Only messages stored at or after it, epoch milliseconds."""
    until: int | None = None
    """Only messages stored before it, epoch milliseconds; by default everything stored at the first start."""
    window: float | None = None
    """Windows by time: seconds of store time in each, aligned to multiples of it, UTC."""
    window_rows: int | None = None
    """Windows by rows: maximum messages in each; 5,000,000 when neither is given."""
    parallel: int = 2
    """Number of concurrent windows."""
    columns: tuple[str, ...] = ()
    """The source's columns to read; by default all that it has without a schema."""
    where: str = ""
    """Only rows for which this SQL condition over the source's columns is true."""
    select: tuple[str, ...] = ()
    """SQL expressions that produce the output columns; by default the source's columns."""

    def __post_init__(self) -> None:
        self.check_topics("a backfill")
        if self.window is not None and self.window_rows is not None:
            raise SettingsError(
                "window and window_rows are both given: windows are divided either by time or by rows",
                "window",
                other="window_rows",
            )
        check_least(self, window=0.001, window_rows=1, parallel=1)
        check_times(self.since, self.until)
        check_columns(self.columns)

    @property
    def rows(self) -> int:
        """Number of messages in a window cut by rows."""
        return ROWS if self.window_rows is None else self.window_rows

    @property
    def window_ms(self) -> int | None:
        """Duration of a window cut by time."""
        return None if self.window is None else round(self.window * 1000)

    @property
    def is_narrowed(self) -> bool:
        """Whether there may be fewer rows than offsets."""
        return bool(self.where) or reading.is_filtered(self.options) or self.may_lose

    @property
    def asked(self) -> dict[str, Any]:
        """The settings that decide which messages are in which window and how they are transformed; they
        never change.
        """
        return {
            "topics": list(self.topics),
            "pattern": self.pattern,
            "since": self.since,
            "until": self.until,
            "window": self.window_ms,
            "window_rows": None if self.window is not None else self.rows,
            "columns": list(self.columns),
            "where": self.where,
            "select": list(self.select),
            "options": {
                name.lower(): value
                for name, value in sorted(self.options.items())
                if name.lower() not in _FREE and not connection_options({name: ""})
            },
        }
