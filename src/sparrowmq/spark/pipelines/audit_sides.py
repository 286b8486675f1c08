"""The sides of an audit: what was sent, stored and consumed, each read and decoded once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from time import monotonic
from typing import TYPE_CHECKING, Any

from sparrowmq.core.errors import NoRouteError, SettingsError
from sparrowmq.core.names import dlq_topic
from sparrowmq.spark.pipelines import audit_names, findings, stored, trace_records
from sparrowmq.spark.pipelines.archive import read_archive
from sparrowmq.spark.pipelines.audit_settings import AuditSettings
from sparrowmq.spark.pipelines.findings import Window
from sparrowmq.spark.pipelines.stored import moment
from sparrowmq.spark.pipelines.watch import Watch

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


class Sides:
    """What was sent, stored and consumed, kept by Spark until `stack` ends.

    `waiting` is how many messages there are to read, for `watch`.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: AuditSettings,
        watch: Watch,
        now: int,
        stack: ExitStack,
        waiting: int = 0,
    ) -> None:
        self.spark = spark
        self._waiting = waiting
        self.settings = settings
        self.watch = watch
        self._now = now
        self._stack = stack
        self.margin = int(settings.margin_seconds * 1000)
        self.window = self._window()
        # Traces before messages: what is traced by then is stored by then.
        self.trace_doubts: list[str] = []
        self.name_doubts: list[str] = []
        """Of sends: which of several topics they were for is not known."""
        traces = self._traces() if settings.needs_trace else None
        self.sent = self._sent(traces)
        self.consumed: DataFrame | None = None
        if settings.groups and traces is not None:
            self.consumed = trace_records.consumptions(traces, by_key=settings.by_key)
        self.stored = self.kept(self._stored(), read=True)
        self.stored_doubts = stored.gaps(settings.stored, self.window.since, self.window.until)
        if not settings.live:
            self.stored_doubts += self._end_of_archive()

    def kept(self, frame: DataFrame, *, read: bool = False) -> DataFrame:
        """The frame, computed and kept; with `read` its rows are messages that are done now."""
        began = monotonic()
        kept = frame.persist()
        self._stack.callback(kept.unpersist)
        rows = int(kept.count()) if read else 0
        self._waiting = max(0, self._waiting - rows)
        self.watch.batch(rows, 0, monotonic() - began, self._waiting)
        return kept

    def _window(self) -> Window:
        settings = self.settings
        late = int(settings.late_seconds * 1000)
        if not settings.spans:
            since, until = settings.window(self._now)
            return Window(since, until, self._now, self.margin, late)
        from pyspark.sql import functions as F

        at = F.unix_millis("store_timestamp")
        times: Any = (
            self._of_spans(("store_timestamp",)).agg(F.min(at).alias("a"), F.max(at).alias("b")).first()
        )
        if times is None or times["a"] is None:
            raise SettingsError("nothing is stored at the offsets that are to be audited")
        return Window(int(times["a"]), int(times["b"]) + 1, self._now, self.margin, late)

    def _of_spans(self, columns: Sequence[str]) -> DataFrame:
        """What is stored at the offsets that were given."""
        from pyspark.sql import functions as F

        settings = self.settings
        if settings.archive is None:
            return stored.read_spans(self.spark, settings.stored, columns, settings.spans)
        place = ("topic", "broker", "queue_id", "queue_offset")
        every = stored.read(
            self.spark, settings.stored, tuple(dict.fromkeys((*place, *columns))), 0, self._now + 1
        )
        return self._marked(every).where(F.col("judged")).select(*columns)

    def _marked(self, frame: DataFrame) -> DataFrame:
        """With `judged`: whether a message is at the offsets that were given."""
        from pyspark.sql import functions as F

        rows = [
            (one.queue.topic, one.queue.broker_name, one.queue.queue_id, one.start, one.end)
            for one in self.settings.spans
        ]
        kinds = "topic string, broker string, queue_id int, first_offset bigint, end_offset bigint"
        spans = F.broadcast(self.spark.createDataFrame(rows, kinds))
        judged = (F.col("queue_offset") >= F.col("first_offset")) & (
            F.col("queue_offset") < F.col("end_offset")
        )
        joined = frame.join(spans, ["topic", "broker", "queue_id"], "left")
        return joined.withColumn("judged", F.coalesce(judged, F.lit(False))).drop(
            "first_offset", "end_offset"
        )

    def _traces(self) -> DataFrame | None:
        """The records of traces; None without any topic for them."""
        where, since = self.settings.trace, self.window.since - self.margin
        try:
            messages = stored.read(self.spark, where, ("body",), since, self._now + 1)
            gaps = stored.gaps(where, since, self._now)
        except NoRouteError:
            self.trace_doubts = [f"there is no topic {self.settings.trace_topic} with traces"]
            return None
        self.trace_doubts = [f"traces: {gap}" for gap in gaps]
        return trace_records.records(self.kept(messages, read=True))

    def _sent(self, traces: DataFrame | None) -> DataFrame | None:
        settings = self.settings
        if not settings.with_sent:
            return None
        if settings.ledger:
            found = read_ledger(self.spark, settings)
        elif traces is not None:
            found = self._attributed(trace_records.sends(traces, by_key=settings.by_key))
        else:
            kinds = "topic string, id string, sent_at bigint, certain boolean"
            found = self.spark.createDataFrame([], kinds)
        from pyspark.sql import functions as F

        return found.where(F.col("topic").isin(*settings.topics) & self._near())

    def _near(self) -> Column:
        from pyspark.sql import functions as F

        at = F.col("sent_at")
        return (at >= self.window.since - self.margin) & (at < self.window.until + self.margin)

    def _attributed(self, sends: DataFrame) -> DataFrame:
        """Traced sends with the topics they went to: traces tell names without name spaces.

        Of topics that share a name, a send was for the one that has its message. One whose message is in none
        of them is not certain.
        """
        from pyspark.sql import functions as F

        where = self.settings.stored
        names = audit_names.namesakes(self.settings.topics, audit_names.known_topics(where))
        mine = {topic: name for name, topics in names.items() for topic in topics}
        firsts = {mine[topic]: topic for topic in reversed(self.settings.topics)}
        pairs = F.create_map(*(F.lit(text) for pair in firsts.items() for text in pair))
        named = sends.withColumn("name", audit_names.bare_column(F.col("topic")))
        named = named.withColumn("topic", F.try_element_at(pairs, F.col("name"))).where("topic is not null")
        shared = audit_names.shared(names)
        if not shared:
            return named.drop("name")
        places = self.kept(self._places(shared, mine))
        found = self.kept(named.where(self._near()).join(places, ["name", "id"], "left"))
        lone = F.col("name").isin(*(name for name, topics in names.items() if len(topics) == 1))
        known = lone | F.col("place").isNotNull()
        if strays := int(found.where(~known & F.col("certain")).count()):
            self.name_doubts = [
                f"{strays:,} traced sends are stored in none of {', '.join(shared)}: traces do not tell for "
                "which of them they were"
            ]
        return found.select(
            F.coalesce("place", "topic").alias("topic"),
            "id",
            "sent_at",
            (F.col("certain") & known).alias("certain"),
        )

    def _places(self, topics: Sequence[str], names: Mapping[str, str]) -> DataFrame:
        """Which of some topics has a message: `name`, `id`, `place`."""
        from pyspark.sql import functions as F

        since, until = self.window.since - self.margin, self.window.until + self.margin
        column = "keys" if self.settings.by_key else "msg_id"
        frames = []
        for topic in topics:
            where = self.settings.stored.of(topic)
            frame = stored.read(self.spark, where, (column,), since, until)
            frames.append(
                frame.select(
                    F.lit(names[topic]).alias("name"), self._id_of().alias("id"), F.lit(topic).alias("place")
                ).distinct()
            )
        return findings.union(frames)

    def _stored(self) -> DataFrame:
        """Messages of the window and a margin around it: place, id or keys, tags, `at`, `judged`."""
        from pyspark.sql import functions as F

        name = "keys" if self.settings.by_key else "msg_id"
        columns = ("topic", "broker", "queue_id", "queue_offset", "store_timestamp", "tags", name)
        since, until = self.window.since - self.margin, self.window.until + self.margin
        frame = stored.read(self.spark, self.settings.stored, columns, since, until).withColumn(
            "at", F.unix_millis("store_timestamp")
        )
        if self.settings.spans:
            frame = self._marked(frame)
        else:
            frame = frame.withColumn("judged", self.window.has(F.col("at")))
        return frame.drop("store_timestamp")

    @property
    def stored_ids(self) -> DataFrame:
        """The stored messages with `id`, one row for each key where keys tell messages apart."""
        return self.stored.withColumn("id", self._id_of()).drop("msg_id", "keys")

    def _id_of(self) -> Column:
        from pyspark.sql import functions as F

        return F.explode(trace_records.keys_of(F.col("keys"))) if self.settings.by_key else F.col("msg_id")

    def _end_of_archive(self) -> list[str]:
        from pyspark.sql import functions as F

        archived = read_archive(self.spark, str(self.settings.archive)).where(
            F.col("topic").isin(*self.settings.topics)
        )
        newest: Any = archived.agg(F.max(F.unix_millis("store_timestamp")).alias("at")).first()
        if newest is None or newest["at"] is None or newest["at"] < self.window.until - 1:
            return [f"archive {self.settings.archive} ends before {moment(self.window.until)}"]
        return []

    def dead_letters(self, group: str) -> DataFrame | None:
        """The ids of the group's dead letters; None when it has none or only the archive is read."""
        from pyspark.sql import functions as F

        if not self.settings.live:
            return None
        where = self.settings.stored.of(dlq_topic(group))
        name = "keys" if self.settings.by_key else "msg_id"
        try:
            spans = stored.live_spans(where, self.window.since, self._now + 1)
        except NoRouteError:
            return None
        if not spans:
            return None
        frame = stored.read_spans(self.spark, where, (name,), spans)
        return (
            frame.select(self._id_of().alias("id"))
            if self.settings.by_key
            else frame.select(F.col(name).alias("id"))
        )

    def committed(self, group: str) -> DataFrame:
        """The group's offsets. Raises `SettingsError` for one that no broker knows."""
        with stored.admin_of(self.settings.stored.source_options) as admin:
            if not admin.group_config(group):
                raise SettingsError(f"no broker knows group {group!r}; see `sparrow group list`")
            progress = [one for topic in self.settings.topics for one in admin.group_progress(group, topic)]
        rows = [
            (one.queue.topic, one.queue.broker_name, one.queue.queue_id, one.consumer_offset)
            for one in progress
            if one.queue.topic in self.settings.topics
        ]
        kinds = "topic string, broker string, queue_id int, committed bigint"
        return self.spark.createDataFrame(rows, kinds)


