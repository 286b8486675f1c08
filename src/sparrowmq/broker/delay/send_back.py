"""Messages that consumers could not process: stored for a retry, or as dead letters (broker:7, 6.6).

They arrive in two ways. `SendBackRequests` handles CONSUMER_SEND_MSG_BACK (36), which names a stored message.
`DirectRetry` decides about copies that clients send to a retry topic themselves: when 36 failed, and always
from ordered consumers. The two count retries differently, as in RocketMQ: 36 finds the number of earlier
attempts in the stored message (dead with `>=`), a copy has it already increased (dead with `>`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrowmq.broker.base.internal_store import (
    NOT_FLUSHED,
    OPTIONAL_PROPERTIES,
    InnerMessage,
    InnerStore,
    code_of_tags,
)
from sparrowmq.broker.base.offsets import answer, refusal
from sparrowmq.broker.delay.rerouting import DELAY, Rerouting
from sparrowmq.core.errors import (
    InvalidMessageError,
    InvalidNameError,
    NoRoomError,
    RecordError,
    StoreError,
)
from sparrowmq.core.ids import offset_message_id
from sparrowmq.core.message import COPY_BYTES_MAX, PROPERTIES_BYTES_MAX, PROPERTY_ERROR, failure_text
from sparrowmq.core.names import RETRY_PREFIX, check_topic, dlq_topic, retry_topic
from sparrowmq.core.randomness import RANDOM
from sparrowmq.core.route import PERM_WRITE
from sparrowmq.protocol import properties as property_string
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.headers import ConsumerSendMsgBackRequest, from_ext
from sparrowmq.protocol.pop.receipts import FIRST_POP_TIME, normal_topic
from sparrowmq.protocol.refusals import Refused

if TYPE_CHECKING:
    from sparrowmq.broker.tables.groups import GroupTable
    from sparrowmq.broker.tables.shared_tables import SharedTables
    from sparrowmq.core.clock import Clock
    from sparrowmq.core.settings.servers import BrokerSettings
    from sparrowmq.protocol.bodies import SubscriptionGroupConfig
    from sparrowmq.protocol.headers import SendMessageRequest
    from sparrowmq.protocol.record import StoredRecord
    from sparrowmq.transport.connection import Connection

FIRST_RETRY_LEVEL: Final = 3
"""The level of a message's first retry when the consumer lets the broker choose (client:D-101)."""

HEADER_MAX_VERSION: Final = 121
"""3.4.9: for older clients, the header field `maxReconsumeTimes` is ignored."""

UNIT_SUB: Final = 2
"""System flag of retry topics when the consumer is in unit mode."""
DLQ_QUEUES: Final = 1
"""Number of queues of a dead letter topic."""
ROOM_BYTES: Final = 16 * 1024
"""The handler's error is added only to messages whose properties are no longer than this, so that it fits."""


def retry_level(asked: int, reconsumed: int) -> int:
    """The delay level of the next attempt: the requested one, or one level higher after each attempt."""
    return asked if asked > 0 else FIRST_RETRY_LEVEL + reconsumed


def retries_max(group: SubscriptionGroupConfig, version: int, asked: int | None) -> int:
    """The group's maximum of retries: from the client's header, else the group's `retryMaxTimes`."""
    return group.retry_max_times if asked is None or version < HEADER_MAX_VERSION else asked


class Returned(NamedTuple):
    """A message of a group and the queue to store it in, after the delay of `level` (0: at once).

    `why` is the error of its handler, as the client reports it; empty if unknown. `popped` says of a dead
    letter that the group received it by POP.
    """

    record: StoredRecord
    group: str
    topic: str
    queue_id: int
    level: int
    why: str = ""
    popped: bool = False


