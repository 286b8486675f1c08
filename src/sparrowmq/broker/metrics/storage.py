"""Figures of the store: sizes, bytes that are not yet flushed or indexed, timers, holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from sparrowmq.core.figures.exposition import Exposition, labels
from sparrowmq.core.names import TIMER_TOPIC

if TYPE_CHECKING:
    from sparrowmq.broker.base.flushing import Flusher
    from sparrowmq.broker.delay.delayed_messages import DelayedMessages
    from sparrowmq.broker.housekeeping.retention_holds import Holds
    from sparrowmq.core.clock import Clock
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.queues.consume_queue import ConsumeQueue

SNAPSHOT_SECONDS: Final = (5, 60, 300, 900, 3600, 14_400, 28_800, 86_400)
"""Upper bounds, in seconds, of the time until timed messages are due, as in RocketMQ."""
SLOTS_STEP: Final = 500
SECOND_MS: Final = 1000


class StorageFigures:
    """Figures of a store and of the messages that wait in it."""

    def __init__(
        self, store: MessageStore, flusher: Flusher, delayed: DelayedMessages, holds: Holds, clock: Clock
    ) -> None:
        self._store = store
        self._flusher = flusher
        self._delayed = delayed
        self._holds = holds
        self._clock = clock

    def collect(self, into: Exposition, node: str) -> Iterator[None]:
        """Add the figures; `node` has the labels of the broker."""
        label = labels(node, storage_type="local", storage_medium="disk")
        self._add_log(into, node, label)
        yield
        self._add_flushes(into, node)
        self._add_recovery(into, node)
        yield
        yield from self._timers(into, node, label)
        self._add_levels(into, node)
        yield
        yield from self._add_holds(into, node)

    def _add_log(self, into: Exposition, node: str, label: str) -> None:
        store = self._store
        disk = store.disks.get(store.settings.commit_log)
        if disk is not None:
            about = "Used bytes of the disk with the store, as RocketMQ counts it."
            into.gauge("rocketmq_storage_size_bytes", about).add(label, disk.total - disk.free)
            into.gauge("sparrow_disk_bytes", "Size of the disk with the commit log.").add(node, disk.total)
            into.gauge("sparrow_disk_free_bytes", "Free bytes of that disk.").add(node, disk.free)
        size = store.position - store.min_position
        into.gauge("sparrow_commit_log_bytes", "Bytes of the commit log.").add(node, size)
        behind = into.gauge("rocketmq_storage_flush_behind_bytes", "Bytes of the log that are not flushed.")
        behind.add(label, store.position - store.flushed_position)
        behind = into.gauge(
            "rocketmq_storage_dispatch_behind_bytes", "Bytes of the log whose keys are not in the index."
        )
        behind.add(label, store.index.behind)
        oldest = store.earliest_time()
        if oldest > 0:
            kept = into.gauge(
                "rocketmq_storage_message_reserve_time_milliseconds", "Age of the oldest stored message."
            )
            kept.add(label, max(0, self._clock.now_ms() - oldest))
        into.gauge(
            "sparrow_store_accepts_messages", "1 if sends are stored; 0 with a full or failed disk."
        ).add(node, int(store.full is None and store.failed is None and self._flusher.failed is None))

    def _add_flushes(self, into: Exposition, node: str) -> None:
        times = self._flusher.times
        flushes = into.histogram("sparrow_flush_seconds", "Duration of flushes of the commit log (fsync).")
        flushes.add_histogram(node, times.by_bound(), times.total)
        waiting = into.gauge("sparrow_flush_waiting_chunks", "Chunks that wait for a group commit.")
        waiting.add(node, self._flusher.waiting)
        stats = self._store.stats
        puts = into.counter("sparrow_store_chunks_total", "Chunks of messages that were stored.")
        puts.add(node, sum(stats.put_slots))
        failed = into.counter("sparrow_store_failures_total", "Chunks that could not be stored.")
        failed.add(node, stats.put_failures)
        about = "Accepted messages that were lost: their topic was deleted, or no record holds a copy."
        into.counter("sparrow_store_lost_messages_total", about).add(node, stats.lost)
        slow = into.gauge("sparrow_store_chunk_seconds_max", "Longest time in which a chunk was stored.")
        slow.add(node, stats.put_seconds_max)

    def _add_recovery(self, into: Exposition, node: str) -> None:
        recovery = self._store.recovery
        into.gauge("sparrow_recovery_clean", "1 if the last stop was clean.").add(node, int(recovery.clean))
        about = "Queue entries that the last start rebuilt from the log."
        into.gauge("sparrow_recovery_entries_added", about).add(node, recovery.added)
        about = "Queue entries that the last start removed."
        into.gauge("sparrow_recovery_entries_dropped", about).add(node, recovery.dropped)
        about = "Duration of the last recovery of log and queues."
        into.gauge("sparrow_recovery_seconds", about).add(node, round(recovery.seconds, 3))
        about = "Messages that the last start read."
        into.gauge("sparrow_recovery_records", about).add(node, recovery.records)
        about = "Damaged places that the last start found inside the log."
        into.gauge("sparrow_recovery_damaged_places", about).add(node, len(recovery.damaged))

    def _timers(self, into: Exposition, node: str, label: str) -> Iterator[None]:
        timer, timers = self._delayed.timer, self._delayed.timers
        if timer is None or timers is None:
            return
        queue = self._store.find_queue(TIMER_TOPIC, 0)
        stored = 0 if queue is None else queue.max_offset
        about = "Timed messages that are not yet in the timer wheel."
        into.gauge("rocketmq_timer_enqueue_lag", about).add(label, max(0, stored - timers.queue_offset))
        self._add_enqueue_latency(into, label, queue, timers.queue_offset)
        late = into.gauge("rocketmq_timer_dequeue_latency_milliseconds", "How late timed messages are.")
        late.add(label, timer.behind_ms)
        due = into.gauge("sparrow_timer_messages", "Timed messages that are not due yet.")
        due.add(node, timer.waiting)
        yield
        counts = [0] * len(SNAPSHOT_SECONDS)
        now, seen, overdue = self._clock.now_ms(), 0, 0
        for time_ms, slot in timers.wheel.slots():
            seen += 1
            if seen % SLOTS_STEP == 0:
                yield
            if timers.read_time <= time_ms < now - SECOND_MS:
                overdue += slot.messages
            ahead = (time_ms - now) / SECOND_MS
            if not 0 <= ahead < SNAPSHOT_SECONDS[-1]:
                continue
            counts[next(at for at, bound in enumerate(SNAPSHOT_SECONDS) if ahead < bound)] += slot.messages
        into.gauge("rocketmq_timer_dequeue_lag", "Timed messages that are overdue.").add(label, overdue)
        about = (
            "Timed messages by the seconds until they are due: up to this bound, and above the previous one."
        )
        snapshot = into.gauge("rocketmq_timer_message_snapshot", about)
        for bound, count in zip(SNAPSHOT_SECONDS, counts, strict=True):
            snapshot.add(labels(label, timer_bound_s=bound), count)

    def _add_enqueue_latency(
        self, into: Exposition, label: str, queue: ConsumeQueue | None, planned: int
    ) -> None:
        waits = 0
        if queue is not None and planned < queue.max_offset:
            stored_at = self._store.store_time(queue, planned)
            if stored_at is None:
                return
            waits = max(0, self._clock.now_ms() - stored_at)
        about = "For how long the oldest timed message that is not in the timer wheel has been stored."
        into.gauge("rocketmq_timer_enqueue_latency_milliseconds", about).add(label, waits)

    def _add_levels(self, into: Exposition, node: str) -> None:
        waiting = into.gauge("sparrow_delayed_messages", "Messages that wait in a delay level.")
        for level, (delivered, end) in sorted(self._delayed.schedule.progress().items()):
            if end > delivered:
                waiting.add(labels(node, level=level), end - delivered)

    def _add_holds(self, into: Exposition, node: str) -> Iterator[None]:
        held = into.gauge("sparrow_hold_messages", "Messages that a hold keeps for a group.")
        overrun = into.gauge(
            "sparrow_hold_overrun", "1 if a hold no longer keeps messages because it reached a limit."
        )
        for state in self._holds.standing():
            label = labels(node, topic=state.hold.topic, consumer_group=state.hold.group)
            held.add(label, state.messages)
            overrun.add(label, int(bool(state.overrun)))
            yield
