"""`store`: a broker's store directory, ours or Apache's, as a table: in parallel, without any broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.option_types import SKIP
from sparrowmq.spark.options import ReadOptions
from sparrowmq.spark.pipelines import reading
from sparrowmq.spark.pipelines.steps import ABOUT, Plan, Step
from sparrowmq.spark.store_files import about_records, log_files, wanted_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME: Final = "store"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Which messages of which store directory."""

    directory: str | Path
    """The broker's `storePathRootDir`, or a copy of it; every executor sees it under this name."""
    topics: tuple[str, ...] = ()
    """Topics; none: all that is stored, system topics and deleted ones too."""
    since: int | None = None
    """Only what was stored at or after it, epoch milliseconds."""
    until: int | None = None
    """Only what was stored before it, epoch milliseconds."""
    skip_damaged: bool = False
    """Go on after damaged records, with a warning; else they end the read with file and place."""
    options: Mapping[str, str] = field(default_factory=dict)
    """More options of the source, such as `checkCrc` and `maxPartitions`."""

    def __post_init__(self) -> None:
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise SettingsError(f"since={self.since} is not before until={self.until}")

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
    """The messages, as they are stored when Spark reads them; `schema` chooses columns.

    Damage is a `RecordError` with file and place, within what Spark raises, unless `skip_damaged`.
    """
    return reading.batch(spark, settings.source_options, schema)


def plan_store(settings: StoreSettings) -> Plan:
    """What `store` would read now. Looks into the files, starts no Spark.

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
    # Which topic a record is of is known when it is read.
    rows = None if settings.topics else about_records(wanted)
    return Plan(NAME, (step,), rows, ABOUT)


def dry_run_store(spark: SparkSession, settings: StoreSettings) -> int:
    """Read and decode every message, check every record, and write nothing; how many messages those are."""
    return reading.drain(store(spark, settings))
