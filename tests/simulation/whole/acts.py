"""What users and operators do in a walk.

Each act takes a number that says which topic or group, which queue, how many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from msgspec.structs import replace
from tests.simulation.whole.books import Books, Sent
from tests.simulation.whole.members import BROADCAST, FAILING, GROUPS, TAG_FILTERS, Members
from tests.simulation.whole.retention import expire
from tests.simulation.whole.world import BROKER, NAME_SERVER, Cluster, MovedClock

from sparrowmq.aio import (
    Admin,
    HalfMessage,
    Message,
    MessageQueue,
    Producer,
    ProducerSettings,
    ReceivedMessage,
    SendStatus,
    TransactionState,
)
from sparrowmq.protocol.codes import RequestCode

TOPICS: Final = ("A", "B")
BIG_BYTES: Final = 3000
LEAP_MS: Final = 600_000
DELAY_TABLES: Final = ("1s 2s 3s 4s 5s", "1s 2s", "2s 1s 3s 4s 5s 6s 7s", "5s")
OUTCOMES: Final = (TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN)


class Outcomes:
    """How the transactions end: as `execute` is told, and when the broker asks, as the books say."""

    def __init__(self, books: Books) -> None:
        self._books = books

    async def execute(self, message: HalfMessage, argument: TransactionState) -> TransactionState:
        return argument

    async def check(self, message: ReceivedMessage) -> TransactionState:
        is_kept = self._books.sent[int(message.body)].is_wanted
        return TransactionState.COMMIT if is_kept else TransactionState.ROLLBACK


class Acts:
    """A cluster, its clients, and the books of what is done with them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.books = Books(GROUPS, once=[BROADCAST])
        self.members = Members(self.books, TOPICS, cluster.root / "offsets")
        self.admin = Admin(namesrv=NAME_SERVER)
        self.producer = Producer(
            "producers",
            settings=ProducerSettings(namesrv=NAME_SERVER, client_ip="127.0.0.1", instance_name="producer"),
            transaction_listener=Outcomes(self.books),
        )
        self.queues: dict[str, int] = {}
        self.latest_ms = 0
        """How far ahead a clock ever was."""

    async def start(self) -> None:
        await self.cluster.start()
        await self.admin.start()
        await self.producer.start()
        await self.members.join_all()

    async def close(self) -> None:
        await self.members.leave_all()
        await self.producer.close()
        await self.admin.close()
        await self.cluster.close()

    # Topics

    async def create(self, number: int) -> None:
        """Create a topic or give it more queues."""
        topic, queues = TOPICS[number % 2], 1 + number % 3
        if queues > self.queues.get(topic, 0):
            await self.admin.topics.create(topic, queues=queues)
            self.queues[topic] = queues

    async def delete(self, number: int) -> None:
        """Delete a topic with its messages."""
        topic = TOPICS[number % 2]
        self.queues.pop(topic, None)
        try:
            await self.admin.topics.delete(topic)
        finally:
            self.books.lose("its topic was deleted", topic=topic)

    async def shrink(self, number: int) -> None:
        """Give a topic fewer queues, if nobody loses a message by that."""
        topic = TOPICS[number % 2]
        if self.queues.get(topic, 0) > 1:
            await self.admin.topics.create(topic, read_queues=1, write_queues=1)
            self.queues[topic] = 1

    async def force(self, number: int) -> None:
        """Give a topic fewer queues, although somebody loses messages by that."""
        topic = TOPICS[number % 2]
        if self.queues.get(topic, 0) > 1:
            await self.admin.topics.create(topic, queues=1, force=True)
            self.queues[topic] = 1
            self.books.lose("its queue was taken away", topic=topic, above=0)

    # Messages

    async def send(self, number: int) -> None:
        """Send a few messages, of which handlers fail with some."""
        for n in range(1 + number % 4):
            topic = TOPICS[(number + n) % 2]
            sent = self.books.new(topic, "plain", tag="xy"[n % 2], failures=(0, 0, 1, 3)[(number + n) % 4])
            await self._send(sent)

    async def send_to_queue(self, number: int) -> None:
        """Send to one queue, in order."""
        topic = TOPICS[number % 2]
        queue = MessageQueue(topic, BROKER, number % 3)
        for _ in range(3):
            await self._send(self.books.new(topic, "chosen", failures=number % 2), queue=queue)

    async def send_big(self, number: int) -> None:
        """Send what a broker with a smaller limit refuses."""
        sent = self.books.new(TOPICS[number % 2], "big", failures=number % 3)
        await self._send(sent, more=b" " * BIG_BYTES)

    async def delay(self, number: int) -> None:
        """Send with a delay level, of which the table may have fewer."""
        sent = self.books.new(TOPICS[number % 2], "delayed", failures=number % 3)
        await self._send(sent, delay_level=1 + number % 6)

    async def time(self, number: int) -> None:
        """Send for a time."""
        sent = self.books.new(TOPICS[number % 2], "timed", failures=number % 3)
        await self._send(sent, delay=1 + number % 20)

    async def transact(self, number: int) -> None:
        """Send in a transaction that commits, rolls back or is left to a check."""
        outcome = OUTCOMES[number % 3]
        sent = self.books.new(TOPICS[number % 2], "half")
        sent.is_wanted = {
            TransactionState.COMMIT: True,
            TransactionState.ROLLBACK: False,
            TransactionState.UNKNOWN: number % 4 > 1,
        }[outcome]
        result = await self.producer.send_in_transaction(Message(sent.topic, sent.body), outcome)
        sent.is_acknowledged = sent.is_wanted and result.send.status is SendStatus.SEND_OK

    async def _send(
        self, sent: Sent, *, queue: MessageQueue | None = None, more: bytes = b"", **given: Any
    ) -> None:
        message = Message(sent.topic, sent.body + more, tags=sent.tag or None, **given)
        result = await self.producer.send(message, queue=queue)
        sent.queue_id = result.queue.queue_id
        if not given:
            sent.offset = result.queue_offset
        sent.is_acknowledged = True

    # Groups

    async def leave(self, number: int) -> None:
        """A group has no member any more."""
        await self.members.leave(GROUPS[number % len(GROUPS)])

    async def join(self, number: int) -> None:
        """It has one again."""
        await self.members.join(GROUPS[number % len(GROUPS)])

    async def pause(self, number: int) -> None:
        """A group's member stops pulling, or goes on."""
        self.members.pause(GROUPS[number % len(GROUPS)])

    async def limit_retries(self, number: int) -> None:
        """Change how often a message is tried again, and in how many queues."""
        group = FAILING[number % len(FAILING)]
        most = (0, 1, 2, 16)[number % 4]
        for config in (await self.admin.groups.config(group)).values():
            changed = replace(config, retry_queue_nums=1 + number % 3, retry_max_times=most)
            await self.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, changed.encode())

    async def resend(self, number: int) -> None:
        """Give dead letters to their group again."""
        await self.admin.dead_letters.resend(FAILING[number % len(FAILING)])

    async def subscribe(self, number: int) -> None:
        """A group wants other messages from now on."""
        self.members.filter(TAG_FILTERS[number % len(TAG_FILTERS)])

    async def reset_to_first(self, number: int) -> None:
        """A group gets everything again."""
        await self._reset(number, "first")

    async def reset_to_last(self, number: int) -> None:
        """A group gives up what it has not consumed."""
        group, topic = GROUPS[number % len(GROUPS)], TOPICS[number % 2]
        try:
            await self._reset(number, "last")
        finally:
            self.books.lose("the group was reset", topic=topic, groups=[group])

    async def _reset(self, number: int, to: Any) -> None:
        group, topic = GROUPS[number % len(GROUPS)], TOPICS[number % 2]
        if group != BROADCAST:
            await self.admin.groups.reset(group, topic, to)

    # The broker

    async def stop(self, number: int) -> None:
        """A clean stop of the broker; it is away for a while."""
        await self.cluster.stop_broker()
        await self._start_broker(number)

    async def kill(self, number: int) -> None:
        """The broker's process ends without a word."""
        await self.cluster.kill_broker()
        await self._start_broker(number)

    async def empty(self, number: int) -> None:
        """The broker starts with an empty directory."""
        await self.cluster.stop_broker()
        self.cluster.empty_directory()
        self.books.lose("the directory is another one")
        self.queues.clear()
        await self._start_broker(number)

    async def change_delays(self, number: int) -> None:
        """The broker starts with another table of delay levels."""
        await self.cluster.stop_broker()
        self.cluster.settings["message_delay_level"] = DELAY_TABLES[number % len(DELAY_TABLES)]
        await self._start_broker(number)

    async def change_size(self, number: int) -> None:
        """The broker starts with another limit for messages."""
        await self.cluster.stop_broker()
        self.cluster.settings["max_message_size"] = (BIG_BYTES // 3, 2 * BIG_BYTES)[number % 2]
        await self._start_broker(number)

    async def expire(self, number: int) -> None:
        """Retention deletes the older messages."""
        await expire(self)

    async def _start_broker(self, number: int) -> None:
        await asyncio.sleep((0, 0.5, 6)[number % 3])
        await self.cluster.start_broker()

    # Time

    async def wait(self, number: int) -> None:
        """Time passes."""
        await asyncio.sleep((0.1, 1.0, 7.0, 30.0)[number % 4])

    async def set_broker_clock(self, number: int) -> None:
        """Somebody sets the clock of the broker's machine."""
        self._set(self.cluster.clock, number)

    async def set_client_clock(self, number: int) -> None:
        """Somebody sets the clock of the clients' machine."""
        self._set(self.cluster.clients, number)

    def _set(self, clock: MovedClock, number: int) -> None:
        clock.ahead_ms += (LEAP_MS, -LEAP_MS, 10_000, -10_000)[number % 4]
        self.latest_ms = max(self.latest_ms, clock.ahead_ms)

    async def ask(self, code: RequestCode, body: bytes) -> None:
        """A request to the broker that the admin has no method for."""
        await self.admin.calls.running().brokers.ask("127.0.0.1:10911", code, body=body, timeout=5.0)


ACTS: Final[dict[str, Callable[[Acts, int], Awaitable[None]]]] = {
    act.__name__: act
    for act in (
        Acts.create,
        Acts.delete,
        Acts.shrink,
        Acts.force,
        Acts.send,
        Acts.send_to_queue,
        Acts.send_big,
        Acts.delay,
        Acts.time,
        Acts.transact,
        Acts.leave,
        Acts.join,
        Acts.pause,
        Acts.limit_retries,
        Acts.resend,
        Acts.subscribe,
        Acts.reset_to_first,
        Acts.reset_to_last,
        Acts.stop,
        Acts.kill,
        Acts.empty,
        Acts.change_delays,
        Acts.change_size,
        Acts.expire,
        Acts.wait,
        Acts.set_broker_clock,
        Acts.set_client_clock,
    )
}
