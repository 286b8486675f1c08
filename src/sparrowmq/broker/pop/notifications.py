"""NOTIFICATION (200054) and POLLING_INFO (200055): whether a POP would find messages, and how many requests
wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sparrowmq.broker.base.offsets import answer
from sparrowmq.broker.pop.pop_checks import deadline_of, topics_of
from sparrowmq.broker.pop.waiting import ALL_QUEUES, WaitingRequest, WaitKey
from sparrowmq.protocol.headers import from_ext
from sparrowmq.protocol.pop.headers import (
    NotificationRequest,
    NotificationResponse,
    PollingInfoRequest,
    PollingInfoResponse,
)
from sparrowmq.protocol.refusals import Refused

if TYPE_CHECKING:
    from sparrowmq.broker.pop.pop_checks import PopChecks
    from sparrowmq.broker.pop.pop_state import PopState
    from sparrowmq.broker.tables.shared_tables import SharedTables
    from sparrowmq.broker.tables.topics import Topic
    from sparrowmq.core.clock import Clock
    from sparrowmq.protocol.frame import Command
    from sparrowmq.store.queues.consume_queue import ConsumeQueue
    from sparrowmq.transport.connection import Connection


class Notifications:
    """Handlers of both requests."""

    def __init__(self, tables: SharedTables, checks: PopChecks, state: PopState, clock: Clock) -> None:
        self._topics = tables.topics
        self._checks = checks
        self._offsets = tables.offsets
        self._order = state.order
        self._pops = state.waiting.pops
        self._waiting = state.waiting.notices
        self._clock = clock

    def notify(self, connection: Connection, command: Command) -> Command | None:
        """200054: answered when a POP would find a message, or at its deadline. Raises `Refused`."""
        return self._answer(connection, command, 0, expired=False)

    def resume(self, waiting: WaitingRequest, expired: bool) -> None:
        """Handle a request that waited."""
        if waiting.connection.closed:
            return
        try:
            told = self._answer(waiting.connection, waiting.command, waiting.born_time, expired=expired)
        except Exception as error:
            told = Refused.of(error).answer(waiting.command.opaque)
        if told is not None:
            waiting.connection.send(told)

    def _answer(
        self, connection: Connection, command: Command, born_time: int, *, expired: bool
    ) -> Command | None:
        request = from_ext(NotificationRequest, command.ext)
        now = self._clock.now_ms()
        born_time = born_time or request.born_time or now
        topic = self._checks.topic(request.topic, request.queue_id, request.consumer_group)
        if any(self._has_message(request, queue, now) for queue in self._queues(request, topic)):
            return answer(command, NotificationResponse(has_msg=True))
        deadline = deadline_of(born_time, request.poll_time, now)
        if not expired and request.poll_time > 0 and deadline > now:
            key = WaitKey(request.topic, request.consumer_group, max(ALL_QUEUES, request.queue_id))
            topics = topics_of(request.topic, request.consumer_group)
            one = WaitingRequest(connection, command, key, topics, born_time, deadline, self.resume)
            if self._waiting.park(one):
                return None
            return answer(command, NotificationResponse(has_msg=False, polling_full=True))
        return answer(command, NotificationResponse(has_msg=False))

    def polling_info(self, connection: Connection, command: Command) -> Command:
        """200055: how many POP requests wait for the same messages. Raises `Refused`."""
        request = from_ext(PollingInfoRequest, command.ext)
        self._checks.topic(request.topic, request.queue_id, request.consumer_group)
        key = WaitKey(request.topic, request.consumer_group, max(ALL_QUEUES, request.queue_id))
        return answer(command, PollingInfoResponse(polling_num=self._pops.number(key)))

    def _queues(self, request: NotificationRequest, topic: Topic) -> Iterator[ConsumeQueue]:
        """The queues that a POP would read."""
        if request.queue_id >= 0:
            yield topic.queues[request.queue_id]
        else:
            yield from topic.queues.first(topic.config.read_queue_nums)
        for name in topics_of(request.topic, request.consumer_group)[1:]:
            retry = self._topics.get(name)
            if retry is not None:
                yield from retry.queues.first(retry.config.read_queue_nums)

    def _has_message(self, request: NotificationRequest, queue: ConsumeQueue, now: int) -> bool:
        place = (queue.topic, request.consumer_group, queue.queue_id)
        if request.order:
            info = self._order.get(*place)
            if info is not None and info.is_blocked(request.attempt_id, 0, now):
                return False
        offset = self._offsets.query(*place)
        return queue.confirmed_offset > (queue.min_offset if offset is None else offset)
