"""The lag of groups in single queues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from sparrowmq.core.figures.exposition import Exposition, labels

STEP_QUEUES: Final = 16


class QueueLagFigures:
    """Adds the lag of pairs of a topic and a group, by queue.

    A queue in which the group has committed nothing has no lag; `sparrow_queue_lag_unknown` is 1 for it.
    """

    def __init__(self, into: Exposition) -> None:
        self._lag = into.gauge(
            "sparrow_queue_lag_messages", "Messages of a queue that a group has not consumed."
        )
        self._late = into.gauge("sparrow_queue_lag_seconds", "How long the oldest of them has waited.")
        about = "1 for a queue in which a group has committed nothing."
        self._unknown = into.gauge("sparrow_queue_lag_unknown", about)

    def add(
        self,
        pair: str,
        queues: Mapping[int, tuple[int, int | None] | None],
        popped: Mapping[int, int],
    ) -> Iterator[None]:
        """Add a pair with these labels, in steps: messages that were not sent or not committed, and the age
        of the oldest in ms, by queue. `popped` has the messages that POP has handed out of them.
        """
        for at, (queue_id, found) in enumerate(queues.items(), 1):
            if at % STEP_QUEUES == 0:
                yield
            label = labels(pair, queue_id=queue_id)
            if found is None:
                self._unknown.add(label, 1)
                continue
            messages, age_ms = found
            self._lag.add(label, messages + popped.get(queue_id, 0))
            if age_ms is not None:
                self._late.add(label, age_ms / 1000)
