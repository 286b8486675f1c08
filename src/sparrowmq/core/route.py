"""Routes: which brokers serve a topic, and the queues a producer or consumer derives from them."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparrowmq.core.message import MessageQueue

PERM_INHERIT = 1
PERM_WRITE = 2
PERM_READ = 4
MASTER_ID = 0


@dataclass(frozen=True, slots=True)
class QueueData:
    """How many queues of a topic one broker name has, and their permissions."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0


@dataclass(frozen=True, slots=True)
class BrokerData:
    """Addresses of one broker name by broker id; id 0 is the master."""

    cluster: str
    broker_name: str
    addresses: dict[int, str] = field(default_factory=dict)

    @property
    def master(self) -> str | None:
        """The master's address, or None."""
        return self.addresses.get(MASTER_ID)


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """The name server's response for one topic."""

    queues: tuple[QueueData, ...]
    brokers: tuple[BrokerData, ...]
    order_topic_conf: str | None = None

    def broker(self, name: str) -> BrokerData | None:
        """The broker called `name`, or None."""
        return next((b for b in self.brokers if b.broker_name == name), None)

    def publish_queues(self, topic: str) -> list[MessageQueue]:
        """Queues a producer may send to: writable, on brokers with a master (client:A-47, A-48)."""
        if self.order_topic_conf:
            pairs = (part.split(":") for part in self.order_topic_conf.split(";") if part)
            return [MessageQueue(topic, name, i) for name, count in pairs for i in range(int(count))]
        found = []
        for data in sorted(self.queues, key=lambda q: q.broker_name):
            broker = self.broker(data.broker_name)
            if data.perm & PERM_WRITE and broker is not None and broker.master is not None:
                found += [MessageQueue(topic, data.broker_name, i) for i in range(data.write_queue_nums)]
        return found

    @property
    def readable(self) -> int:
        """How many queues a consumer reads."""
        return sum(data.read_queue_nums for data in self.queues if data.perm & PERM_READ)

    def subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """Queues a consumer reads: every readable one, sorted (client:A-50)."""
        return sorted(
            MessageQueue(topic, data.broker_name, i)
            for data in self.queues
            if data.perm & PERM_READ
            for i in range(data.read_queue_nums)
        )
