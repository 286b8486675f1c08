"""Settings of a backfill: which messages, how they are cut into windows, and where the result goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.bodies.schema import SOURCE_COLUMNS
from sparrowmq.spark.options.table import connection_options
from sparrowmq.spark.pipelines.common import reading

ROWS: Final = 5_000_000
"""Default number of messages in a window, if neither `window` nor `window_rows` is given."""
_FREE: Final = frozenset(
    "failondataloss batchrows batchbytes prefetchbatches pullsinflight pulltimeoutms minpartitions readfrom "
    "maxpartitions maxrecordsperpartition pushfilters fetchoffset.numretries "
    "fetchoffset.retryintervalms".split()
)
"""Options of the source that do not affect which messages are read, besides connection options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillSettings:
    """Which messages are processed in which windows. Set exactly one of `topics` and `pattern`."""

    directory: str | Path
    """Location of the result and the ledger: a path or a URI that Spark can reach, the same on all of its
    machines.
    """
    topics: tuple[str, ...] = ()
    pattern: str = ""
    """A regular expression that whole topic names match."""
    name_server: str = ""
    """`host:port;…`; by default from `SPARROW_NAMESRV` or `NAMESRV_ADDR`."""
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
    fail_on_data_loss: bool = True
    options: Mapping[str, str] = field(default_factory=dict)
    """More options of the source."""

    def __post_init__(self) -> None:
        if bool(self.topics) == bool(self.pattern):
            raise SettingsError("a backfill needs either topics or a pattern", "topics", other="pattern")
        if self.window is not None and self.window_rows is not None:
            raise SettingsError(
                "window and window_rows are both given: windows are divided either by time or by rows",
                "window",
                other="window_rows",
            )
        for name, value, least in (
            ("window", self.window, 0.001),
            ("window_rows", self.window_rows, 1),
            ("parallel", self.parallel, 1),
        ):
            if value is not None and value < least:
                raise SettingsError(f"{name}={value}: must be {least} or more", name, value)
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise SettingsError(f"since={self.since} is not before until={self.until}", "since", self.since)
        unknown = [name for name in self.columns if name not in SOURCE_COLUMNS]
        if unknown:
            raise SettingsError(
                f"column {unknown[0]!r} is unknown to the rocketmq source; known are "
                f"{', '.join(SOURCE_COLUMNS)}",
                "columns",
                unknown[0],
            )

    @property
    def source_options(self) -> dict[str, str]:
        """Options of every read of the topics."""
        found = {"failOnDataLoss": str(self.fail_on_data_loss).lower(), **self.options}
        if self.name_server:
            found["nameServer"] = self.name_server
        if self.topics:
            found["subscribe"] = ",".join(self.topics)
        else:
            found["subscribePattern"] = self.pattern
        return found

    @property
    def rows(self) -> int:
        """Number of messages in a window cut by rows."""
        return ROWS if self.window_rows is None else self.window_rows

    @property
    def window_ms(self) -> int | None:
        """Duration of a window cut by time."""
        return None if self.window is None else round(self.window * 1000)

    @property
    def may_lose(self) -> bool:
        """Whether the run continues when messages were deleted before they were read."""
        given = [text for name, text in self.options.items() if name.lower() == "failondataloss"]
        return given[-1].strip().lower() == "false" if given else not self.fail_on_data_loss

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
