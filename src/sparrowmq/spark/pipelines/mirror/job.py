"""One run of a mirror: sends batches, records the positions of copies, moves groups."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.core.errors import SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.loops.event_loop import loop_thread
from sparrowmq.spark.cluster.faults import Occasionally
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.options.values import EARLIEST
from sparrowmq.spark.pipelines.common import reading
from sparrowmq.spark.pipelines.common.queries import stream_options
from sparrowmq.spark.pipelines.common.watch import TopicLag, Watch
from sparrowmq.spark.pipelines.mirror import queue_map
from sparrowmq.spark.pipelines.mirror import rows as mirror_rows
from sparrowmq.spark.pipelines.mirror.clusters import Side
from sparrowmq.spark.pipelines.mirror.directory import MirrorDirectory
from sparrowmq.spark.pipelines.mirror.offset_map import QueuePlaces
from sparrowmq.spark.pipelines.mirror.plan import AT_LEAST_ONCE, checked_sides, group_mover, promise
from sparrowmq.spark.pipelines.mirror.rows import Origin
from sparrowmq.spark.pipelines.mirror.settings import MirrorSettings
from sparrowmq.spark.pipelines.mirror.state import MirrorState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("sparrowmq.spark")

LAG_SECONDS: Final = 2.0
"""Seconds between two checks for waiting messages."""
REST_FACTOR: Final = 10.0
"""After a slow check, wait this many times its duration."""
OLDEST_MAX: Final = 64
"""The oldest waiting message is looked up only for this many queues, those with the largest lag."""


@dataclass(frozen=True, slots=True)
class _Sent:
    """What a batch sent."""

    rows: int
    size: int


class MirrorJob:
    """One run. Batches are written on Spark's callback thread, everything else runs on the caller's."""

    def __init__(
        self, spark: SparkSession, settings: MirrorSettings, home: MirrorDirectory, watch: Watch
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._home = home
        self._watch = watch
        self._lock = threading.Lock()
        self._state = home.load(settings.source, settings.target)
        self._source, self._target = checked_sides(settings)
        self._mover = group_mover(settings, self._source, self._target)
        self._firsts: Mapping[MessageQueue, int] = {}
        self._next_lag = self._next_groups = 0.0
        self._complaints = Occasionally()

    def begin(self) -> None:
        """Log the guarantees, create topics, and store the clusters' names for other mirrors."""
        for side in (self._source, self._target):
            _leave_name(side)
        self._forget(self._settings.lost_brokers)
        found = reading.queues_of(self._settings.source_options)
        self._firsts = found.firsts if self._settings.start == EARLIEST else found.ends
        self._prepare(found.ends)
        promised = promise(self._settings, {queue.topic for queue in found.ends})
        level = logging.WARNING if promised.startswith(AT_LEAST_ONCE) else logging.INFO
        log.log(level, "mirror %s to %s: %s", self._source.name, self._target.name, promised)

    def _forget(self, lost: frozenset[str]) -> None:
        """Positions at lost brokers are not queried; their rows go to other queues under their old names."""
        places = {queue: one for queue, one in self._state.places.items() if queue.broker_name not in lost}
        if len(places) < len(self._state.places):
            self._keep(replace(self._state, places=places))

    def stream_options(self) -> dict[str, str]:
        """Options of the stream; without a checkpoint it starts at the state's end."""
        return stream_options(self._settings, self._home.checkpoint, self._state.done)

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write one micro-batch; does nothing if it is already mirrored."""
        began = monotonic()
        planned = self._home.checkpoint.batch_spans(batch_id)
        spans = reading.without_lost(self._settings.source_options, planned)
        query = self._home.checkpoint.query_id()
        if not spans or self._state.has(query, batch_id):
            return
        self._prepare(span.queue for span in spans)
        sent = self._send(batch, spans, query, batch_id)
        self._note(spans, sent.rows, query, batch_id)
        self._watch.batch(sent.rows, sent.size, monotonic() - began)

    def tick(self) -> None:
        """Periodic work, with or without messages. Never raises the cluster's errors."""
        try:
            if monotonic() >= self._next_lag:
                self._next_lag = self._looked(LAG_SECONDS, self._look_at_lag)
            if monotonic() >= self._next_groups:
                self._next_groups = self._looked(self._settings.groups_every, self._look_at_groups)
        except (SparrowError, TimeoutError) as error:
            self._next_lag = self._next_groups = monotonic() + max(LAG_SECONDS, self._settings.groups_every)
            self._complaints.warn("mirror to %s: %r", self._target.name, error)

    def _look_at_lag(self) -> None:
        ends = reading.queues_of(self._settings.source_options).ends
        self._watch.topics(loop_thread().run(self._lags(ends)))

    def _look_at_groups(self) -> None:
        self._prepare(reading.queues_of(self._settings.source_options).ends)
        loop_thread().run(self._mover.move(self._state))

    def _looked(self, pause: float, look: Callable[[], None]) -> float:
        """Check, and return when to check again: many queues are checked less often."""
        began = monotonic()
        look()
        took = monotonic() - began
        return monotonic() + max(pause, took * REST_FACTOR)

    def end(self) -> None:
        """The last check for waiting messages, and the last move of groups."""
        self._next_lag = self._next_groups = 0.0
        self.tick()

    def _prepare(self, queues: Iterable[MessageQueue]) -> None:
        """Assign a target queue to each new source queue and create it if needed; all is durable when this
        returns.
        """
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
            mapping = queue_map.extended(known, new, targets)
            first_seen = {mapping[queue] for queue in new} - self._state.places.keys()
            ends = loop_thread().run(self._target.ends(sorted(first_seen)))
            places = {**self._state.places, **{queue: QueuePlaces(end) for queue, end in ends.items()}}
            self._keep(replace(self._state, queues=mapping, places=places))

    def _send(self, batch: DataFrame, spans: Sequence[Span], query: str, batch_id: int) -> _Sent:
        mapping = {span.queue: self._state.queues[span.queue] for span in spans}
        seen: Any = _observation()
        rows = shaped(batch, self._settings, mapping).observe(seen, *_figures())
        (
            rows.write.format(reading.FORMAT)
            .options(**self._settings.sink_options, jobId=f"mirror-{query}", jobBatch=str(batch_id))
            .mode("append")
            .save()
        )
        found = seen.get
        return _Sent(int(found["rows"]), int(found["size"] or 0))

    def _note(self, spans: Sequence[Span], rows: int, query: str, batch_id: int) -> None:
        """Record the positions of copies, and that the batch is done."""
        whole = rows == sum(map(len, spans))
        by_target: dict[MessageQueue, list[Span]] = {}
        for span in spans:
            target = self._state.queues[span.queue]
            if target in self._state.places:  # not those of a lost broker
                by_target.setdefault(target, []).append(span)
        least = {
            queue: self._state.places[queue].end + (sum(map(len, found)) if whole else 0)
            for queue, found in by_target.items()
        }
        places = self._state.places
        try:
            ends = loop_thread().run(self._target.ends_past(least))
            alone = _alone(places, ends, by_target) if whole else {}
            lasts = loop_thread().run(self._target.last_origins({queue: ends[queue] for queue in alone}))
        except (SparrowError, TimeoutError) as error:  # the next batch will find out
            self._complaints.warn("the ends of queues at %s could not be read: %r", self._target.name, error)
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

    async def _lags(self, ends: Mapping[MessageQueue, int]) -> list[TopicLag]:
        state = self._state
        waiting: dict[MessageQueue, int] = {}
        for queue in state.queues.keys() & ends.keys():  # a topic may be deleted
            end = ends[queue]
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
    places: Mapping[MessageQueue, QueuePlaces],
    ends: Mapping[MessageQueue, int],
    sent: Mapping[MessageQueue, Sequence[Span]],
) -> dict[MessageQueue, Span]:
    """The target queues that grew by exactly the messages of one source queue, and those messages."""
    return {
        queue: spans[0]
        for queue, spans in sent.items()
        if len(spans) == 1 and ends[queue] - places[queue].end == len(spans[0])
    }


def _is_last(origin: Origin | None, source: Side, span: Span) -> bool:
    """Whether a message is the last of a span: then all others are before it, and nothing else."""
    queue = span.queue
    return origin == Origin(source.name, queue.broker_name, queue.queue_id, span.end - 1)


def _grown(places: QueuePlaces, end: int, span: Span | None) -> QueuePlaces:
    """The positions after a batch; `span` is the known growth.

    If a queue ends earlier than before, it was created again or its broker lost messages: its positions
    become unknown.
    """
    if end < places.end:
        return QueuePlaces(end)
    return places.grown(end) if span is None else places.grown(end, span.queue, span.start)


def _leave_name(side: Side) -> None:
    try:
        loop_thread().run(side.leave_name())
    except SparrowError as error:
        log.warning("the name servers of %s did not save its name for other mirrors: %s", side.name, error)


def shaped(
    frame: DataFrame, settings: MirrorSettings, mapping: Mapping[MessageQueue, MessageQueue]
) -> DataFrame:
    """The rows to send; without a shuffle, so that their order is the same in every attempt."""
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
