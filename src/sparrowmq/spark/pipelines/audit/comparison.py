"""Compares sent with stored and stored with consumed messages: joins that classify the differences.

Times are epoch milliseconds. `id` is the message's unique id, or one of its keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class Kind(StrEnum):
    """Kinds of findings about a message."""

    LOST = "lost"
    """Acknowledged but not stored."""
    STORED_TWICE = "stored_twice"
    UNKNOWN = "unknown"
    """Stored, but no send is recorded."""
    MISSED = "missed"
    """Stored but never delivered to the group, or not yet although the allowed time has passed."""
    CONSUMED_TWICE = "consumed_twice"
    """The group finished it more than once."""
    FAILED = "failed"
    """Delivered to the group, which never succeeded; or a dead letter."""
    RETRIED = "retried"
    """Consumed after failures."""
    LATE = "late"
    """Consumed later after storing than allowed."""
    UNDECIDED = "undecided"
    """Too new to judge, delayed, or in a transaction with an unknown end."""


OF_SENDS: Final = (Kind.LOST, Kind.STORED_TWICE, Kind.UNKNOWN)
OF_GROUPS: Final = (Kind.MISSED, Kind.CONSUMED_TWICE, Kind.FAILED, Kind.RETRIED, Kind.LATE)
COLUMNS: Final = (
    "kind",
    "topic",
    "id",
    "group",
    "count",
    "sent_at",
    "stored_at",
    "consumed_at",
    "broker",
    "queue_id",
    "queue_offset",
    "detail",
)
"""Columns of the table of findings; times are timestamps there."""


@dataclass(frozen=True, slots=True)
class JudgedWindow:
    """The rows to judge: messages sent or stored from `since` to before `until`, evaluated at `now`."""

    since: int
    until: int
    now: int
    margin: int
    """Maximum difference between the clocks of clients and brokers, and maximum delay of traces."""
    late: int
    """Allowed time from storing to consuming a message."""

    def has(self, at: Column) -> Column:
        """Whether a time is in the window."""
        return (at >= self.since) & (at < self.until)


def stored_by_id(stored: DataFrame) -> DataFrame:
    """One row for each `topic` and `id`: `copies`, and the first one's time and place.

    `stored` has `topic`, `id`, `at`, `broker`, `queue_id`, `queue_offset`, `tags` and `judged`.
    """
    from pyspark.sql import functions as F

    place = F.struct("at", "broker", "queue_id", "queue_offset", "tags")
    return (
        stored.groupBy("topic", "id")
        .agg(
            F.count("*").alias("copies"),
            F.min(place).alias("first"),
            F.max("judged").alias("judged"),
        )
        .select("topic", "id", "copies", "judged", F.col("first.at").alias("stored_at"), "first.*")
        .drop("at")
    )


def sent_against_stored(sent: DataFrame | None, stored: DataFrame, window: JudgedWindow) -> DataFrame:
    """A row for each message: `kinds` (empty if there is no finding), and the columns of both sides.

    `sent` has `topic`, `id`, `sent_at`, `certain`; without `sent`, only duplicates are found.
    """
    from pyspark.sql import functions as F

    judged = F.coalesce("judged", F.lit(False))
    double = F.when(judged & (F.col("copies") > 1), Kind.STORED_TWICE.value)
    if sent is None:
        return stored.select(
            "*",
            F.lit(None).cast("bigint").alias("sent_at"),
            _some(double).alias("kinds"),
        )
    once = sent.groupBy("topic", "id").agg(
        F.min("sent_at").alias("sent_at"), F.max("certain").alias("certain")
    )
    is_stored, is_sent = F.col("copies").isNotNull(), F.col("sent_at").isNotNull()
    absent = window.has(F.col("sent_at")) & ~is_stored
    stranger = judged & ~is_sent
    settled = F.col("stored_at") < window.now - window.margin
    return once.join(stored, ["topic", "id"], "full_outer").select(
        "*",
        _some(
            double,
            F.when(absent & F.col("certain"), Kind.LOST.value),
            F.when(absent & ~F.col("certain"), Kind.UNDECIDED.value),
            F.when(stranger & settled, Kind.UNKNOWN.value),
            F.when(stranger & ~settled, Kind.UNDECIDED.value),
        ).alias("kinds"),
    )


def stored_against_consumed(
    stored: DataFrame, consumed: DataFrame, dead: DataFrame | None, window: JudgedWindow
) -> DataFrame:
    """A row for each stored message of the window and one group, with `kinds` and `done`.

    `consumed` has `id`, `ok`, `at` of that group; `dead` the ids (`id`) of its dead letters.
    """
    from pyspark.sql import functions as F

    calls = consumed.groupBy("id").agg(
        F.count_if(F.col("ok")).alias("successes"),
        F.count("*").alias("calls"),
        F.count("ok").alias("ends"),
        F.min(F.when(F.col("ok"), F.col("at"))).alias("consumed_at"),
    )
    found = stored.where("judged").join(calls, "id", "left")
    letters = F.lit(False)
    if dead is not None:
        found = found.join(dead.select("id", F.lit(True).alias("dead")).distinct(), "id", "left")
        letters = F.coalesce("dead", F.lit(False))
    successes, calls_made = F.coalesce("successes", F.lit(0)), F.coalesce("calls", F.lit(0))
    untold, done = (successes == 0) & ~letters, successes > 0
    recent = F.col("stored_at") >= window.now - window.late
    late = done & (F.col("consumed_at") - F.col("stored_at") > window.late)
    return found.select(
        "*",
        done.alias("done"),
        F.when(letters, "dead letter").when(F.col("ends") == 0, "its end is not recorded").alias("detail"),
        _some(
            F.when(untold & recent, Kind.UNDECIDED.value),
            F.when(untold & ~recent & (calls_made == 0), Kind.MISSED.value),
            F.when((untold & ~recent & (calls_made > 0)) | (letters & ~done), Kind.FAILED.value),
            F.when(done & (calls_made > successes), Kind.RETRIED.value),
            F.when(successes > 1, Kind.CONSUMED_TWICE.value),
            F.when(late, Kind.LATE.value),
        ).alias("kinds"),
    )


def stored_against_offsets(
    stored: DataFrame, committed: DataFrame, dead: DataFrame | None, window: JudgedWindow
) -> DataFrame:
    """Like `stored_against_consumed`, by a group's offsets: earlier messages count as delivered.

    `committed` has `topic`, `broker`, `queue_id` and `committed`. Offsets do not show how often, when and
    with what result.
    """
    from pyspark.sql import functions as F

    found = stored.where("judged").join(F.broadcast(committed), ["topic", "broker", "queue_id"], "left")
    letters = F.lit(False)
    if dead is not None:
        found = found.join(dead.select("id", F.lit(True).alias("dead")).distinct(), "id", "left")
        letters = F.coalesce("dead", F.lit(False))
    done = F.coalesce(F.col("queue_offset") < F.col("committed"), F.lit(False))
    recent = F.col("stored_at") >= window.now - window.late
    return found.select(
        "*",
        (done & ~letters).alias("done"),
        F.lit(None).cast("bigint").alias("calls"),
        F.lit(None).cast("bigint").alias("successes"),
        F.lit(None).cast("bigint").alias("consumed_at"),
        F.when(letters, "dead letter").alias("detail"),
        _some(
            F.when(~done & recent, Kind.UNDECIDED.value),
            F.when(~done & ~recent, Kind.MISSED.value),
            F.when(letters, Kind.FAILED.value),
        ).alias("kinds"),
    )


def of_sends(matched: DataFrame) -> DataFrame:
    """The findings in `sent_against_stored`."""
    from pyspark.sql import functions as F

    return _listed(
        matched.withColumns(
            {
                "group": F.lit(None).cast("string"),
                "count": F.col("copies"),
                "consumed_at": F.lit(None).cast("bigint"),
                "detail": F.lit(None).cast("string"),
            }
        )
    )


def of_group(matched: DataFrame) -> DataFrame:
    """The findings in rows about groups, which have the column `group`."""
    from pyspark.sql import functions as F

    return _listed(matched.withColumns({"count": F.col("calls"), "sent_at": F.lit(None).cast("bigint")}))


def union(frames: list[DataFrame]) -> DataFrame:
    """The rows of all frames, which have the same columns."""
    return reduce(lambda one, other: one.unionByName(other), frames)


def _listed(matched: DataFrame) -> DataFrame:
    """One row for each finding, in the columns of `COLUMNS`."""
    from pyspark.sql import functions as F

    times = {name: F.timestamp_millis(name) for name in ("sent_at", "stored_at", "consumed_at")}
    return matched.withColumn("kind", F.explode("kinds")).withColumns(times).select(*COLUMNS)


def _some(*kinds: Column) -> Column:
    """The kinds that are not null, as an array."""
    from pyspark.sql import functions as F

    return F.array_compact(F.array(*kinds))
