"""`mirror`: topics of one cluster to another, queue by queue in order, and consumer groups with them.

Each micro-batch is sent with explicit queues as one batch of an idempotent job, so our brokers store a batch
that runs again once; Apache's store it again, under the same message ids. Once it is stored, the ends of the
target queues say where it stands (`mirror_places`), and groups are moved by that (`mirror_groups`).
"""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.core.errors import SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.delivery import broker_without_states
from sparrowmq.spark.faults import Occasionally
from sparrowmq.spark.loop import loop_thread
from sparrowmq.spark.offsets import Span, to_tree
from sparrowmq.spark.option_types import EARLIEST, EARLIEST_OFFSET
from sparrowmq.spark.options import WriteOptions
from sparrowmq.spark.pipelines import mirror_map, mirror_rows, reading
from sparrowmq.spark.pipelines.mirror_home import MirrorHome
from sparrowmq.spark.pipelines.mirror_move import GroupMover
from sparrowmq.spark.pipelines.mirror_places import Places
from sparrowmq.spark.pipelines.mirror_rows import Origin
from sparrowmq.spark.pipelines.mirror_settings import MirrorSettings as MirrorSettings
from sparrowmq.spark.pipelines.mirror_sides import Side, check_sides
from sparrowmq.spark.pipelines.mirror_state import MirrorState
from sparrowmq.spark.pipelines.queries import run_batches
from sparrowmq.spark.pipelines.steps import Plan, Step
from sparrowmq.spark.pipelines.watch import Progress, TopicLag, Watch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("sparrowmq.spark")

NAME: Final = "mirror"
LAG_SECONDS: Final = 2.0
"""Seconds between two looks at what waits."""
REST_FACTOR: Final = 10.0
"""A look that takes long is followed by so many times its time without one."""
OLDEST_MAX: Final = 64
"""Of so many queues that lag most the oldest waiting message is looked at."""
AT_LEAST_ONCE: Final = "at least once"
NOT_MIRRORED: Final = (
    "system and retry topics, dead letters unless their topic is named, delayed and timed messages before "
    "they are due, open transactions, messages that came through the target"
)


def plan_mirror(settings: MirrorSettings) -> Plan:
    """What `mirror` would do now. Asks both clusters, starts no Spark, changes nothing."""
    home = MirrorHome(settings.directory)
    state = home.load(settings.source, settings.target)
    source, target = _checked_sides(settings)
    found = reading.queues_of(settings.source_options)
    spans = _waiting(settings, state, found)
    steps = []
    for topic in sorted({queue.topic for queue in found.ends}):
        there = loop_thread().run(target.writable(topic))
        queues = sorted(queue for queue in found.ends if queue.topic == topic)
        steps += _topic_steps(settings, state, topic, queues, there)
        waiting = {
            str(s.queue): f"offsets {s.start} to before {s.end}" for s in spans if s.queue.topic == topic
        }
        steps.append(Step("send", f"{topic} to {target.name}", waiting))
    promise = _promise(settings, {queue.topic for queue in found.ends})
    end = f"a batch every {settings.every:g} s until stopped" if settings.follow else "then the end"
    steps.append(
        Step(
            "deliver",
            promise,
            {"batches": f"of at most {settings.batch_rows:,} messages, {end}", "left out": NOT_MIRRORED},
        )
    )
    if settings.groups or settings.group_pattern:
        mover = _mover(settings, source, target)
        names = ", ".join(loop_thread().run(mover.groups())) or "none yet"
        steps.append(Step("move", f"groups at {target.name} that are not online there", {"groups": names}))
    return Plan(NAME, tuple(steps), sum(map(len, spans)))


def dry_run_mirror(spark: SparkSession, settings: MirrorSettings) -> int:
    """Read and shape all that waits, send nothing; how many messages would be sent."""
    state = MirrorHome(settings.directory).load(settings.source, settings.target)
    found = reading.queues_of(settings.source_options)
    spans = _waiting(settings, state, found)
    if not spans:
        return 0
    frame = reading.batch(spark, reading.assigned(settings.source_options, spans), mirror_rows.SCHEMA)
    mapping = {queue: state.queues.get(queue, queue) for queue in found.ends}
    seen: Any = _observation()
    shaped = _shaped(frame, settings, mapping).observe(seen, *_figures())
    shaped.write.format("noop").mode("overwrite").save()
    return int(seen.get["rows"])


