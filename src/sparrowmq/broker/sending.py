"""Sends: from request to record, a chunk at a time (broker:6.3).

`store_chunk` is the hot path: all clean sends of one read become one append to the log and one write to the
socket. Whatever is not clean (unknown or forbidden topic, odd header, a limit broken) is handed back and
goes through `handle`, which does every check of the reference, in its order, and answers with its codes.
"""

from __future__ import annotations

import logging
import random
import struct
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Union

from msgspec.structs import replace

from sparrowmq.broker.answers import HeldAnswers
from sparrowmq.broker.half_sends import HalfSends
from sparrowmq.broker.idempotent import IdempotentSends, SequenceRefused, asks_for_judgement
from sparrowmq.broker.recall import recall_handle
from sparrowmq.broker.rerouting import RerouteRefused, Rerouting, delay_level
from sparrowmq.broker.send_back import DLQ_QUEUES
from sparrowmq.broker.send_back import Refused as RetryRefused
from sparrowmq.broker.send_items import Refused, SendItems, ended
from sparrowmq.broker.transaction import encode_half, is_half, may_be_half
from sparrowmq.core.errors import (
    InvalidMessageError,
    InvalidNameError,
    ProtocolError,
    RecordError,
    StoreError,
)
from sparrowmq.core.ids import UniqueIds, offset_message_id, unpack_host
from sparrowmq.core.message import PROPERTIES_BYTES_MAX
from sparrowmq.core.names import HALF_TOPIC, RETRY_PREFIX, SEND_FORBIDDEN_TOPICS, check_topic, dlq_topic
from sparrowmq.protocol import properties
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import FLAG_ONEWAY, FLAG_RESPONSE, Command
from sparrowmq.protocol.headers import SendMessageRequest, from_ext, send_from_v2
from sparrowmq.protocol.hot import SendAnswers, SendFields, decode_send, json_text
from sparrowmq.protocol.sysflag import TRANSACTION_MASK
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.broker.flushing import Flusher
    from sparrowmq.broker.registration import Registration
    from sparrowmq.broker.send_back import DirectRetry
    from sparrowmq.broker.topics import Topic, TopicTable
    from sparrowmq.core.clock import Clock
    from sparrowmq.core.settings import BrokerSettings
    from sparrowmq.store.consume_queue import ConsumeQueue
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.writer import ChunkItem
    from sparrowmq.transport.connection import Connection

log = logging.getLogger("sparrowmq.broker")

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

Stored = tuple[int, int, int, bytes, bytes]
"""What an answer needs: opaque, queue id, queue offset, message id, unique key."""

Answered = Union["Connection", "HeldAnswers"]
Wake = Callable[[set["ConsumeQueue"]], None]


