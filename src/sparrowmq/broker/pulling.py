"""Pulls: checks, reading, holding and waking (broker:5)."""

from __future__ import annotations

import logging
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.filters import Wanted, is_tag_type, unsupported_filter, wanted_filter, wanted_tags
from sparrowmq.broker.holds import HeldPull, HoldTable
from sparrowmq.broker.inquiry import Inquiry
from sparrowmq.broker.progress import memory_bytes
from sparrowmq.core.errors import InvalidExpressionError, StoreError
from sparrowmq.core.route import PERM_READ
from sparrowmq.protocol.bodies import MessageModel
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.filter import parse_tags
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command
from sparrowmq.protocol.headers import BULK_BYTES_MAX
from sparrowmq.protocol.hot import PullFields, PullFrame, pull_answer
from sparrowmq.store.reads import GetStatus
from sparrowmq.store.settings import ENTRY_BYTES
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.broker.clients import ClientTable
    from sparrowmq.broker.fence_calls import Fence
    from sparrowmq.broker.filters import ConsumerFilters
    from sparrowmq.broker.groups import GroupTable
    from sparrowmq.broker.topics import TopicTable
    from sparrowmq.core.settings import BrokerSettings
    from sparrowmq.core.subscription import SubscriptionData
    from sparrowmq.protocol.bodies import SubscriptionGroupConfig
    from sparrowmq.store.consume_queue import ConsumeQueue
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.offsets import ConsumerOffsets
    from sparrowmq.store.reads import GetResult, Match
    from sparrowmq.transport.connection import Connection

log = logging.getLogger("sparrowmq.broker")

COMMIT: Final = 1
SUSPEND: Final = 2
SUBSCRIPTION: Final = 4

BULK_COUNT_MAX: Final = 1 << 20
HOLD_SECONDS_MAX: Final = 25.0
"""Java gives up on a held pull after 30 s and closes the connection (remoting:8.14)."""

UNSENT_BYTES_MAX: Final = 64 * 1024 * 1024
"""A client with more unread answers than this is told to wait (215) before it gets more."""

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
_EMPTY_QUEUE: Final = (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE)
_REMARKS: Final = {status: status.name.encode() for status in GetStatus}

_parsed = lru_cache(maxsize=4096)(parse_tags)


class Refused(Exception):
    """A pull is answered with an error: code, remark and, for 16, why (broker:5.3)."""

    def __init__(self, code: ResponseCode, remark: str, forbidden: int | None = None) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
        self.ext = {} if forbidden is None else {"forbiddenType": str(forbidden)}


