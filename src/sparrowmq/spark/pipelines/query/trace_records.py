"""Records of message traces as tables: bodies of the trace topic, parsed by Spark's own functions.

A body is text: records end with 0x02, their fields are separated by 0x01 (client:B-111). Older and newer
versions have fewer or more fields (client:B-115); unknown kinds are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

RECORD_END: Final = "\x02"
FIELD_END: Final = "\x01"
HALF: Final = 1
DELAYED: Final = 3
"""Message types in records of sends (client:B-114)."""
IDS: Final = ","
"""Separates the ids of a batch, which has one record."""
KEYS: Final = " "


def records(messages: DataFrame) -> DataFrame:
    """One row for each record in the column `body`: its fields, `f`."""
    from pyspark.sql import functions as F

    pieces = messages.select(F.explode(F.split(F.col("body").cast("string"), RECORD_END)).alias("record"))
    kinds = ("Pub", "SubBefore", "SubAfter", "EndTransaction", "Recall")
    return pieces.select(F.split("record", FIELD_END).alias("f")).where(_field(0).isin(*kinds))


def sends(found: DataFrame, *, by_key: bool) -> DataFrame:
    """Acknowledged sends: `topic`, `id` (or with `by_key` each key), `sent_at` (epoch ms), `certain`.

    A half message counts as sent when its transaction was committed, and not at all when it was rolled back.
    Not certain are delayed messages, which are stored when they are due, transactions with unknown end, and
    sends that were acknowledged with a failure to flush or to replicate.
    """
    from pyspark.sql import functions as F

    pub = _of_kind(found, "Pub").select(
        _field(4).alias("topic"),
        _field(5).alias("message"),
        _ids(by_key, _field(5), _text(7)).alias("id"),
        _number(1).alias("sent_at"),
        _number(11).alias("type"),
        (F.when(F.size("f") >= 14, _field(13)).otherwise(_field(12)) == "true").alias("ok"),
    )
    ends = (
        _of_kind(found, "EndTransaction")
        .select(_field(5).alias("message"), _field(11).alias("state"), _number(1).alias("at"))
        .groupBy("message")
        .agg(
            F.max(F.col("state").startswith("COMMIT")).alias("committed"),
            F.max(F.col("state").startswith("ROLLBACK")).alias("rolled_back"),
            F.max(F.when(F.col("state").startswith("COMMIT"), F.col("at"))).alias("committed_at"),
        )
    )
    recalled = _of_kind(found, "Recall").where(_field(6) == "true").select(_field(5).alias("message"))
    halves = F.col("type") == HALF
    committed = F.coalesce("committed", F.lit(False))
    return (
        pub.join(ends, "message", "left")
        .join(recalled.distinct(), "message", "left_anti")
        .where(~(halves & ~committed & F.coalesce("rolled_back", F.lit(False))))
        .select(
            "topic",
            "id",
            F.when(halves & committed, F.col("committed_at")).otherwise(F.col("sent_at")).alias("sent_at"),
            (F.col("ok") & (F.col("type") != DELAYED) & (~halves | committed)).alias("certain"),
        )
    )


def consumptions(found: DataFrame, *, by_key: bool) -> DataFrame:
    """Each delivery of a message to a handler: `group`, `id` (or each key), `ok`, `at` (epoch ms).

    `ok` is null if no end was recorded. Old end records have neither time nor group; their start records
    have.
    """
    from pyspark.sql import functions as F

    new = F.size("f") >= 9
    begun = _of_kind(found, "SubBefore").select(
        _field(4).alias("request"),
        _field(5).alias("message"),
        _field(3).alias("group"),
        _number(1).alias("at"),
        F.lit(None).cast("boolean").alias("ok"),
        _text(7).alias("keys"),
    )
    done = _of_kind(found, "SubAfter").select(
        _field(1).alias("request"),
        _field(2).alias("message"),
        F.when(new, _field(8)).alias("group"),
        F.when(new, _number(7)).alias("at"),
        (_field(4) == "true").alias("ok"),
        _text(5).alias("keys"),
    )
    calls = (
        begun.unionByName(done)
        .groupBy("request", "message")
        .agg(*(F.max(name).alias(name) for name in ("group", "at", "ok", "keys")))
    )
    return calls.select("group", _ids(by_key, F.col("message"), F.col("keys")).alias("id"), "ok", "at")


def _of_kind(found: DataFrame, kind: str) -> DataFrame:
    return found.where(_field(0) == kind)


def _ids(by_key: bool, ids: Column, keys: Column) -> Column:
    """A row for each message of a batch, or for each key."""
    from pyspark.sql import functions as F

    return F.explode(keys_of(keys) if by_key else F.split(ids, IDS))


def keys_of(keys: Column) -> Column:
    """A message's distinct keys as an array; empty for null."""
    from pyspark.sql import functions as F

    parts = F.array_distinct(F.split(F.coalesce(keys, F.lit("")), KEYS))
    return F.filter(parts, lambda key: key != "")


def _field(number: int) -> Column:
    from pyspark.sql import functions as F

    return F.get("f", F.lit(number))


def _text(number: int) -> Column:
    """A field that Java writes as `null` when it is empty."""
    from pyspark.sql import functions as F

    return F.nullif(_field(number), F.lit("null"))


def _number(number: int) -> Column:
    return _field(number).try_cast("bigint")
