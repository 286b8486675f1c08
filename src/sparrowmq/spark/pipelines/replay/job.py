"""One run of a replay: sends parts one after the other, and stores the progress."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from sparrowmq.spark.pipelines.common import reading, writing
from sparrowmq.spark.pipelines.replay.directory import Part, Place, Replay, ReplayDirectory
from sparrowmq.spark.pipelines.replay.rows import check_reproducible, part_rows
from sparrowmq.spark.pipelines.replay.settings import ReplaySettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIRST_ROWS: Final = 1000
"""Messages of the first part, which shows their size and how many a filter keeps."""
PART_BYTES: Final = 128 * 1024 * 1024
"""Target size of a part's bodies: a repeated part is compared in memory."""
RATE_SECONDS: Final = 10.0
"""With a rate limit, the target duration of a part in seconds, so that a stop is quick."""


class ReplayJob:
    """One run: its progress, and how it sends parts."""

    def __init__(
        self, spark: SparkSession, settings: ReplaySettings, home: ReplayDirectory, settled: Replay
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._home = home
        self._replay = settled
        self._place = home.place()
        self._was_interrupted = self._place.part is not None

    @property
    def lag(self) -> int:
        """Messages that remain to be read."""
        return sum(map(len, self._place.left(self._replay)))

    def check(self) -> None:
        """Check the settings before anything is written."""
        part = self._place.part or self._place.next_part(self._replay, 1, 1)
        if part is not None:
            check_reproducible(self._rows(part))

    def next_part(self) -> Part | None:
        """The current part, or the next one, which is stored first; None at the end."""
        if self._place.part is not None:
            return self._place.part
        settings = self._settings
        tasks = settings.tasks if settings.rate is None else 1
        part = self._place.next_part(self._replay, rows_of_next(settings, self._place), tasks)
        if part is not None:
            self._move(self._place.begin(part))
        return part

    def send(self, part: Part) -> tuple[int, int]:
        """Send a part and store that it is done. Returns messages sent and bytes of their bodies.

        A part that an earlier run sent whole, without storing that, is not read again: its messages may have
        expired since.
        """
        options = self._options(part)
        was_interrupted, self._was_interrupted = self._was_interrupted, False
        done = writing.rows_if_done(options) if was_interrupted else None
        sent, size = self._write(part, options) if done is None else self._as_before(done)
        self._move(self._place.end(sent, size))
        return sent, size

    def _write(self, part: Part, options: Mapping[str, str]) -> tuple[int, int]:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        seen = Observation()
        counted = self._rows(part).observe(
            seen,
            F.count(F.lit(1)).alias("rows"),
            F.coalesce(F.sum(F.octet_length("body")), F.lit(0)).alias("size"),
        )
        counted.write.format(reading.FORMAT).options(**options).mode("append").save()
        return int(seen.get["rows"]), int(seen.get["size"])

    def _as_before(self, rows: int) -> tuple[int, int]:
        """So many messages, of the average size of those before."""
        return rows, rows * self._place.bytes_sent // max(1, self._place.sent)

    def _options(self, part: Part) -> dict[str, str]:
        settings = self._settings
        number = sorted(self._replay.targets).index(part.topic)
        options = {
            **settings.sink_options(part.topic),
            "jobId": f"replay-{self._replay.id}-{number}",
            "jobBatch": str(part.number),
        }
        if not (self._home.is_remote and settings.names_queues):
            options["planLocation"] = self._home.queues
        if settings.rate is not None:
            options["rateLimit"] = str(max(1, settings.rate // part.tasks))
        return options

    def _rows(self, part: Part) -> DataFrame:
        settings = self._settings
        return part_rows(self._spark, settings, settings.source_options, self._replay, part)

    def _move(self, place: Place) -> None:
        self._home.save(place)
        self._place = place


def rows_of_next(settings: ReplaySettings, place: Place) -> int:
    """Messages to read in the next part, estimated from the sizes and the filter's rate in earlier parts."""
    if not place.read:
        most = float(min(FIRST_ROWS, settings.batch_rows))
        return max(1, int(most if settings.rate is None else min(most, settings.rate * RATE_SECONDS)))
    most = settings.batch_rows
    taken = max(1, place.sent) / place.read
    if place.bytes_sent:
        most = min(most, PART_BYTES * place.read / place.bytes_sent)
    if settings.rate is not None:
        most = min(most, settings.rate * RATE_SECONDS / taken)
    return max(1, int(most))
