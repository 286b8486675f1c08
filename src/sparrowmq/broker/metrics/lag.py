"""Lag of groups, messages in flight, how long the oldest message has waited, and what was never read."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.metrics.queue_lag import QueueLagFigures
from sparrowmq.core.figures.exposition import Exposition, labels
from sparrowmq.core.figures.lag import LagSum, QueueLag, age_ms, queue_lag
from sparrowmq.core.names import DLQ_PREFIX, RETRY_PREFIX, is_system_group, is_system_topic

if TYPE_CHECKING:
    from sparrowmq.broker.admin.stats import BrokerStats
    from sparrowmq.broker.housekeeping.unread import UnreadDeletions
    from sparrowmq.broker.pop.pop_service import PopService
    from sparrowmq.core.clock import Clock
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.queues.consume_queue import ConsumeQueue
    from sparrowmq.store.tables.consumer_offsets import ConsumerOffsets

STEP_QUEUES: Final = 16
"""Number of queues in one step."""


class LagFigures:
    """The lag of every group in every topic for which it has offsets.

    POP raises a group's offset when it hands out messages, so those that are invisible count in addition. An
    ordered POP raises it when they are acknowledged. Dead letters do not count, because they wait for an
    operator. An unknown lag has no series; `sparrow_consumer_lag_unknown_queues` counts these queues.
    With `by_queue`, each queue has series of its own as well.
    """

    def __init__(
        self,
        store: MessageStore,
        offsets: ConsumerOffsets,
        stats: BrokerStats,
        pop: PopService,
        clock: Clock,
        unread: UnreadDeletions,
        *,
        by_queue: bool,
    ) -> None:
        self._by_queue = by_queue
        self._unread = unread
        self._store = store
        self._offsets = offsets
        self._stats = stats
        self._pop = pop
        self._clock = clock

    def collect(self, into: Exposition, node: str) -> Iterator[None]:
        """Add the figures; `node` has the labels of the broker. One queue a step."""
        lag = into.gauge("rocketmq_consumer_lag_messages", "Messages that a group has not consumed.")
        late = into.gauge(
            "rocketmq_consumer_lag_latency_milliseconds", "How long the oldest of them has waited."
        )
        flying = into.gauge(
            "rocketmq_consumer_inflight_messages", "Messages that members have received and not committed."
        )
        ready = into.gauge("rocketmq_consumer_ready_messages", "Messages that no member has received.")
        queueing = into.gauge(
            "rocketmq_consumer_queueing_latency_milliseconds", "How long the oldest of these has waited."
        )
        each = QueueLagFigures(into) if self._by_queue else None
        unknown = 0
        queues_of: tuple[str, list[ConsumeQueue]] = ("", [])
        for topic, group in self._offsets.pairs():
            yield
            if topic.startswith(DLQ_PREFIX):
                continue
            if queues_of[0] != topic:
                queues_of = topic, self._store.queues(topic)
            label = _of_pair(node, topic, group)
            if each is not None:
                each.begin(label, self._popped(topic, group))
            whole, unsent, in_flight = yield from self._sums(queues_of[1], topic, group, each)
            unknown += whole.unknown
            if not whole.is_known:
                continue
            popped, ordered = self._invisible(topic, group)
            lag.add(label, whole.messages + (popped or 0))
            if whole.age_ms is not None:
                late.add(label, whole.age_ms)
            if popped is not None:
                unsent, in_flight = whole, popped + ordered
            if not unsent.unknown or popped is not None:
                ready.add(label, max(0, unsent.messages - ordered))
                flying.add(label, in_flight)
                if unsent.age_ms is not None and not ordered:
                    queueing.add(label, unsent.age_ms)
        into.gauge(
            "sparrow_consumer_lag_unknown_queues",
            "Queues of groups whose lag is unknown, because nothing was committed.",
        ).add(node, unknown)
        yield from self._deleted(into, node)

    def _deleted(self, into: Exposition, node: str) -> Iterator[None]:
        lost = into.counter(
            "sparrow_consumer_lost_messages_total",
            "Messages that retention deleted before the group had consumed them.",
        )
        first = into.gauge(
            "sparrow_consumer_lost_first_timestamp_seconds", "When the first of them was stored."
        )
        last = into.gauge("sparrow_consumer_lost_last_timestamp_seconds", "When the last of them was stored.")
        for at, ((topic, group), unread) in enumerate(list(self._unread.by_pair.items()), 1):
            if at % STEP_QUEUES == 0:
                yield
            label = _of_pair(node, topic, group)
            lost.add(label, unread.messages)
            for family, time_ms in ((first, unread.first_ms), (last, unread.last_ms)):
                if time_ms is not None:
                    family.add(label, time_ms / 1000)

    def _sums(
        self, queues: list[ConsumeQueue], topic: str, group: str, each: QueueLagFigures | None
    ) -> Generator[None, None, tuple[LagSum, LagSum, int]]:
        """The lag of a group in a topic, the part of it that was not sent to any member, and the messages in
        flight.
        """
        whole, unsent, in_flight = LagSum(queues=len(queues)), LagSum(queues=len(queues)), 0
        committed = self._offsets.of_pair(topic, group)
        for at, queue in enumerate(queues, 1):
            if at % STEP_QUEUES == 0:
                yield
            offset = committed.get(queue.queue_id)
            if offset is None:
                whole.add_unknown()
                if each is not None:
                    each.add_unknown(queue.queue_id)
            elif offset < queue.confirmed_offset:  # in nearly all queues nothing waits
                in_flight += self._add(queue, group, offset, whole, unsent, each)
            elif each is not None:
                each.add(queue.queue_id, 0, 0)
        return whole, unsent, in_flight

    def _add(
        self,
        queue: ConsumeQueue,
        group: str,
        offset: int,
        whole: LagSum,
        unsent: LagSum,
        each: QueueLagFigures | None,
    ) -> int:
        """Add a queue in which messages may wait to both sums; returns its messages in flight.

        The next offset to send is unknown if the group has not pulled since the broker started.
        """
        first, end = queue.min_offset, queue.confirmed_offset
        waiting = queue_lag(offset, first, end)
        age = self._age(queue, waiting)
        whole.add(waiting, age)
        if each is not None and waiting is not None:
            each.add(queue.queue_id, waiting.messages, age if waiting.messages else 0)
        if waiting is None or not waiting.messages:
            return 0
        pulled = self._stats.pulled(queue, group)
        left = queue_lag(None if pulled is None else max(pulled, waiting.oldest), first, end)
        unsent.add(left, self._age(queue, left))
        return 0 if left is None else waiting.messages - left.messages

    def _invisible(self, topic: str, group: str) -> tuple[int | None, int]:
        """Messages that POP has handed out, without order and in order; None if the group does not use POP,
        or if it is unknown.
        """
        now = self._clock.now_ms()
        ordered = self._pop.order.invisible(topic, group, now)
        popped = self._pop.in_flight.invisible(topic, group, now)
        return (0 if popped is None and ordered else popped), ordered

    def _popped(self, topic: str, group: str) -> dict[int, int]:
        """Messages that POP has handed out without order, by queue."""
        return self._pop.in_flight.of_queues(topic, group, self._clock.now_ms()) or {}

    def _age(self, queue: ConsumeQueue, lag: QueueLag | None) -> int | None:
        if lag is None or not lag.messages:
            return None
        return age_ms(self._store.store_time(queue, lag.oldest), self._clock.now_ms())


def _of_pair(node: str, topic: str, group: str) -> str:
    return labels(
        node,
        topic=topic,
        consumer_group=group,
        is_retry=_word(topic.startswith(RETRY_PREFIX)),
        is_system=_word(is_system_topic(topic) or is_system_group(group)),
    )


def _word(value: bool) -> str:
    return "true" if value else "false"