def mirror(spark: SparkSession, settings: MirrorSettings, watch: Watch | None = None) -> Progress:
    """Bring the target up to date, or with `follow` keep it so until `watch.stop()`; what was done.

    Raises `MirrorError` when the directory is another mirror's, `DataLossError` when messages are gone before
    they were mirrored, `PipelineError` for what Spark could not do. What was sent stays, and the next run
    goes on there.
    """
    watch = watch or Watch()
    watch.begin(NAME)
    home = MirrorHome(settings.directory)
    with home.locked():
        job = _Job(spark, settings, home, watch)
        job.begin()
        run_batches(
            reading.stream(spark, job.stream_options(), mirror_rows.SCHEMA),
            job.write,
            watch,
            name=f"mirror {settings.source} to {settings.target}",
            checkpoint=home.checkpoint,
            every=settings.every if settings.follow else None,
            tick=job.tick,
        )
        job.end()
    return watch.progress


@dataclass(frozen=True, slots=True)
class _Sent:
    """What a batch sent."""

    rows: int
    size: int


class _Job:
    """One run. Batches are written on Spark's callback thread, everything else happens on the caller's."""

    def __init__(self, spark: SparkSession, settings: MirrorSettings, home: MirrorHome, watch: Watch) -> None:
        self._spark = spark
        self._settings = settings
        self._home = home
        self._watch = watch
        self._lock = threading.Lock()
        self._state = home.load(settings.source, settings.target)
        self._source, self._target = _checked_sides(settings)
        self._mover = _mover(settings, self._source, self._target)
        self._firsts: Mapping[MessageQueue, int] = {}
        self._next_lag = self._next_groups = 0.0
        self._complaints = Occasionally()

    def begin(self) -> None:
        """Say what is promised; make topics; leave the clusters' names for other mirrors."""
        for side in (self._source, self._target):
            _leave_name(side)
        found = reading.queues_of(self._settings.source_options)
        self._firsts = found.firsts if self._settings.start == EARLIEST else found.ends
        self._prepare(found.ends)
        promise = _promise(self._settings, {queue.topic for queue in found.ends})
        level = logging.WARNING if promise.startswith(AT_LEAST_ONCE) else logging.INFO
        log.log(level, "mirror %s to %s: %s", self._source.name, self._target.name, promise)

    def stream_options(self) -> dict[str, str]:
        """Options of the stream; without a checkpoint it starts where the state ends."""
        settings, state = self._settings, self._state
        options = {**settings.source_options, "maxOffsetsPerTrigger": str(settings.batch_rows)}
        options["startingOffsets"] = settings.start
        if state.done and not self._home.begun:
            place = {queue: state.done.get(queue, EARLIEST_OFFSET) for queue in self._firsts}
            options["startingOffsets"] = json.dumps(to_tree(place))
        return options

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """One micro-batch; nothing when it is mirrored already."""
        began = monotonic()
        spans = self._home.batch_spans(batch_id)
        query = self._home.query_id()
        if not spans or self._state.has(query, batch_id):
            return
        self._prepare(span.queue for span in spans)
        sent = self._send(batch, spans, query, batch_id)
        self._note(spans, sent.rows, query, batch_id)
        self._watch.batch(sent.rows, sent.size, monotonic() - began)

    def tick(self) -> None:
        """What is done now and then, with messages or without. Never raises what a cluster answers."""
        try:
            if monotonic() >= self._next_lag:
                self._next_lag = self._looked(LAG_SECONDS, self._look_at_lag)
            if monotonic() >= self._next_groups:
                self._next_groups = self._looked(self._settings.groups_every, self._look_at_groups)
        except (SparrowError, TimeoutError) as error:
            self._next_lag = self._next_groups = monotonic() + max(LAG_SECONDS, self._settings.groups_every)
            self._complaints.warn("mirror to %s: %r", self._target.name, error)

    def _look_at_lag(self) -> None:
        self._watch.topics(loop_thread().run(self._lags()))

    def _look_at_groups(self) -> None:
        self._prepare(reading.queues_of(self._settings.source_options).ends)
        loop_thread().run(self._mover.move(self._state))

    def _looked(self, pause: float, look: Callable[[], None]) -> float:
        """Look, and say when to do so again: many queues are looked at less often."""
        began = monotonic()
        look()
        took = monotonic() - began
        return monotonic() + max(pause, took * REST_FACTOR)

    def end(self) -> None:
        """The last look at what waits and at groups."""
        self._next_lag = self._next_groups = 0.0
        self.tick()

    def _prepare(self, queues: Iterable[MessageQueue]) -> None:
        """Give each new source queue its target queue, which is made if need be; all is on disk then."""
        with self._lock:
            known = self._state.queues
            new = sorted(queue for queue in set(queues) if queue not in known)
            if not new:
                return
            settings, targets = self._settings, list[MessageQueue]()
            wanted = Counter(queue.topic for queue in {*known, *new})
            for topic in sorted({queue.topic for queue in new}):
                mirror_rows.check_topic(topic)
                work = self._target.with_queues(
                    topic, wanted[topic], create=settings.create_topics, cluster=settings.target_cluster
                )
                targets += loop_thread().run(work)
            mapping = mirror_map.extended(known, new, targets)
            first_seen = {mapping[queue] for queue in new} - self._state.places.keys()
            ends = loop_thread().run(self._target.ends(sorted(first_seen)))
            places = {**self._state.places, **{queue: Places(end) for queue, end in ends.items()}}
            self._keep(replace(self._state, queues=mapping, places=places))

    def _send(self, batch: DataFrame, spans: Sequence[Span], query: str, batch_id: int) -> _Sent:
        mapping = {span.queue: self._state.queues[span.queue] for span in spans}
        seen: Any = _observation()
        shaped = _shaped(batch, self._settings, mapping).observe(seen, *_figures())
        (
            shaped.write.format(reading.FORMAT)
            .options(**self._settings.sink_options, jobId=f"mirror-{query}", jobBatch=str(batch_id))
            .mode("append")
            .save()
        )
        found = seen.get
        return _Sent(int(found["rows"]), int(found["size"] or 0))

    def _note(self, spans: Sequence[Span], rows: int, query: str, batch_id: int) -> None:
        """Note what is stored where, and that the batch is done."""
        whole = rows == sum(map(len, spans))
        by_target: dict[MessageQueue, list[Span]] = {}
        for span in spans:
            by_target.setdefault(self._state.queues[span.queue], []).append(span)
        least = {
            queue: self._state.places[queue].end + (sum(map(len, found)) if whole else 0)
            for queue, found in by_target.items()
        }
        places = self._state.places
        try:
            ends = loop_thread().run(self._target.ends_past(least))
            alone = _alone(places, ends, by_target) if whole else {}
            lasts = loop_thread().run(self._target.last_origins({queue: ends[queue] for queue in alone}))
        except (SparrowError, TimeoutError) as error:  # found out with the next batch
            self._complaints.warn("the ends of queues at %s are not known: %r", self._target.name, error)
            ends, alone, lasts = {}, {}, {}
        known = {queue: span for queue, span in alone.items() if _is_last(lasts[queue], self._source, span)}
        with self._lock:
            grown = {queue: _grown(places[queue], end, known.get(queue)) for queue, end in ends.items()}
            places = {**self._state.places, **grown}
            done = {**self._state.done, **{span.queue: span.end for span in spans}}
            self._keep(replace(self._state, places=places, done=done, query=query, batch=batch_id))

    def _keep(self, state: MirrorState) -> None:
        self._home.save(state)
        self._state = state

    async def _lags(self) -> list[TopicLag]:
        state = self._state
        ends = await self._source.ends(sorted(state.queues))
        waiting: dict[MessageQueue, int] = {}
        for queue, end in ends.items():
            done = state.done.get(queue, self._firsts.get(queue, 0))
            waiting[queue] = max(0, end - done)
        most = sorted((q for q in waiting if waiting[q]), key=lambda queue: -waiting[queue])[:OLDEST_MAX]
        oldest: dict[str, float] = {}
        for queue in most:
            at = await self._source.stored_at(queue, ends[queue] - waiting[queue])
            if at is not None:
                oldest[queue.topic] = max(oldest.get(queue.topic, 0.0), time() - at)
        messages = Counter({queue.topic: 0 for queue in waiting})
        for queue, count in waiting.items():
            messages[queue.topic] += count
        return [
            TopicLag(topic, count, round(oldest[topic], 3) if topic in oldest else None if count else 0.0)
            for topic, count in messages.items()
        ]


