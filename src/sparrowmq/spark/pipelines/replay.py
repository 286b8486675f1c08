"""`replay`: messages of an archive, of the live log or of dead letters to a topic again, none twice.

What is replayed is settled at the first start, in offsets, so a replay into the topic it reads from ends, and
a restart does the same again. It goes in parts; each is a write of its own under the replay's id (the sink's
`jobId` and `jobBatch`), so brokers that know idempotent producers store a part that is sent again once.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Literal

from sparrowmq.core.errors import NoRouteError, SettingsError
from sparrowmq.core.message import BODY_BYTES_MAX, MessageQueue
from sparrowmq.core.names import dlq_topic
from sparrowmq.spark.offsets import Span, describe
from sparrowmq.spark.option_types import LATEST
from sparrowmq.spark.options import WriteOptions
from sparrowmq.spark.pipelines import homes, reading, writing
from sparrowmq.spark.pipelines.archive_home import ArchiveHome, directory, read_ledger
from sparrowmq.spark.pipelines.queries import plain_errors
from sparrowmq.spark.pipelines.replay_home import Part, Place, Replay, ReplayError, ReplayHome
from sparrowmq.spark.pipelines.replay_rows import DEFAULTS, check_reproducible, part_rows
from sparrowmq.spark.pipelines.steps import Plan, Step
from sparrowmq.spark.pipelines.watch import Progress, Watch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("sparrowmq.spark")

NAME: Final = "replay"
TOPIC: Final = "{topic}"
"""In `to` it stands for the topic that messages come from."""
FIRST_ROWS: Final = 1000
"""Messages of the first part: it shows how large messages are, and how many of them a filter takes."""
PART_BYTES: Final = 128 * 1024 * 1024
"""Bodies of a part, about: a part that is sent again is compared in memory."""
RATE_SECONDS: Final = 10.0
"""With a rate a part takes about so long, so that a stop need not wait."""
_ROWS_MAX: Final = 2**62
_FREE: Final = frozenset(
    "failondataloss batchrows batchbytes prefetchbatches pullsinflight pulltimeoutms fetchoffset.numretries "
    "fetchoffset.retryintervalms".split()
)
"""Options of the source that change nothing of what is read, beside those of the connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """What is sent where. One source: topics (or ranges of queues), an archive, a group's dead letters."""

    home: str | Path
    """The replay's directory; a replay that was stopped or killed goes on there."""
    to: str
    """The topic to send to; `{topic}` in it stands for the one a message comes from."""
    topics: tuple[str, ...] = ()
    """Topics to read; with an archive and none, all that it has."""
    archive: str | Path | None = None
    """Read an archive, not the live log."""
    dead_letters_of: str = ""
    """Read the dead letters of a consumer group."""
    ranges: tuple[Span, ...] = ()
    """Only these offsets; each queue may come several times."""
    since: int | None = None
    """Only what was stored at or after it, epoch milliseconds."""
    until: int | None = None
    """Only what was stored before it, epoch milliseconds."""
    name_server: str = ""
    """`host:port;…`; by default from `SPARROW_NAMESRV` or `NAMESRV_ADDR`."""
    to_name_server: str = ""
    """The cluster to send to, if it is another."""
    tags: str = ""
    """Only messages with one of these tags, `created || paid`; brokers look."""
    sql92: str = ""
    """Only messages whose properties this holds for; brokers look, so not with an archive."""
    where: str = ""
    """Only messages that this Spark SQL condition over the source's columns and `text` holds for."""
    values: Mapping[str, str] = field(default_factory=dict)
    """What to send in place of what was stored: SQL expressions by name, of `body`, `tags`, `keys`,
    `properties` and `sharding_key`.
    """
    ids: Literal["renew", "keep"] = "renew"
    """New unique ids, the same in every try; or those that messages have."""
    keep_order: bool = True
    """A queue's messages go to one queue, in order; else they are spread over all."""
    mark: bool = True
    """Give messages the properties `SPARROW_REPLAY` and `SPARROW_ORIGIN`."""
    rate: int | None = None
    """Messages a second at most."""
    batch_rows: int = 100_000
    """Messages of a part at most."""
    tasks: int = 2
    """Tasks that send at once; one with a rate."""
    fail_on_data_loss: bool = True
    options: Mapping[str, str] = field(default_factory=dict)
    """More options of the source: of the connection, of speed."""
    to_options: Mapping[str, str] = field(default_factory=dict)
    """More options of the sink."""

    def __post_init__(self) -> None:
        self._check_source()
        for name, value, least in (
            ("rate", self.rate, 1),
            ("batch_rows", self.batch_rows, 1),
            ("tasks", self.tasks, 1),
        ):
            if value is not None and value < least:
                raise SettingsError(f"{name}={value}: it takes {least} or more")
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise SettingsError(f"since={self.since} is not before until={self.until}")
        if self.ids not in ("renew", "keep"):
            raise SettingsError(f"ids={self.ids!r}: it takes renew or keep")
        unknown = [name for name in self.values if name not in DEFAULTS]
        if unknown:
            raise SettingsError(f"values has {unknown[0]!r}; it takes {', '.join(DEFAULTS)}")
        for name in self.options:
            if name.lower() not in _FREE and not writing.connection({name: ""}):
                raise SettingsError(
                    f"option {name} would change what is replayed; settings say that. It takes options of "
                    "the connection and of speed"
                )

    def _check_source(self) -> None:
        if not self.to:
            raise SettingsError(f"a replay needs to, a topic; to={TOPIC!r} is the one messages come from")
        live = bool(self.topics or self.ranges)
        if self.dead_letters_of and (live or self.archive is not None):
            raise SettingsError(
                "dead_letters_of is a source of its own: leave out topics, ranges and archive"
            )
        if not self.dead_letters_of and not live and self.archive is None:
            raise SettingsError("a replay needs a source: topics, ranges, an archive or dead_letters_of")
        if self.dead_letters_of and TOPIC in self.to:
            raise SettingsError(f"to={self.to!r}: dead letters need a topic to go to, by its name")
        if self.sql92 and self.archive is not None:
            raise SettingsError("sql92 is for brokers; an archive is narrowed by tags and where")
        if self.sql92 and self.tags:
            raise SettingsError("tags and sql92 are both given; sql92 takes TAGS = 'a' as well")

    @property
    def sources(self) -> tuple[str, ...]:
        """The topics that are read; none means all of an archive."""
        if self.dead_letters_of:
            return (dlq_topic(self.dead_letters_of),)
        return self.topics or tuple(sorted({span.queue.topic for span in self.ranges}))

    @property
    def source_options(self) -> dict[str, str]:
        """Options of every read of the cluster."""
        found = {"failOnDataLoss": str(self.fail_on_data_loss).lower(), **self.options}
        if self.name_server:
            found["nameServer"] = self.name_server
        if self.tags:
            found["tags"] = self.tags
        if self.sql92:
            found["sql92"] = self.sql92
        return found

    def sink_options(self, source: str) -> dict[str, str]:
        """Options of every write of what comes from a topic."""
        found = writing.connection(self.options)
        if self.name_server:
            found["nameServer"] = self.name_server
        if self.to_name_server:
            found = {"nameServer": self.to_name_server}
        return {**found, **self.to_options, "topic": self.to.replace(TOPIC, source)}

    @property
    def may_lose(self) -> bool:
        """Whether it goes on when messages were deleted before they were read."""
        given = [text for name, text in self.options.items() if name.lower() == "failondataloss"]
        return given[-1].strip().lower() == "false" if given else not self.fail_on_data_loss

    @property
    def asked(self) -> dict[str, Any]:
        """What decides which messages are sent, and how: the same in every run of a replay."""
        return {
            "archive": "" if self.archive is None else str(directory(self.archive)),
            "topics": list(self.topics),
            "dead_letters_of": self.dead_letters_of,
            "ranges": [[str(span.queue), span.start, span.end] for span in self.ranges],
            "since": self.since,
            "until": self.until,
            "name_server": self.name_server,
            "to": self.to,
            "to_name_server": self.to_name_server,
            "tags": self.tags,
            "sql92": self.sql92,
            "where": self.where,
            "values": dict(sorted(self.values.items())),
            "ids": self.ids,
            "keep_order": self.keep_order,
            "mark": self.mark,
        }

    @property
    def replay_home(self) -> ReplayHome:
        """The replay's directory. Raises `SettingsError` for one that cannot hold it."""
        return ReplayHome(homes.directory(self.home, "replay"))


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
            watch.batch(sent, size, monotonic() - began)
            watch.waiting(job.lag)
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
