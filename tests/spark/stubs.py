"""A broker's answers without a broker: queues of stored records with limits and faults of one's choice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace

from tests.columnar.records import record

from sparrowmq.core.errors import BrokerError, ConnectionLostError, NoRouteError, SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.results import PullStatus, RawBatch, ReadFrom
from sparrowmq.core.subscription import Expression


@dataclass
class StubQueue:
    """Records with the offsets `first`, `first` + 1, …"""

    records: list[bytes]
    first: int = 0

    @property
    def end(self) -> int:
        return self.first + len(self.records)


@dataclass
class StubBroker:
    """Answers like `aio.PullConsumer`, `answer_max` messages a pull; `fault(queue, offset)` gives errors."""

    queues_: dict[MessageQueue, StubQueue] = field(default_factory=dict)
    answer_max: int = 10**9
    fault: Callable[[MessageQueue, int], SparrowError | None] = lambda queue, offset: None
    pulls: list[tuple[MessageQueue, int, int]] = field(default_factory=list)
    bytes_given: int = 0
    """Of all pulls."""
    in_flight: int = 0
    in_flight_peak: int = 0
    commits: dict[MessageQueue, int] = field(default_factory=dict)
    calls: int = 0
    asked: list[ReadFrom | None] = field(default_factory=list)
    """Which broker each pull asked."""
    retired: set[MessageQueue] = field(default_factory=set)
    """Queues that the broker has and nobody can read: their topic has fewer queues to read."""
    unrouted: set[MessageQueue] = field(default_factory=set)
    """Queues that the broker serves and no name server knows."""
    brokers_away: frozenset[str] = frozenset()
    """Brokers that are not registered, though they were once."""
    members: list[str] = field(default_factory=list)
    """Client ids of those who are online in any group."""
    filters: Callable[[Expression], SparrowError | None] = lambda expression: None
    """What is wrong with a filter; the stub itself filters nothing."""

    def add(
        self,
        queue_id: int,
        count: int,
        first: int = 0,
        *,
        topic: str = "t",
        broker: str = "broker-a",
        body: bytes = b"b",
    ) -> MessageQueue:
        """A queue with `count` messages."""
        queue = MessageQueue(topic, broker, queue_id)
        records = [
            record(first + index, body, topic=topic.encode(), queue_id=queue_id) for index in range(count)
        ]
        self.queues_[queue] = StubQueue(records, first)
        return queue

    def append(self, queue: MessageQueue, count: int) -> None:
        """More messages at the end of a queue."""
        stored = self.queues_[queue]
        stored.records += [
            record(stored.end + index, topic=queue.topic.encode(), queue_id=queue.queue_id)
            for index in range(count)
        ]

    def delete_before(self, queue: MessageQueue, offset: int) -> None:
        """What retention does."""
        stored = self.queues_[queue]
        stored.records = stored.records[offset - stored.first :]
        stored.first = offset

    def truncate(self, queue: MessageQueue, offset: int) -> None:
        """What a failover may do."""
        stored = self.queues_[queue]
        stored.records = stored.records[: offset - stored.first]

    def _check(self, queue: MessageQueue, offset: int) -> StubQueue:
        self.calls += 1
        error = self.fault(queue, offset)
        if queue.broker_name in self.brokers_away:
            error = ConnectionLostError(f"{queue.broker_name} is away")
        elif queue not in self.queues_:
            error = BrokerError(17, f"the topic {queue.topic} does not exist")
        if error is not None:
            raise error
        return self.queues_[queue]

    async def fetch_raw(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_bytes: int,
        max_messages: int,
        expression: Expression,
        read_from: ReadFrom | None = None,
    ) -> RawBatch:
        self.asked.append(read_from)
        self.pulls.append((queue, offset, max_messages))
        self.in_flight += 1
        self.in_flight_peak = max(self.in_flight, self.in_flight_peak)
        try:
            await asyncio.sleep(0)
            stored = self._check(queue, offset)
            if queue in self.retired:
                raise BrokerError(1, f"queueId[{queue.queue_id}] is illegal, topic:[{queue.topic}]")
            refused = self.filters(expression)
            if refused is not None:
                raise refused
        finally:
            self.in_flight -= 1
        if offset < stored.first or offset > stored.end:
            following = max(stored.first, min(offset, stored.end))
            return RawBatch(PullStatus.OFFSET_ILLEGAL, b"", following, stored.first, stored.end)
        if offset == stored.end:
            return RawBatch(PullStatus.NO_NEW_MESSAGE, b"", offset, stored.first, stored.end)
        taken: list[bytes] = []
        size = 0
        for data in stored.records[
            offset - stored.first : offset - stored.first + min(max_messages, self.answer_max)
        ]:
            if taken and size + len(data) > max_bytes:
                break
            taken.append(data)
            size += len(data)
        self.bytes_given += size
        return RawBatch(PullStatus.FOUND, b"".join(taken), offset + len(taken), stored.first, stored.end)

    async def queues(self, topic: str) -> list[MessageQueue]:
        self.calls += 1
        hidden = self.retired | self.unrouted
        found = sorted(queue for queue in self.queues_.keys() - hidden if queue.topic == topic)
        if not found:
            raise NoRouteError(f"no broker serves topic {topic!r}")
        error = self.fault(found[0], -1)
        if error is not None:
            raise error
        return found

    async def min_offset(self, queue: MessageQueue) -> int:
        return self._check(queue, -1).first

    async def max_offset(self, queue: MessageQueue) -> int:
        return self._check(queue, -1).end

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        stored = self._check(queue, -1)
        return max(stored.first, min(stored.end, timestamp_ms - 1_700_000_000_001))

    async def committed(self, queue: MessageQueue) -> int | None:
        self._check(queue, -1)
        return self.commits.get(queue)

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        self._check(queue, -1)
        self.commits[queue] = offset

    async def admin(self) -> SimpleNamespace:
        """The methods of `aio.Admin` that queries call."""
        return SimpleNamespace(
            topics=SimpleNamespace(list=self._topic_list),
            brokers=SimpleNamespace(cluster_info=self._cluster_info),
            groups=SimpleNamespace(members=self._group_members),
        )

    async def _group_members(self, group: str) -> dict[str, list[SimpleNamespace]]:
        self._check(next(iter(self.queues_)), -1)
        self.calls += 1
        return {"stub:2": [SimpleNamespace(client_id=name) for name in self.members]}

    async def _topic_list(self, *, system: bool = False) -> list[str]:
        self.calls += 1
        hidden = ("%RETRY%", "%DLQ%")
        return sorted({queue.topic for queue in self.queues_ if system or not queue.topic.startswith(hidden)})

    async def _cluster_info(self) -> SimpleNamespace:
        self.calls += 1
        return SimpleNamespace(brokers={"broker-a", "broker-b"} - self.brokers_away)


def many_queues() -> tuple[StubBroker, list[MessageQueue]]:
    """A topic of 10,000 queues with two messages each."""
    stored = StubQueue([record(0), record(1)])
    queues = [MessageQueue("t", "broker-a", queue_id) for queue_id in range(10_000)]
    return StubBroker(dict.fromkeys(queues, stored)), queues
