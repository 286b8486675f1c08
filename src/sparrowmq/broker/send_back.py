"""Messages that consumers could not process: back for a later try, or to the dead letters (broker:7, 6.6).

`SendBack` answers CONSUMER_SEND_MSG_BACK (36). `DirectRetry` decides about messages that clients send to a
retry topic themselves, as they do when 36 failed and as ordered consumers always do.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrowmq.broker.inner import InnerMessage, InnerStore, code_of_tags
from sparrowmq.broker.progress import answer, refusal
from sparrowmq.broker.rerouting import DELAY, RerouteRefused, Rerouting
from sparrowmq.core.errors import InvalidMessageError, InvalidNameError, RecordError, StoreError
from sparrowmq.core.ids import offset_message_id
from sparrowmq.core.names import RETRY_PREFIX, check_topic, dlq_topic, retry_topic
from sparrowmq.core.route import PERM_WRITE
from sparrowmq.protocol import properties as property_string
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers import ConsumerSendMsgBackRequest, from_ext

if TYPE_CHECKING:
    from sparrowmq.broker.groups import GroupTable
    from sparrowmq.broker.topics import TopicTable
    from sparrowmq.core.clock import Clock
    from sparrowmq.core.settings import BrokerSettings
    from sparrowmq.protocol.bodies import SubscriptionGroupConfig
    from sparrowmq.protocol.frame import Command
    from sparrowmq.protocol.headers import SendMessageRequest
    from sparrowmq.protocol.record import StoredRecord
    from sparrowmq.transport.connection import Connection

FIRST_RETRY_LEVEL: Final = 3
"""The level of a message's first retry when the consumer leaves it to the broker (client:D-101)."""

HEADER_MAX_VERSION: Final = 121
"""3.4.9: older clients' `maxReconsumeTimes` does not count."""

UNIT_SUB: Final = 2
DLQ_QUEUES: Final = 1


def retry_level(asked: int, reconsumed: int) -> int:
    """The delay level of the next try: the one asked for, or one step further each time."""
    return asked if asked > 0 else FIRST_RETRY_LEVEL + reconsumed


def retries_max(group: SubscriptionGroupConfig, version: int, asked: int | None) -> int:
    """How often the group retries: what the client's header says, else the group's `retryMaxTimes`."""
    return group.retry_max_times if asked is None or version < HEADER_MAX_VERSION else asked