class SendPath:
    """Takes sends of every form and stores them."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        topics: TopicTable,
        flusher: Flusher,
        clock: Clock,
        *,
        store_host: bytes,
        wake: Wake,
        registration: Registration,
        retries: DirectRetry,
    ) -> None:
        self._settings = settings
        self._retries = retries
        self._rerouting = Rerouting.of(settings)
        self._store = store
        self._topics = topics
        self._flusher = flusher
        self._clock = clock
        self._wake = wake
        self._registration = registration
        self._body_max = settings.max_message_size
        self._occasional = OccasionalLog(log)
        trace_on = settings.trace_on
        self._answers = SendAnswers(region=settings.region_id, trace_on=trace_on)
        self._id_prefix = offset_message_id(store_host, 0)[:-16].encode()
        self._added = properties.encode(
            {
                "MSG_REGION": settings.region_id,
                "TRACE_ON": "true" if trace_on else "false",
                "CLUSTER": settings.broker_cluster_name,
            }
        )
        self._hook = {"MSG_REGION": settings.region_id, "TRACE_ON": "true" if trace_on else "false"}
        self._items = SendItems(self._body_max, self._added)
        self._half_sends = HalfSends(settings, store, self._added, self._id_prefix, self._items.tags_code)
        self._unique_ids = UniqueIds(unpack_host(store_host)[0])
        self._idempotent = IdempotentSends(store)

    # The hot path

    def store_chunk(
        self, connection: Connection, sends: list[tuple[bytes, bytes]]
    ) -> list[tuple[bytes, bytes]]:
        """Store the clean ones of `sends` (header, body) and answer them; give back the others."""
        if self._refusal() is not None:
            return sends
        now = self._clock.now_ms()
        get_topic, append, tags_code = self._topics.get, self._store.append, self._items.tags_code
        added, body_max, born_host = self._added, self._body_max, connection.born_host
        id_prefix, append_half = self._id_prefix, self._half_sends.append
        stored: list[Stored] = []
        touched: set[ConsumeQueue] = set()
        others: list[tuple[bytes, bytes]] = []
        for send in sends:
            header, body = send
            frame = decode_send(header)
            if frame is None or (topic := get_topic(frame.fields.topic)) is None:
                others.append(send)
                continue
            fields = frame.fields
            queue_id, text = fields.e, fields.i.encode()
            if (
                topic.special
                or not 0 <= queue_id < len(topic.queues)
                or fields.idempotent
                or not 0 < len(body) <= body_max
                or fields.f & TRANSACTION_MASK
                or len(text) > PROPERTIES_BYTES_MAX - len(added)
                or (at := text.rfind(b"UNIQ_KEY\x01")) < 0
                or text[-1] != 2
                or b"DELAY\x01" in text
                or b"TIMER_D" in text
                or b"POP_CK" in text
                or b"TRAN_MSG" in text
                or not (unique_key := text[at + 9 : text.find(b"\x02", at)]).isalnum()
                or (at and text[at - 1] != 2)
            ):
                if not append_half(connection, frame, topic, body, now, stored, touched):
                    others.append(send)
                continue
            queue = topic.queues[queue_id]
            queue_offset = queue.next_offset
            if fields.m:
                ids = self._store_batch(connection, fields, topic, body, now)
            else:
                try:
                    physical = append(
                        queue,
                        body,
                        text + added,
                        flag=fields.h,
                        sys_flag=fields.f | topic.sys_flag,
                        born_timestamp=fields.g,
                        born_host=born_host,
                        reconsume_times=fields.j,
                        prepared_offset=0,
                        tags_code=tags_code(text),
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
                stored.append((frame.opaque, queue_id, queue_offset, ids, unique_key))
        if touched:
            self._commit(connection, stored, touched)
        return others

    def _store_batch(
        self, connection: Connection, fields: SendFields, topic: Topic, body: bytes, now: int
    ) -> bytes:
        """Append the messages of a clean batch; their ids, or nothing when it is not clean."""
        queue, sys_flag = topic.queues[fields.e], fields.f | topic.sys_flag
        try:
            alike = self._items.of_alike_batch(fields.topic, body)
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
            items = self._items.of_clean_batch(fields.topic, body)
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
        stored: list[Stored],
        touched: set[ConsumeQueue],
        recall: bytes = b"",
        judged: bool = False,
    ) -> bool:
        """Write what was appended, answer, and wake the pulls that waited for it; whether it was written.

        `recall` is the handle of the one timed message that was stored; `judged` answers an idempotent
        producer.
        """
        try:
            self._store.commit_chunk()
        except StoreError as error:
            code, remark = _store_refusal(error)
            self._occasional.write(logging.ERROR, "refused", f"messages are refused: {error}")
            for opaque, *_ in stored:
                connection.send(_error(opaque, code, remark, self._hook))
            return False
        if not self._flusher.sync:
            self._answer(connection, stored, ResponseCode.SUCCESS, recall, judged)
            self._wake(touched)
            return True

        answered = False

        def flushed(on_disk: bool) -> None:
            nonlocal answered
            if not answered:
                code = ResponseCode.SUCCESS if on_disk else ResponseCode.FLUSH_DISK_TIMEOUT
                self._answer(connection, stored, code, recall, judged)
                answered = True
            if on_disk:  # only then it is visible
                self._wake(touched)

        self._flusher.after(self._store.position, flushed)
        return True

    def _answer(
        self, connection: Answered, stored: list[Stored], code: int, recall: bytes, judged: bool
    ) -> None:
        frame = partial(self._answers.recallable, handle=recall) if recall else self._answers.frame
        if judged:
            frame = self._answers.judged
        connection.write(
            b"".join([frame(code, opaque, q, offset, mid, key) for opaque, q, offset, mid, key in stored])
        )

    def _refusal(self) -> tuple[ResponseCode, str] | None:
        """Why no message can be taken at all now, or None."""
        if self._flusher.failed is not None:
            return _store_refusal(StoreError(f"the disk failed: {self._flusher.failed}"))
        if self._flusher.busy:
            return ResponseCode.SYSTEM_BUSY, "[OVERLOAD]system busy, start flow control for a while"
        full = self._store.full
        if full is not None:
            return ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now. {full}"
        return None

    # The general path

    def handle(self, connection: Connection, command: Command) -> Command | Awaitable[None] | None:
        """Store one send of any form (codes 10, 310, 320); without a command its answer comes by itself.

        The answer of a send to a new topic waits, as an awaitable, until the topic is saved; that of the one
        that made it until name servers know it, too.
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
        except Refused as refused:
            if made:
                self._registration.changed_soon()
            return _error(command.opaque, refused.code, refused.remark, self._hook)
        return self._kept(target, command, request.topic, made) if isinstance(target, HeldAnswers) else None

    async def _kept(self, held: HeldAnswers, command: Command, topic: str, made: bool) -> None:
        try:
            await self._topics.kept([topic])
        except StoreError as error:
            if not command.is_oneway:
                held.refuse(_error(command.opaque, *_store_refusal(error), self._hook))
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
                raise Refused(ResponseCode.INVALID_PARAMETER, f"{name} takes a 32-bit integer")
        if not -INT64_MAX - 1 <= request.born_timestamp <= INT64_MAX:
            raise Refused(ResponseCode.INVALID_PARAMETER, "born_timestamp takes a 64-bit integer")
        return request

    def _check_request(self, request: SendMessageRequest) -> None:
        refusal = self._refusal()
        if refusal is not None:
            raise Refused(*refusal)
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

    def _retried(self, request: SendMessageRequest, version: int) -> tuple[SendMessageRequest, bool]:
        """A send to a retry topic, perhaps turned into a dead letter; whether its topic was made."""
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
        except RetryRefused as refused:
            raise Refused(refused.code, refused.remark) from None
        except InvalidMessageError as error:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal: {error}") from None

    def _make_topic(self, request: SendMessageRequest) -> bool:
        """Create the topic of a send if it is new and may be; True when it was made."""
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
        if queue_id >= len(topic.queues):
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{queue_id}] is illegal, topic {request.topic} has "
                f"{config.write_queue_nums} write and {config.read_queue_nums} read queues",
            )
        if queue_id < 0:
            queue_id = random.randrange(max(1, config.write_queue_nums))
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
        self._commit(connection, [] if command.is_oneway else [stored], {queue}, recall)

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
        """Store what is new of an idempotent producer's send, and tell the places of all its messages."""
        now = self._clock.now_ms()
        try:
            judged = self._idempotent.judge(queue, items, now, single=not request.batch)
            new, places, first_offset = items[len(judged.offsets) :], judged.physical, queue.next_offset
            if new:
                places += self._append(connection, request, topic, queue, new)
        except SequenceRefused as refused:
            raise Refused(refused.code, refused.remark) from None
        except RecordError as error:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal: {error}") from None
        told = judged.offsets[0] if judged.offsets else first_offset
        stored = (command.opaque, queue.queue_id, told, self._ids(places), _quotable(unique_key))
        answers = [] if command.is_oneway else [stored]
        with self._idempotent.committing():
            if self._commit(connection, answers, {queue} if new else set(), judged=True) and new:
                self._idempotent.learn(queue, judged, len(new), first_offset, now)

    def _placed(
        self, request: SendMessageRequest, queue: ConsumeQueue, item: ChunkItem, unique_key: bytes
    ) -> tuple[ConsumeQueue, ChunkItem, bytes]:
        """The queue one message really goes to, what is stored, and a timed one's recall handle."""
        flag, body, text, code = item
        now, wanted = self._clock.now_ms(), request.topic
        try:
            if b"TRAN_MSG" in text and (half := self._half(request, queue.queue_id, text)) is not None:
                return self._store.queue(HALF_TOPIC, 0), (flag, body, half, code), b""
            sys_flag = request.sys_flag & ~TRANSACTION_MASK
            place = self._rerouting.place(wanted, queue.queue_id, text, sys_flag, now)
        except RerouteRefused as refused:
            raise Refused(refused.code, refused.remark) from None
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
        return self._store.queue(place.topic, place.queue_id), (flag, body, place.properties, code), recall

    def _half(self, request: SendMessageRequest, queue_id: int, text: bytes) -> bytes | None:
        """The properties of a half message; None for a message that is none."""
        own = properties.decode(text)
        if not is_half(own, reconsume_times=request.reconsume_times, delay_level=delay_level(own)):
            return None
        if self._settings.reject_transaction_message:
            remark = f"the broker[{self._settings.broker_ip1}] sending transaction message is forbidden"
            raise Refused(ResponseCode.NO_PERMISSION, remark)
        return encode_half(own, request.topic, queue_id, len(self._added))

    def _append(
        self,
        connection: Answered,
        request: SendMessageRequest,
        topic: Topic,
        queue: ConsumeQueue,
        items: list[ChunkItem],
    ) -> list[int]:
        """Append the messages contiguously; their physical offsets."""
        return self._store.append_batch(
            queue,
            items,
            self._added,
            sys_flag=request.sys_flag & ~TRANSACTION_MASK | topic.sys_flag,
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
    """A unique key as it stands in a JSON text."""
    return unique_key if not unique_key or unique_key.isalnum() else json_text(unique_key)


def _store_refusal(error: StoreError) -> tuple[ResponseCode, str]:
    if error.retryable:
        return ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now. {error}"
    return ResponseCode.SYSTEM_ERROR, f"the message could not be stored: {error}"


def _error(opaque: int, code: ResponseCode, remark: str, ext: dict[str, str]) -> Command:
    return Command(code, opaque, FLAG_RESPONSE, ext, remark=remark)
