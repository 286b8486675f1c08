"""Messages that a tool sends directly to the handler of their topic, outside of all queues (client:D-88)."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from sparrowmq.client.base.callables import CallThreads, awaited
from sparrowmq.client.base.settings import ConsumerSettings
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.client.consumer import broker_requests
from sparrowmq.client.consumer.decoding import decode_messages
from sparrowmq.client.consumer.outcomes import ConsumeResult, Retry, refuse_unfinished
from sparrowmq.client.push.message_stream import StreamedMessage
from sparrowmq.client.push.subscriptions import Subscriptions
from sparrowmq.core.errors import ClientError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import without_namespace
from sparrowmq.protocol.bodies import ConsumeMessageDirectlyResult

DIRECT_THREADS: Final = 4
"""Maximum concurrent plain handlers for such messages; others wait."""


class DirectCalls:
    """Direct handler calls of one consumer."""

    def __init__(
        self,
        group: str,
        settings: ConsumerSettings,
        instance: ClientInstance,
        subscriptions: Subscriptions,
        message_type: type[StreamedMessage],
    ) -> None:
        self._group = group
        self._settings = settings
        self._instance = instance
        self._subscriptions = subscriptions
        self._message_type = message_type
        self._threads = CallThreads(DIRECT_THREADS, f"sparrowmq-{group}-direct")

    def close(self) -> None:
        """Start no more calls."""
        self._threads.close()

    async def consume(self, body: bytes, broker_name: str) -> ConsumeMessageDirectlyResult:
        """The result of the handler for the message in `body`. Raises `ClientError` when there is
        no handler.
        """
        found = decode_messages(body, MessageQueue("", broker_name, 0), self._message_type)
        message = broker_requests.one_message(list(found))
        topic = message.properties.get("RETRY_TOPIC", message.topic)
        message.topic = topic = without_namespace(self._instance.namespace, topic)
        handler = self._subscriptions.handler(topic)
        if handler is None:
            raise ClientError(f"group {self._group} has no handler for topic {topic}")
        assert isinstance(message, StreamedMessage)
        message.begin(self._instance.clock.now_ms())
        argument: Any = [message] if self._settings.batch > 1 else message
        monotonic = self._instance.clock.monotonic
        start, result = monotonic(), "CR_SUCCESS"
        error: BaseException | None = None
        try:
            if handler.is_async:
                said = await awaited(handler.call(argument))
            else:
                said = await self._threads.result(partial(handler.call, argument))
            refuse_unfinished(said)
            if isinstance(said, Retry) or said is ConsumeResult.LATER:
                result = "CR_LATER"
            elif said is ConsumeResult.COMMIT or said is ConsumeResult.ROLLBACK:
                result = f"CR_{said.name}"
        except Retry as raised:
            error, result = raised, "CR_LATER"
        except Exception as raised:
            error, result = raised, "CR_THROW_EXCEPTION"
        settings = self._settings
        return broker_requests.direct_result(
            error,
            result,
            ordered=settings.ordered,
            auto_commit=settings.auto_commit,
            seconds=monotonic() - start,
        )
