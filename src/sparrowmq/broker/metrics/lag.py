"""Lag of groups, messages in flight, how long the oldest message has waited, and what was never read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.housekeeping.unread import UnreadSpan
from sparrowmq.broker.metrics.queue_lag import QueueLagFigures
from sparrowmq.core.figures.exposition import Aside, Exposition, labels
from sparrowmq.core.figures.lag import LagSum, QueueLag, age_ms, queue_lag
from sparrowmq.core.names import DLQ_PREFIX, RETRY_PREFIX, is_system_group, is_system_topic

if TYPE_CHECKING:
    from sparrowmq.broker.admin.stats import BrokerStats
    from sparrowmq.broker.housekeeping.unread import UnreadDeletions
    from sparrowmq.broker.pop.pop_service import PopService
    from sparrowmq.core.clock import Clock
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.queues.consume_queue import ConsumeQueue
    from sparrowmq.store.queues.store_times import StoreTimes
    from sparrowmq.store.tables.consumer_offsets import ConsumerOffsets

STEP_QUEUES: Final = 16
"""Number of queues in one step."""
_NOTHING: Final = UnreadSpan(0)


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

    def collect(self, into: Exposition, node: str) -> Iterator[Aside | None]:
        """Add the figures; `node` has the labels of the broker.

        The loop only tells the ends of queues that no other thread can tell.
        """
        pairs: dict[tuple[str, str], _Pair] = {}
        unsettled: list[tuple[_Pair, ConsumeQueue, int]] = []
        yield Aside(self._looking(pairs, unsettled))
        for at, (pair, queue, offset) in enumerate(unsettled, 1):
            pair.waiting.append((queue, offset, queue.confirmed_offset))
            if at % STEP_QUEUES == 0:
                yield None
        yield Aside(self._reading(into, node, pairs))

    def _looking(
        self, pairs: dict[tuple[str, str], _Pair], unsettled: list[tuple[_Pair, ConsumeQueue, int]]
    ) -> Iterator[None]:
        """Find the queues in which messages wait; `unsettled` are those whose end only the loop can tell.

        What POP has handed out is read with the offsets that it raises, so that it counts once.
        """
        in_flight, order, now = self._pop.in_flight, self._pop.order, self._clock.now_ms()
        for key, committed in self._offsets.by_pair().items():
            topic, group = key
            if topic.startswith(DLQ_PREFIX):
                continue
            found = self._store.queues(topic)
            whole, unsent = LagSum(queues=len(found)), LagSum(queues=len(found))
            pair = pairs[key] = _Pair(topic, group, whole, unsent, [], {})
            pair.popped, pair.ordered = in_flight.of_queues(*key, now), order.invisible(*key, now)
            for at, queue in enumerate(found, 1):
                if at % STEP_QUEUES == 0:
                    yield
                offset, end = committed.get(queue.queue_id), queue.settled_offset
                if offset is None:
                    whole.add_unknown()
                    pair.by_queue[queue.queue_id] = None
                    continue
                pair.by_queue[queue.queue_id] = 0, 0
                if end is None:
                    unsettled.append((pair, queue, offset))
                elif offset < end:
                    pair.waiting.append((queue, offset, end))
            yield

    def _reading(self, into: Exposition, node: str, pairs: dict[tuple[str, str], _Pair]) -> Iterator[None]:
        """Read what waits, and add the figures."""
        times = self._store.store_times()
        try:
            for pair in pairs.values():
                for queue, offset, end in pair.waiting:
                    self._add(pair, queue, offset, end, times)
                    yield
        finally:
            times.close()
        yield from _adding(into, node, pairs.values(), by_queue=self._by_queue)
        yield from self._deleted(into, node, pairs)
        pairs.clear()  # in this thread: it takes a while

    def _deleted(self, into: Exposition, node: str, pairs: Iterable[tuple[str, str]]) -> Iterator[None]:
        """Pairs that lost nothing have a 0: Prometheus sees no increase in a series that begins."""
        lost = into.counter(
            "sparrow_consumer_lost_messages_total",
            "Messages that retention deleted before the group had consumed them.",
        )
        first = into.gauge(
            "sparrow_consumer_lost_first_timestamp_seconds", "When the first of them was stored."
        )
        last = into.gauge("sparrow_consumer_lost_last_timestamp_seconds", "When the last of them was stored.")
        known = self._unread.by_pair.copy()
        for at, (topic, group) in enumerate({**known, **dict.fromkeys(pairs)}, 1):
            if at % STEP_QUEUES == 0:
                yield
            unread = known.get((topic, group), _NOTHING)
            label = _of_pair(node, topic, group)
            lost.add(label, unread.messages)
            for family, time_ms in ((first, unread.first_ms), (last, unread.last_ms)):
                if time_ms is not None:
                    family.add(label, time_ms / 1000)

    def _add(self, pair: _Pair, queue: ConsumeQueue, offset: int, end: int, times: StoreTimes) -> None:
        """Add a queue in which messages may wait.

        The next offset to send is unknown if the group has not pulled since the broker started.
        """
        first = queue.min_offset
        waiting = queue_lag(offset, first, end)
        age = self._age(queue, waiting, times)
        pair.whole.add(waiting, age)
        if waiting is None:
            return
        pair.by_queue[queue.queue_id] = waiting.messages, age if waiting.messages else 0
        if not waiting.messages:
            return
        pulled = self._stats.pulled(queue, pair.group)
        left = queue_lag(None if pulled is None else max(pulled, waiting.oldest), first, end)
        pair.unsent.add(left, age if left == waiting else self._age(queue, left, times))
        pair.in_flight += 0 if left is None else waiting.messages - left.messages

    def _age(self, queue: ConsumeQueue, lag: QueueLag | None, times: StoreTimes) -> int | None:
        if lag is None or not lag.messages:
            return None
        return age_ms(times.of(queue, lag.oldest), self._clock.now_ms())


@dataclass(slots=True, eq=False)
class _Pair:
    """What is found of a group in a topic. `unsent` is the part of the lag that no member was sent."""

    topic: str
    group: str
    whole: LagSum
    unsent: LagSum
    waiting: list[tuple[ConsumeQueue, int, int]]
    """Queues in which messages may wait, the group's offset, and the end for consumers."""
    by_queue: dict[int, tuple[int, int | None] | None]
    """Messages and the age of the oldest, by queue id; None where this is unknown."""
    in_flight: int = 0
    popped: dict[int, int] | None = None
    """Messages that POP has handed out without order, by queue; None if the group does not use POP, or if
    this is unknown."""
    ordered: int = 0


