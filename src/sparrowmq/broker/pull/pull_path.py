"""Pulls: checks, reading, holding and waking (broker:5)."""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.base.offsets import memory_bytes
from sparrowmq.broker.members.filters import (
    TAG_TYPES,
    PullFilter,
    is_tag_type,
    unsupported_filter,
    wanted_filter,
    wanted_tags,
)
from sparrowmq.broker.members.subscription_query import SubscriptionQuery
from sparrowmq.broker.pull.earlier_lives import EarlierLives
from sparrowmq.broker.pull.held_pulls import HeldPull, HoldRoom, HoldTable
from sparrowmq.core.bounded import SHORT_CHARS
from sparrowmq.core.errors import InvalidExpressionError, StoreError
from sparrowmq.core.route import PERM_READ
from sparrowmq.protocol.bodies import MessageModel
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.filter import parse_tags
from sparrowmq.protocol.headers import BULK_BYTES_MAX
from sparrowmq.protocol.hot import PullFields, PullFrame, pull_answer
from sparrowmq.protocol.refusals import Refused
from sparrowmq.store.base.settings import ENTRY_BYTES
from sparrowmq.store.queues.reads import GetStatus
from sparrowmq.transport.occasional import OccasionalLog
from sparrowmq.transport.slices import shared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sparrowmq.broker.members.fence_calls import Fence
    from sparrowmq.broker.members.filters import ConsumerFilters
    from sparrowmq.broker.tables.shared_tables import SharedTables
    from sparrowmq.core.clock import Clock
    from sparrowmq.core.settings.servers import BrokerSettings
    from sparrowmq.core.subscription import SubscriptionData
    from sparrowmq.protocol.bodies import SubscriptionGroupConfig
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.queues.consume_queue import ConsumeQueue
    from sparrowmq.store.queues.reads import GetResult, Match
    from sparrowmq.transport.connection import Connection

log = logging.getLogger("sparrowmq.broker")

COMMIT: Final = 1
SUSPEND: Final = 2
SUBSCRIPTION: Final = 4

BULK_COUNT_MAX: Final = 1 << 20
HOLD_SECONDS_MAX: Final = 25.0
"""Java gives up on a held pull after 30 s and closes the connection (remoting:8-14)."""

SLAVE_TEXT: Final = (
    "[REJECTREQUEST]system busy, start flow control for a while: this broker is a slave, and slaveReadEnable "
    "is off"
)
NOT_TOLD_TEXT: Final = (
    "this broker does not know yet which messages all brokers of its in-sync set have, and consumers read "
    "only those; pull again"
)
TAGS_CHARS_MAX: Final = 32 * 1024
"""Longer tag expressions in a pull are refused."""
WOKEN_AT_ONCE: Final = 64
"""Number of pulls without a filter that one message wakes in the same turn; further pulls take turns."""

UNSENT_BYTES_MAX: Final = 64 * 1024 * 1024
"""A client with more unread answer bytes than this is told to wait (215)."""

_CODES: Final = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.NO_MATCHED_LOGIC_QUEUE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.NO_MESSAGE_IN_QUEUE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
_ANSWERS: Final = {status: (int(code), status.name.encode()) for status, code in _CODES.items()}
"""Code and remark of an answer."""
_EMPTY_QUEUE: Final = (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE)