def read_ledger(spark: SparkSession, settings: AuditSettings) -> DataFrame:
    """The producers' files as `topic`, `id`, `sent_at` (epoch ms) and `certain`.

    Raises `SettingsError` when rows lack one of them.
    """
    from pyspark.sql import functions as F

    kind = settings.ledger_kind
    reader = spark.read.option("mode", "FAILFAST")
    if kind == "csv":
        reader = reader.option("header", "true").option("inferSchema", "true")
    frame = reader.format(kind).load(settings.ledger)
    names = {name: name for name in ("topic", "id", "time")} | dict(settings.ledger_columns)
    chosen = frame.selectExpr(*(f"{expression} as {name}" for name, expression in names.items()))
    is_number = chosen.schema["time"].dataType.typeName() in ("long", "integer", "double", "decimal")
    at = F.col("time").cast("bigint") if is_number else F.unix_millis(F.col("time").cast("timestamp"))
    found = chosen.select(
        F.col("topic").cast("string").alias("topic"),
        F.col("id").cast("string").alias("id"),
        at.alias("sent_at"),
        F.lit(True).alias("certain"),
    )
    bad = int(found.where("topic is null or id is null or sent_at is null").count())
    if bad:
        raise SettingsError(
            f"{bad:,} rows of ledger {settings.ledger} have no topic, id or time; mend them, or name the "
            "right columns with ledger_columns"
        )
    return found