def _alone(
    places: Mapping[MessageQueue, Places],
    ends: Mapping[MessageQueue, int],
    sent: Mapping[MessageQueue, Sequence[Span]],
) -> dict[MessageQueue, Span]:
    """The target queues that grew by as many messages as came from one source queue, and which these were."""
    return {
        queue: spans[0]
        for queue, spans in sent.items()
        if len(spans) == 1 and ends[queue] - places[queue].end == len(spans[0])
    }


def _is_last(origin: Origin | None, source: Side, span: Span) -> bool:
    """Whether a message is the last of a span: all others stand before it then, and nothing else."""
    queue = span.queue
    return origin == Origin(source.name, queue.broker_name, queue.queue_id, span.end - 1)


def _grown(places: Places, end: int, span: Span | None) -> Places:
    """The places after a batch; `span` is what the growth is known to be.

    A queue that ends earlier than it did was made anew, or its broker lost its end: nothing is known of it.
    """
    if end < places.end:
        return Places(end)
    return places.grown(end) if span is None else places.grown(end, span.queue, span.start)


def _checked_sides(settings: MirrorSettings) -> tuple[Side, Side]:
    """Both clusters. Raises `SettingsError` when they are one, or other mirrors call them otherwise."""
    sides = settings.sides
    ask = loop_thread().run
    check_sides(sides, [ask(side.brokers()) for side in sides], [ask(side.known_name()) for side in sides])
    return sides


