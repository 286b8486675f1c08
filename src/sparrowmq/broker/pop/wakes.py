"""Wakes waiting requests when a message arrives, a queue becomes free, or a deadline passes."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.pop.waiting import ALL_QUEUES, WaitingRequest, WaitingTable, WaitKey
from sparrowmq.core.names import RETRY_PREFIX
from sparrowmq.transport.slices import shared

if TYPE_CHECKING:
    from sparrowmq.core.clock import Clock
    from sparrowmq.store.queues.consume_queue import ConsumeQueue
    from sparrowmq.transport.connection import Connection

OUTDATED_MAX: Final = 1_000
"""Moments that no longer count, beside those that do: a client may change when a queue becomes free as often
as it likes."""


class WaitingRequests:
    """The POP and NOTIFICATION requests that wait, and who is woken next.

    A woken request is handled in a later turn of the loop: the request that stored the message finishes
    first. Many are handled over several turns: clients choose the deadlines, so thousands may pass at once,
    and each request reads its filter and its queues again.
    """

    def __init__(self, clock: Clock) -> None:
        self.pops = WaitingTable()
        self.notices = WaitingTable(newest_first=True)
        self._clock = clock
        self._woken: dict[WaitKey, None] = {}
        self._is_planned = False
        self._free: list[tuple[int, WaitKey]] = []
        self._free_at: dict[WaitKey, int] = {}

    @property
    def moments(self) -> int:
        """Moments that are kept at which queues become free."""
        return len(self._free)

    def arrived(self, queues: Iterable[ConsumeQueue]) -> None:
        """Messages arrived in `queues`: wake a request for each key that waits for one of them."""
        if not self.pops.count and not self.notices.count:
            return
        for queue in queues:
            is_retry = queue.topic.startswith(RETRY_PREFIX)
            for table in (self.pops, self.notices):
                for key in table.keys_of(queue.topic, queue.queue_id, is_retry=is_retry):
                    self.wake(key)

    def wake(self, key: WaitKey) -> None:
        """Let the next request that waits for `key` try again."""
        if not self.pops.number(key) and not self.notices.number(key):
            return
        self._woken[key] = None
        if self._is_planned:
            return
        try:
            asyncio.get_running_loop().call_soon(self._serve)
        except RuntimeError:
            self._serve()
        else:
            self._is_planned = True

    def wake_queue(self, place: WaitKey) -> None:
        """A queue became free for a group: also for requests for all queues."""
        self.wake(place)
        self.wake(place._replace(queue_id=ALL_QUEUES))

    def free_at(self, place: WaitKey, moment: int) -> None:
        """A blocked queue becomes free at `moment`, epoch ms, unless it changes again."""
        if moment > self._clock.now_ms() and self._free_at.get(place) != moment:
            self._free_at[place] = moment
            heapq.heappush(self._free, (moment, place))
            if len(self._free) > 2 * len(self._free_at) + OUTDATED_MAX:
                self._free = [(at, one) for one, at in self._free_at.items()]
                heapq.heapify(self._free)

    def _serve(self) -> None:
        self._is_planned = False
        woken, self._woken = self._woken, {}
        shared().run(self._serving(woken))

    def _serving(self, woken: Iterable[WaitKey]) -> Iterator[None]:
        for key in woken:
            for table in (self.pops, self.notices):
                one = table.take(key)
                while one is not None and one.connection.closed:
                    one = table.take(key)
                if one is not None:
                    one.resume(one, False)
                    yield

    def look(self) -> None:
        """Answer the requests whose deadline has passed, and wake those whose queue became free."""
        now = self._clock.now_ms()
        for table in (self.pops, self.notices):
            expired = table.take_expired(now)
            if expired:
                shared().run(_answering(expired))
        while self._free and self._free[0][0] <= now:
            moment, place = heapq.heappop(self._free)
            if self._free_at.get(place) == moment:
                del self._free_at[place]
                self.wake_queue(place)

    def release(self, topic: str | None = None) -> None:
        """Answer the requests for a topic that is deleted, or all because the broker stops."""
        for table in (self.pops, self.notices):
            for one in table.take_topic(topic) if topic is not None else table.take_all():
                one.resume(one, True)

    def drop_connection(self, connection: Connection) -> None:
        """A client disconnected."""
        self.pops.drop_connection(connection)
        self.notices.drop_connection(connection)


def _answering(expired: list[WaitingRequest]) -> Iterator[None]:
    for one in expired:
        one.resume(one, True)
        yield
