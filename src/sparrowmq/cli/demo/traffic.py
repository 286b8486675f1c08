"""The client side of the demo: sends the flights, counts stored messages, receives the summaries.

It runs on an event loop in a separate thread, in parallel with Spark.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from sparrowmq import aio
from sparrowmq.cli.base.common import run
from sparrowmq.cli.demo.flights import messages, read_departures
from sparrowmq.core.errors import SparrowError
from sparrowmq.core.message import Message

QUEUES: Final = 8
BATCH_MESSAGES_MAX: Final = 256
"""Flights per request: 80 KB, far below the limit of 4 MB."""
BATCHES_IN_FLIGHT_MAX: Final = 8
BATCHES_A_SECOND: Final = 20
"""With a rate limit, batches are small enough for this many per second, so that the flow is even."""
SEND_SECONDS: Final = 60.0
"""One attempt per send: another attempt after a lost response would store flights twice."""
SAMPLE_SECONDS: Final = 0.25
STOP_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True)
class TrafficPlan:
    """The flights to send, and their target."""

    namesrv: str
    flights_topic: str
    summary_topic: str
    group: str
    data: Path
    rows: int
    rate: float | None
    """Flights per second; None: as fast as the broker accepts them."""


class Traffic:
    """Sends flights in order of departure; counters may be read from any thread.

    `total` is known when the source has been read, `sent` counts acknowledged flights, `stored` the messages
    in the broker's queues. `error` is the error that ended the work early.
    """

    def __init__(self, plan: TrafficPlan, on_summary: Callable[[str], None]) -> None:
        self.plan = plan
        self.total: int | None = None
        self.sent = 0
        self.stored = 0
        self.summaries = 0
        self.error: BaseException | None = None
        self.topics_ready = threading.Event()
        self.all_sent = threading.Event()
        self._on_summary = on_summary
        self._thread = threading.Thread(target=self._run, name="sparrow-demo-traffic", daemon=True)
        self._stop: asyncio.Event | None = None
        self._reader_ready: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Create the topics and read the source; returns immediately. Sending waits for `begin`."""
        self._thread.start()

    def begin(self) -> None:
        """Start sending, because readers are ready. Call it once `topics_ready` is set."""
        if self._loop is not None and self._reader_ready is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended: `check` says why
                self._loop.call_soon_threadsafe(self._reader_ready.set)

    def stop(self) -> None:
        """Close the clients; waits at most 20 s. Idempotent."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            try:
                self._loop.call_soon_threadsafe(self._stop.set)
            except RuntimeError:
                pass  # the loop closed between the two lines
        if self._thread.ident is not None:
            self._thread.join(STOP_SECONDS)

    def check(self) -> None:
        """Raise the error of the work, if any."""
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            run(self._main())
        except BaseException as error:
            self.error = _first(error)
        finally:
            self.topics_ready.set()

    async def _main(self) -> None:
        plan = self.plan
        self._stop, self._reader_ready = asyncio.Event(), asyncio.Event()
        self._loop = asyncio.get_running_loop()
        async with aio.Admin(namesrv=plan.namesrv) as admin:
            await admin.topics.create(plan.flights_topic, queues=QUEUES)
            await admin.topics.create(plan.summary_topic, queues=1)
            self.topics_ready.set()
            consumer = aio.PushConsumer(plan.group, namesrv=plan.namesrv, consume_from="first")
            consumer.subscribe(plan.summary_topic, handler=self._hear)
            async with consumer:
                work = [asyncio.create_task(self._send()), asyncio.create_task(self._sample(admin))]
                stopped = asyncio.create_task(self._stop.wait())
                try:
                    await _first_end(work, stopped)
                finally:
                    for task in (*work, stopped):
                        task.cancel()
                    await asyncio.gather(*work, stopped, return_exceptions=True)
            self.stored = await self._count(admin)

    async def _hear(self, message: aio.DeliveredMessage) -> None:
        self.summaries += 1
        self._on_summary(message.body.decode())

    async def _send(self) -> None:
        plan = self.plan
        departures = await asyncio.to_thread(read_departures, plan.data, plan.rows)
        self.total = len(departures)
        assert self._reader_ready is not None
        await self._reader_ready.wait()  # ended by the stop if no summary arrives
        room = asyncio.Semaphore(BATCHES_IN_FLIGHT_MAX)
        size = BATCH_MESSAGES_MAX
        if plan.rate is not None:
            size = max(1, min(size, round(plan.rate / BATCHES_A_SECOND)))
        loop = asyncio.get_running_loop()
        started, given = loop.time(), 0
        flights = messages(departures, plan.flights_topic)
        async with (
            aio.Producer(plan.group, namesrv=plan.namesrv, send_timeout=SEND_SECONDS, retries=0) as producer,
            asyncio.TaskGroup() as tasks,
        ):
            while batch := list(islice(flights, size)):
                await room.acquire()
                if plan.rate is not None:
                    await asyncio.sleep(started + given / plan.rate - loop.time())
                given += len(batch)
                tasks.create_task(self._send_batch(producer, batch, room))
        self.all_sent.set()
        await asyncio.Event().wait()  # until cancelled: an error or the stop ends it first

    async def _send_batch(
        self, producer: aio.Producer, batch: list[Message], room: asyncio.Semaphore
    ) -> None:
        try:
            await producer.send_batch(batch)
            self.sent += len(batch)
        finally:
            room.release()

    async def _sample(self, admin: aio.Admin) -> None:
        while True:  # until cancelled
            await asyncio.sleep(SAMPLE_SECONDS)
            try:
                self.stored = await self._count(admin)
            except SparrowError:
                continue  # a broker under load may respond late; the next sample follows soon

    async def _count(self, admin: aio.Admin) -> int:
        return sum(queue.messages for queue in await admin.topics.status(self.plan.flights_topic))


def _first(error: BaseException) -> BaseException:
    """The error itself, or the first of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _first_end(work: list[asyncio.Task[None]], stopped: asyncio.Task[bool]) -> None:
    """Wait for the stop; raise the first error of the work."""
    done, _ = await asyncio.wait([*work, stopped], return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


async def _delete_topics(namesrv: str, topics: tuple[str, ...]) -> None:
    async with aio.Admin(namesrv=namesrv) as admin:
        for topic in topics:
            await admin.topics.delete(topic)


def delete_topics(plan: TrafficPlan) -> None:
    """Remove the demo's topics from a cluster that keeps running."""
    run(_delete_topics(plan.namesrv, (plan.flights_topic, plan.summary_topic)))