class PullPath:
    """Answers pulls, immediately or when a message arrives.

    A slave has `is_master_there`: while its master is connected, it sends readers back there.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        tables: SharedTables,
        filters: ConsumerFilters,
        fence: Fence,
        clock: Clock,
        *,
        is_master_there: Callable[[], bool] | None = None,
        master_from: int = 0,
    ) -> None:
        self._is_master_there = is_master_there
        self._reads_refused = settings.is_slave and not settings.slave_read_enable
        self._settings = settings
        self._fence = fence
        self._clock = clock
        self._managed = fence.groups
        self._store = store
        self._topics = tables.topics
        self._groups = tables.groups
        self._clients = tables.clients
        self._offsets = tables.offsets
        self._lives = EarlierLives(tables.topics, tables.offsets, log, master_from=master_from)
        self._subscription_query = SubscriptionQuery(tables.clients, filters, clock)
        self._filters = filters
        self._room = HoldRoom(settings.held_pulls_max)
        self._holds = HoldTable(self._room)
        self._resting = HoldTable(self._room)
        self._occasional = OccasionalLog(log)
        self._taken: dict[tuple[ConsumeQueue, str], list[int]] = {}
        self._count_max = settings.max_transfer_count_on_message_in_memory
        self._bytes_max = settings.max_transfer_bytes_on_message_in_memory
        self._cached_bytes = memory_bytes() * settings.access_message_in_memory_max_ratio // 100

    def apply(self, settings: BrokerSettings) -> None:
        """Apply changed settings."""
        self._settings = settings

    def take_counts(self) -> list[tuple[tuple[ConsumeQueue, str], tuple[int, int, int, int]]]:
        """Messages, bytes and pulls by queue and group since the last call, and the offset after the last
        message that was sent."""
        taken, self._taken = self._taken, {}
        return [(key, (count, size, times, end)) for key, (count, size, times, end) in taken.items()]

    def took(self, queue: ConsumeQueue, group: str, count: int, size: int, end: int) -> None:
        """Count messages of a queue that a group was sent, and the offset after the last of them."""
        taken = self._taken.get((queue, group))
        if taken is None:
            self._taken[queue, group] = [count, size, 1, end]
        else:
            taken[0] += count
            taken[1] += size
            taken[2] += 1
            taken[3] = end

    @property
    def held(self) -> int:
        """Number of waiting pulls."""
        return self._room.count

    def pull(self, connection: Connection, frame: PullFrame, *, in_turn: bool = False) -> None:
        """Answer one pull, or hold it. Pulls that bring a filter or request much take turns."""
        fields = frame.fields
        if not in_turn and (
            fields.bulk_bytes or (fields.sys_flag & SUBSCRIPTION and fields.expression_type not in TAG_TYPES)
        ):
            shared().run(self._pull_in_turn(connection, frame))
            return
        try:
            if connection.owes_more_than(UNSENT_BYTES_MAX):
                raise _no_room(connection)
            queue, wanted = self._check(connection, fields)
            managed = self._managed.get(fields.consumer_group) if self._managed else None
            if managed is not None:
                granted = managed.generations.get((fields.topic, fields.queue_id))
                if granted != fields.generation:
                    self._check_fence(fields)
        except Refused as refused:
            _refuse(connection, frame, refused)
            if refused.code == ResponseCode.SUBSCRIPTION_NOT_LATEST:
                self._subscription_query.ask(connection, fields.consumer_group)
            return
        if self._offsets.resets and self._answer_reset(connection, frame, queue):
            return
        if fields.birth and self._lives.answer(connection, frame, queue):
            return
        if fields.sys_flag & COMMIT and fields.commit_offset >= 0:
            self._lives.commit(fields, queue)
        if managed is not None and managed.may_rest and self._rests(fields):
            self._rest(connection, frame, queue, wanted)
            return
        may_hold = bool(fields.sys_flag & SUSPEND)
        if wanted.match is None or fields.sys_flag & SUBSCRIPTION:
            self._answer(connection, frame, queue, wanted, may_hold=may_hold)
        else:
            shared().run(self._answer_in_turn(connection, frame, queue, wanted, may_hold))

    def _pull_in_turn(self, connection: Connection, frame: PullFrame) -> Iterator[None]:
        if not connection.closed:
            self.pull(connection, frame, in_turn=True)
        yield

    def _answer_in_turn(
        self,
        connection: Connection,
        frame: PullFrame,
        queue: ConsumeQueue,
        wanted: PullFilter,
        may_hold: bool,
    ) -> Iterator[None]:
        """Answer a pull that may take some milliseconds, after the pulls of others are answered."""
        if not connection.closed:
            self._answer(connection, frame, queue, wanted, may_hold=may_hold)
        yield

    def recheck(self, group: str) -> None:
        """A group's policy changed: refuse its held pulls, pause them or let them wait accordingly."""
        held = [*self._holds.take_group(group), *self._resting.take_group(group)]
        shared().run(self._recheck(held))

    def _recheck(self, held: list[HeldPull]) -> Iterator[None]:
        for one in held:
            if one.connection.closed:
                continue
            try:
                self._check_fence(one.frame.fields)
            except Refused as refused:
                _refuse(one.connection, one.frame, refused)
            else:
                self._rest_or_retry(one)
            yield

    def _rest_or_retry(self, held: HeldPull) -> None:
        if not self._rests(held.frame.fields):
            self._retry(held, expired=False)
        elif not self._resting.park(held):
            _answer_resting(held)

    def _check_fence(self, fields: PullFields) -> None:
        text = self._fence.refusal(fields.consumer_group, fields.topic, fields.queue_id, fields.generation)
        if text:
            raise Refused(ResponseCode.GENERATION_FENCED, text)

    def _rests(self, fields: PullFields) -> bool:
        return self._fence.is_paused(fields.consumer_group, fields.topic, fields.queue_id)

    def _rest(
        self, connection: Connection, frame: PullFrame, queue: ConsumeQueue, wanted: PullFilter
    ) -> None:
        """Hold a pull of a paused queue for as long as it may be held, even if messages arrive."""
        held = self._held(connection, frame, queue, wanted)
        if not (frame.fields.sys_flag & SUSPEND and self._resting.park(held)):
            _answer_resting(held)

    def wake(self, queues: set[ConsumeQueue]) -> None:
        """Messages arrived in `queues`: answer the pulls that wait there and request one of them."""
        if not self._holds.count:
            return
        for queue in queues:
            held = self._holds.take(queue)
            if len(held) <= WOKEN_AT_ONCE and all(one.wanted.match is None for one in held):
                for one in held:
                    self._retry(one, expired=False)
            else:
                shared().run(self._retry_all(held, expired=False))

    def _retry_all(self, held: list[HeldPull], *, expired: bool) -> Iterator[None]:
        for one in held:
            self._retry(one, expired=expired)
            yield

    def wake_reset(self, topic: str, group: str, queue_id: int) -> None:
        """A group's offset of a queue was reset: inform its pulls that are held there."""
        queue = self._store.find_queue(topic, queue_id)
        if queue is None:
            return
        for held in self._holds.take(queue):
            if held.connection.closed:
                continue
            its_own = held.frame.fields.consumer_group == group
            if not (its_own and self._answer_reset(held.connection, held.frame, queue)):
                self._hold_again(held)

    def _answer_reset(self, connection: Connection, frame: PullFrame, queue: ConsumeQueue) -> bool:
        """Answer a pull with the offset to which its group was reset; False when there was no reset."""
        fields = frame.fields
        offset = self._offsets.take_reset(fields.topic, fields.consumer_group, fields.queue_id)
        if offset is None:
            return False
        code, low, high = ResponseCode.PULL_OFFSET_MOVED, queue.min_offset, queue.confirmed_offset
        connection.write(pull_answer(code, frame.opaque, offset, low, high, b"OFFSET_RESET", 0))
        return True

    def expire(self) -> None:
        """Answer held pulls that timed out or whose pause ended; called about once a second."""
        now = self._clock.monotonic()
        expired = self._holds.take_expired(now)
        if expired:
            shared().run(self._retry_all(expired, expired=True))
        if self._resting.count:
            shared().run(self._look_at_resting(now))

    def _look_at_resting(self, now: float) -> Iterator[None]:
        """Answer the pulls of paused queues that timed out, and serve those whose pause ended."""
        for held in self._resting.take_expired(now):
            _answer_resting(held)
            yield
        for held in self._resting.take_expired(float("inf")):
            self._rest_or_retry(held)
            yield

    def drop_connection(self, connection: Connection) -> None:
        """Drop the held pulls of a closed connection. Thousands of them may be lost at the same time."""
        for table in (self._holds, self._resting):
            if table.has(connection):
                shared().run(table.drop_connection(connection))

    def release(self, topic: str | None = None) -> None:
        """Answer the held pulls of a topic that is deleted, or all pulls because the broker stops."""
        taken = self._holds.drop_topic(topic) if topic else self._holds.take_expired(float("inf"))
        shared().run(self._retry_all(taken, expired=True))
        for held in self._resting.drop_topic(topic) if topic else self._resting.take_expired(float("inf")):
            _answer_resting(held)

    def _retry(self, held: HeldPull, *, expired: bool) -> None:
        if held.connection.closed:
            return
        try:
            ready = expired or self._wanted(held)
            if ready and held.connection.owes_more_than(UNSENT_BYTES_MAX):
                raise _no_room(held.connection)
        except StoreError as error:
            _refuse(held.connection, held.frame, _unreadable(error))
            return
        except Refused as refused:
            _refuse(held.connection, held.frame, refused)
            return
        if ready:
            self._answer(held.connection, held.frame, held.queue, held.wanted, may_hold=False)
        else:
            self._hold_again(held)

    def _hold_again(self, held: HeldPull) -> None:
        """Hold a pull that was taken from the table; if its room is gone meanwhile, answer it now."""
        if not self._holds.park(held):
            self._answer(held.connection, held.frame, held.queue, held.wanted, may_hold=False)

    def _wanted(self, held: HeldPull) -> bool:
        """Whether a message that the held pull requests is at or after its offset."""
        offset = held.frame.fields.queue_offset
        if held.queue.confirmed_offset <= offset:
            return False
        wanted = held.wanted
        if wanted.match is not None:
            return self._is_matched(held, wanted.match, offset)
        return wanted.codes is None or self._store.has_match(held.queue, offset, wanted.codes)

    def _is_matched(self, held: HeldPull, match: Match, offset: int) -> bool:
        """Check the records since the last check; if there are many, answer so that the consumer advances."""
        queue = held.queue
        end = queue.confirmed_offset
        if end - offset > self._settings.max_filter_message_size // ENTRY_BYTES:
            return True
        start = max(offset, held.scanned)
        found = self._store.get_messages(
            queue, start, max_count=1, max_bytes=1, match=match, cost=held.wanted.cost, is_consumer=True
        )
        held.scanned = found.next_offset
        return found.status is not GetStatus.NO_MATCHED_MESSAGE or found.next_offset < end

    def _check(self, connection: Connection, fields: PullFields) -> tuple[ConsumeQueue, PullFilter]:
        """The queue of a pull and its filter, after the checks of broker:5.3 in their order."""
        if self._reads_refused:
            raise Refused(ResponseCode.SYSTEM_BUSY, SLAVE_TEXT)
        if not self._settings.broker_permission & PERM_READ:
            raise _forbidden(1, "the broker is not readable: brokerPermission has no 4")
        group = self._groups.get(fields.consumer_group)
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                self._groups.missing(fields.consumer_group),
            )
        if not group.consume_enable:
            raise _forbidden(2, f"subscription group no permission, {group.group_name}")
        topic = self._topics.get(fields.topic)
        if topic is None:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{fields.topic}] not exist, apply first please! create it with: sparrow topic create",
            )
        if not topic.readable:
            raise _forbidden(3, f"the topic[{fields.topic}] pulling is forbidden")
        reads, queue = topic.config.read_queue_nums, None
        if 0 <= fields.queue_id < reads:
            queue = topic.queues[fields.queue_id]
        elif fields.bulk_bytes:  # what a topic had before it was shrunk
            queue = self._store.find_queue(fields.topic, fields.queue_id)
        if queue is None:
            text = f"queueId[{fields.queue_id}] is illegal, topic:[{fields.topic}] "
            raise Refused(ResponseCode.INVALID_PARAMETER, f"{text}topicConfig.readQueueNums:[{reads}]")
        return queue, self._subscription(connection, fields, group)

    def _subscription(
        self, connection: Connection, fields: PullFields, group: SubscriptionGroupConfig
    ) -> PullFilter:
        if fields.sys_flag & SUBSCRIPTION:
            try:
                if fields.expression_type in TAG_TYPES:
                    tags = fields.subscription
                    if tags is None or len(tags) <= SHORT_CHARS:
                        return _of_short_tags(fields.topic, tags)
                    return _of_long_tags(fields.topic, _checked(tags))
                self._need_property_filter(fields.expression_type)
                return wanted_filter(fields.expression_type or "", fields.subscription or "")
            except InvalidExpressionError as error:
                raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
        name = fields.consumer_group
        online = self._clients.consumers.get(name)
        if online is None:
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist: {name}")
        if not group.consume_broadcast_enable and online.message_model == MessageModel.BROADCASTING:
            raise _forbidden(4, f"group {name} may not consume in broadcast mode")
        if self._groups.is_forbidden(name, fields.topic):
            raise _forbidden(5, f"group {name} may not pull {fields.topic}")
        data = online.subscriptions.get(fields.topic)
        if data is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist: {name} does not subscribe {fields.topic}",
            )
        if not online.was_told(connection, fields.sub_version):
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        return wanted_tags(data.tags) if is_tag_type(data.expression_type) else self._registered(fields, data)

    def _registered(self, fields: PullFields, data: SubscriptionData) -> PullFilter:
        """The filter of the group's registration."""
        name = fields.consumer_group
        known = self._filters.get(fields.topic, name)
        if known is None:
            raise Refused(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                f"the broker's consumer filter data is not exist: {name} has none for {fields.topic}; your "
                f"expression may be wrong: {data.expression[:200]}",
            )
        if (known.expression_type, known.expression) != (data.expression_type, data.expression):
            raise Refused(
                ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest"
            )
        self._need_property_filter(data.expression_type)
        return wanted_filter(known.expression_type, known.expression)

    def _need_property_filter(self, expression_type: str | None) -> None:
        if not self._settings.enable_property_filter:
            raise Refused(ResponseCode.SYSTEM_ERROR, unsupported_filter(expression_type))

    def _answer(
        self,
        connection: Connection,
        frame: PullFrame,
        queue: ConsumeQueue,
        wanted: PullFilter,
        *,
        may_hold: bool,
    ) -> None:
        fields = frame.fields
        count, size = self._count_max, self._bytes_max
        if fields.bulk_bytes:
            count, size = BULK_COUNT_MAX, max(1, min(fields.bulk_bytes, BULK_BYTES_MAX))
        try:
            result = self._store.get_messages(
                queue,
                fields.queue_offset,
                max_count=min(fields.max_msg_nums, count),
                max_bytes=size,
                codes=wanted.codes,
                match=wanted.match,
                cost=wanted.cost,
                is_consumer=True,
            )
        except StoreError as error:
            _refuse(connection, frame, _unreadable(error))
            return
        if result.passed:
            place = f"{queue.topic}/{queue.queue_id} offset {result.passed[0]}"
            text = f"{place}: skipped, because its record is damaged"
            self._occasional.write(logging.ERROR, "damaged", text)
        code, remark = _ANSWERS[result.status]
        next_offset = result.next_offset
        if not result.count:
            code, next_offset = self._without_messages(code, fields, queue, result)
            if code == ResponseCode.PULL_NOT_FOUND:
                if may_hold and self._hold(connection, frame, queue, wanted):
                    return
                if result.status is GetStatus.OFFSET_OVERFLOW_ONE and fields.queue_offset < result.max_offset:
                    # A reader would take "not found" for the end of the queue.
                    _refuse(connection, frame, Refused(ResponseCode.SYSTEM_BUSY, NOT_TOLD_TEXT))
                    return
        head = pull_answer(
            code,
            frame.opaque,
            next_offset,
            result.min_offset,
            result.max_offset,
            remark,
            result.size,
            self._suggested(fields, queue, result) if self._settings.slave_read_enable else 0,
            0 if fields.birth is None else self._lives.birth(fields),
        )
        if not result.size:
            connection.write(head)
            return
        connection.write_parts((head, *result.buffers), len(head) + result.size)
        self.took(queue, fields.consumer_group, result.count, result.size, result.next_offset)

    def _without_messages(
        self, code: int, fields: PullFields, queue: ConsumeQueue, result: GetResult
    ) -> tuple[int, int]:
        """Code and next offset of an answer without messages.

        At a slave, the reader asks the master if that is there, or this broker again if its offset is not
        here, because it may be right at the master (broker:5.4).
        """
        if result.status in _EMPTY_QUEUE and fields.queue_offset != 0:
            code = int(ResponseCode.PULL_OFFSET_MOVED)
        if self._is_master_there is None:
            return code, self._lives.continued(fields, queue, result)
        if code == ResponseCode.PULL_OFFSET_MOVED or self._is_master_there():
            code = int(ResponseCode.PULL_RETRY_IMMEDIATELY)
        return code, max(result.next_offset, fields.queue_offset)

    def _suggested(self, fields: PullFields, queue: ConsumeQueue, result: GetResult) -> int:
        """The broker id to pull from next: a slave's when the group reads uncached messages (5.4)."""
        group = self._groups.get(fields.consumer_group)
        if group is None:
            return 0
        last = queue.physical_offset(result.next_offset - 1) if result.count else None
        if last is not None and self._store.position - last > self._cached_bytes:
            return group.which_broker_when_consume_slowly
        return group.broker_id

    def _hold(
        self, connection: Connection, frame: PullFrame, queue: ConsumeQueue, wanted: PullFilter
    ) -> bool:
        return self._holds.park(self._held(connection, frame, queue, wanted))

    def _held(
        self, connection: Connection, frame: PullFrame, queue: ConsumeQueue, wanted: PullFilter
    ) -> HeldPull:
        seconds = frame.fields.suspend_timeout_millis / 1000
        if not self._settings.long_polling_enable:
            seconds = self._settings.short_polling_time_mills / 1000
        deadline = self._clock.monotonic() + min(max(0.0, seconds), HOLD_SECONDS_MAX)
        return HeldPull(connection, frame, queue, wanted, deadline)