class SendBackRequests:
    """Handles requests 36. Only the broker that stored a message can: `offset` is a position in its log.

    `settings` returns the current ones: operators change the broker's permission while it runs.
    """

    def __init__(
        self,
        settings: Callable[[], BrokerSettings],
        inner: InnerStore,
        tables: SharedTables,
        clock: Clock,
        *,
        topic_made: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._inner = inner
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._clock = clock
        self._topic_made = topic_made
        self._rerouting = Rerouting.of(settings())

    def handle(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """36: store the message at `offset` again, for a retry by the group.

        If the topic is new, the message is stored once the topic is saved (`_put_later`). With `SYNC_FLUSH`
        the response waits for the disk: after it the consumer commits, and a power failure must not keep the
        commit and lose the retry.
        """
        request = from_ext(ConsumerSendMsgBackRequest, command.ext)
        try:
            returned = self._returned(request, command.version)
            if returned is not None and self._topics.is_unsaved(returned.topic):
                return self._put_later(command, request, returned.topic)
            if returned is None:
                return answer(command)
            self._put(returned)
        except Refused as refused:
            return refused.answer(command.opaque)
        return self._stored(command)

    def _stored(self, command: Command) -> Command | Awaitable[Command]:
        late = refusal(command, ResponseCode.SYSTEM_ERROR, NOT_FLUSHED)
        return self._inner.answer_flushed(answer(command), late)

    def _returned(self, request: ConsumerSendMsgBackRequest, version: int) -> Returned | None:
        """What to store and where; None if the group has no retries. Creates the topic if it is missing, and
        widens it before it gets a message in a queue that it did not have.

        Raises `Refused`, with RocketMQ's checks in RocketMQ's order.
        """
        group = self._groups.get(request.group)
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {request.group}; create it with: sparrow group create",
            )
        settings = self._settings()
        if not settings.broker_permission & PERM_WRITE:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{settings.broker_ip1}] sending message is forbidden",
            )
        if group.retry_queue_nums <= 0:
            return None  # the message is dropped, as in the reference
        topic = retry_topic(group.group_name)
        self._need_topic(topic, group.retry_queue_nums, UNIT_SUB if request.unit_mode else 0)
        try:
            record = self._inner.read(request.offset)
        except StoreError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the message cannot be read now: {error}") from None
        if record is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {request.offset}")
        most = retries_max(group, version, request.max_reconsume_times)
        if record.reconsume_times >= most or request.delay_level < 0:
            topic = dlq_topic(group.group_name)
            self._need_topic(topic, DLQ_QUEUES)
            names = (record.topic, request.origin_topic or "")
            popped = any(normal_topic(name, request.group) != name for name in names)
            return Returned(record, request.group, topic, 0, 0, request.sparrow_error or "", popped)
        retries = self._topics.configs[topic]
        queue_id = RANDOM.randrange(max(1, min(retries.read_queue_nums, retries.write_queue_nums)))
        level = retry_level(request.delay_level, record.reconsume_times)
        return Returned(record, request.group, topic, queue_id, level, request.sparrow_error or "")

    def _need_topic(self, topic: str, queues: int, sys_flag: int = 0) -> None:
        """Create the topic if it is missing, or widen it. Raises `Refused` unless messages may be stored in
        it.
        """
        try:
            check_topic(topic)
        except InvalidNameError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"topic[{topic}] not exist: {error}") from None
        try:
            made = self._topics.ensure_soon(topic, queues, sys_flag=sys_flag)
        except NoRoomError as error:
            raise Refused(ResponseCode.SYSTEM_BUSY, f"topic[{topic}] not exist: {error}") from None
        if made:
            self._topic_made()
        config = self._topics.configs.get(topic)
        if config is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"topic[{topic}] not exist: it is being deleted")
        if not config.perm & PERM_WRITE:
            raise Refused(ResponseCode.NO_PERMISSION, f"the topic[{topic}] sending message is forbidden")

    async def _put_later(self, command: Command, request: ConsumerSendMsgBackRequest, topic: str) -> Command:
        """Store the message once its topic is on disk: a crash must not lose the topic of a stored message.

        The message is read again then, because many waiting messages would take much memory.
        """
        try:
            await self._topics.kept([])  # waits for a save; the topic is created in any case and saved soon
            returned = self._returned(request, command.version)
            if returned is not None:
                self._put(returned)
        except StoreError as error:
            refused = Refused(ResponseCode.SYSTEM_ERROR, f"topic[{topic}] not exist: {error}")
            return refused.answer(command.opaque)
        except Refused as refused:
            return refused.answer(command.opaque)
        stored = self._stored(command)
        return stored if isinstance(stored, Command) else await stored

    def _put(self, returned: Returned) -> None:
        """Store the message, in the delay topic if it has a level. Raises `Refused`."""
        now = self._clock.now_ms()
        record = returned.record
        try:
            text = property_string.encode(returned_properties(returned, now))
            place = self._rerouting.place(returned.topic, returned.queue_id, text, record.sys_flag, now)
            message = InnerMessage.copy_of(record, place.topic, place.queue_id)
            message.properties = place.properties
            message.reconsume_times = record.reconsume_times + 1
            message.prepared_offset = 0
            message.tags_code = code_of_tags(place.properties)
            if place.delay_ms is not None:
                message.tags_code = now + place.delay_ms
            self._inner.put([message])
        except (InvalidMessageError, RecordError) as error:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"the message cannot be stored: {error}") from None
        except (Refused, StoreError) as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the message could not be stored: {error}") from None
        if returned.level:
            self._count_lag(returned.group, returned.topic, returned.queue_id)

    def _count_lag(self, group: str, topic: str, queue_id: int) -> None:
        """A group has a lag only where it has an offset, and its members may leave before they have one."""
        if self._offsets.query(topic, group, queue_id) is None:
            self._offsets.commit(topic, group, queue_id, self._topics.own_queue(topic, queue_id).min_offset)


