"""`archive`: topics to Parquet, every message exactly once for any reader.

Each micro-batch becomes one directory, published by one rename together with the offsets it covers; a batch
that Spark runs again, and a query that lost its checkpoint, find there what is done already (spark:E-03,
E-04).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

from sparrowmq.columnar.schema import DEFAULT_COLUMNS as DEFAULT_COLUMNS
from sparrowmq.core.errors import SettingsError, SparrowError
from sparrowmq.spark.offsets import Span, to_tree
from sparrowmq.spark.option_types import EARLIEST, EARLIEST_OFFSET, LATEST
from sparrowmq.spark.pipelines import compaction, reading
from sparrowmq.spark.pipelines.archive_home import (
    ArchiveHome,
    ddl,
    directory,
    read_ledger,
    unit_name,
    written,
)
from sparrowmq.spark.pipelines.ledger import ArchiveError, Ledger, Unit, evolve, merged, rounds
from sparrowmq.spark.pipelines.queries import run_batches
from sparrowmq.spark.pipelines.steps import Plan, Step
from sparrowmq.spark.pipelines.watch import Progress, Watch
from sparrowmq.spark.schema import SOURCE_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("sparrowmq.spark")

NAME: Final = "archive"
BACKFILL: Final = "backfill"
NEEDED: Final = ("topic", "broker", "queue_id", "queue_offset", "store_timestamp")
"""Columns without which an archive cannot be read beside the live log."""
PARTITIONS: Final = ("date", "topic")
UTC_DATE: Final = "date_add(DATE'1970-01-01', CAST(floor(unix_seconds(store_timestamp) / 86400) AS INT))"
"""The day of storing, whatever the session's time zone."""
_OWN: Final = frozenset({"date", "batch"})
_TIMESTAMPS: Final = ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
"""Spark's default has no statistics, so readers could not skip files by time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSettings:
    """What is archived where. Exactly one of `topics` and `pattern`."""

    directory: str | Path
    """A path that the driver and all executors see under this name."""
    topics: tuple[str, ...] = ()
    pattern: str = ""
    """A regular expression that whole topic names match."""
    name_server: str = ""
    """`host:port;…`; by default from `SPARROW_NAMESRV` or `NAMESRV_ADDR`."""
    start: str = EARLIEST
    """`earliest` or `latest`: where queues begin that are not in the archive yet."""
    follow: bool = False
    """Go on until stopped; else end with what is there now."""
    every: float = 60.0
    """With `follow`: seconds between the starts of batches."""
    batch_rows: int = 1_000_000
    """Messages of one batch at most."""
    columns: tuple[str, ...] = DEFAULT_COLUMNS
    """The source's columns to keep; those in `NEEDED` are always kept."""
    select: tuple[str, ...] = ()
    """More columns, as SQL expressions: `get_json_object(cast(body as string), '$.id') as id`."""
    fail_on_data_loss: bool = True
    compact_batches: int = 32
    """Merge so many small batches next to each other into one; 0: never."""
    compact_bytes: int = 512 * 1024 * 1024
    """No merged directory is larger than this."""
    group: str = ""
    """A consumer group whose offsets follow the archive: its lag is the archive's, and holds wait for it."""
    hold_hours: int = 0
    """Have the brokers keep each message until it is archived, for so many hours at most; 0: as they do
    anyway.
    """
    options: Mapping[str, str] = field(default_factory=dict)
    """More options of the source."""

    def __post_init__(self) -> None:
        if bool(self.topics) == bool(self.pattern):
            raise SettingsError("an archive takes topics or a pattern, one of the two")
        if self.start not in (EARLIEST, LATEST):
            raise SettingsError(f"start={self.start!r}: it takes {EARLIEST} or {LATEST}")
        for name, value, least in (
            ("every", self.every, 0),
            ("batch_rows", self.batch_rows, 1),
            ("compact_batches", self.compact_batches, 0),
            ("compact_bytes", self.compact_bytes, 1),
            ("hold_hours", self.hold_hours, 0),
        ):
            if value < least:
                raise SettingsError(f"{name}={value}: it takes {least} or more")
        if self.hold_hours and not self.group:
            raise SettingsError(
                f"hold_hours={self.hold_hours} needs a group, whose offsets say what is archived"
            )
        unknown = [name for name in self.columns if name not in SOURCE_COLUMNS]
        if unknown:
            raise SettingsError(
                f"column {unknown[0]!r} is unknown to the rocketmq source; known are "
                f"{', '.join(SOURCE_COLUMNS)}"
            )

    @property
    def home(self) -> ArchiveHome:
        """The archive's directory. Raises `SettingsError` for one that cannot hold an archive."""
        return ArchiveHome(directory(self.directory))

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

    def ledger(self) -> Ledger:
        """What the archive has; nothing while there is none."""
        home = self.home
        return home.load() if home.exists else Ledger()

    @property
    def schema(self) -> str:
        """The source's columns as a schema, which is what prunes them."""
        names = dict.fromkeys((*NEEDED, *self.columns))
        return ddl({name: SOURCE_COLUMNS[name] for name in SOURCE_COLUMNS if name in names})


