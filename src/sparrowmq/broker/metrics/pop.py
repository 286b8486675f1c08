"""POP: messages that wait to become visible again. What is invisible is in `lag`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from sparrowmq.core.figures.exposition import Exposition, labels

if TYPE_CHECKING:
    from sparrowmq.broker.pop.pop_service import PopService
    from sparrowmq.core.clock import Clock

STEP_ITEMS: Final = 100


class PopFigures:
    """The revive queues of a broker; nothing where POP is off."""

    def __init__(self, pop: PopService, clock: Clock) -> None:
        self._pop = pop
        self._clock = clock

    def collect(self, into: Exposition, node: str) -> Iterator[None]:
        """Add the figures; `node` has the labels of the broker."""
        reviver = self._pop.reviver
        if reviver is None:
            return
        behind = into.gauge(
            "rocketmq_pop_revive_lag_milliseconds",
            "Messages of a revive queue that are not read; a number in spite of RocketMQ's name.",
        )
        late = into.gauge(
            "rocketmq_pop_revive_latency_milliseconds", "For how long the oldest check point is overdue."
        )
        for queue_id, unread, late_ms in reviver.behind(self._clock.now_ms()):
            label = labels(node, queue_id=queue_id)
            behind.add(label, unread)
            late.add(label, late_ms)
        points = into.gauge("sparrow_pop_check_points", "Check points that are read and not settled.")
        points.add(node, reviver.waiting)
        again = into.counter("sparrow_pop_revived_total", "Messages that became visible again.")
        again.add(node, reviver.revived.total())
        yield
        about = "Messages that became visible again, by the topic that they were taken from."
        retried = into.counter("rocketmq_pop_revive_retry_messages_total", about)
        for at, ((topic, group), count) in enumerate(list(reviver.revived.items()), 1):
            retried.add(labels(node, topic=topic, consumer_group=group, put_status="PUT_OK"), count)
            if at % STEP_ITEMS == 0:
                yield
