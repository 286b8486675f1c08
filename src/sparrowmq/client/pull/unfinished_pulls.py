"""Unfinished pulls of queues that the application of a managed pull consumer reads by offset (client:E.1).

A pull that returned messages counts as unfinished until the application calls `finish`, pulls from the queue
again, or asks for its queues again. Until then the queue is not given to another member.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sparrowmq.client.cluster.broker_api import PullAnswer
from sparrowmq.client.consumer.process_queue import Limits, MakeQueue, ProcessQueue
from sparrowmq.core.errors import ClientError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.results import PullStatus


class UnfinishedPulls:
    """`make` creates the process queues, which hold no messages here; `monotonic` returns seconds."""

    def __init__(self, make: MakeQueue, monotonic: Callable[[], float]) -> None:
        self._make = make
        self._monotonic = monotonic
        self._table: dict[MessageQueue, ProcessQueue] = {}
        self._given: set[ProcessQueue] = set()

    def __repr__(self) -> str:
        return f"<UnfinishedPulls queues={len(self._table)} given={len(self._given)}>"

    def add(self, queue: MessageQueue) -> None:
        """Allow pulls of a queue."""
        self._table[queue] = self._make(queue, 0, Limits(), now=self._monotonic())

    def remove(self, queue: MessageQueue) -> None:
        """Drop a queue."""
        process_queue = self._table.pop(queue, None)
        if process_queue is not None:
            process_queue.drop()

    def process_queues(self) -> list[ProcessQueue]:
        """Does nothing: the application has the unfinished messages."""
        return []

    def find(self, queue: MessageQueue) -> ProcessQueue | None:
        """The state of a queue."""
        return self._table.get(queue)

    def rest(self, queue: MessageQueue) -> None:
        """Allow no more pulls of a queue."""
        self._table[queue].leave()

    def go_on(self) -> None:
        """Does nothing: each pull checks the queue."""

    def settle(self, queue: MessageQueue) -> None:
        """Does nothing: the application stores offsets itself."""

    async def pull(self, queue: MessageQueue, pull: Callable[[], Awaitable[PullAnswer]]) -> PullAnswer:
        """Run `pull()` for a granted queue, and check the grant before and after; earlier messages count as
        processed.

        Raises `ClientError` for a queue that is not granted.
        """
        process_queue = self.need(queue)
        process_queue.began(self._monotonic())
        self._finish(process_queue)
        found = False
        try:
            answer = await pull()
            self.need(queue)
            found = answer.status is PullStatus.FOUND
        finally:
            if found and process_queue not in self._given:
                self._given.add(process_queue)
            else:
                process_queue.ended()
        return answer

    def need(self, queue: MessageQueue) -> ProcessQueue:
        """The state of a granted queue. Raises `ClientError` for other queues."""
        found = self._table.get(queue)
        if found is None or not found.may_start():
            granted = sorted(one for one, held in self._table.items() if held.may_start())
            raise ClientError(
                f"{queue} is not granted to this member of a managed group (granted: "
                f"{', '.join(map(str, granted)) or 'none'}); call register_topic(topic), and pull only the "
                f"queues of fetch_message_queues_in_balance(topic)",
                what="queue",
                value=queue,
            )
        return found

    def finish(self, queue: MessageQueue | None = None, topic: str | None = None) -> None:
        """Mark pulled messages as processed: those of a queue, of a topic, or all."""
        for process_queue in list(self._given):
            one = process_queue.queue
            if queue in (None, one) and topic in (None, one.topic):
                self._finish(process_queue)

    def _finish(self, process_queue: ProcessQueue) -> None:
        if process_queue in self._given:
            self._given.discard(process_queue)
            process_queue.ended()
