"""`store`: a broker's store directory (SparrowMQ's or Apache's) as a table, read in parallel and without a
broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sparrowmq.spark.options.table import ReadOptions
from sparrowmq.spark.options.values import SKIP
from sparrowmq.spark.pipelines.common import reading
from sparrowmq.spark.pipelines.common.source import check_times
from sparrowmq.spark.pipelines.common.steps import ABOUT, Plan, Step
from sparrowmq.spark.read.store_files import about_records, log_files, wanted_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME: Final = "store"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Which messages of which store directory."""

    directory: str | Path
    """The broker's `storePathRootDir`, or a copy of it; every executor must have it under this path."""
    topics: tuple[str, ...] = ()
    """Topics; empty: all stored ones, including system topics and deleted ones."""
    since: int | None = None
    """Only messages stored at or after this time, epoch milliseconds."""
    until: int | None = None
    """Only messages stored before this time, epoch milliseconds."""
    skip_damaged: bool = False
    """Continue after damaged records, with a warning; otherwise they end the read with file and position."""
    options: Mapping[str, str] = field(default_factory=dict)
    """More options of the source, such as `checkCrc` and `maxPartitions`."""

    def __post_init__(self) -> None:
        check_times(self.since, self.until)

    @property
    def source_options(self) -> dict[str, str]:
        """The options of the source."""
        found = {**self.options, "store": str(Path(self.directory).absolute())}
        if self.topics:
            found["subscribe"] = ",".join(self.topics)
        if self.since is not None:
            found["startingTimestamp"] = str(self.since)
        if self.until is not None:
            found["endingTimestamp"] = str(self.until)
        if self.skip_damaged:
            found["damagedRecords"] = SKIP
        return found


def store(spark: SparkSession, settings: StoreSettings, schema: str | None = None) -> DataFrame:
    """The messages that are stored when Spark reads them; `schema` chooses columns.

    Damage is a `RecordError` with file and position, wrapped in Spark's error, unless `skip_damaged`.
    """
    return reading.batch(spark, settings.source_options, schema)


def plan_store(settings: StoreSettings) -> Plan:
    """What `store` would read now. Inspects the files, starts no Spark.

    Raises `SettingsError` without a commit log, and when one of its files is missing.
    """
    options = ReadOptions.parse(settings.source_options, "batch")
    files = log_files(options.store)
    wanted = wanted_files(files, options)
    tasks = min(len(wanted), options.max_partitions or len(wanted))
    details: dict[str, object] = {"files": f"{len(wanted)} of {len(files)}", "tasks": tasks}
    if settings.topics:
        details["topics"] = ", ".join(settings.topics)
    details["CRC of bodies"] = "compared" if options.check_crc else "not compared"
    details["damaged records"] = "left out, with a warning" if options.damaged_records == SKIP else "an error"
    step = Step("read", f"{Path(wanted[0].path).parent if wanted else options.store}", details)
    # The topic of a record is only known when it is read.
    rows = None if settings.topics else about_records(wanted)
    return Plan(NAME, (step,), rows, ABOUT)


def dry_run_store(spark: SparkSession, settings: StoreSettings) -> int:
    """Read and decode every message and check every record, without writing. Returns the number
    of messages.
    """
    return reading.drain(store(spark, settings))
