"""Our asyncio clients behind the face of the Java driver's, so that one test runs with either."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from tests.interop.driver import Received, Sent
from tests.support import until_sync

from sparrowmq import aio
from sparrowmq.client.base.settings import Compat, ConsumerSettings, ProducerSettings
from sparrowmq.core.message import Message, MessageQueue, ReceivedMessage
from sparrowmq.core.results import SendResult

T = TypeVar("T")
CALL_SECONDS_MAX: Final = 40.0
CONSUMER: Final = ConsumerSettings(
    consume_from="first",
    threads=4,
    route_interval=1.0,
    heartbeat_interval=1.0,
    persist_interval=0.5,
    rebalance_interval=0.5,
    rebalance_interval_min=0.1,
)


def _sent(result: SendResult) -> Sent:
    name = result.status.name
    return Sent(name, result.message_id, result.offset_message_id, result.queue, result.queue_offset)


def _received(message: ReceivedMessage) -> Received:
    return Received(
        topic=message.topic,
        broker=message.queue.broker_name,
        queue_id=message.queue.queue_id,
        queue_offset=message.queue_offset,
        physical_offset=message.physical_offset,
        msg_id=message.message_id,
        offset_msg_id=message.offset_message_id,
        tags=message.tags,
        keys=message.properties.get("KEYS"),
        flag=message.flag,
        sys_flag=message.sys_flag,
        reconsume_times=message.reconsume_times,
        born_timestamp=message.born_timestamp,
        store_timestamp=message.store_timestamp,
        born_host=message.born_host,
        store_host=message.store_host,
        properties=message.properties,
        body=message.body,
    )


class OurClients:
    """A loop in a thread, and clients on it; producers follow the rules of `compat`."""

    def __init__(self, compat: Compat = "5.x") -> None:
        self._compat = compat
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="our-clients", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_SECONDS_MAX)

    def producer(self, namesrv: str, group: str) -> OurProducer:
        """A started producer; it compresses bodies over 4 KiB."""
        settings = ProducerSettings(namesrv=namesrv, send_timeout=10.0, compat=self._compat)
        return OurProducer(self, aio.Producer(group, settings=settings))

    def consumer(
        self, namesrv: str, group: str, subscriptions: Mapping[str, str], *, offset_dir: Path | None = None
    ) -> OurConsumer:
        """A started push consumer that begins with the first message; broadcasting with an `offset_dir`."""
        settings = CONSUMER
        if offset_dir is not None:
            own = {"offset_dir": offset_dir, "instance_name": offset_dir.name}
            settings = replace(CONSUMER, model="broadcasting", **own)
        return OurConsumer(self, aio.PushConsumer(group, namesrv=namesrv, settings=settings), subscriptions)

    def close(self) -> None:
        """End the loop."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _Client:
    def __init__(self, clients: OurClients, client: Any) -> None:
        self._clients = clients
        self._client = client

    def stop(self) -> None:
        """Shut the client down; harmless when done twice."""
        self._clients.run(self._client.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class OurProducer(_Client):
    """An `aio.Producer`."""

    def __init__(self, clients: OurClients, client: aio.Producer) -> None:
        super().__init__(clients, client)
        clients.run(client.start())

    def send(
        self,
        messages: Sequence[Message],
        mode: str = "sync",
        *,
        queue: MessageQueue | None = None,
        hash_key: str | None = None,
    ) -> list[Sent]:
        """Send each (`sync`, `async`, `oneway`) or all as one `batch`; one-way sends have no results."""
        return self._clients.run(self._send(messages, mode, queue, hash_key))

    async def _send(
        self, messages: Sequence[Message], mode: str, queue: MessageQueue | None, hash_key: str | None
    ) -> list[Sent]:
        client = self._client
        if mode == "batch":
            return [_sent(await client.send_batch(messages, queue=queue))]
        if mode == "oneway":
            for message in messages:
                await client.send_oneway(message, queue=queue, hash_key=hash_key)
            return []
        if mode == "async":
            sends = (client.send(message, queue=queue, hash_key=hash_key) for message in messages)
            return [_sent(result) for result in await asyncio.gather(*sends)]
        return [_sent(await client.send(message, queue=queue, hash_key=hash_key)) for message in messages]

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues it may send to."""
        return sorted(self._clients.run(self._client.queues(topic)))


class OurConsumer(_Client):
    """An `aio.PushConsumer` with plain handlers that keeps all they are given."""

    def __init__(
        self, clients: OurClients, client: aio.PushConsumer, subscriptions: Mapping[str, str]
    ) -> None:
        super().__init__(clients, client)
        self._messages: list[Received] = []
        for topic, expression in subscriptions.items():
            client.subscribe(topic, expression, self._keep)
        clients.run(client.start())

    def _keep(self, message: ReceivedMessage) -> None:
        self._messages.append(_received(message))

    def wait(self, count: int, seconds: float = 30.0) -> list[Received]:
        """Wait until `count` messages came; the messages that came. Fails when the time is up."""
        until_sync(lambda: len(self._messages) >= count, seconds)
        return self.received()

    def received(self) -> list[Received]:
        """All messages so far, in order of arrival."""
        return list(self._messages)

    def pause(self) -> None:
        """Pull no more."""
        self._clients.run(self._set_paused(True))

    def resume(self) -> None:
        """Pull again."""
        self._clients.run(self._set_paused(False))

    async def _set_paused(self, paused: bool) -> None:
        (self._client.pause if paused else self._client.resume)()

    def assigned(self) -> list[MessageQueue]:
        """The queues it holds now, retry topics left out."""
        return [queue for queue in self._client.assignment if not queue.topic.startswith("%RETRY%")]
