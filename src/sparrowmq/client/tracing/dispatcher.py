"""Tracing: sends and consumption are recorded in the trace topic (client:B.22). Off by default.

`Tracing` belongs to one producer or consumer. Its hook makes records, a bounded queue holds them, and its own
producer sends them in batches. If the trace topic is unavailable, records are dropped and counted: tracing
never delays or fails the traced operation.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Final

from sparrowmq.client.base.hooks import (
    ConsumeContext,
    ConsumeHook,
    EndTransactionContext,
    EndTransactionHook,
    MessageType,
    RpcHook,
    SendContext,
    SendHook,
)
from sparrowmq.client.base.settings import ClientSettings, ProducerSettings
from sparrowmq.client.base.tasks import TaskGroup
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.client.send.sender import Sender
from sparrowmq.core.clock import Clock
from sparrowmq.core.errors import NoRouteError, SparrowError
from sparrowmq.core.message import (
    PROPERTY_KEYS,
    PROPERTY_MSG_REGION,
    PROPERTY_TRACE_ON,
    Message,
    ReceivedMessage,
)
from sparrowmq.core.names import is_system_topic
from sparrowmq.core.results import SendStatus
from sparrowmq.protocol.trace import (
    CLOUD_TOPIC_PREFIX,
    EXCEPTION,
    FAILED,
    RETURNED_NULL,
    SUCCESS,
    TIMEOUT,
    TRACE_GROUP_PREFIX,
    EndTransactionTrace,
    PubTrace,
    RecallTrace,
    SubAfterTrace,
    SubBeforeTrace,
    Trace,
    encode_trace,
    trace_keys,
)
from sparrowmq.transport.occasional import OccasionalLog

log = logging.getLogger("sparrowmq.client")

QUEUE_MAX: Final = 2048
"""Maximum number of waiting records; others are dropped (client:B-117)."""
BATCH_SECONDS: Final = 5.0
"""Seconds that records wait for others to fill a batch."""
MESSAGE_BYTES_MAX: Final = 128_000
KEYS_BYTES_MAX: Final = 30_000
"""Maximum bytes of keys of one trace message; more would not fit in its properties."""
SEND_TIMEOUT: Final = 5.0
DRAIN_SECONDS: Final = 5.0
"""Seconds that closing may take to send waiting records (client:B-119)."""
_NO_TOPIC: Final = (
    "no broker has that topic; set traceTopicEnable=true at the brokers, or set trace_topic to a topic "
    "that you created"
)
RETURN_TYPE: Final = "ConsumeContextType"
DEFAULT_REGION: Final = "DefaultRegion"
"""The region of records without a store address."""
_CODES: Final = {
    "SUCCESS": SUCCESS,
    "TIME_OUT": TIMEOUT,
    "EXCEPTION": EXCEPTION,
    "RETURNNULL": RETURNED_NULL,
    "FAILED": FAILED,
}
_numbers = itertools.count(1)


class Tracing:
    """Records the activity of one producer (`kind` PRODUCE) or consumer (`kind` CONSUME) of `group`.

    Add `hook` to its hooks, `start` it on the loop and `close` it after its owner. `dropped` counts records
    that were lost because too many waited or the trace topic was not writable.
    """

    def __init__(self, group: str, settings: ClientSettings, kind: str) -> None:
        self._settings = settings
        self._group = f"{TRACE_GROUP_PREFIX}{group}-{kind}-{next(_numbers)}"
        self._waiting: deque[tuple[str, Trace]] = deque()
        self._is_cloud = settings.access_channel == "cloud"
        self._filled = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None
        self._tasks = TaskGroup(self._task_died)
        self._occasional = OccasionalLog(log)
        self._instance = ClientInstance(self._producer_settings())
        self._sender = Sender(self._group, self._producer_settings(), self._instance)
        self.hook = TraceHook(self, self._instance.clock)
        self.sent = 0
        self.dropped = 0

    def __repr__(self) -> str:
        return f"<Tracing {self._group} waiting={len(self._waiting)} sent={self.sent} dropped={self.dropped}>"

    def is_trace_topic(self, topic: str) -> bool:
        """The topic for the records; messages to it are not traced."""
        return topic.startswith(CLOUD_TOPIC_PREFIX) if self._is_cloud else topic == self._settings.trace_topic

    def start(self) -> None:
        """Start sending records."""
        self._instance.register_producer(self._group, self._sender.table)
        self._instance.start()
        self._task = self._tasks.start(self._run(), "trace")

    def put(self, region: str, *traces: Trace) -> None:
        """Add records of a region; records beyond the limit are dropped."""
        topic = f"{CLOUD_TOPIC_PREFIX}{region}" if self._is_cloud else self._settings.trace_topic
        for trace in traces:
            if len(self._waiting) >= QUEUE_MAX or self._closing:
                self.dropped += 1
            else:
                self._waiting.append((topic, trace))
        if len(self._waiting) >= self._settings.trace_batch:
            self._filled.set()

    def request_id(self) -> str:
        """A new id that connects the records of one handler call."""
        return self._instance.unique_ids.next()

    async def close(self) -> None:
        """Send the waiting records, for at most 5 seconds, and end; completely even if cancelled."""
        self._closing = True
        self._filled.set()
        async with AsyncExitStack() as end:  # in reverse order
            end.push_async_callback(self._instance.close)
            end.push_async_callback(self._instance.unregister, producer=self._group)
            end.push_async_callback(self._tasks.close)
            if self._task is not None:
                await asyncio.wait({self._task}, timeout=DRAIN_SECONDS)
            self.dropped += len(self._waiting)
            self._waiting.clear()

    def _producer_settings(self) -> ProducerSettings:
        given = self._settings
        hooks = tuple(hook for hook in given.hooks if isinstance(hook, RpcHook))
        shared = {
            name: getattr(given, name)
            for name in ClientSettings.__dataclass_fields__
            if name not in ("instance_name", "namespace", "hooks", "trace", "vip_channel")
        }
        return replace(
            ProducerSettings(
                send_timeout=SEND_TIMEOUT,
                message_bytes_max=MESSAGE_BYTES_MAX,
                compress_over=2**31 - 1,
            ),
            **shared,
            hooks=hooks,
        )

    async def _run(self) -> None:
        while self._waiting or not self._closing:  # ends when closed and empty, or when cancelled
            if len(self._waiting) < self._settings.trace_batch and not self._closing:
                try:
                    async with asyncio.timeout(BATCH_SECONDS):
                        await self._filled.wait()
                except TimeoutError:
                    pass
                self._filled.clear()
            if self._waiting:
                await self._send(self._next_batch())

    def _next_batch(self) -> list[tuple[str, Trace]]:
        return [self._waiting.popleft() for _ in range(min(len(self._waiting), self._settings.trace_batch))]

    async def _send(self, batch: Sequence[tuple[str, Trace]]) -> None:
        for topic in dict.fromkeys(topic for topic, _ in batch):
            mine = [trace for where, trace in batch if where == topic]
            for message, count in trace_messages(topic, mine, cloud=self._is_cloud):
                await self._send_message(message, count)

    async def _send_message(self, message: Message, count: int) -> None:
        try:
            await self._sender.send(message, None)
            self.sent += count
        except SparrowError as error:
            self.dropped += count
            no_topic = isinstance(error, NoRouteError) and is_system_topic(message.topic)
            why = _NO_TOPIC if no_topic and not self._is_cloud else error
            self._occasional.write(
                logging.WARNING, "send", f"trace records for {message.topic!r} are dropped: {why}"
            )

    def _task_died(self, name: str, error: BaseException) -> None:
        log.error("the background task %r of %r died", name, self, exc_info=error)


def trace_messages(topic: str, traces: Sequence[Trace], *, cloud: bool = False) -> list[tuple[Message, int]]:
    """Messages with these records, each below the size limit, and the number of records in each.

    A record of a very large batch cannot be found by all of its ids.
    """
    found: list[tuple[Message, int]] = []
    parts: list[str] = []
    keys: set[str] = set()
    size = 0

    def flush() -> None:
        if parts:
            body = "".join(parts).encode("utf-8", "replace")
            found.append((Message(topic, body, keys=sorted(keys)), len(parts)))

    for trace in traces:
        text = encode_trace(trace, cloud=cloud)
        own = _keys_that_fit(trace)
        needed = len(text.encode("utf-8", "replace"))
        if parts and (size + needed > MESSAGE_BYTES_MAX or _keys_bytes(keys | own) > KEYS_BYTES_MAX):
            flush()
            parts, keys, size = [], set(), 0
        parts.append(text)
        keys |= own
        size += needed
    flush()
    return found


def _keys_bytes(keys: Iterable[str]) -> int:
    return sum(len(key.encode("utf-8", "replace")) + 1 for key in keys)


def _keys_that_fit(trace: Trace) -> set[str]:
    own = trace_keys(trace)
    if _keys_bytes(own) <= KEYS_BYTES_MAX:
        return own
    short_first = sorted(own, key=len)
    ends = itertools.accumulate(_keys_bytes((key,)) for key in short_first)
    return {key for key, end in zip(short_first, ends, strict=True) if end <= KEYS_BYTES_MAX}


class TraceHook(SendHook, EndTransactionHook, ConsumeHook):
    """The hooks that create records."""

    __slots__ = ("_clock", "_tracing")

    def __init__(self, tracing: Tracing, clock: Clock) -> None:
        self._tracing = tracing
        self._clock = clock

    def before_send(self, context: SendContext) -> None:
        """Store the start time of an attempt."""
        if not self._tracing.is_trace_topic(context.message.topic):
            _put(context, self._clock.now_ms())

    def after_send(self, context: SendContext) -> None:
        """Record a message that was stored; failed sends are not recorded (client:B-113)."""
        began, result = _get(context), context.result
        if began is None or result is None or not result.trace_on:
            return
        cost = self._clock.now_ms() - began
        message = context.message
        self._tracing.put(
            result.region,
            PubTrace(
                time=began,
                region=result.region,
                group=context.group,
                topic=message.topic,
                message_id=result.message_id,
                tags=message.tags or "",
                keys=" ".join(dict.fromkeys(one.keys_text for one in context.messages if one.keys)),
                store_host=context.address,
                body_bytes=context.body_bytes,
                cost=cost,
                message_type=int(context.message_type),
                offset_message_id=result.offset_message_id,
                success=result.status is SendStatus.SEND_OK,
            ),
        )

    def end_transaction(self, context: EndTransactionContext) -> None:
        """Record the end of a transaction."""
        message = context.message
        received = isinstance(message, ReceivedMessage)
        keys = " ".join(message.keys) if isinstance(message, ReceivedMessage) else message.keys_text
        region = (message.properties.get(PROPERTY_MSG_REGION) if received else None) or DEFAULT_REGION
        self._tracing.put(
            region,
            EndTransactionTrace(
                time=self._clock.now_ms(),
                region=region,
                group=context.group,
                topic=message.topic,
                message_id=context.message_id,
                tags=message.tags or "",
                keys=keys,
                store_host=context.address,
                message_type=int(MessageType.COMMIT),
                transaction_id=context.transaction_id,
                state=context.state,
                from_check=context.from_check,
            ),
        )

    def recalled(self, group: str, topic: str, message_id: str, success: bool) -> None:
        """Record a recall."""
        self._tracing.put(
            DEFAULT_REGION,
            RecallTrace(
                time=self._clock.now_ms(),
                region=DEFAULT_REGION,
                group=group,
                topic=topic,
                message_id=message_id,
                success=success,
            ),
        )

    def before_consume(self, context: ConsumeContext) -> None:
        """Record that the handler received the messages."""
        traced = [
            message
            for message in context.messages
            if _is_traced(message) and not self._tracing.is_trace_topic(message.topic)
        ]
        if not traced:
            return
        now, request_id = self._clock.now_ms(), self._tracing.request_id()
        before = [
            SubBeforeTrace(
                time=now,
                region=message.properties.get(PROPERTY_MSG_REGION) or DEFAULT_REGION,
                group=context.group,
                request_id=request_id,
                message_id=message.message_id,
                retry_times=message.reconsume_times,
                keys=message.properties.get(PROPERTY_KEYS, ""),
            )
            for message in traced
        ]
        _put(context, (now, before))
        for trace in before:
            self._tracing.put(trace.region, trace)

    def after_consume(self, context: ConsumeContext) -> None:
        """Record the result of the handler; its time is divided evenly among the messages."""
        noted = _get(context)
        if noted is None:
            return
        began, before = noted
        now = self._clock.now_ms()
        cost = (now - began) // len(before)
        code = _CODES.get(context.properties.get(RETURN_TYPE, ""), SUCCESS if context.success else FAILED)
        for trace in before:
            self._tracing.put(
                trace.region,
                SubAfterTrace(
                    request_id=trace.request_id,
                    message_id=trace.message_id,
                    cost=cost,
                    success=context.success,
                    keys=trace.keys,
                    context_code=code,
                    time=now,
                    group=context.group,
                ),
            )


def _is_traced(message: ReceivedMessage) -> bool:
    return message.properties.get(PROPERTY_TRACE_ON) != "false"


def _put(context: SendContext | ConsumeContext, value: Any) -> None:
    """Keep a value for the call after the request; other hooks have their own entries."""
    if not isinstance(context.data, dict):
        context.data = {}
    context.data[TraceHook] = value


def _get(context: SendContext | ConsumeContext) -> Any:
    return context.data.get(TraceHook) if isinstance(context.data, dict) else None
