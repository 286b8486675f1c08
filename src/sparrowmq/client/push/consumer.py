"""`Consumer`: a push consumer for a loop over messages, or for handlers that are decorated functions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from sparrowmq.client.base.settings import ConsumerSettings
from sparrowmq.client.consumer.outcomes import Retry
from sparrowmq.client.push.message_stream import MessageStream, iterate
from sparrowmq.client.push.push_consumer import PushConsumer
from sparrowmq.client.push.values import Decode, LoopValues, check_decode
from sparrowmq.client.push.workers import Handler
from sparrowmq.core.errors import InvalidStateError, SettingsError
from sparrowmq.core.subscription import Expression

if TYPE_CHECKING:
    from sparrowmq.client.base.options import ConsumerOptions

H = TypeVar("H", bound=Handler)


class Consumer(PushConsumer):
    """Consumes topics as one member of `group`; the members share the messages.

        async with Consumer("billing", "Orders", name_server="127.0.0.1:9876") as consumer:
            async for message in consumer:
                ...

    A message counts as handled when the loop asks for the next one. `await message.retry()` in the loop has
    it delivered again later. The message at which the loop is left, by `break` or an error, is delivered
    again.

    Or with handlers, where returning means handled and raising means retry:

        consumer = Consumer("billing", name_server="127.0.0.1:9876")

        @consumer.handler("Orders")
        async def bill(message):
            ...

        await consumer.run()

    With `decode`, loops and handlers get a value for each message: `decode=ReceivedMessage.json`. A message
    for which it raises goes to retry, and finally becomes a dead letter, as if a handler had raised;
    broadcasting drops it.

    It is a `PushConsumer` that acknowledges for the loop, with the same settings. Delivery is at least once.
    """

    def __init__(
        self,
        group: str,
        topic: str | None = None,
        *,
        tags: Expression = "*",
        decode: Decode | None = None,
        settings: ConsumerSettings | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        """A consumer of `group`, for a loop over `topic` if it is given. `tags` is `*`, tags (`TagA || TagB`)
        or a filter over properties (`Sql("a > 1")`). `decode` is a plain function: loops and handlers get
        what it returns for a message. `options` are the fields of `ConsumerSettings`; they override
        `settings`. Raises `InvalidNameError`, `InvalidExpressionError`, `SettingsError`, or TypeError for
        `decode`.
        """
        super().__init__(group, settings=settings, **options)
        if topic is None and tags != "*":
            raise SettingsError(
                f"tags={tags!r} needs a topic: give Consumer both, or give the tags to handler or subscribe",
                "tags",
                tags,
                other="topic",
            )
        if decode is not None:
            check_decode(decode)
        self._decode = decode
        self._values = LoopValues(group, decode, has_retry=self.settings.model != "broadcasting")
        if topic is not None:
            self.subscribe(topic, tags)

    def handler(
        self, topic: str, tags: Expression = "*", *, decode: Decode | None = None
    ) -> Callable[[H], H]:
        """A decorator: the function handles the messages of `topic`; see `subscribe`. `decode` replaces the
        consumer's.
        """

        def register(function: H) -> H:
            self.subscribe(topic, tags, function, decode=decode)
            return function

        return register

    async def run(self) -> None:
        """Start, and consume until SIGINT or SIGTERM; then close gracefully. Only in the main thread. Raises
        `InvalidStateError` without a handler.
        """
        self._need_handler()
        async with self:
            self.close_on_signals()
            await self.wait()

    def _need_handler(self) -> None:
        if not self._subscriptions.has_handlers:
            raise InvalidStateError(
                f"{self._life.name} has no handler to run; decorate a function with @consumer.handler(topic) "
                "or write a loop over the consumer"
            )

    def __aiter__(self) -> AsyncIterator[Any]:
        """Messages of topics without handler, or what `decode` makes of them. Each counts as handled when the
        next one is asked for.
        """
        return _handled_in_turn(self.stream, self._values)


async def _handled_in_turn(stream: MessageStream, values: LoopValues) -> AsyncIterator[Any]:
    """The values of all messages; each is settled when the next one is asked for, unless it is already."""
    async with aclosing(iterate(stream)) as messages:
        async for message in messages:
            try:
                value = values.value(message)
            except Retry as retry:
                stream.settle(message, retry)
                continue
            yield value
            stream.settle(message)