def _adding(into: Exposition, node: str, pairs: Iterable[_Pair], *, by_queue: bool) -> Iterator[None]:
    """Add the figures of all groups."""
    lag = into.gauge("rocketmq_consumer_lag_messages", "Messages that a group has not consumed.")
    late = into.gauge("rocketmq_consumer_lag_latency_milliseconds", "How long the oldest of them has waited.")
    flying = into.gauge(
        "rocketmq_consumer_inflight_messages", "Messages that members have received and not committed."
    )
    ready = into.gauge("rocketmq_consumer_ready_messages", "Messages that no member has received.")
    queueing = into.gauge(
        "rocketmq_consumer_queueing_latency_milliseconds", "How long the oldest of these has waited."
    )
    each = QueueLagFigures(into) if by_queue else None
    unknown = 0
    for pair in pairs:
        yield
        label = _of_pair(node, pair.topic, pair.group)
        if each is not None:
            yield from each.add(label, pair.by_queue, pair.popped or {})
        whole, unsent, in_flight, ordered = pair.whole, pair.unsent, pair.in_flight, pair.ordered
        unknown += whole.unknown
        if not whole.is_known:
            continue
        popped = None if pair.popped is None else sum(pair.popped.values())
        if popped is None and ordered:
            popped = 0
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
