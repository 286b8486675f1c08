"""Acknowledgements of messages that were handed out by POP, and changes of their invisible time (broker:13.5,
13.6). Each is stored before it is answered, and with `SYNC_FLUSH` on disk.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from sparrowmq.broker.base.internal_store import NOT_FLUSHED
from sparrowmq.broker.base.offsets import answer, refusal
from sparrowmq.broker.pop.order import NOT_HELD, OUTDATED, handed_out
from sparrowmq.broker.pop.waiting import WaitKey
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers import from_ext
from sparrowmq.protocol.pop.headers import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    ChangeInvisibleTimeResponse,
)
from sparrowmq.protocol.pop.receipts import ORDER_QUEUE, Receipt
from sparrowmq.protocol.pop.records import Ack, BatchAck, BatchAckBody, CheckPoint
from sparrowmq.protocol.refusals import Refused

if TYPE_CHECKING:
    from sparrowmq.broker.base.internal_store import InnerMessage, InnerStore
    from sparrowmq.broker.pop.order import OrderInfo
    from sparrowmq.broker.pop.pop_state import PopState
    from sparrowmq.broker.tables.shared_tables import SharedTables
    from sparrowmq.core.clock import Clock
    from sparrowmq.protocol.frame import Command
    from sparrowmq.transport.connection import Connection

BATCHES_MAX: Final = 1024
"""Maximum number of check points in one BATCH_ACK_MESSAGE."""


class AckRequests:
    """Handlers of acknowledgements. A queue that becomes free wakes the requests that wait for it."""

    def __init__(self, tables: SharedTables, inner: InnerStore, state: PopState, clock: Clock) -> None:
        self._topics = tables.topics
        self._offsets = tables.offsets
        self._inner = inner
        self._log = state.revive_log
        self._order = state.order
        self._clock = clock
        self._waiting = state.waiting
        self._in_flight = state.in_flight

    def ack(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """200051: acknowledge a message. Raises `Refused`."""
        request = from_ext(AckMessageRequest, command.ext)
        low, high = self._queue_range(request)
        if not low <= request.offset <= high:
            raise Refused(
                ResponseCode.NO_MESSAGE,
                f"offset is illegal, key:{request.topic}@{request.queue_id}, commit:{request.offset}, "
                f"store:{low}~{high}",
            )
        receipt = Receipt.parse(request.extra_info)
        if receipt.is_ordered:
            place = WaitKey(request.topic, request.consumer_group, request.queue_id)
            self._ack_in_order(place, [request.offset], receipt.pop_time)
            return self._stored(command, answer(command))
        self._inner.put([self._ack_message(request, receipt)])
        self._in_flight.ended(
            request.topic, request.consumer_group, request.queue_id, 1, _visible_ms(receipt)
        )
        return self._stored(command, answer(command))

    def batch(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """200151: acknowledge messages of several check points. Offsets and queues that do not exist are
        ignored. Raises `Refused`.
        """
        body = BatchAckBody.decode_request(command.body) if command.body else None
        acks = [] if body is None else body.acks
        if body is None or not acks:
            raise Refused(ResponseCode.NO_MESSAGE, "the body acknowledges no message")
        if len(acks) > BATCHES_MAX:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"the body acknowledges messages of {len(acks)} check points, the limit is {BATCHES_MAX}",
            )
        broker_name = body.broker_name or self._log.broker_name
        messages: list[InnerMessage] = []
        acked: list[tuple[BatchAck, int]] = []
        for one in acks:
            offsets = self._existing(one)
            if one.revive_queue == ORDER_QUEUE:
                place = WaitKey(one.real_topic, one.group, one.queue_id)
                self._ack_in_order(place, offsets, one.pop_time)
            elif offsets:
                self._check_revive_queue(one.revive_queue)
                ack = Ack(
                    ack_offsets=offsets,
                    broker_name=broker_name,
                    group=one.group,
                    pop_time=one.pop_time,
                    queue_id=one.queue_id,
                    start_offset=one.start_offset,
                    topic=one.real_topic,
                )
                revive_time = one.pop_time + one.invisible_time
                messages.append(self._log.ack(ack, one.revive_queue, revive_time))
                acked.append((one, len(offsets)))
        if messages:
            self._inner.put(messages)
        for one, count in acked:
            visible = one.pop_time + one.invisible_time
            self._in_flight.ended(one.real_topic, one.group, one.queue_id, count, visible)
        return self._stored(command, answer(command))

    def change_invisible_time(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """200053: change the invisible time of a message, counted from now; the response has the parts of its
        new receipt.

        A check point for the message alone replaces its part of the old one, and is named by the
        acknowledgement of that part (see `replacements`). Raises `Refused`.
        """
        request = from_ext(ChangeInvisibleTimeRequest, command.ext)
        low, high = self._queue_range(request)
        if not low <= request.offset < high:
            raise Refused(ResponseCode.NO_MESSAGE, f"the queue has messages {low} to {high - 1}")
        if not 0 <= request.invisible_time <= self._log.invisible_max:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"invisibleTime {request.invisible_time} is not between 0 and {self._log.invisible_max} ms "
                "(timerMaxDelaySec)",
            )
        receipt = Receipt.parse(request.extra_info)
        if receipt.is_ordered:
            return answer(command, self._change_in_order(request, receipt))
        now = max(self._clock.now_ms(), receipt.pop_time + 1)  # the key of a check point has this time
        self._check_revive_queue(receipt.revive_queue)
        point = CheckPoint(
            broker_name=receipt.broker_name,
            group=request.consumer_group,
            differences=[0],
            invisible_time=request.invisible_time,
            count=1,
            pop_time=now,
            queue_id=request.queue_id,
            start_offset=request.offset,
            topic=request.topic,
            birth=self._topics.birth(request.topic) or UNSET,
        )
        self._inner.put(
            [self._log.check_point(point, receipt.revive_queue)],
            last=lambda placed: self._ack_message(request, receipt, [placed[0].physical_offset]),
        )
        place = point.topic, point.group, point.queue_id
        self._in_flight.ended(*place, 1, _visible_ms(receipt))
        self._in_flight.handed_out(*place, 1, point.revive_time, now)
        changed = ChangeInvisibleTimeResponse(
            pop_time=now, invisible_time=request.invisible_time, revive_qid=receipt.revive_queue
        )
        return self._stored(command, answer(command, changed))

    def _stored(self, command: Command, done: Command) -> Command | Awaitable[Command]:
        late = refusal(command, ResponseCode.SYSTEM_ERROR, NOT_FLUSHED)
        return self._inner.answer_flushed(done, late)

    def _queue_range(self, request: AckMessageRequest) -> tuple[int, int]:
        """The first offset of the request's queue, and the one after its last. Raises `Refused`."""
        topic = self._topics.get(request.topic)
        if topic is None:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{request.topic}] not exist, apply first please!"
            )
        if not 0 <= request.queue_id < topic.config.read_queue_nums:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"queueId[{request.queue_id}] is illegal, topic:[{request.topic}] "
                f"topicConfig.readQueueNums:[{topic.config.read_queue_nums}]",
            )
        queue = topic.queues[request.queue_id]
        return queue.min_offset, queue.max_offset

    def _existing(self, one: BatchAck) -> list[int]:
        """The offsets of a batch that its queue has. Raises `HeaderError` for an unknown retry flag."""
        topic = self._topics.get(one.real_topic)
        if topic is None or not 0 <= one.queue_id < topic.config.read_queue_nums:
            return []
        queue = topic.queues[one.queue_id]
        low, high = queue.min_offset, queue.max_offset
        return [offset for offset in one.offsets if low <= offset <= high]

    def _check_revive_queue(self, queue_id: int) -> None:
        if not 0 <= queue_id < self._log.queue_count:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the receipt names the revive queue {queue_id}, and this broker has 0 to "
                f"{self._log.queue_count - 1}; send the receipt unchanged",
            )

    def _ack_message(
        self, request: AckMessageRequest, receipt: Receipt, instead: list[int | None] | None = None
    ) -> InnerMessage:
        """The message that stores one acknowledgement. Raises `Refused` for a forged receipt."""
        self._check_revive_queue(receipt.revive_queue)
        ack = Ack(
            ack_offset=request.offset,
            broker_name=receipt.broker_name,
            group=request.consumer_group,
            pop_time=receipt.pop_time,
            queue_id=request.queue_id,
            start_offset=receipt.start_offset,
            topic=request.topic,
        )
        revive_time = receipt.pop_time + receipt.invisible_time
        return self._log.ack(ack, receipt.revive_queue, revive_time, instead)

    # Ordered POP

    def _ack_in_order(self, place: WaitKey, offsets: list[int], pop_time: int) -> None:
        """Acknowledge messages of an ordered hand-out; those of an earlier one, or of an earlier topic, are
        ignored. Raises `Refused`.
        """
        topic, group, queue_id = place
        committed = self._offsets.query(topic, group, queue_id)
        info, acked, wrong = self._order.get(*place), -1, None
        is_known = info is not None
        found = self._topics.get(topic)
        if not is_known and found is not None and found.is_younger(pop_time):
            return
        for offset in offsets:
            if committed is not None and offset < committed:
                continue
            if not is_known:  # a crash lost the hand-out, but `replay` needs the acknowledgement
                info = handed_out(None, None, pop_time, 0, [offset])
            assert info is not None
            following = info.acknowledge(offset, pop_time)
            if following == OUTDATED:
                return
            if following == NOT_HELD:
                wrong = Refused(
                    ResponseCode.MESSAGE_ILLEGAL,
                    f"offset is illegal, key:{topic}@{group}@{queue_id}, old:{committed}, commit:{offset}, "
                    f"next:{following}",
                )
                break
            acked, committed = offset, following
        if acked >= 0 and info is not None and committed is not None:
            if is_known:
                self._order.changed()
            self._note_order(place, acked, info, committed)
        if wrong is not None:
            raise wrong

    def _note_order(self, place: WaitKey, acked: int, info: OrderInfo, following: int) -> None:
        """Store the state of an ordered hand-out after acknowledgements, `acked` the last. Raises
        `Refused`.
        """
        topic, group, queue_id = place
        ack = Ack(
            ack_offset=acked,
            broker_name=self._log.broker_name,
            group=group,
            pop_time=info.pop_time,
            queue_id=queue_id,
            start_offset=acked,
            topic=topic,
        )
        self._inner.put([self._log.ordered_ack(ack, info.encode())])
        if not self._offsets.commit(topic, group, queue_id, following):
            raise Refused(ResponseCode.SYSTEM_BUSY, self._offsets.too_many)
        if not info.is_blocked(None, 0, self._clock.now_ms()):
            self._waiting.wake_queue(place)

    def _change_in_order(
        self, request: ChangeInvisibleTimeRequest, receipt: Receipt
    ) -> ChangeInvisibleTimeResponse:
        """Set when a message of an ordered hand-out becomes visible; no effect for an acknowledged one."""
        place = WaitKey(request.topic, request.consumer_group, request.queue_id)
        committed = self._offsets.query(*place)
        if committed is not None and request.offset < committed:
            return ChangeInvisibleTimeResponse()
        visible = self._clock.now_ms() + request.invisible_time
        info = self._order.get(*place)
        if info is not None and info.pop_time == receipt.pop_time:
            info.hide(request.offset, visible)
            self._order.changed()
            self._waiting.free_at(place, info.visible_time(0))
        return ChangeInvisibleTimeResponse(
            pop_time=receipt.pop_time,
            invisible_time=visible - receipt.pop_time,
            revive_qid=receipt.revive_queue,
        )


def _visible_ms(receipt: Receipt) -> int:
    """When the messages of a hand-out become visible again, epoch ms."""
    return receipt.pop_time + receipt.invisible_time