def plan_archive(settings: ArchiveSettings) -> Plan:
    """What `archive` would do now. Asks the cluster, starts no Spark, writes nothing."""
    ledger = settings.ledger()
    spans = _waiting(settings, ledger)
    batches = _count(-(-sum(map(len, spans)) // settings.batch_rows))
    end = (
        f"a batch every {settings.every:g} s until stopped" if settings.follow else f"{batches}, then the end"
    )
    plan = _plan(NAME, settings, ledger, spans, end)
    if not settings.hold_hours:
        return plan
    hold = Step("hold", f"messages until {settings.group} has them, for {settings.hold_hours} hours")
    return replace(plan, steps=(*plan.steps, hold))


def plan_backfill(settings: ArchiveSettings, *, since: int | None = None, until: int | None = None) -> Plan:
    """What `backfill` would do now. Asks the cluster, starts no Spark, writes nothing."""
    ledger = settings.ledger()
    spans = _missing(settings, ledger, since, until)
    parts = sum(len(list(_parts(one, settings.batch_rows))) for one in rounds(spans))
    return _plan(BACKFILL, settings, ledger, spans, f"{_count(parts)}, then the end")


def _plan(name: str, settings: ArchiveSettings, ledger: Ledger, spans: Sequence[Span], end: str) -> Plan:
    if not spans and not settings.follow:
        return Plan(name, (), 0)
    steps = []
    for topic in sorted({span.queue.topic for span in spans}):
        offsets: dict[str, str] = {}
        for span in (one for one in spans if one.queue.topic == topic):
            before = offsets.get(str(span.queue), "offsets")
            comma = "" if before == "offsets" else ","
            offsets[str(span.queue)] = f"{before}{comma} {span.start} to before {span.end}"
        steps.append(Step("read", topic, offsets))
    place = settings.home.data / unit_name(ledger.next_number) / "date=…" / "topic=…"
    details = {"columns": ", ".join((settings.schema, *settings.select)), "batches": end}
    steps.append(Step("write", str(place), details))
    if settings.compact_batches:
        most = f"{settings.compact_bytes:,} bytes"
        steps.append(Step("merge", f"{settings.compact_batches} small batches into one of at most {most}"))
    return Plan(name, tuple(steps), sum(map(len, spans)))


def _count(batches: int) -> str:
    return "1 batch" if batches == 1 else f"{batches:,} batches"


def dry_run_archive(spark: SparkSession, settings: ArchiveSettings) -> int:
    """Read and decode all that waits, write nothing; how many rows that were."""
    ledger = settings.ledger()
    return _dry_run(spark, settings, ledger, [_waiting(settings, ledger)])


def dry_run_backfill(
    spark: SparkSession, settings: ArchiveSettings, *, since: int | None = None, until: int | None = None
) -> int:
    """Read and decode all that is missing, write nothing; how many rows that were."""
    ledger = settings.ledger()
    return _dry_run(spark, settings, ledger, rounds(_missing(settings, ledger, since, until)))


def _dry_run(
    spark: SparkSession, settings: ArchiveSettings, ledger: Ledger, rounds_: Iterable[Sequence[Span]]
) -> int:
    rows = 0
    for spans in filter(None, rounds_):
        frame = reading.batch(spark, reading.assigned(settings.source_options, spans), settings.schema)
        shaped = _shaped(frame, settings)
        evolve(ledger.columns, _columns(shaped), settings.home.root)
        rows += reading.drain(shaped)
    return rows


def archive(spark: SparkSession, settings: ArchiveSettings, watch: Watch | None = None) -> Progress:
    """Bring the archive up to date, or with `follow` keep it so until `watch.stop()`; what was done.

    Raises `ArchiveError` when the archive does not fit, `DataLossError` when messages are gone before they
    were archived, `PipelineError` for what Spark could not do. What is published stays, and the next run goes
    on there.
    """
    watch = watch or Watch()
    watch.begin(NAME)
    home = settings.home
    with home.locked():
        job = _Job(spark, settings, home, watch)
        job.prepare()
        job.report()
        watch.waiting(sum(map(len, _waiting(settings, job.ledger))))
        run_batches(
            reading.stream(spark, job.stream_options(), settings.schema),
            job.write,
            watch,
            name=f"archive {home.root.name}",
            checkpoint=home.checkpoint,
            every=settings.every if settings.follow else None,
        )
    return watch.progress


def backfill(
    spark: SparkSession,
    settings: ArchiveSettings,
    *,
    since: int | None = None,
    until: int | None = None,
    watch: Watch | None = None,
) -> Progress:
    """Archive what is still stored but missing before the archive's end; `archive` does what comes after.

    `since` and `until` (epoch milliseconds of storing) narrow it. The archive must not be written meanwhile.
    """
    watch = watch or Watch()
    watch.begin(BACKFILL)
    home = settings.home
    with home.locked():
        job = _Job(spark, settings, home, watch)
        missing = _missing(settings, job.ledger, since, until)
        left = sum(map(len, missing))
        watch.waiting(left)
        for spans in rounds(missing):
            for part in _parts(spans, settings.batch_rows):
                if watch.stopping:
                    return watch.progress
                left -= sum(map(len, part))
                job.fill(part, left)
    return watch.progress


def read_archive(spark: SparkSession, where: str | Path) -> DataFrame:
    """The archive as a table: its columns, `date` and `topic`, as of now.

    Columns that only some batches have are null in the others. Raises `ArchiveError`.
    """
    generation = ArchiveHome(directory(where)).current()
    ledger = read_ledger(generation)
    paths = [generation / unit_name(unit.number) for unit in ledger.units]
    return read_units(spark, generation, paths or [generation], ledger.columns)


def read_units(
    spark: SparkSession, generation: Path, paths: Sequence[Path], columns: Mapping[str, str]
) -> DataFrame:
    """Some units of a generation as a table."""
    kinds = {**columns, "batch": "int", "date": "date", "topic": "string"}
    return (
        spark.read.schema(ddl(kinds))
        .option("basePath", str(generation))
        .parquet(*map(str, paths))
        .select("topic", "date", *(f"`{name}`" for name in columns))
    )


class _Job:
    """One run: the ledger as it grows, and how batches become units of it."""

    def __init__(
        self, spark: SparkSession, settings: ArchiveSettings, home: ArchiveHome, watch: Watch
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._home = home
        self._watch = watch
        self.ledger = home.load()
        self._held: frozenset[tuple[str, str]] = frozenset()

    def prepare(self) -> None:
        """Make the group, let brokers hold messages. Raises what they answer."""
        settings = self._settings
        if settings.hold_hours:
            self._hold()
        elif settings.group:
            reading.prepare(settings.source_options, settings.group)

    def _hold(self) -> None:
        settings = self._settings
        reading.prepare(settings.source_options, settings.group)
        self._held = reading.hold(settings.source_options, settings.group, settings.hold_hours)

    def _hold_new(self, spans: Iterable[Span]) -> None:
        """Let brokers hold messages that have got a topic since; one that cannot is asked with each batch."""
        there = {(span.queue.topic, span.queue.broker_name) for span in spans}
        if not self._settings.hold_hours or there <= self._held:
            return
        try:
            self._hold()
        except (SparrowError, FutureTimeoutError) as error:
            log.warning("messages of %s are not held yet: %r", sorted(there - self._held), error)

    def stream_options(self) -> dict[str, str]:
        """Options of the stream; without a checkpoint it starts where the archive ends."""
        settings = self._settings
        options = {**settings.source_options, "maxOffsetsPerTrigger": str(settings.batch_rows)}
        options["startingOffsets"] = settings.start
        if self.ledger.units and not (self._home.checkpoint / "offsets").is_dir():
            ends = self.ledger.ends()
            queues = reading.queues_of(settings.source_options).ends
            place = {queue: ends.get(queue, EARLIEST_OFFSET) for queue in queues}
            options["startingOffsets"] = json.dumps(to_tree(place))
        return options

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """One micro-batch; nothing when it is in the archive already."""
        began = monotonic()
        spans = self._home.batch_spans(batch_id)
        query = self._home.query_id()
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
        """Archive spans that were missing; so many messages are `left` then."""
        began = monotonic()
        options = reading.assigned(self._settings.source_options, spans)
        frame = reading.batch(self._spark.newSession(), options, self._settings.schema)
        self._publish(frame, spans, {}, began, left)
        self._compact(frame.sparkSession)

    def _check_gap(self, spans: Iterable[Span]) -> None:
        ends = self.ledger.ends()
        for span in spans:
            end = ends.get(span.queue, span.start)
            if span.start > end and self._settings.fail_on_data_loss:
                raise ArchiveError(
                    f"archive {self._home.root} ends at offset {end} of {span.queue}, its checkpoint goes "
                    f"on at {span.start}: remove {self._home.checkpoint} to go on where the archive ends"
                )

    def _publish(
        self,
        frame: DataFrame,
        spans: Sequence[Span],
        done: Mapping[str, int],
        began: float,
        left: int | None = None,
    ) -> None:
        """Write a unit and let readers see it."""
        number = self.ledger.next_number
        staged = self._home.staged(number)
        frame.sparkSession.conf.set(*_TIMESTAMPS)
        shaped = _shaped(frame, self._settings)
        columns = _columns(shaped)
        evolve(self.ledger.columns, columns, self._home.root)
        _write(shaped, staged)
        found = written(staged)
        expected = sum(map(len, spans))
        if self._settings.fail_on_data_loss and found.rows != expected and not self._is_filtered:
            raise ArchiveError(
                f"{staged} holds {found.rows} messages of {expected}: nothing is published; run it again"
            )
        unit = Unit(
            number=number,
            spans=tuple(sorted(spans)),
            rows=found.rows,
            size=found.size,
            columns=columns,
            done=done,
        )
        grown = self.ledger.with_unit(unit)
        self._home.publish(staged, unit)
        self.ledger = grown
        self.report()
        self._watch.batch(found.rows, found.size, monotonic() - began, left)

    def report(self) -> None:
        """Tell the group's brokers what is archived."""
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
        for group in compaction.groups(
            self.ledger.units, least=settings.compact_batches, size_max=settings.compact_bytes
        ):
            self._merge(spark, group)

    def _merge(self, spark: SparkSession, group: Sequence[Unit]) -> None:
        generation = self._home.current()
        columns = Ledger(group).columns
        paths = [generation / unit_name(unit.number) for unit in group]
        last = max(unit.number for unit in group)
        staged = self._home.staged(last)
        frame = read_units(spark, generation, paths, columns)
        order = [
            name for name in (*PARTITIONS, "broker", "queue_id", "queue_offset") if name in frame.columns
        ]
        _write(frame.repartition(*PARTITIONS).sortWithinPartitions(*order), staged)
        found = written(staged)
        unit = merged(group, size=found.size, columns=columns)
        if found.rows != unit.rows:
            raise ArchiveError(
                f"merging batches {group[0].number} to {last} of {self._home.root} gave {found.rows} "
                f"messages of {unit.rows}: the archive is left as it was; look for damaged files there"
            )
        made = self._home.next_generation(group)
        self._home.publish(staged, unit, made)
        self._home.switch(made)
        self.ledger = self._home.load()
        log.info("archive %s: %d batches merged into batch %d", self._home.root, len(group), last)


def _waiting(settings: ArchiveSettings, ledger: Ledger) -> list[Span]:
    """What is stored and would be archived by a run."""
    found, ends = reading.queues_of(settings.source_options), ledger.ends()
    begin = found.firsts if settings.start == EARLIEST or ledger.units else found.ends
    spans = [
        Span(queue, max(ends.get(queue, begin[queue]), found.firsts[queue]), end)
        for queue, end in found.ends.items()
    ]
    return sorted(span for span in spans if span.start < span.end)


def _missing(settings: ArchiveSettings, ledger: Ledger, since: int | None, until: int | None) -> list[Span]:
    options = settings.source_options
    if since is not None:
        options |= {"startingTimestamp": str(since), "startingOffsetsByTimestampStrategy": LATEST}
    if until is not None:
        options |= {"endingTimestamp": str(until)}
    ends = ledger.ends()
    found: list[Span] = []
    for span in reading.spans_of(options):
        end = min(span.end, ends.get(span.queue, span.start))
        if end > span.start:
            found += ledger.missing(Span(span.queue, span.start, end))
    return found


def _parts(spans: Sequence[Span], rows: int) -> Iterable[list[Span]]:
    """Spans in pieces that have at most `rows` messages together, each queue once in a piece."""
    left = list(spans)
    while left:  # each piece has at least one message
        piece, room, rest = list[Span](), rows, list[Span]()
        for span in left:
            end = min(span.end, span.start + room)
            if end > span.start:
                piece.append(Span(span.queue, span.start, end))
                room -= end - span.start
            if end < span.end:
                rest.append(Span(span.queue, end, span.end))
        yield piece
        left = rest


def _shaped(frame: DataFrame, settings: ArchiveSettings) -> DataFrame:
    """The rows as they are written, with `date`."""
    from pyspark.sql import functions as F

    chosen = frame.selectExpr("*", *settings.select)
    doubled = sorted({name for name in chosen.columns if chosen.columns.count(name) > 1 or name in _OWN})
    if doubled:
        raise SettingsError(f"column {doubled[0]!r} is taken; give the expression in select another name")
    return chosen.withColumn("date", F.expr(UTC_DATE))


def _columns(frame: DataFrame) -> dict[str, str]:
    """The columns that stand in the files."""
    return {
        item.name: item.dataType.simpleString() for item in frame.schema.fields if item.name not in PARTITIONS
    }


def _write(frame: DataFrame, staged: Path) -> None:
    (
        frame.write.mode("overwrite")
        .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        .partitionBy(*PARTITIONS)
        .parquet(str(staged))
    )
