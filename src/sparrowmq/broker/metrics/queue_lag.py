"""The lag of groups in single queues."""

from __future__ import annotations

from collections.abc import Mapping

from sparrowmq.core.figures.exposition import Exposition, labels


class QueueLagFigures:
    """Adds the lag of one pair of a topic and a group after the other, by queue.

    A queue in which the group has committed nothing has no lag; `sparrow_queue_lag_unknown` is 1 for it.
    """

    def __init__(self, into: Exposition) -> None:
        self._lag = into.gauge(
            "sparrow_queue_lag_messages", "Messages of a queue that a group has not consumed."
        )
        self._late = into.gauge("sparrow_queue_lag_seconds", "How long the oldest of them has waited.")
        about = "1 for a queue in which a group has committed nothing."
        self._unknown = into.gauge("sparrow_queue_lag_unknown", about)
        self._pair = ""
        self._popped: Mapping[int, int] = {}

    def begin(self, pair: str, popped: Mapping[int, int]) -> None:
        """The next queues are those of this pair, which has these labels; `popped` has the messages that POP
        has handed out of them.
        """
        self._pair = pair
        self._popped = popped

    def add(self, queue_id: int, messages: int, age_ms: int | None) -> None:
        """Add a queue with so many messages that were not sent or not committed."""
        label = labels(self._pair, queue_id=queue_id)
        self._lag.add(label, messages + self._popped.get(queue_id, 0))
        if age_ms is not None:
            self._late.add(label, age_ms / 1000)

    def add_unknown(self, queue_id: int) -> None:
        """Add a queue in which the group has committed nothing."""
        self._unknown.add(labels(self._pair, queue_id=queue_id), 1)