class PullPath:
    """Answers pulls, now or when a message comes."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        clients: ClientTable,
        offsets: ConsumerOffsets,
        filters: ConsumerFilters,
        fence: Fence,
    ) -> None:
        self._settings = settings
        self._fence = fence
        self._managed = fence.groups
        self._store = store
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._offsets = offsets
        self._inquiry = Inquiry(clients, filters)
        self._filters = filters
        self._holds = HoldTable()
        self._resting = HoldTable()
        self._occasional = OccasionalLog(log)
        self._taken: dict[tuple[ConsumeQueue, str], list[int]] = {}
        self._count_max = settings.max_transfer_count_on_message_in_memory
        self._bytes_max = settings.max_transfer_bytes_on_message_in_memory
        self._cached_bytes = memory_bytes() * settings.access_message_in_memory_max_ratio // 100

    def apply(self, settings: BrokerSettings) -> None:
        """Go on with changed settings."""
        self._settings = settings

    def take_counts(self) -> list[tuple[tuple[ConsumeQueue, str], tuple[int, int, int]]]:
        """Messages, bytes and pulls by queue and group since the last call."""
        taken, self._taken = self._taken, {}
        return [(key, (count, size, times)) for key, (count, size, times) in taken.items()]

    @property
    def held(self) -> int:
        """How many pulls wait."""
        return self._holds.count + self._resting.count

    def pull(self, connection: Connection, frame: PullFrame) -> None:
        """Answer one pull, or hold it."""
        fields = frame.fields
        try:
            if connection.unsent_bytes > UNSENT_BYTES_MAX:
                raise Refused(
                    ResponseCode.FLOW_CONTROL,
                    f"{connection.unsent_bytes} bytes of answers wait to be read, the limit is "
                    f"{UNSENT_BYTES_MAX}; read them before pulling more",
                )
            queue, wanted = self._check(fields)
            managed = self._managed.get(fields.consumer_group) if self._managed else None
            if managed is not None:
                granted = managed.generations.get((fields.topic, fields.queue_id))
                if granted != fields.generation:
                    self._check_fence(fields)
        except Refused as refused:
            _refuse(connection, frame, refused)
            if refused.code == ResponseCode.SUBSCRIPTION_NOT_LATEST:
                self._inquiry.ask(connection, fields.consumer_group)
            return
        if self._offsets.resets and self._answer_reset(connection, frame, queue):
            return
        if fields.sys_flag & COMMIT and fields.commit_offset >= 0:
            self._offsets.commit(fields.topic, fields.consumer_group, fields.queue_id, fields.commit_offset)
        if managed is not None and managed.may_rest and self._rests(fields):
            self._rest(connection, frame, queue, wanted)
            return
        self._answer(connection, frame, queue, wanted, may_hold=bool(fields.sys_flag & SUSPEND))

    def recheck(self, group: str) -> None:
        """A group's policy changed: its held pulls are refused, rest or go on waiting, as that says now."""
        held = [*self._holds.take_group(group), *self._resting.take_group(group)]
        for one in held:
            if one.connection.closed:
                continue
            try:
                self._check_fence(one.frame.fields)
            except Refused as refused:
                _refuse(one.connection, one.frame, refused)
                continue
            if self._rests(one.frame.fields):
                self._resting.park(one)
            else:
                self._retry(one, expired=False)

    def _check_fence(self, fields: PullFields) -> None:
        text = self._fence.refusal(fields.consumer_group, fields.topic, fields.queue_id, fields.generation)
        if text:
            raise Refused(ResponseCode.GENERATION_FENCED, text)

    def _rests(self, fields: PullFields) -> bool:
        return self._fence.is_paused(fields.consumer_group, fields.topic, fields.queue_id)

    def _rest(self, connection: Connection, frame: PullFrame, queue: ConsumeQueue, wanted: Wanted) -> None:
        """Hold a pull of a paused queue for as long as it may be held, whatever arrives."""
        held = self._held(connection, frame, queue, wanted)
        if not (frame.fields.sys_flag & SUSPEND and self._resting.park(held)):
            _answer_resting(held)

    def wake(self, queues: set[ConsumeQueue]) -> None:
        """Messages arrived in `queues`: answer the pulls that wait there and want one of them."""
        if not self._holds.count:
            return
        for queue in queues:
            for held in self._holds.take(queue):
                self._retry(held, expired=False)

    def wake_reset(self, topic: str, group: str, queue_id: int) -> None:
        """A group's offset of a queue was reset: its pulls that are held there are told."""
        queue = self._store.find_queue(topic, queue_id)
        if queue is None:
            return
        for held in self._holds.take(queue):
            if held.connection.closed:
                continue
            its_own = held.frame.fields.consumer_group == group
            if not (its_own and self._answer_reset(held.connection, held.frame, queue)):
                self._holds.park(held)

    def _answer_reset(self, connection: Connection, frame: PullFrame, queue: ConsumeQueue) -> bool:
        """Answer a pull with the offset its group was reset to; False when it was not."""
        fields = frame.fields
        offset = self._offsets.take_reset(fields.topic, fields.consumer_group, fields.queue_id)
        if offset is None:
            return False
        low, high = queue.min_offset, queue.max_offset
        code = ResponseCode.PULL_OFFSET_MOVED
        connection.write(pull_answer(code, frame.opaque, offset, low, high, b"OFFSET_RESET", 0))
        return True

    def expire(self) -> None:
        """Answer the held pulls whose time is up, or whose pause is; called about once a second."""
        now = time.monotonic()
        for held in self._holds.take_expired(now):
            self._retry(held, expired=True)
        if not self._resting.count:
            return
        for held in self._resting.take_expired(now):
            _answer_resting(held)
        for held in self._resting.take_expired(float("inf")):
            if self._rests(held.frame.fields):
                self._resting.park(held)
            else:
                self._retry(held, expired=False)

    def drop_connection(self, connection: Connection) -> None:
        """Forget the held pulls of a connection that is gone."""
        self._holds.drop_connection(connection)
        self._resting.drop_connection(connection)

    def release(self, topic: str | None = None) -> None:
        """Answer the held pulls of a topic, or all, because it goes or the broker stops."""
        for held in self._holds.drop_topic(topic) if topic else self._holds.take_expired(float("inf")):
            self._retry(held, expired=True)
        for held in self._resting.drop_topic(topic) if topic else self._resting.take_expired(float("inf")):
            _answer_resting(held)

    def _retry(self, held: HeldPull, *, expired: bool) -> None:
        if held.connection.closed:
            return
        try:
            ready = expired or self._wanted(held)
        except StoreError as error:
            _refuse(held.connection, held.frame, _unreadable(error))
            return
        if ready:
            self._answer(held.connection, held.frame, held.queue, held.wanted, may_hold=False)
        else:
            self._holds.park(held)

    def _wanted(self, held: HeldPull) -> bool:
        """Whether something the held pull wants lies at or after its offset."""
        offset = held.frame.fields.queue_offset
        if held.queue.max_offset <= offset:
            return False
        wanted = held.wanted
        if wanted.match is not None:
            return self._is_matched(held, wanted.match, offset)
        return wanted.codes is None or self._store.has_match(held.queue, offset, wanted.codes)

    def _is_matched(self, held: HeldPull, match: Match, offset: int) -> bool:
        """Look at the records since the last look; when there are many, a read gets the consumer ahead."""
        queue = held.queue
        if queue.max_offset - offset > self._settings.max_filter_message_size // ENTRY_BYTES:
            return True
        start = max(offset, held.scanned)
        found = self._store.get_messages(queue, start, max_count=1, max_bytes=1, match=match)
        held.scanned = found.next_offset
        return found.status is not GetStatus.NO_MATCHED_MESSAGE or found.next_offset < queue.max_offset

    def _check(self, fields: PullFields) -> tuple[ConsumeQueue, Wanted]:
        """The queue of a pull and what it wants of it, after the checks of broker:5.3 in their order."""
        if not self._settings.broker_permission & PERM_READ:
            raise Refused(
                ResponseCode.NO_PERMISSION, "the broker is not readable: brokerPermission has no 4", 1
            )
        group = self._groups.get(fields.consumer_group)
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{fields.consumer_group}] does not exist",
            )
        if not group.consume_enable:
            raise Refused(
                ResponseCode.NO_PERMISSION, f"subscription group no permission, {group.group_name}", 2
            )
        topic = self._topics.get(fields.topic)
        if topic is None:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{fields.topic}] not exist, apply first please! create it with: sparrow topic create",
            )
        if not topic.readable:
            raise Refused(ResponseCode.NO_PERMISSION, f"the topic[{fields.topic}] pulling is forbidden", 3)
        if not 0 <= fields.queue_id < topic.config.read_queue_nums:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{fields.queue_id}] is illegal, topic:[{fields.topic}] "
                f"topicConfig.readQueueNums:[{topic.config.read_queue_nums}]",
            )
        return topic.queues[fields.queue_id], self._subscription(fields, group)

    def _subscription(self, fields: PullFields, group: SubscriptionGroupConfig) -> Wanted:
        if fields.sys_flag & SUBSCRIPTION:
            try:
                if is_tag_type(fields.expression_type):
                    return wanted_tags(_parsed(fields.topic, fields.subscription, 0).tags)
                self._need_property_filter(fields.expression_type)
                return wanted_filter(fields.expression_type or "", fields.subscription or "")
            except InvalidExpressionError as error:
                raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
        name = fields.consumer_group
        online = self._clients.consumers.get(name)
        if online is None:
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist: {name}")
        if not group.consume_broadcast_enable and online.message_model == MessageModel.BROADCASTING:
            raise Refused(ResponseCode.NO_PERMISSION, f"group {name} may not consume in broadcast mode", 4)
        if self._groups.is_forbidden(name, fields.topic):
            raise Refused(ResponseCode.NO_PERMISSION, f"group {name} may not pull {fields.topic}", 5)
        data = online.subscriptions.get(fields.topic)
        if data is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist: {name} does not subscribe {fields.topic}",
            )
        if data.version < fields.sub_version:
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        return wanted_tags(data.tags) if is_tag_type(data.expression_type) else self._registered(fields, data)

    def _registered(self, fields: PullFields, data: SubscriptionData) -> Wanted:
        """What the group's registered filter wants."""
        name = fields.consumer_group
        known = self._filters.get(fields.topic, name)
        if known is None:
            raise Refused(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                f"the broker's consumer filter data is not exist: {name} has none for {fields.topic}; your "
                f"expression may be wrong: {data.expression[:200]}",
            )
        if known.client_version < fields.sub_version:
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
        wanted: Wanted,
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
                max_count=max(1, min(fields.max_msg_nums, count)),
                max_bytes=size,
                codes=wanted.codes,
                match=wanted.match,
            )
        except StoreError as error:
            _refuse(connection, frame, _unreadable(error))
            return
        if result.damaged >= 0:
            text = (
                f"{queue.topic}/{queue.queue_id} offset {result.damaged}: its record is damaged and left out"
            )
            self._occasional.write(logging.ERROR, "damaged", text)
        status = result.status
        code = _CODES[status]
        if status in _EMPTY_QUEUE and fields.queue_offset != 0:
            code = ResponseCode.PULL_OFFSET_MOVED
        if code == ResponseCode.PULL_NOT_FOUND and may_hold and self._hold(connection, frame, queue, wanted):
            return
        head = pull_answer(
            code,
            frame.opaque,
            result.next_offset,
            result.min_offset,
            result.max_offset,
            _REMARKS[status],
            result.size,
            self._suggested(fields, queue, result) if self._settings.slave_read_enable else 0,
        )
        if not result.size:
            connection.write(head)
            return
        connection.write_parts((head, *result.buffers), len(head) + result.size)
        key = queue, fields.consumer_group
        taken = self._taken.get(key)
        if taken is None:
            self._taken[key] = [result.count, result.size, 1]
        else:
            taken[0] += result.count
            taken[1] += result.size
            taken[2] += 1

    def _suggested(self, fields: PullFields, queue: ConsumeQueue, result: GetResult) -> int:
        """The broker id to pull from next: a slave's when the group reads what is no longer cached (5.4)."""
        group = self._groups.get(fields.consumer_group)
        if group is None:
            return 0
        last = queue.physical_offset(result.next_offset - 1) if result.count else None
        if last is not None and self._store.position - last > self._cached_bytes:
            return group.which_broker_when_consume_slowly
        return group.broker_id

    def _hold(
        self,
        connection: Connection,
        frame: PullFrame,
        queue: ConsumeQueue,
        wanted: Wanted,
    ) -> bool:
        return self._holds.park(self._held(connection, frame, queue, wanted))

    def _held(
        self, connection: Connection, frame: PullFrame, queue: ConsumeQueue, wanted: Wanted
    ) -> HeldPull:
        seconds = frame.fields.suspend_timeout_millis / 1000
        if not self._settings.long_polling_enable:
            seconds = self._settings.short_polling_time_mills / 1000
        deadline = time.monotonic() + min(max(0.0, seconds), HOLD_SECONDS_MAX)
        return HeldPull(connection, frame, queue, wanted, deadline)


def _answer_resting(held: HeldPull) -> None:
    """Nothing new, as far as a paused group knows."""
    if held.connection.closed:
        return
    queue, offset = held.queue, held.frame.fields.queue_offset
    code, low, high = ResponseCode.PULL_NOT_FOUND, queue.min_offset, queue.max_offset
    held.connection.write(pull_answer(code, held.frame.opaque, offset, low, high, b"PAUSED", 0))


def _unreadable(error: StoreError) -> Refused:
    return Refused(ResponseCode.SYSTEM_ERROR, f"the messages cannot be read now: {error}")


def _refuse(connection: Connection, frame: PullFrame, refused: Refused) -> None:
    answer = Command(refused.code, frame.opaque, FLAG_RESPONSE, refused.ext, remark=refused.remark)
    connection.send(answer)
