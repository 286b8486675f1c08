"""`replay`: messages of an archive, of the live log or of dead letters to a topic again, none twice.

What is replayed is settled at the first start, in offsets, so a replay into the topic it reads from ends, and
a restart does the same again. It goes in parts; each is a write of its own under the replay's id (the sink's
`jobId` and `jobBatch`), so brokers that know idempotent producers store a part that is sent again once.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.core.errors import NoRouteError
from sparrowmq.core.message import BODY_BYTES_MAX, MessageQueue
from sparrowmq.spark.offsets import Span, describe
from sparrowmq.spark.option_types import LATEST
from sparrowmq.spark.options import WriteOptions
from sparrowmq.spark.pipelines import reading, writing
from sparrowmq.spark.pipelines.archive_home import ArchiveHome, directory, read_ledger
from sparrowmq.spark.pipelines.queries import plain_errors
from sparrowmq.spark.pipelines.replay_home import Part, Place, Replay, ReplayError, ReplayHome
from sparrowmq.spark.pipelines.replay_rows import check_reproducible, part_rows
from sparrowmq.spark.pipelines.replay_settings import TOPIC, ReplaySettings
from sparrowmq.spark.pipelines.steps import Plan, Step
from sparrowmq.spark.pipelines.watch import Progress, Watch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("sparrowmq.spark")

NAME: Final = "replay"
FIRST_ROWS: Final = 1000
"""Messages of the first part: it shows how large messages are, and how many of them a filter takes."""
PART_BYTES: Final = 128 * 1024 * 1024
"""Bodies of a part, about: a part that is sent again is compared in memory."""
RATE_SECONDS: Final = 10.0
"""With a rate a part takes about so long, so that a stop need not wait."""
_ROWS_MAX: Final = 2**62


def plan_replay(settings: ReplaySettings) -> Plan:
    """What `replay` would do now and promise. Asks the clusters, starts no Spark, writes nothing."""
    home = settings.replay_home
    replay, place = _settled(settings, home), home.place()
    left = place.left(replay)
    steps = []
    for topic in sorted({span.queue.topic for span in left}):
        mine = [span for span in left if span.queue.topic == topic]
        offsets = {str(span.queue): f"offsets {span.start} to before {span.end}" for span in mine}
        steps.append(Step("read" if settings.archive is None else "read archive", topic, offsets))
    filters = {"tags": settings.tags, "sql92": settings.sql92, "where": settings.where}
    if any(filters.values()):
        given = {name: text for name, text in filters.items() if text}
        steps.append(Step("take", "only some", given))
    if settings.values:
        steps.append(Step("change", ", ".join(settings.values), settings.values))
    for topic in sorted(replay.targets):
        target = writing.target(settings.sink_options(topic))
        details = {
            "queues": describe(replay.targets[topic]),
            "promise": _promise(settings, target),
            "order": _order(settings),
            "unique ids": "kept" if settings.ids == "keep" else "new ones, the same in every try",
        }
        if settings.rate is not None:
            details["rate"] = f"{settings.rate:,} messages a second at most"
        steps.append(Step("send to", target.topic, details))
    return Plan(NAME, tuple(steps), sum(map(len, left)))


def promises(settings: ReplaySettings) -> list[str]:
    """What a run will promise, a line for each target topic. Asks the clusters."""
    replay = _settled(settings, settings.replay_home)
    targets = {settings.to.replace(TOPIC, topic): topic for topic in sorted(replay.targets)}
    lines = []
    for name, topic in targets.items():
        target = writing.target(settings.sink_options(topic))
        lines.append(f"{name}: {_promise(settings, target)}; {_order(settings)}")
    return lines


def dry_run_replay(spark: SparkSession, settings: ReplaySettings) -> int:
    """Read, narrow and change all that is left, send nothing; how many messages would be sent.

    Raises `ReplayError` when some of them could not be sent.
    """
    home = settings.replay_home
    replay, place = _settled(settings, home), home.place()
    found = 0
    with plain_errors():
        while (part := place.next_part(replay, _ROWS_MAX, settings.tasks)) is not None:
            place = place.begin(part).end(0, 0)
            found += _count(part_rows(spark, settings, settings.source_options, replay, part), part)
    return found


def replay(spark: SparkSession, settings: ReplaySettings, watch: Watch | None = None) -> Progress:
    """Send what is left of a replay, or until `watch.stop()`; what was done.

    Raises `ReplayError` when the home holds another replay, `SettingsError` for wrong expressions and topics,
    `DataLossError` when messages are gone before they were read, `PipelineError` for what Spark could not do.
    What was sent stays, and the next run goes on there.
    """
    watch = watch or Watch()
    watch.begin(NAME)
    home = settings.replay_home
    with home.locked(), plain_errors():
        settled = _settled(settings, home)
        if not settled.spans:
            return watch.progress
        job = _Job(spark, settings, home, settled)
        job.check()
        if home.replay() is None:
            home.begin(settled)
        log.info("replay %s in %s: %d messages", settled.id, home.root, settled.size)
        watch.waiting(job.lag)
        while not watch.stopping and (part := job.next_part()) is not None:
            began = monotonic()
            sent, size = job.send(part)
            watch.batch(sent, size, monotonic() - began, job.lag)
    return watch.progress


class _Job:
    """One run: the place as it moves on, and how parts are sent."""

    def __init__(
        self, spark: SparkSession, settings: ReplaySettings, home: ReplayHome, settled: Replay
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._home = home
        self._replay = settled
        self._place = home.place()

    @property
    def lag(self) -> int:
        """Messages that are left to read."""
        return sum(map(len, self._place.left(self._replay)))

    def check(self) -> None:
        """Raise what is wrong with the settings before anything is written."""
        part = self._place.part or self._place.next_part(self._replay, 1, 1)
        if part is not None:
            check_reproducible(self._rows(part))

    def next_part(self) -> Part | None:
        """The part in hand, or the next one, written down; None at the end."""
        if self._place.part is not None:
            return self._place.part
        settings = self._settings
        tasks = settings.tasks if settings.rate is None else 1
        part = self._place.next_part(self._replay, rows_of_next(settings, self._place), tasks)
        if part is not None:
            self._move(self._place.begin(part))
        return part

    def send(self, part: Part) -> tuple[int, int]:
        """Send a part and note that it is done; messages sent, bytes of their bodies."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        settings, seen = self._settings, Observation()
        counted = self._rows(part).observe(
            seen,
            F.count(F.lit(1)).alias("rows"),
            F.coalesce(F.sum(F.octet_length("body")), F.lit(0)).alias("size"),
        )
        number = sorted(self._replay.targets).index(part.topic)
        options = {
            **settings.sink_options(part.topic),
            "jobId": f"replay-{self._replay.id}-{number}",
            "jobBatch": str(part.number),
            "planLocation": str(self._home.queues),
        }
        if settings.rate is not None:
            options["rateLimit"] = str(max(1, settings.rate // part.tasks))
        counted.write.format(reading.FORMAT).options(**options).mode("append").save()
        sent, size = int(seen.get["rows"]), int(seen.get["size"])
        self._move(self._place.end(sent, size))
        return sent, size

    def _rows(self, part: Part) -> DataFrame:
        settings = self._settings
        return part_rows(self._spark, settings, settings.source_options, self._replay, part)

    def _move(self, place: Place) -> None:
        self._home.save(place)
        self._place = place


def rows_of_next(settings: ReplaySettings, place: Place) -> int:
    """Messages to read in the next part, by what the parts before showed of their size and of a filter."""
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


def _settled(settings: ReplaySettings, home: ReplayHome) -> Replay:
    """What is settled in the home; where nothing is, what would be now."""
    found = home.replay()
    if found is not None:
        found.check(settings.asked, home.root)
        return found
    spans = _archived(settings) if settings.archive is not None else _stored(settings)
    topics = sorted({span.queue.topic for span in spans} | set(settings.sources))
    targets = {topic: writing.target(settings.sink_options(topic)).queues for topic in topics}
    return Replay(secrets.token_hex(8), settings.asked, tuple(sorted(spans)), targets)


def _archived(settings: ReplaySettings) -> list[Span]:
    """What the archive has of what is asked for."""
    assert settings.archive is not None
    ledger = read_ledger(ArchiveHome(directory(settings.archive)).current())
    missing = set(settings.sources) - {queue.topic for queue in ledger.queues}
    if missing:
        raise ReplayError(f"archive {settings.archive} has nothing of topic {min(missing)!r}")
    wanted = set(settings.sources)
    spans = [
        span
        for queue in ledger.queues
        if not wanted or queue.topic in wanted
        for span in ledger.covered(queue)
    ]
    return _within(spans, settings.ranges)


def _stored(settings: ReplaySettings) -> list[Span]:
    """What the brokers have of what is asked for."""
    options = {**settings.source_options, "subscribe": ",".join(settings.sources)}
    if settings.since is not None:
        options |= {
            "startingTimestamp": str(settings.since),
            "startingOffsetsByTimestampStrategy": LATEST,
        }
    if settings.until is not None:
        options |= {"endingTimestamp": str(settings.until)}
    try:
        return _within(reading.spans_of(options), settings.ranges)
    except NoRouteError as error:
        if not settings.dead_letters_of:
            raise
        raise ReplayError(
            f"group {settings.dead_letters_of!r} has no dead letters that can be read: {error}"
        ) from None


def _within(spans: Sequence[Span], ranges: Sequence[Span]) -> list[Span]:
    """The parts of `spans` that lie in `ranges`; all of them without any."""
    if not ranges:
        return list(spans)
    of_queue: dict[MessageQueue, list[Span]] = {}
    for span in spans:
        of_queue.setdefault(span.queue, []).append(span)
    found: set[Span] = set()
    for wanted in ranges:
        there = of_queue.get(wanted.queue, [])
        parts = [Span(wanted.queue, max(one.start, wanted.start), min(one.end, wanted.end)) for one in there]
        parts = [part for part in parts if part.start < part.end]
        if sum(map(len, parts)) != len(wanted):
            stored = ", ".join(f"{one.start} to {one.end - 1}" for one in there) or "none"
            raise ReplayError(
                f"range {wanted.queue}={wanted.start}-{wanted.end}: there are not all of these offsets; in "
                f"the time asked for the queue has {stored}"
            )
        known = [old for old in found if old.queue == wanted.queue]
        if any(part.start < old.end and old.start < part.end for part in parts for old in known):
            raise ReplayError(
                f"range {wanted.queue}={wanted.start}-{wanted.end}: another range has some of it"
            )
        found.update(parts)
    return sorted(found)


def _promise(settings: ReplaySettings, target: writing.Target) -> str:
    if target.forgetful:
        return (
            f"at least once: broker {target.forgetful} knows no idempotent producers; what a restart sends "
            "again has the same unique ids"
        )
    if not WriteOptions.parse(settings.sink_options(target.topic)).idempotent:
        return "at least once: option idempotent is false"
    if settings.may_lose:
        return "exactly once, unless messages are deleted between two tries of a part"
    return "exactly once"


def _order(settings: ReplaySettings) -> str:
    if "sharding_key" in settings.values:
        return "messages of one queue with the same sharding key keep their order"
    if settings.keep_order:
        return "messages of one queue keep their order, and go to one queue"
    return "spread over all queues, without order"


def _count(rows: DataFrame, part: Part) -> int:
    """How many rows there are. Raises `ReplayError` when some cannot be sent."""
    from pyspark.sql import functions as F

    length = F.octet_length("body")
    bad = F.coalesce((length < 1) | (length > BODY_BYTES_MAX), F.lit(True))
    found: Any = rows.select(
        F.count(F.lit(1)).alias("rows"), F.coalesce(F.sum(bad.cast("int")), F.lit(0)).alias("bad")
    ).first()
    if found["bad"]:
        raise ReplayError(
            f"{found['bad']} of {found['rows']} messages of {part.topic} could not be sent: their bodies are "
            f"null, empty or over {BODY_BYTES_MAX} bytes; leave them out with where, or change values"
        )
    return int(found["rows"])