class Refused(Exception):
    """A send-back is answered with an error: code and remark."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


class Returned(NamedTuple):
    """A message that goes back, and where to: after the delay of a level, or at once with 0."""

    record: StoredRecord
    topic: str
    queue_id: int
    level: int


def _refusal(command: Command, refused: Refused) -> Command:
    return refusal(command, refused.code, refused.remark)


class SendBack:
    """Takes messages back. Only the broker that stored a message can: `offset` is its own."""

    def __init__(
        self,
        settings: BrokerSettings,
        inner: InnerStore,
        topics: TopicTable,
        groups: GroupTable,
        clock: Clock,
        *,
        topic_made: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._inner = inner
        self._topics = topics
        self._groups = groups
        self._clock = clock
        self._topic_made = topic_made
        self._rerouting = Rerouting.of(settings)

    def handle(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """36: store the message at `offset` again, for a later try of the group.

        The answer of one that goes to a new topic waits until the topic is saved.
        """
        request = from_ext(ConsumerSendMsgBackRequest, command.ext)
        try:
            returned = self._take_back(request, command.version)
            if returned is not None and self._topics.is_unsaved(returned.topic):
                return self._put_later(command, returned)
            if returned is not None:
                self._put(returned)
        except Refused as refused:
            return _refusal(command, refused)
        return answer(command)

    def _take_back(self, request: ConsumerSendMsgBackRequest, version: int) -> Returned | None:
        """What is to be stored, and where; None when the group wants no retries."""
        group = self._groups.get(request.group)
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {request.group}; create it with: sparrow group create",
            )
        if not self._settings.broker_permission & PERM_WRITE:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._settings.broker_ip1}] sending message is forbidden",
            )
        if group.retry_queue_nums <= 0:
            return None  # the message is dropped, as in the reference
        topic = retry_topic(group.group_name)
        self._make(topic, group.retry_queue_nums, UNIT_SUB if request.unit_mode else 0)
        try:
            record = self._inner.read(request.offset)
        except StoreError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the message cannot be read now: {error}") from None
        if record is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {request.offset}")
        most = retries_max(group, version, request.max_reconsume_times)
        if record.reconsume_times >= most or request.delay_level < 0:
            topic = dlq_topic(group.group_name)
            self._make(topic, DLQ_QUEUES)
            return Returned(record, topic, 0, 0)
        queue_id = random.randrange(group.retry_queue_nums)
        return Returned(record, topic, queue_id, retry_level(request.delay_level, record.reconsume_times))

    def _make(self, topic: str, queues: int, sys_flag: int = 0) -> None:
        try:
            check_topic(topic)
        except InvalidNameError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"topic[{topic}] not exist: {error}") from None
        if self._topics.ensure_soon(topic, queues, sys_flag=sys_flag):
            self._topic_made()
        config = self._topics.configs.get(topic)
        if config is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"topic[{topic}] not exist: it is being deleted")
        if not config.perm & PERM_WRITE:
            raise Refused(ResponseCode.NO_PERMISSION, f"the topic[{topic}] sending message is forbidden")

    async def _put_later(self, command: Command, returned: Returned) -> Command:
        """Store it once its topic is on disk: nobody looks for dead letters in a topic that a crash took."""
        try:
            await self._topics.kept([])  # the topic itself stays, whatever the disk says: it is saved soon
            self._put(returned)
        except StoreError as error:
            refused = Refused(ResponseCode.SYSTEM_ERROR, f"topic[{returned.topic}] not exist: {error}")
            return _refusal(command, refused)
        except Refused as refused:
            return _refusal(command, refused)
        return answer(command)

    def _put(self, returned: Returned) -> None:
        now = self._clock.now_ms()
        record, topic, queue_id, level = returned
        try:
            text = property_string.encode(returned_properties(record, level))
            place = self._rerouting.place(topic, queue_id, text, record.sys_flag, now)
            message = InnerMessage.copy_of(record, place.topic, place.queue_id)
            message.properties = place.properties
            message.reconsume_times = record.reconsume_times + 1
            message.prepared_offset = 0
            message.tags_code = code_of_tags(place.properties)
            if place.delay_ms is not None:
                message.tags_code = now + place.delay_ms
            self._inner.put([message])
        except (RerouteRefused, InvalidMessageError, RecordError, StoreError) as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the message could not be stored: {error}") from None


def returned_properties(record: StoredRecord, level: int) -> dict[str, str]:
    """The properties of a message that comes back: first topic and first id are kept through all retries."""
    own = property_string.decode(record.properties)
    own.setdefault("RETRY_TOPIC", record.topic)
    if not own.get("ORIGIN_MESSAGE_ID", "").strip():
        own["ORIGIN_MESSAGE_ID"] = offset_message_id(record.store_host, record.physical_offset)
    own["WAIT"] = "false"
    own[DELAY] = str(level)
    return own


class DirectRetry:
    """Decides about sends to `%RETRY%<group>`. `is_locked` says whether a group holds any queue lock."""

    def __init__(self, groups: GroupTable, *, is_locked: Callable[[str], bool]) -> None:
        self._groups = groups
        self._is_locked = is_locked

    def is_dead(self, request: SendMessageRequest, version: int) -> bool:
        """Whether the message goes to its group's dead letters; False for topics that are no retry topics.

        It does after more retries than allowed, and at once when the group consumes in order. Raises
        `Refused` when there is no such group.
        """
        if not request.topic.startswith(RETRY_PREFIX):
            return False
        name = request.topic[len(RETRY_PREFIX) :]
        group = self._groups.get(name)
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {name}; create it with: sparrow group create",
            )
        most = retries_max(group, version, request.max_reconsume_times)
        return request.reconsume_times > most or self._is_locked(name)