def _checked(tags: str) -> str:
    if len(tags) > TAGS_CHARS_MAX:
        raise InvalidExpressionError(
            f"the tag expression has {len(tags)} characters, the limit is {TAGS_CHARS_MAX}; use fewer tags"
        )
    return tags


def _wanted_tags(topic: str, expression: str | None) -> PullFilter:
    return wanted_tags(parse_tags(topic, expression, 0).tags)


_of_short_tags = lru_cache(maxsize=4096)(_wanted_tags)
_of_long_tags = lru_cache(maxsize=64)(_wanted_tags)


def _answer_resting(held: HeldPull) -> None:
    """Answer that there is no new message for a paused group."""
    if held.connection.closed:
        return
    queue, offset = held.queue, held.frame.fields.queue_offset
    code, low, high = ResponseCode.PULL_NOT_FOUND, queue.min_offset, queue.confirmed_offset
    held.connection.write(pull_answer(code, held.frame.opaque, offset, low, high, b"PAUSED", 0))


def _no_room(connection: Connection) -> Refused:
    """Send messages only to clients that read their answers; others wait, especially when memory is short."""
    return Refused(
        ResponseCode.FLOW_CONTROL,
        f"{connection.unsent_bytes} bytes of answers wait to be read; the limit is {UNSENT_BYTES_MAX}, or "
        "less while this broker keeps more than connectionMemoryMax for all clients; read them before "
        "pulling more",
    )


def _forbidden(why: int, remark: str) -> Refused:
    """Answer that a pull is not permitted; the answer gives `why` as a number (broker:5.3)."""
    return Refused(ResponseCode.NO_PERMISSION, remark, {"forbiddenType": str(why)})


def _unreadable(error: StoreError) -> Refused:
    return Refused(ResponseCode.SYSTEM_ERROR, f"the messages cannot be read now: {error}")


def _refuse(connection: Connection, frame: PullFrame, refused: Refused) -> None:
    connection.send(refused.answer(frame.opaque))
