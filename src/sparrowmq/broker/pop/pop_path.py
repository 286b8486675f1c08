"""POP_MESSAGE (200050): messages of a topic for a group, each hidden from its other members for a while.

One POP reads the queues of the topic and of its retry topic in turn, from where the group's hand-outs end. It
stores a check point for each queue, raises the group's offsets, and answers. Messages that are not
acknowledged become visible again through the check point (see `revive`). Without messages the request waits
(see `waiting`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.base.offsets import is_young, memory_bytes
from sparrowmq.broker.pop.hand_out import Pop, QueueBatch, offsets_in, renamed
from sparrowmq.broker.pop.order import handed_out
from sparrowmq.broker.pop.pop_checks import (
    REFUSED_FIELDS,
    deadline_of,
    refuse,
    refused,
    topics_of,
    wanted_by,
)
from sparrowmq.broker.pop.waiting import WaitingRequest, WaitKey
from sparrowmq.core.names import RETRY_PREFIX
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command, encode_head
from sparrowmq.protocol.headers import from_ext, to_ext
from sparrowmq.protocol.pop.headers import PopMessageRequest, PopMessageResponse
from sparrowmq.protocol.pop.receipts import ORDER_QUEUE, order_count_info, pop_retry_topic, retry_flag
from sparrowmq.protocol.refusals import Refused
from sparrowmq.store.queues.reads import GetStatus
from sparrowmq.transport.occasional import OccasionalLog
from sparrowmq.transport.slices import shared

if TYPE_CHECKING:
    from sparrowmq.broker.base.internal_store import InnerStore
    from sparrowmq.broker.pop.pop_checks import PopChecks
    from sparrowmq.broker.pop.pop_state import PopState
    from sparrowmq.broker.tables.shared_tables import SharedTables
    from sparrowmq.core.clock import Clock
    from sparrowmq.core.settings.servers import BrokerSettings
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.queues.consume_queue import ConsumeQueue
    from sparrowmq.store.queues.reads import GetResult
    from sparrowmq.transport.connection import Connection

log = logging.getLogger("sparrowmq.broker")
LATE_MS: Final = 500
"""A request that arrives this long after its own deadline is not served: its client has given up."""
INIT_MIN: Final = 0
_MOVED: Final = (GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY, GetStatus.OFFSET_FOUND_NULL)
_SKIPPED: Final = (
    GetStatus.NO_MATCHED_MESSAGE,
    GetStatus.OFFSET_FOUND_NULL,
    GetStatus.MESSAGE_WAS_REMOVING,
)


class PopPath:
    """Answers POP requests, at once or when a message arrives.

    `took` counts what was handed out, `random` chooses the first queue.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        tables: SharedTables,
        checks: PopChecks,
        inner: InnerStore,
        state: PopState,
        clock: Clock,
        *,
        took: Callable[[ConsumeQueue, str, int, int, int], None],
        random: Random,
    ) -> None:
        self._settings = settings
        self._store = store
        self._topics = tables.topics
        self._checks = checks
        self._offsets = tables.offsets
        self._inner = inner
        self._log = state.revive_log
        self._order = state.order
        self._waiting = state.waiting
        self._in_flight = state.in_flight
        self._clock = clock
        self._took = took
        self._random = random
        self._reading: set[tuple[ConsumeQueue, str]] = set()
        """Queues that a POP of a group is reading over several turns of the loop."""
        self._missed: dict[WaitKey, None] = {}
        self._occasional = OccasionalLog(log)
        self._cached_bytes = memory_bytes() * settings.access_message_in_memory_max_ratio // 100

    def handle(self, connection: Connection, command: Command) -> None:
        """200050: hand out messages; the answer is sent separately. Raises `Refused`."""
        self._begin(connection, command, 0, expired=False)

    def resume(self, waiting: WaitingRequest, expired: bool) -> None:
        """Handle a request that waited."""
        if waiting.connection.closed:
            self._waiting.wake(waiting.key)
            return
        try:
            self._begin(waiting.connection, waiting.command, waiting.born_time, expired=expired)
        except Exception as error:
            refuse(waiting.connection, waiting.command, error)

    def _begin(self, connection: Connection, command: Command, born_time: int, *, expired: bool) -> None:
        request = from_ext(PopMessageRequest, command.ext)
        now = self._clock.now_ms()
        born_time = born_time or request.born_time or now
        if not expired and now - born_time > request.poll_time + LATE_MS:
            raise Refused(
                ResponseCode.POLLING_TIMEOUT,
                f"the broker[{self._settings.broker_ip1}] pop message is timeout too much",
                REFUSED_FIELDS,
            )
        self._checks.may_serve(connection, request)
        topic = self._checks.topic(request.topic, request.queue_id, request.consumer_group)
        wanted = wanted_by(request)
        revive_queue = ORDER_QUEUE if request.order else self._log.next_queue()
        pop = Pop(connection, command, request, topic, wanted, born_time, now, revive_queue)
        shared().run(self._popping(pop, may_wait=not expired))

    # Reading

    def _popping(self, pop: Pop, *, may_wait: bool) -> Iterator[None]:
        """Read the queues, one per step, and answer."""
        group = pop.request.consumer_group
        held: list[ConsumeQueue] = []
        try:
            for queue, is_retry in self._queues(pop):
                self._check_deleted(pop, (queue,))
                if (queue, group) in self._reading:
                    pop.is_missed = True
                    if not pop.request.order:
                        pop.rest += max(0, queue.confirmed_offset - (self._committed(queue, group) or 0))
                    continue
                self._reading.add((queue, group))
                held.append(queue)
                self._read(pop, queue, is_retry)
                yield
            self._check_deleted(pop, held)
            self._finish(pop, may_wait=may_wait)
        except Exception as error:
            refuse(pop.connection, pop.command, error)
        finally:
            for queue in held:
                self._reading.discard((queue, group))
            if self._missed:
                missed, self._missed = self._missed, {}
                for key in missed:
                    self._waiting.wake(key)

    def _check_deleted(self, pop: Pop, queues: Iterable[ConsumeQueue]) -> None:
        """Raises `Refused` if the topic or one of these queues was deleted since the POP began: what the POP
        read is gone, and its offsets must not become those of the next topic or queue of this name.
        """
        name = pop.request.topic
        if self._topics.birth(name) != pop.topic.birth:
            raise refused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{name}] was deleted while a POP read it; if it exists again, send the request again",
            )
        for queue in queues:
            if queue.deleted:
                raise refused(
                    ResponseCode.SYSTEM_BUSY,
                    f"queue[{queue.topic}/{queue.queue_id}] was deleted while a POP read it; try again",
                )

    def _queues(self, pop: Pop) -> Iterator[tuple[ConsumeQueue, bool]]:
        """The queues to read, in this order; the flag says that one is of a retry topic."""
        request, settings = pop.request, self._settings
        number = self._random.randrange(100)
        retry_first = number < settings.pop_from_retry_probability and not request.order
        v1 = settings.retrieve_message_from_pop_retry_topic_v1 and number % 2 == 0
        v2 = settings.enable_retry_topic_v2 and not v1
        if retry_first:
            yield from self._retry_queues(request, number, v2=v2)
        if request.queue_id >= 0:
            yield pop.topic.queues[request.queue_id], False
        else:
            queues = pop.topic.config.read_queue_nums
            for i in range(queues):
                yield pop.topic.queues[(number + i) % queues], False
        if not retry_first and not request.order and pop.count < request.max_msg_nums:
            yield from self._retry_queues(request, number, v2=v2)

    def _retry_queues(
        self, request: PopMessageRequest, number: int, *, v2: bool
    ) -> Iterator[tuple[ConsumeQueue, bool]]:
        name = pop_retry_topic(request.consumer_group, request.topic, v2=v2)
        topic = self._topics.get(name)
        if topic is None:
            stored = self._store.find_queue(name, 0)
            if stored is None or not stored.max_offset:
                return
            # A crash lost the topic, but not its messages.
            self._inner.queue(name, 0)
            topic = self._topics.get(name)
            if topic is None:
                return
        queues = topic.config.read_queue_nums
        for i in range(queues):
            yield topic.queues[(number + i) % queues], True

    def _committed(self, queue: ConsumeQueue, group: str) -> int | None:
        return self._offsets.query(queue.topic, group, queue.queue_id)

    def _start(self, pop: Pop, queue: ConsumeQueue) -> int:
        """The offset at which the hand-out of a queue begins. A reset offset is used once; a missing one is
        set.
        """
        group, topic, queue_id = pop.request.consumer_group, queue.topic, queue.queue_id
        if self._offsets.resets:
            reset = self._offsets.take_reset(topic, group, queue_id)
            if reset is not None:
                self._order.clear(topic, group, queue_id)
                self._in_flight.clear(topic, group, queue_id)
                self._commit(group, queue, reset)
                return reset
        offset = self._committed(queue, group)
        if offset is None:
            offset = self._first(pop.request, queue)
            self._commit(group, queue, offset)
        return offset

    def _first(self, request: PopMessageRequest, queue: ConsumeQueue) -> int:
        """Where a group without an offset begins: at the first message, or at the last (`initMode`)."""
        if request.init_mode == INIT_MIN or queue.topic.startswith(RETRY_PREFIX):
            return queue.min_offset
        if is_young(self._store, queue, self._cached_bytes):
            return 0
        return max(0, queue.confirmed_offset - 1)

    def _commit(self, group: str, queue: ConsumeQueue, offset: int) -> None:
        if not self._offsets.commit(queue.topic, group, queue.queue_id, offset):
            raise refused(ResponseCode.SYSTEM_BUSY, self._offsets.too_many)

    def _read(self, pop: Pop, queue: ConsumeQueue, is_retry: bool) -> None:
        request = pop.request
        start = self._start(pop, queue)
        if request.order and self._is_blocked(pop, queue):
            return
        left = self._settings.max_transfer_bytes_on_message_in_memory - pop.size
        if pop.count >= request.max_msg_nums or left <= 0:
            pop.rest += max(0, queue.confirmed_offset - start)
            return
        result = self._get(pop, queue, start, left)
        if result.status in _MOVED:
            start = result.next_offset
            self._commit(request.consumer_group, queue, start)
            result = self._get(pop, queue, start, left)
        if result.passed:
            place = f"{queue.topic}/{queue.queue_id} offset {result.passed[0]}"
            text = f"{place}: skipped, because its record is damaged"
            self._occasional.write(logging.ERROR, "damaged", text)
        if result.count:
            batch = QueueBatch(
                queue, start, result.next_offset, offsets_in(result.buffers), result.buffers, is_retry
            )
            pop.batches.append(batch)
            pop.count += result.count
            pop.size += result.size
            self._took(queue, request.consumer_group, result.count, result.size, result.next_offset)
        elif result.status in _SKIPPED and result.next_offset > start:
            pop.batches.append(QueueBatch(queue, start, result.next_offset))
        pop.rest += max(0, queue.confirmed_offset - result.next_offset)

    def _is_blocked(self, pop: Pop, queue: ConsumeQueue) -> bool:
        request = pop.request
        info = self._order.get(queue.topic, request.consumer_group, queue.queue_id)
        if info is None:
            return False
        if info.is_blocked(request.attempt_id, request.invisible_time, pop.pop_time):
            free = info.visible_time(request.invisible_time)
            self._waiting.free_at(WaitKey(queue.topic, request.consumer_group, queue.queue_id), free)
            return True
        return False

    def _get(self, pop: Pop, queue: ConsumeQueue, offset: int, max_bytes: int) -> GetResult:
        return self._store.get_messages(
            queue,
            offset,
            max_count=pop.request.max_msg_nums - pop.count,
            max_bytes=max_bytes,
            codes=pop.wanted.codes,
            match=pop.wanted.match,
            cost=pop.wanted.cost,
            is_consumer=True,
        )

    # Answering

    def _finish(self, pop: Pop, *, may_wait: bool) -> None:
        """Store the check points, raise the offsets, then answer. Raises `StoreError`, with no change."""
        group = pop.request.consumer_group
        found = pop.found
        if found and pop.connection.closed:
            self._waiting.wake(pop.key)
            return
        if pop.request.order:
            self._check_order_room(found, group)
        else:
            made = pop.check_points(self._log.broker_name, self._topics.birth)
            points = [self._log.check_point(point, pop.revive_queue) for point in made]
            if points:
                self._inner.put(points)
            for one in made:
                self._in_flight.handed_out(
                    one.topic, group, one.queue_id, one.count, one.revive_time, pop.pop_time
                )
        for batch in pop.batches:
            is_ordered = pop.request.order and bool(batch.offsets)
            self._commit(group, batch.queue, batch.start_offset if is_ordered else batch.next_offset)
        if not found:
            self._nothing(pop, may_wait=may_wait)
            return
        counts = [self._note_order(pop, batch) for batch in found] if pop.request.order else None
        parts: list[bytes | memoryview] = []
        for batch in found:
            parts += self._as_normal(pop, batch) if batch.is_retry else batch.buffers
        self._write(pop, ResponseCode.SUCCESS, pop.response(counts), "FOUND", parts)
        if pop.rest > 0:
            self._waiting.wake(pop.key)

    def _nothing(self, pop: Pop, *, may_wait: bool) -> None:
        """Let the request wait, or answer that there are no messages."""
        code = ResponseCode.POLLING_TIMEOUT
        deadline = deadline_of(pop.born_time, pop.request.poll_time, pop.pop_time)
        if may_wait and pop.request.poll_time > 0 and deadline > pop.pop_time:
            topics = topics_of(pop.request.topic, pop.request.consumer_group)
            if pop.is_missed:
                self._missed[pop.key] = None
            one = WaitingRequest(
                pop.connection, pop.command, pop.key, topics, pop.born_time, deadline, self.resume
            )
            if self._waiting.pops.park(one):
                return
            code = ResponseCode.POLLING_FULL
        header = pop.response([] if pop.request.order else None)
        self._write(pop, code, header, "NO_MESSAGE_IN_QUEUE", [])

    def _write(
        self,
        pop: Pop,
        code: int,
        header: PopMessageResponse,
        remark: str,
        parts: list[bytes | memoryview],
    ) -> None:
        size = sum(map(len, parts))
        command = Command(code, pop.command.opaque, FLAG_RESPONSE, to_ext(header), remark=remark)
        head = encode_head(command, size)
        pop.connection.write_parts((head, *parts), len(head) + size)

    def _check_order_room(self, found: list[QueueBatch], group: str) -> None:
        for batch in found:
            known = self._order.get(batch.queue.topic, group, batch.queue.queue_id)
            if known is None and self._order.is_full:
                raise refused(
                    ResponseCode.SYSTEM_BUSY,
                    "too many queues are consumed in order by POP; delete groups that are not used",
                )

    def _note_order(self, pop: Pop, batch: QueueBatch) -> str:
        """Note an ordered hand-out; returns how often its messages were handed out before."""
        request, queue = pop.request, batch.queue
        place = (queue.topic, request.consumer_group, queue.queue_id)
        info = handed_out(
            self._order.get(*place), request.attempt_id, pop.pop_time, request.invisible_time, batch.offsets
        )
        self._order.put(*place, info)
        self._waiting.free_at(WaitKey(*place), info.visible_time(request.invisible_time))
        return order_count_info(
            retry_flag(queue.topic), queue.queue_id, info.counts or {}, len(batch.offsets)
        )

    def _as_normal(self, pop: Pop, batch: QueueBatch) -> list[bytes]:
        """The messages of a retry topic under the name of the normal topic, each with its receipt."""
        name, topic = self._log.broker_name, pop.request.topic
        records = self._inner.intact(batch.buffers)
        return [renamed(record, topic, pop.receipt(batch, record, name)) for record in records]
