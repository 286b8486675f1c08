"""SparrowMQ's own producers and consumers, which note down all they do."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from sparrowmq import aio
from sparrowmq.core.errors import ConnectError, NoRouteError, SparrowError
from sparrowmq.core.results import ReadFrom
from sparrowmq.protocol.record import decode_records, to_message
from sparrowmq.torture.cluster import QUEUES, TOPIC, until
from sparrowmq.torture.events import (
    AnyEvent,
    FaultNote,
    MessageReceived,
    MessageStored,
    OffsetCommitted,
    QueueExtent,
    SendAcknowledged,
    SendFailed,
    SendInvoked,
    SendUnknown,
    encode_line,
)

GROUP: Final = "torture-readers"
BODY_BYTES_MAX: Final = 2000
PAUSE_SECONDS: Final = (0.002, 0.03)
"""Between an answer and the next send of one sender."""
AFTER_ERROR_SECONDS: Final = 0.05
SEND_SECONDS: Final = 1.5
"""How long a single attempt waits for its answer."""
RETRIES: Final = 100
RETRY_SECONDS: Final = 8.0
"""How long a send with several attempts goes on."""
ROUTE_SECONDS: Final = 0.5
POLL_SECONDS: Final = 0.5
CLOSE_SECONDS: Final = 3.0
READ_SECONDS: Final = 30.0
READERS: Final[tuple[ReadFrom, ...]] = ("master", "slave")
CAUGHT_UP_SECONDS: Final = 45.0
"""How long after the last fault a group may need to get all messages."""


class HistoryLog:
    """The notes of all clients of a round, kept in memory and written to a file as JSON Lines."""

    def __init__(self, path: Path) -> None:
        self.events: list[AnyEvent] = []
        self.acknowledged = 0
        self._file = path.open("ab")

    def add(self, event: AnyEvent) -> None:
        """Keep a note."""
        self.events.append(event)
        self.acknowledged += isinstance(event, SendAcknowledged)
        self._file.write(encode_line(event))

    def fault(self, text: str) -> None:
        """Keep what happened to a server."""
        self.add(FaultNote(at=time.monotonic(), client="faults", text=text))

    def close(self) -> None:
        """End the file."""
        self._file.close()


def id_of(body: bytes) -> str:
    """The id of a message: its body up to the first space."""
    return body.partition(b" ")[0].decode(errors="backslashreplace")


def queue_name(queue: aio.MessageQueue) -> str:
    """A queue as histories name it."""
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"


class NotingProducer:
    """A producer with several senders, each of which waits for its answer before it sends again.

    `kind` is `single` (one attempt for each send), `retrying` (several, so a message may be stored twice), or
    `idempotent` (several, stored once and in order; each sender has a queue).
    """

    def __init__(self, namesrv: str, kind: str, senders: int, history: HistoryLog, seed: int) -> None:
        self._kind = kind
        self._count = senders
        self._history = history
        self._random = random.Random(f"{seed} {kind}")
        is_single = kind == "single"
        settings = aio.ProducerSettings(
            namesrv=namesrv,
            retries=0 if is_single else RETRIES,
            send_timeout=SEND_SECONDS if is_single else RETRY_SECONDS,
            try_timeout=SEND_SECONDS,
            idempotent=kind == "idempotent",
            route_interval=ROUTE_SECONDS,
            heartbeat_interval=1.0,
            request_timeout=1.0,
            connect_timeout=1.0,
            close_timeout=CLOSE_SECONDS,
        )
        self._producer = aio.Producer(f"torture-{kind}", settings=settings)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await self._producer.start()
        self._tasks = [asyncio.create_task(self._send(number)) for number in range(self._count)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._producer.close()
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _send(self, number: int) -> None:
        client, count = f"{self._kind}-{number}", 0
        is_numbered = self._kind == "idempotent"
        queue = aio.MessageQueue(TOPIC, "broker-a", number % QUEUES) if is_numbered else None
        while True:
            count += 1
            id_ = f"{client}-{count}"
            body = id_.encode() + b" " + bytes(self._random.randrange(BODY_BYTES_MAX))
            note = SendInvoked(
                at=time.monotonic(),
                client=client,
                id=id_,
                once=self._kind != "retrying",
                in_order=is_numbered,
            )
            self._history.add(note)
            is_stored = await self._one(client, id_, aio.Message(TOPIC, body), queue)
            pause = self._random.uniform(*PAUSE_SECONDS) if is_stored else AFTER_ERROR_SECONDS
            await asyncio.sleep(pause)

    async def _one(self, client: str, id_: str, message: aio.Message, queue: aio.MessageQueue | None) -> bool:
        try:
            result = await self._producer.send(message, queue=queue)
        except (ConnectError, NoRouteError) as error:
            # With several attempts, an earlier one may have ended otherwise.
            kind = SendFailed if self._kind == "single" else SendUnknown
            self._history.add(kind(at=time.monotonic(), client=client, id=id_, reason=repr(error)))
            return False
        except SparrowError as error:
            self._history.add(SendUnknown(at=time.monotonic(), client=client, id=id_, reason=repr(error)))
            return False
        at = time.monotonic()
        if result.status is not aio.SendStatus.SEND_OK:
            # Stored at the master, but not at all copies in sync: a take-over may lose it.
            self._history.add(SendUnknown(at=at, client=client, id=id_, reason=result.status.name))
            return True
        self._history.add(
            SendAcknowledged(
                at=at, client=client, id=id_, queue=queue_name(result.queue), offset=result.queue_offset
            )
        )
        return True


class NotingConsumer:
    """A member of the group: polls its share of the queues, and commits what it got."""

    def __init__(self, namesrv: str, name: str, history: HistoryLog) -> None:
        self._name = name
        self._history = history
        settings = aio.PullSettings(
            namesrv=namesrv,
            instance_name=name,
            consume_from="first",
            auto_commit=False,
            pull_batch=32,
            pull_hold=1.0,
            pull_timeout=2.0,
            route_interval=ROUTE_SECONDS,
            heartbeat_interval=1.0,
            request_timeout=1.0,
            connect_timeout=1.0,
            close_timeout=CLOSE_SECONDS,
        )
        self._consumer = aio.PullConsumer(GROUP, settings=settings)
        self._consumer.subscribe(TOPIC)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._consumer.start()
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        [result] = await asyncio.gather(self._task, return_exceptions=True)
        await self._consumer.close()
        if isinstance(result, Exception):
            raise result

    async def _run(self) -> None:
        while True:
            try:
                messages = await self._consumer.poll(POLL_SECONDS)
            except SparrowError:
                await asyncio.sleep(AFTER_ERROR_SECONDS)
                continue
            done: dict[aio.MessageQueue, int] = {}
            for message in messages:
                self._note(message)
                done[message.queue] = message.queue_offset + 1
            if done:
                await self._commit(done)

    def _note(self, message: aio.ReceivedMessage) -> None:
        self._history.add(
            MessageReceived(
                at=time.monotonic(),
                client=self._name,
                group=GROUP,
                id=id_of(message.body),
                queue=queue_name(message.queue),
                offset=message.queue_offset,
                in_order=True,
            )
        )

    async def _commit(self, done: Mapping[aio.MessageQueue, int]) -> None:
        at = time.monotonic()
        for queue, offset in done.items():
            self._history.add(
                OffsetCommitted(at=at, client=self._name, group=GROUP, queue=queue_name(queue), offset=offset)
            )
        with suppress(SparrowError):  # it is sent again with the next one
            await self._consumer.commit(done)


async def caught_up(namesrv: str, group: str, history: HistoryLog) -> None:
    """Wait until a group has committed the ends of all queues, and note that. Raises `NotReadyError`."""
    settings = aio.PullSettings(namesrv=namesrv, announce=False)
    async with aio.PullConsumer(group, settings=settings) as observer:
        found: dict[str, tuple[int | None, int]] = {}

        async def done() -> bool:
            with suppress(SparrowError):
                for queue in await observer.queues(TOPIC):
                    found[queue_name(queue)] = (
                        await observer.committed(queue),
                        await observer.max_offset(queue),
                    )
                return bool(found) and all((have or 0) == end for have, end in found.values())
            return False

        await until(done, CAUGHT_UP_SECONDS, f"group {group} did not get all messages")
        for name, (have, _) in found.items():
            note = OffsetCommitted(
                at=time.monotonic(), client="observer", group=group, queue=name, offset=have or 0
            )
            history.add(note)


async def read_all(namesrv: str, history: HistoryLog) -> None:
    """Read all queues from their first message to their last, at the master and at a slave, and note what is
    there. Raises `NotReadyError` if they cannot be read, or if the slave has not as much.
    """
    settings = aio.PullSettings(namesrv=namesrv)
    async with aio.PullConsumer(settings=settings) as consumer:
        for queue in await consumer.queues(TOPIC):
            first, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
            for place in READERS:
                await _read_queue(consumer, queue, first, end, place, history)


async def _read_queue(
    consumer: aio.PullConsumer,
    queue: aio.MessageQueue,
    first: int,
    end: int,
    place: ReadFrom,
    history: HistoryLog,
) -> None:
    reader, offset = f"reader of the {place}", first

    async def at_the_end() -> bool:
        nonlocal offset
        while offset < end:
            try:
                batch = await consumer.fetch_raw(queue, offset, read_from=place)
            except SparrowError:
                return False
            for record in decode_records(batch.buffer):
                message = to_message(record, queue.broker_name)
                note = MessageStored(
                    at=time.monotonic(),
                    client=reader,
                    id=id_of(message.body),
                    queue=queue_name(queue),
                    offset=message.queue_offset,
                )
                history.add(note)
            if batch.next_offset <= offset:
                return False
            offset = batch.next_offset
        return True

    await until(
        at_the_end, READ_SECONDS, f"{queue_name(queue)} could not be read from {first} to {end} by {reader}"
    )
    history.add(
        QueueExtent(at=time.monotonic(), client=reader, queue=queue_name(queue), first=first, end=end)
    )
