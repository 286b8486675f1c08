"""Queues with new messages, until consumers may read these. Then the requests that wait there are answered.

In a replica group with a coordinator, consumers read what all copies have that may become master (see
`CommitLog.confirmed`); elsewhere everything at once. Queues wait by chunk, not by message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from sparrowmq.store.log.commit_log import NOT_TOLD

if TYPE_CHECKING:
    from sparrowmq.store.log.raw_log import RawLog
    from sparrowmq.store.queues.consume_queue import ConsumeQueue

WAITING_MAX: Final = 1_000
"""Chunks that wait one by one; the queues of further ones wait together."""


class ConfirmedArrivals:
    """The queues of one broker that wait. `wake` is called with those that consumers may read further.

    `answer_all` answers all requests that wait: messages that are older than this object may be what they
    wait for.
    """

    def __init__(
        self, raw_log: RawLog, *, wake: Callable[[set[ConsumeQueue]], None], answer_all: Callable[[], None]
    ) -> None:
        self._log = raw_log
        self._wake = wake
        self._answer_all = answer_all
        self._waiting: deque[tuple[int, set[ConsumeQueue]]] = deque()
        self._limit = raw_log.confirmed
        """Consumers read up to this position, see `RawLog.confirmed`."""
        self._old_end = raw_log.end
        """The end of the log when this object was made; 0 once that is confirmed."""
        raw_log.when_confirmed(self._confirmed)

    def stored(self, queues: set[ConsumeQueue]) -> None:
        """Messages were stored in `queues`, which this object keeps."""
        limit = self._limit
        if limit is None or limit >= (end := self._log.end):
            self._wake(queues)
            return
        waiting = self._waiting
        if len(waiting) >= WAITING_MAX:
            _, others = waiting.pop()
            others |= queues
            queues = others
        waiting.append((end, queues))

    def _confirmed(self) -> None:
        """Consumers may read further."""
        confirmed = self._limit = self._log.confirmed
        waiting = self._waiting
        if confirmed == NOT_TOLD:
            return
        if self._old_end:
            if confirmed is None or confirmed >= self._old_end:
                self._old_end = 0
            self._answer_all()
        ready: set[ConsumeQueue] = set()
        while waiting and (confirmed is None or waiting[0][0] <= confirmed):
            ready |= waiting.popleft()[1]
        if ready:
            self._wake(ready)
