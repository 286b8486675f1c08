"""The send path: from requests to records, a chunk at a time (broker:6.3).

`store_chunk` is the hot path: all plain sends of one read (see `plain_sends`) become one append to the log
and one write to the socket. Other sends are returned and go through `handle`, which makes all checks of
RocketMQ in its order and answers with its codes.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Final, Union

from msgspec.structs import replace

from sparrowmq.broker.base.held_answers import HeldAnswers
from sparrowmq.broker.base.internal_store import NEW_FILES_MAX
from sparrowmq.broker.delay.recall import recall_handle
from sparrowmq.broker.delay.rerouting import Rerouting, delay_level
from sparrowmq.broker.delay.send_back import DLQ_QUEUES
from sparrowmq.broker.send.batch_limits import BatchLimits
from sparrowmq.broker.send.half_sends import HalfSends
from sparrowmq.broker.send.idempotent import IdempotentSends, asks_for_judgement
from sparrowmq.broker.send.plain_sends import PlainSends
from sparrowmq.broker.send.send_items import SendItems, ended
from sparrowmq.broker.transactions.half_messages import (
    encode_half,
    is_half,
    may_be_half,
    too_many_open,
)
from sparrowmq.core.errors import (
    InvalidMessageError,
    InvalidNameError,
    NoRoomError,
    ProtocolError,
    RecordError,
    StoreError,
)
from sparrowmq.core.ids import UniqueIds, offset_message_id, unpack_host
from sparrowmq.core.names import HALF_TOPIC, RETRY_PREFIX, SEND_FORBIDDEN_TOPICS, check_topic, dlq_topic
from sparrowmq.core.randomness import RANDOM
from sparrowmq.protocol import properties
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import FLAG_ONEWAY, JSON_HEADER, Command
from sparrowmq.protocol.headers import SendMessageRequest, from_ext, send_from_v2
from sparrowmq.protocol.hot import SendAnswers, SendFields, json_text
from sparrowmq.protocol.refusals import Refused
from sparrowmq.protocol.sysflag import INNER_BATCH, TRANSACTION_MASK
from sparrowmq.transport.occasional import OccasionalLog
from sparrowmq.transport.slices import PerTurn

if TYPE_CHECKING:
    from sparrowmq.broker.base.durability import Durability
    from sparrowmq.broker.base.registration import Announcements
    from sparrowmq.broker.delay.send_back import DirectRetry
    from sparrowmq.broker.tables.topics import Topic, TopicTable
    from sparrowmq.core.clock import Clock
    from sparrowmq.core.settings.servers import BrokerSettings
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.queues.consume_queue import ConsumeQueue
    from sparrowmq.store.writer import ChunkItem
    from sparrowmq.transport.connection import Connection
    from sparrowmq.transport.request_watch import RequestWatch, StoredSend

log = logging.getLogger("sparrowmq.broker")

SUCCESS: Final = int(ResponseCode.SUCCESS)
"""A plain number, because converting an enum member to bytes takes three times as long."""
STORED_BYTES: Final = 500
"""Memory an answer uses until it is written."""
SLAVE_TEXT: Final = "[REJECTREQUEST]system busy, start flow control for a while: this broker is a slave"
"""The answer to a send at a slave, with code 2 as in RocketMQ, so that clients try another broker."""
WITHOUT_TRANSACTION: Final = ~TRANSACTION_MASK
"""The system flags that are stored as received."""
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

Answered = Union["Connection", "HeldAnswers"]
Wake = Callable[[set["ConsumeQueue"]], None]
AnswerFrame = Callable[[int, int, int, int, bytes, bytes], bytes]
"""Makes an answer from the code and the values of `StoredSend`."""


class SendPath:
    """Accepts sends of every form and stores them.

    `is_full` returns, for the end of the half queue, whether too many transactions are open.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        topics: TopicTable,
        durability: Durability,
        clock: Clock,
        *,
        wake: Wake,
        registration: Announcements,
        retries: DirectRetry,
        is_full: Callable[[int], bool],
        requests: RequestWatch,
    ) -> None:
        self._settings = settings
        self._requests = requests
        self._retries = retries
        self._rerouting = Rerouting.of(settings)
        self._store = store
        self._topics = topics
        self._durability = durability
        self._is_slave = settings.is_slave
        self._clock = clock
        self._wake = wake
        self._registration = registration
        self._body_max = settings.max_message_size
        self._occasional = OccasionalLog(log)
        trace_on = settings.trace_on
        self._answers = SendAnswers(region=settings.region_id, trace_on=trace_on)
        self._id_prefix = offset_message_id(store.store_host, 0)[:-16].encode()
        self._added = properties.encode(
            {
                "MSG_REGION": settings.region_id,
                "TRACE_ON": "true" if trace_on else "false",
                "CLUSTER": settings.broker_cluster_name,
            }
        )
        self._hook = {"MSG_REGION": settings.region_id, "TRACE_ON": "true" if trace_on else "false"}
        self._is_full = is_full
        limits = BatchLimits(self._body_max, len(self._added))
        halves = HalfSends(
            topics, self._added, is_full=is_full, are_refused=settings.reject_transaction_message
        )
        self._plain = PlainSends(topics, halves, limits, self._added, self._body_max)
        self._items = SendItems(self._plain, limits, len(self._added), self._body_max)
        self._unique_ids = UniqueIds(unpack_host(store.store_host)[0])
        self._idempotent = IdempotentSends(store, clock)
        self._new_files = PerTurn(NEW_FILES_MAX)

    # The hot path

    def store_chunk(
        self, connection: Connection, sends: list[tuple[bytes, bytes]]
    ) -> list[tuple[bytes, bytes]]:
        """Store and answer the plain sends among `sends` (header, body); return the others.

        If this turn has created enough queue files, sends from the first one that needs another file are
        deferred.
        """
        if self._refusal() is not None:
            return sends
        now = self._clock.now_ms()
        find_plain, append = self._plain.find, self._store.append
        born_host, id_prefix = connection.born_host, self._id_prefix
        stored: list[StoredSend] = []
        touched: set[ConsumeQueue] = set()
        others: list[tuple[bytes, bytes]] = []
        for number, send in enumerate(sends):
            header, body = send
            plain = find_plain(header, body)
            if plain is None:
                others.append(send)
                continue
            frame, topic, queue, text, tags_code, unique_key = plain
            fields, queue_offset = frame.fields, queue.next_offset
            if queue_offset >= queue.writable_until and not self._new_files.take():
                connection.put_off([(JSON_HEADER, *late) for late in sends[number:]])
                break
            if fields.m:
                ids = self._store_batch(connection, fields, topic, body, now)
            else:
                try:
                    physical = append(
                        queue,
                        body,
                        text,
                        flag=fields.h,
                        sys_flag=fields.f & WITHOUT_TRANSACTION | topic.sys_flag,
                        born_timestamp=fields.g,
                        born_host=born_host,
                        reconsume_times=fields.j,
                        prepared_offset=0,
                        tags_code=tags_code,
                        now_ms=now,
                    )
                    ids = b"%b%016X" % (id_prefix, physical)
                except RecordError:
                    ids = b""
            if not ids:
                others.append(send)
                continue
            touched.add(queue)
            if not frame.flag & FLAG_ONEWAY:
                stored.append((frame.opaque, fields.e, queue_offset, ids, unique_key))
        if touched:
            self._commit(connection, stored, touched, self._answers.frame)
        return others

    def _store_batch(
        self, connection: Connection, fields: SendFields, topic: Topic, body: bytes, now: int
    ) -> bytes:
        """Append the messages of a plain batch; returns their ids, or nothing when the batch is not plain."""
        queue, sys_flag = topic.queues[fields.e], fields.f | topic.sys_flag
        try:
            alike = self._plain.alike_batch(fields.topic, body)
            if alike is not None:
                batch, codes = alike
                starts = self._store.append_alike(
                    queue,
                    batch,
                    codes,
                    self._added,
                    sys_flag=sys_flag,
                    born_timestamp=fields.g,
                    born_host=connection.born_host,
                    reconsume_times=fields.j,
                    now_ms=now,
                )
                if starts is not None:
                    return self._ids(starts)
            items = self._plain.batch(fields.topic, body)
            if not items:
                return b""
            places = self._store.append_batch(
                queue,
                items,
                self._added,
                sys_flag=sys_flag,
                born_timestamp=fields.g,
                born_host=connection.born_host,
                reconsume_times=fields.j,
                now_ms=now,
            )
        except RecordError:
            return b""
        return self._ids(places)

    def _commit(
        self,
        connection: Answered,
        stored: list[StoredSend],
        touched: set[ConsumeQueue],
        frame: AnswerFrame,
    ) -> bool:
        """Write the appended messages, answer, and wake the pulls that waited for them; returns whether they
        were written.

        `frame` makes the answer for one stored message or one batch.
        """
        try:
            self._store.commit_chunk()
        except StoreError as error:
            refused = _store_refusal(error)
            self._occasional.write(logging.ERROR, "refused", f"messages are refused: {error}")
            for opaque, *_ in stored:
                connection.send(refused.answer(opaque, self._hook))
            return False
        if self._durability.waits:
            self._answer_later(connection, stored, touched, frame)
        else:
            self._answer(connection, stored, SUCCESS, frame)
            self._wake(touched)
            if self._requests.counts and stored:
                took = monotonic() - connection.began
                self._requests.add("send_message_v2", "success", took, len(stored))
        return True

    def _answer_later(
        self,
        connection: Answered,
        stored: list[StoredSend],
        touched: set[ConsumeQueue],
        frame: AnswerFrame,
    ) -> None:
        """Finish `_commit` once the data is on disk and at slaves, or the wait has timed out."""
        began, since = connection.began, monotonic()

        def answered(code: int) -> None:
            self._answer(connection, stored, code, frame)
            self._requests.durable(connection.address, stored, began, monotonic() - since, code)

        def visible() -> None:
            self._wake(touched)

        self._durability.after(self._store.position, answered, visible, len(stored) * STORED_BYTES)

    def _answer(self, connection: Answered, stored: list[StoredSend], code: int, frame: AnswerFrame) -> None:
        if len(stored) == 1:  # a list costs more than the one answer in it
            opaque, q, offset, mid, key = stored[0]
            connection.write(frame(code, opaque, q, offset, mid, key))
            return
        connection.write(
            b"".join([frame(code, opaque, q, offset, mid, key) for opaque, q, offset, mid, key in stored])
        )

    def _refusal(self) -> Refused | None:
        """Why no message can be accepted now, or None."""
        durability = self._durability
        if self._is_slave:
            return Refused(ResponseCode.SYSTEM_BUSY, SLAVE_TEXT)
        failed = durability.flusher.failed
        if failed is not None:
            return _store_refusal(StoreError(f"the disk failed: {failed}"))
        if durability.waits:
            if durability.busy:
                return Refused(
                    ResponseCode.SYSTEM_BUSY, "[OVERLOAD]system busy, start flow control for a while"
                )
            too_few = durability.refusal()
            if too_few is not None:
                return Refused(ResponseCode.SYSTEM_ERROR, too_few)
        full = self._store.full
        if full is not None:
            return Refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now. {full}")
        return None

    # The general path

    def handle(self, connection: Connection, command: Command) -> Command | Awaitable[None] | None:
        """Store one send of any form (codes 10, 310, 320); without a returned command, the answer is sent
        later.

        The answer to a send to a new topic is an awaitable that waits until the topic is saved. The send that
        created the topic also waits until the name servers know it.
        """
        made = False
        try:
            request = self._request(command)
            self._check_request(request)
            request, made = self._retried(request, command.version)
            made = self._make_topic(request) or made
            is_new = made or self._topics.is_unsaved(request.topic)
            target = HeldAnswers(connection) if is_new else connection
            self._store_request(target, command, request)
        except NoRoomError as error:
            return Refused.of(error).answer(command.opaque, self._hook)
        except Refused as refused:
            if made:
                self._registration.changed_soon()
            return refused.answer(command.opaque, self._hook)
        return self._kept(target, command, request.topic, made) if isinstance(target, HeldAnswers) else None

    async def _kept(self, held: HeldAnswers, command: Command, topic: str, made: bool) -> None:
        try:
            await self._topics.kept([topic])
        except StoreError as error:
            if not command.is_oneway:
                held.refuse(_store_refusal(error).answer(command.opaque, self._hook))
            return
        if made:
            await self._registration.changed()
        held.release()

    def _request(self, command: Command) -> SendMessageRequest:
        try:
            if command.code == RequestCode.SEND_MESSAGE:
                request = from_ext(SendMessageRequest, command.ext)
            else:
                request = send_from_v2(command.ext)
        except ProtocolError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the send header cannot be read: {error}") from None
        for name in ("flag", "sys_flag", "reconsume_times", "queue_id"):
            if not -INT32_MAX - 1 <= getattr(request, name) <= INT32_MAX:
                raise Refused(ResponseCode.INVALID_PARAMETER, f"{name} must be a 32-bit integer")
        if not -INT64_MAX - 1 <= request.born_timestamp <= INT64_MAX:
            raise Refused(ResponseCode.INVALID_PARAMETER, "born_timestamp must be a 64-bit integer")
        return request

    def _check_request(self, request: SendMessageRequest) -> None:
        refusal = self._refusal()
        if refusal is not None:
            raise refusal
        try:
            check_topic(request.topic)
        except InvalidNameError as error:
            raise Refused(ResponseCode.INVALID_PARAMETER, str(error)) from None
        if request.topic in SEND_FORBIDDEN_TOPICS:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the topic[{request.topic}] is RocketMQ's own; clients may not send to it",
            )
        if request.sys_flag & TRANSACTION_MASK and (request.batch or not may_be_half(request.properties)):
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message is illegal: sysFlag {request.sys_flag} says it is transactional, but it is a "
                "batch or has no property TRAN_MSG=true",
            )
        if request.sys_flag & INNER_BATCH:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message is illegal: sysFlag {request.sys_flag} says it is an inner batch, which needs "
                "a topic with queue.type=BatchCQ, and this broker has none; send a plain batch (320)",
            )

    def _retried(self, request: SendMessageRequest, version: int) -> tuple[SendMessageRequest, bool]:
        """A send to a retry topic, possibly turned into a dead letter; also whether its topic was created."""
        if not request.topic.startswith(RETRY_PREFIX):
            return request, False
        try:
            if self._retries.is_dead(request, version):
                own = properties.decode((request.properties or "").encode()) | {"DELAY": "-1"}
                request = replace(
                    request,
                    topic=dlq_topic(request.topic[len(RETRY_PREFIX) :]),
                    queue_id=0,
                    properties=properties.encode(own).decode(),
                )
            return request, self._topics.ensure_soon(request.topic, DLQ_QUEUES)
        except InvalidMessageError as error:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal: {error}") from None

    def _make_topic(self, request: SendMessageRequest) -> bool:
        """Create the topic of a send if it is new and may be created; True when it was created."""
        if self._topics.get(request.topic) is not None:
            return False
        made = self._topics.create_from_template(
            request.topic, request.default_topic, request.default_topic_queue_nums
        )
        if made is None:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{request.topic}] not exist, create it first (sparrow topic create), or switch "
                f"autoCreateTopicEnable on",
            )
        return True

    def _store_request(self, connection: Answered, command: Command, request: SendMessageRequest) -> None:
        topic = self._topics.get(request.topic)
        assert topic is not None, request.topic
        config = topic.config
        queue_id = request.queue_id
        if queue_id >= topic.queue_count:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{queue_id}] is illegal, topic {request.topic} has "
                f"{config.write_queue_nums} write and {config.read_queue_nums} read queues",
            )
        if queue_id < 0:
            queue_id = RANDOM.randrange(max(1, config.write_queue_nums))
        text = (request.properties or "").encode()
        unique_key = properties.find(text, b"UNIQ_KEY") or b""
        if not unique_key and not request.batch:
            unique_key = self._unique_ids.next(self._clock.now_ms()).encode()
            text = ended(text) + b"UNIQ_KEY\x01" + unique_key + properties.VALUE_END
        items = self._items.of_request(command, request, text)
        queue, recall = topic.queues[queue_id], b""
        if asks_for_judgement(command.ext):
            self._store_judged(connection, command, request, topic, queue, items, unique_key)
            return
        if not request.batch:
            queue, items[0], recall = self._placed(request, queue, items[0], unique_key)
        first_offset = queue.next_offset
        try:
            ids = self._ids(self._append(connection, request, topic, queue, items))
        except RecordError as error:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal: {error}") from None
        stored = (command.opaque, queue_id, first_offset, ids, _quotable(unique_key))
        frame = partial(self._answers.recallable, handle=recall) if recall else self._answers.frame
        self._commit(connection, [] if command.is_oneway else [stored], {queue}, frame)

    def _store_judged(
        self,
        connection: Answered,
        command: Command,
        request: SendMessageRequest,
        topic: Topic,
        queue: ConsumeQueue,
        items: list[ChunkItem],
        unique_key: bytes,
    ) -> None:
        """Store the new messages of an idempotent producer's send, and answer with the positions of all."""
        now = self._clock.now_ms()
        try:
            judged = self._idempotent.judge(queue, items, single=not request.batch)
            new, places, first_offset = items[len(judged.offsets) :], judged.physical, queue.next_offset
            if new:
                places += self._append(connection, request, topic, queue, new)
        except RecordError as error:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal: {error}") from None
        told = judged.offsets[0] if judged.offsets else first_offset
        stored = (command.opaque, queue.queue_id, told, self._ids(places), _quotable(unique_key))
        answers = [] if command.is_oneway else [stored]
        with self._idempotent.committing():
            if self._commit(connection, answers, {queue} if new else set(), self._answers.judged) and new:
                self._idempotent.learn(queue, judged, len(new), first_offset, now)

    def _placed(
        self, request: SendMessageRequest, queue: ConsumeQueue, item: ChunkItem, unique_key: bytes
    ) -> tuple[ConsumeQueue, ChunkItem, bytes]:
        """The final queue of one message, the data to store, and the recall handle if it is timed."""
        flag, body, text, code = item
        now, wanted = self._clock.now_ms(), request.topic
        try:
            if b"TRAN_MSG" in text and (half := self._half(request, queue.queue_id, text)) is not None:
                return self._topics.own_queue(HALF_TOPIC, 0), (flag, body, half, code), b""
            sys_flag = request.sys_flag & WITHOUT_TRANSACTION
            place = self._rerouting.place(wanted, queue.queue_id, text, sys_flag, now)
        except InvalidMessageError as error:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal: {error}") from None
        if place.topic == wanted:
            return queue, item, b""
        if place.delay_ms is not None:
            code = now + place.delay_ms
        recall = b""
        if place.timer_out is not None and not wanted.startswith(RETRY_PREFIX):
            key = unique_key.decode("utf-8", "replace")
            recall = recall_handle(wanted, self._settings.broker_name, place.timer_out, key)
        return (
            self._topics.own_queue(place.topic, place.queue_id),
            (flag, body, place.properties, code),
            recall,
        )

    def _half(self, request: SendMessageRequest, queue_id: int, text: bytes) -> bytes | None:
        """The properties of a half message; None if the message is not one."""
        own = properties.decode(text)
        if not is_half(own, reconsume_times=request.reconsume_times, delay_level=delay_level(own)):
            return None
        if self._settings.reject_transaction_message:
            remark = f"the broker[{self._settings.broker_ip1}] sending transaction message is forbidden"
            raise Refused(ResponseCode.NO_PERMISSION, remark)
        if self._is_full(self._topics.own_queue(HALF_TOPIC, 0).next_offset):
            raise Refused(ResponseCode.SYSTEM_BUSY, too_many_open(self._settings.open_transactions_max))
        return encode_half(own, request.topic, queue_id, len(self._added))

    def _append(
        self,
        connection: Answered,
        request: SendMessageRequest,
        topic: Topic,
        queue: ConsumeQueue,
        items: list[ChunkItem],
    ) -> list[int]:
        """Append the messages contiguously; returns their physical offsets."""
        return self._store.append_batch(
            queue,
            items,
            self._added,
            sys_flag=request.sys_flag & WITHOUT_TRANSACTION | topic.sys_flag,
            born_timestamp=request.born_timestamp,
            born_host=connection.born_host,
            reconsume_times=request.reconsume_times,
            now_ms=self._clock.now_ms(),
        )

    def _ids(self, places: Sequence[int]) -> bytes:
        """The message ids of physical offsets, comma-joined."""
        prefix = self._id_prefix
        digits = struct.pack(f">{len(places)}Q", *places).hex(",", 8).upper().encode()
        return prefix + digits.replace(b",", b"," + prefix)


def _quotable(unique_key: bytes) -> bytes:
    """A unique key as it appears in JSON text."""
    return unique_key if not unique_key or unique_key.isalnum() else json_text(unique_key)


def _store_refusal(error: StoreError) -> Refused:
    if error.retryable:
        return Refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now. {error}")
    return Refused(ResponseCode.SYSTEM_ERROR, f"the message could not be stored: {error}")