def returned_properties(returned: Returned, now: int) -> dict[str, str]:
    """The properties of a retry; topic and id of the original message are kept through all retries.

    `why`, the last error of its handler, is added if there is room, and `1ST_POP_TIME` to a dead letter that
    was received by POP: by it a resend knows which retry topic the group reads. A message of an older store
    may lack room for what a retry needs: it loses its optional properties.
    """
    record, why = returned.record, returned.why
    own = property_string.decode(record.properties)
    if len(record.properties) > PROPERTIES_BYTES_MAX - COPY_BYTES_MAX:
        for name in OPTIONAL_PROPERTIES:
            own.pop(name, None)
    own["RETRY_TOPIC"] = normal_topic(own.get("RETRY_TOPIC", record.topic), returned.group)
    if not own.get("ORIGIN_MESSAGE_ID", "").strip():
        own["ORIGIN_MESSAGE_ID"] = offset_message_id(record.store_host, record.physical_offset)
    own["WAIT"] = "false"
    own[DELAY] = str(returned.level)
    own.pop(PROPERTY_ERROR, None)
    if why and len(record.properties) < ROOM_BYTES:
        own[PROPERTY_ERROR] = failure_text(why)
    if returned.popped and len(record.properties) < ROOM_BYTES:
        own.setdefault(FIRST_POP_TIME, str(now))
    return own


class DirectRetry:
    """Decides about sends to `%RETRY%<group>`.

    `is_locked` says whether the group holds a queue lock, so its members consume in order. They retry locally
    and send a copy only when they give up.
    """

    def __init__(self, groups: GroupTable, *, is_locked: Callable[[str], bool]) -> None:
        self._groups = groups
        self._is_locked = is_locked

    def is_dead(self, request: SendMessageRequest, version: int) -> bool:
        """Whether the message goes to its group's dead letters; False if its topic is not a retry topic.

        It does so after more retries than allowed, and at once if the group consumes in order. A message that
        was not retried and names no limit begins a new life: it is a dead letter that is sent again. Raises
        `Refused` if the group does not exist.
        """
        if not request.topic.startswith(RETRY_PREFIX):
            return False
        name = request.topic[len(RETRY_PREFIX) :]
        is_new = request.reconsume_times == 0 and request.max_reconsume_times is None
        if is_new and self._is_of_pop(name):
            return False
        group = self._groups.get(name)
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {name}; create it with: sparrow group create",
            )
        if is_new:
            return False
        most = retries_max(group, version, request.max_reconsume_times)
        return request.reconsume_times > most or self._is_locked(name)

    def _is_of_pop(self, name: str) -> bool:
        """Whether a retry topic with this name is one of POP: of a known group and a topic."""
        known = self._groups.configs
        return name not in known and any(sign in "_+" and name[:at] in known for at, sign in enumerate(name))