def _leave_name(side: Side) -> None:
    try:
        loop_thread().run(side.leave_name())
    except SparrowError as error:
        log.warning("the name servers of %s do not keep its name for other mirrors: %s", side.name, error)


def _mover(settings: MirrorSettings, source: Side, target: Side) -> GroupMover:
    return GroupMover(source, target, settings.groups, settings.group_pattern)


def _promise(settings: MirrorSettings, topics: Iterable[str]) -> str:
    """What is promised at the target as it is now."""
    for topic in sorted(topics):
        options = WriteOptions.parse({**settings.sink_options, "topic": topic})
        if not options.idempotent or (other := broker_without_states(options)):
            why = (
                "option idempotent is false"
                if not options.idempotent
                else f"broker {other} stores what comes again"
            )
            return f"{AT_LEAST_ONCE}, with stable message ids: {why}"
    return "exactly once on SparrowMQ's brokers, at least once with stable message ids on others"


def _topic_steps(
    settings: MirrorSettings,
    state: MirrorState,
    topic: str,
    queues: Sequence[MessageQueue],
    there: Sequence[MessageQueue],
) -> list[Step]:
    wanted = len({*queues, *(queue for queue in state.queues if queue.topic == topic)})
    if len(there) >= wanted or not settings.create_topics:
        return []
    action = "grow" if there else "create"
    return [Step(action, f"{topic} at {settings.target}", {"queues": f"{len(there)} now, {wanted} then"})]


def _waiting(settings: MirrorSettings, state: MirrorState, found: reading.Waiting) -> list[Span]:
    """What is stored and would be mirrored by a run."""
    begin = found.firsts if settings.start == EARLIEST or state.done else found.ends
    spans = [
        Span(queue, max(state.done.get(queue, begin[queue]), found.firsts[queue]), end)
        for queue, end in found.ends.items()
    ]
    return sorted(span for span in spans if span.start < span.end)


def _shaped(
    frame: DataFrame, settings: MirrorSettings, mapping: Mapping[MessageQueue, MessageQueue]
) -> DataFrame:
    """The rows as they are sent; no shuffle, so that they come in the same order again."""
    from pyspark.sql import functions as F

    targets = frame.sparkSession.sql(mirror_rows.mapping_sql(mapping))
    kept = frame.where(f"not {mirror_rows.came_through(settings.target)}")
    joined = kept.join(F.broadcast(targets), ["topic", "broker", "queue_id"])
    return joined.selectExpr(*mirror_rows.sink_expressions(settings.source))


def _observation() -> Any:
    from pyspark.sql import Observation

    return Observation()


def _figures() -> tuple[Any, Any]:
    from pyspark.sql import functions as F

    return F.count(F.lit(1)).alias("rows"), F.sum(F.octet_length("body")).alias("size")
