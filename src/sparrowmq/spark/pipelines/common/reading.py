"""Reads of topics by pipelines: options for spans, and the stored offsets of a cluster."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sparrowmq import Admin, ClientSettings
from sparrowmq.core.errors import SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.cluster.clients import client_settings
from sparrowmq.spark.cluster.faults import unread_lost
from sparrowmq.spark.offsets.losses import UnreadLoss
from sparrowmq.spark.offsets.offsets import Span, to_tree
from sparrowmq.spark.options.table import ReadOptions, Use, connection_options
from sparrowmq.spark.options.values import EARLIEST
from sparrowmq.spark.pipelines.common.source import FollowedSource
from sparrowmq.spark.read.driver import Driver
from sparrowmq.spark.read.lookup import Found, Lookup
from sparrowmq.spark.read.missing import Absence, MissingQueue, gone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("sparrowmq.spark")

FORMAT: Final = "rocketmq"
ASK_SECONDS: Final = 60.0
REPORT_SECONDS: Final = 10.0
FILTERS: Final = frozenset({"tags", "sql92"})
"""Options of a read that may return fewer rows than offsets."""
PLACES: Final = frozenset(
    {
        "subscribe",
        "subscribepattern",
        "assign",
        "startingoffsets",
        "startingtimestamp",
        "startingoffsetsbytimestamp",
        "startingoffsetsbytimestampstrategy",
        "endingoffsets",
        "endingtimestamp",
        "endingoffsetsbytimestamp",
    }
)
"""Options that say which queues are read, from where and to where."""


@dataclass(frozen=True, slots=True)
class UnreadQueues:
    """The queues that a read would follow: the smallest stored offset of each, and its end."""

    firsts: Mapping[MessageQueue, int]
    ends: Mapping[MessageQueue, int]


def is_filtered(options: Mapping[str, str]) -> bool:
    """Whether there may be fewer rows than offsets."""
    return any(name.lower() in FILTERS for name in options)


def queues_of(options: Mapping[str, str]) -> UnreadQueues:
    """The cluster's queues for a read with these options. Raises the cluster's errors."""
    parsed = ReadOptions.parse(options, None)

    async def ask(lookup: Lookup) -> UnreadQueues:
        queues = await lookup.queues(fresh=True)
        return UnreadQueues(await lookup.firsts(queues), await lookup.ends(queues))

    return Driver(parsed)(lambda lookup: lookup.retried(lambda: ask(lookup)), ASK_SECONDS)


def unread(source: FollowedSource, done: Mapping[MessageQueue, int], found: UnreadQueues) -> list[Span]:
    """What a run would read that has read each queue up to `done`."""
    begin = found.firsts if source.start == EARLIEST or done else found.ends
    spans = [
        Span(queue, max(done.get(queue, begin[queue]), found.firsts[queue]), end)
        for queue, end in found.ends.items()
    ]
    return sorted(span for span in spans if span.start < span.end)


def without_lost(options: Mapping[str, str], spans: Iterable[Span]) -> list[Span]:
    """The spans of a batch that are read: none at brokers that are lost for good (option `lostBrokers`)."""
    parsed = ReadOptions.parse(options, None)
    return [span for span in spans if not parsed.is_lost(span.queue)]


def check_retired(options: Mapping[str, str], places: Mapping[MessageQueue, int]) -> None:
    """For a start without a checkpoint: whether all queues that were read up to `places` can be read on.

    Raises `DataLossError` for unread messages in queues that their topics no longer have, unless it may be
    lost.
    """
    parsed = ReadOptions.parse(options, None)

    async def ask(lookup: Lookup) -> Mapping[MessageQueue, MissingQueue]:
        await lookup.queues(fresh=True)
        return await lookup.missing(dict(places))

    found = Driver(parsed)(lambda lookup: lookup.retried(lambda: ask(lookup)), ASK_SECONDS)
    retired = {queue: one for queue, one in found.items() if one.state is Absence.RETIRED}
    loss = UnreadLoss.of(gone(retired, places, {}), 0)
    if loss.queues:
        unread_lost(parsed, loss)


def store_times(options: Mapping[str, str], places: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
    """Store time in epoch ms of the first message at or after each offset; no entry where there is none."""
    driver = Driver(ReadOptions.parse(options, None))
    return driver(lambda lookup: lookup.retried(lambda: lookup.store_times(dict(places))), ASK_SECONDS)


def report(options: Mapping[str, str], group: str, ends: Mapping[MessageQueue, int]) -> None:
    """Commit everything before `ends` for `group`, except at lost brokers. Failures are logged, never
    raised.
    """
    parsed = ReadOptions.parse({**options, "groupId": group}, None)
    places = {queue: end for queue, end in ends.items() if not parsed.is_lost(queue)}
    try:
        Driver(parsed)(lambda lookup: lookup.report(places), REPORT_SECONDS)
    except (SparrowError, FutureTimeoutError) as error:
        log.warning("the offsets of group %s could not be committed: %r", group, error)


def prepare(options: Mapping[str, str], group: str) -> None:
    """Create the reporting group on brokers without it, with the settings of the others. Raises
    `ClientError`, …
    """
    brokers = {queue.broker_name for queue in queues_of(options).ends}
    with admin(options) as asked:
        known = asked.groups.config(group)
        if not known:
            asked.groups.create(group)
        elif brokers - known.keys():
            one = known[min(known)]
            asked.groups.create(
                group,
                retries=one.retry_max_times,
                enabled=one.consume_enable,
                broadcast=one.consume_broadcast_enable,
            )


def hold(options: Mapping[str, str], group: str, hours: int) -> frozenset[tuple[str, str]]:
    """Have brokers keep messages of all these topics for the group. Returns the topics with their brokers.

    Raises `ClientError`, `TransportError`, …
    """
    found = frozenset((queue.topic, queue.broker_name) for queue in queues_of(options).ends)
    with admin(options) as asked:
        for topic in sorted({topic for topic, _ in found}):
            asked.holds.set(topic, group, hours=hours)
    return found


def admin(options: Mapping[str, str]) -> Admin:
    """An admin client for the cluster of a read with these options; not started yet."""
    return Admin(settings=ClientSettings(**client_settings(ReadOptions.parse(options, None))))


def check_reachable(*clusters: Mapping[str, str]) -> None:
    """Ask the name servers of each cluster once; reads and writes ask again and again, for a minute.

    A cluster is given by the options of a read or a write. Raises `TransportError`.
    """
    for options in clusters:
        with admin({**connection_options(options), "subscribe": "any"}) as asked:
            asked.brokers.cluster_info()


def spans_of(options: Mapping[str, str], use: Use = "batch") -> list[Span]:
    """The spans that a batch read with these options would read, sorted by queue."""
    return [span for span in _all_spans(options, use) if len(span)]


def fixed(options: Mapping[str, str]) -> dict[str, str]:
    """Options of a batch read that starts and ends now: every use and every later read has the same messages.

    Raises the cluster's errors.
    """
    return assigned(options, _all_spans(options, "batch"))


def _all_spans(options: Mapping[str, str], use: Use) -> list[Span]:
    """One span for each queue of a batch read, also for queues without messages; sorted by queue."""
    parsed = ReadOptions.parse(options, use)

    async def ask(lookup: Lookup) -> tuple[Found, Found]:
        return await lookup.starts(EARLIEST), await lookup.stops()

    starts, stops = Driver(parsed)(lambda lookup: lookup.retried(lambda: ask(lookup)), ASK_SECONDS)
    return sorted(Span(queue, start, max(start, stops[queue])) for queue, start in starts.items())


def assigned(options: Mapping[str, str], spans: Iterable[Span]) -> dict[str, str]:
    """Options of a batch read of exactly these spans, each queue at most once."""
    chosen = {name: value for name, value in options.items() if name.lower() not in PLACES}
    wanted = list(spans)
    starts = {span.queue: span.start for span in wanted}
    assert len(starts) == len(wanted), "each queue once"
    queues: dict[str, dict[str, list[int]]] = {}
    for queue in starts:
        queues.setdefault(queue.topic, {}).setdefault(queue.broker_name, []).append(queue.queue_id)
    return {
        **chosen,
        "assign": json.dumps(queues),
        "startingOffsets": json.dumps(to_tree(starts)),
        "endingOffsets": json.dumps(to_tree({span.queue: span.end for span in wanted})),
    }


def batch(spark: SparkSession, options: Mapping[str, str], schema: str | None = None) -> DataFrame:
    """A batch read; times without a zone in JSON are in the session's zone."""
    _make_known(spark)
    reader = spark.read.format(FORMAT).options(**in_zone(options, spark))
    return (reader.schema(schema) if schema else reader).load()


def stream(spark: SparkSession, options: Mapping[str, str], schema: str | None = None) -> DataFrame:
    """A streaming read; times without a zone in JSON are in the session's zone."""
    _make_known(spark)
    reader = spark.readStream.format(FORMAT).options(**in_zone(options, spark))
    return (reader.schema(schema) if schema else reader).load()


def in_zone(options: Mapping[str, str], spark: SparkSession) -> Mapping[str, str]:
    """Options with the session's time zone where JSON is read; an option `timeZone` goes before."""
    given = {name.lower(): value.lower() for name, value in options.items()}
    if given.get("bodyformat") != "json" or "timezone" in given:
        return options
    return {**options, "timeZone": str(spark.conf.get("spark.sql.session.timeZone"))}


def _make_known(spark: SparkSession) -> None:
    from sparrowmq.spark.source import ensure_registered

    ensure_registered(spark)


def drain(frame: DataFrame) -> int:
    """Read and decode every column of every row without writing. Returns the number of rows."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    seen = Observation()
    frame.observe(seen, F.count(F.lit(1)).alias("rows")).write.format("noop").mode("overwrite").save()
    return int(seen.get["rows"])
