"""Queues of a managed pull consumer that the application reads by offset: what it has of them (client:E.1).

A pull that gave messages counts as work on its queue until the application says that it is done: with
`finish`, with the next pull of the queue, or by asking for its queues again. Until then the queue does not
move.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sparrowmq.client.process_queue import Limits, ProcessQueue
from sparrowmq.client.requests import PullAnswer
from sparrowmq.core.errors import ClientError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.results import PullStatus


class HandedQueues:
    """`make` makes the process queues, which hold no messages here, `monotonic` gives seconds."""

    def __init__(self, make: Callable[..., ProcessQueue], monotonic: Callable[[], float]) -> None:
        self._make = make
        self._monotonic = monotonic
        self._table: dict[MessageQueue, ProcessQueue] = {}
        self._given: set[ProcessQueue] = set()

    def __repr__(self) -> str:
        return f"<HandedQueues queues={len(self._table)} given={len(self._given)}>"

    def add(self, queue: MessageQueue) -> None:
        """Let a queue be pulled."""
        self._table[queue] = self._make(queue, 0, Limits(), now=self._monotonic())

    def remove(self, queue: MessageQueue) -> None:
        """Have no more to do with a queue."""
        process_queue = self._table.pop(queue, None)
        if process_queue is not None:
            process_queue.drop()

    def process_queues(self) -> list[ProcessQueue]:
        """Nothing: what is in hand is with the application."""
        return []

    def find(self, queue: MessageQueue) -> ProcessQueue | None:
        """The state of a queue."""
        return self._table.get(queue)

    def rest(self, queue: MessageQueue) -> None:
        """Let a queue be pulled no more."""
        self._table[queue].leave()

    def settle(self, queue: MessageQueue) -> None:
        """Nothing: the application notes offsets by itself."""

    async def pull(self, queue: MessageQueue, pull: Callable[[], Awaitable[PullAnswer]]) -> PullAnswer:
        """What `pull()` gives of a queue that is granted, before and after; what was pulled before is done.

        Raises `ClientError` for a queue that is not.
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
        """The state of a queue that is granted. Raises `ClientError` for another one."""
        found = self._table.get(queue)
        if found is None or found.leaving:
            granted = sorted(one for one, held in self._table.items() if not held.leaving)
            raise ClientError(
                f"{queue} is not granted to this member of a managed group (granted: "
                f"{', '.join(map(str, granted)) or 'none'}); register_topic(topic), and ask "
                "fetch_message_queues_in_balance(topic) what may be pulled"
            )
        return found

    def finish(self, queue: MessageQueue | None = None, topic: str | None = None) -> None:
        """What was pulled is done: of a queue, of a topic, or all."""
        for process_queue in list(self._given):
            one = process_queue.queue
            if queue in (None, one) and topic in (None, one.topic):
                self._finish(process_queue)

    def _finish(self, process_queue: ProcessQueue) -> None:
        if process_queue in self._given:
            self._given.discard(process_queue)
            process_queue.ended()
