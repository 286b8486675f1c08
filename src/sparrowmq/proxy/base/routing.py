"""Routes and assignments in the API's form, and the choice of the queue for a message. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

from sparrowmq.core.errors import ProxyRefusal
from sparrowmq.core.hashing import java_hash
from sparrowmq.core.route import MASTER_ID, PERM_READ, PERM_WRITE, BrokerData, QueueData, TopicRoute
from sparrowmq.proxy.definition.messages import AddressScheme, Code, MessageType, Permission, v2

_TYPES: Final = {
    "NORMAL": (MessageType.NORMAL,),
    "FIFO": (MessageType.FIFO,),
    "DELAY": (MessageType.DELAY,),
    "TRANSACTION": (MessageType.TRANSACTION,),
    "LITE": (MessageType.LITE,),
    "PRIORITY": (MessageType.PRIORITY,),
    "MIXED": (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION),
}
ENDPOINTS_BYTES_MAX: Final = 1024
"""The answer contains the client's endpoints once for each queue."""
ALL_QUEUES: Final = -1
"""The queue id of an assignment: the broker chooses among its queues."""

T = TypeVar("T")


def endpoints_of(asked: Any, address: str) -> Any:
    """The endpoints for a client: those through which it reached the proxy, perhaps a load balancer or a
    forwarded port.

    A client that does not send them gets the proxy's own `address`. Refuses endpoints that are too large.
    """
    size = asked.ByteSize()
    if size > ENDPOINTS_BYTES_MAX:
        raise ProxyRefusal(
            Code.ILLEGAL_ACCESS_POINT,
            f"the endpoints take {size} bytes, the limit is {ENDPOINTS_BYTES_MAX}; name the proxy's address",
        )
    found = v2.Endpoints(scheme=asked.scheme or AddressScheme.IPv4)
    own_host, _, own_port = address.rpartition(":")
    for each in asked.addresses:
        found.addresses.add(host=each.host, port=each.port or int(own_port))
    if not asked.addresses:
        found.addresses.add(host=own_host, port=int(own_port))
    return found


def route_queues(topic: Any, route: TopicRoute, endpoints: Any, message_type: str) -> Iterator[Any]:
    """The queues of a topic on all brokers, each at the proxy's endpoints.

    For each broker: first the queues that can only be read, then those that can only be written, then the
    others.
    """
    for data in route.queues:
        broker = route.broker(data.broker_name)
        if broker is None:
            continue
        for broker_id in sorted(broker.addresses):
            place = v2.Broker(name=data.broker_name, id=broker_id, endpoints=endpoints)
            for number, permission in enumerate(_permissions(data)):
                queue = v2.MessageQueue(topic=topic, id=number, permission=permission, broker=place)
                queue.accept_message_types.extend(
                    _TYPES.get(message_type, (MessageType.MESSAGE_TYPE_UNSPECIFIED,))
                )
                yield queue


def _permissions(data: QueueData) -> list[int]:
    readable, writable = bool(data.perm & PERM_READ), bool(data.perm & PERM_WRITE)
    read = data.read_queue_nums if readable else 0
    write = data.write_queue_nums if writable else 0
    if not readable and not writable:
        return [Permission.NONE] * max(1, data.read_queue_nums, data.write_queue_nums)
    both = min(read, write)
    return (
        [Permission.READ] * (read - both)
        + [Permission.WRITE] * (write - both)
        + [Permission.READ_WRITE] * both
    )


def assignments(topic: Any, route: TopicRoute, endpoints: Any, *, ordered: bool) -> Iterator[Any]:
    """The assignments of every member of a group: each broker with readable queues once, or each of its
    queues if the group consumes in order.
    """
    for data in route.queues:
        broker = route.broker(data.broker_name)
        if not data.perm & PERM_READ or not data.read_queue_nums or not _has_master(broker):
            continue
        permission = Permission.READ_WRITE if data.perm & PERM_WRITE else Permission.READ
        place = v2.Broker(name=data.broker_name, id=MASTER_ID, endpoints=endpoints)
        for number in range(data.read_queue_nums) if ordered else (ALL_QUEUES,):
            queue = v2.MessageQueue(topic=topic, id=number, permission=permission, broker=place)
            yield v2.Assignment(message_queue=queue)


def _has_master(broker: BrokerData | None) -> bool:
    return broker is not None and broker.master is not None


def readable_brokers(route: TopicRoute) -> list[str]:
    """Names of the brokers with readable queues and a master."""
    return [
        data.broker_name
        for data in route.queues
        if data.perm & PERM_READ and data.read_queue_nums and _has_master(route.broker(data.broker_name))
    ]


def queue_of_group(queues: Sequence[T], message_group: str) -> T:
    """The queue of a message group: the same at every proxy, including Apache's."""
    return queues[consistent_hash(java_hash(message_group), len(queues))]


_MULTIPLIER: Final = 2862933555777941757
_MASK: Final = 2**64 - 1


def consistent_hash(value: int, buckets: int) -> int:
    """A bucket from 0 to `buckets` - 1 that seldom changes when buckets are added: Guava's function, by
    Lamping and Veach.
    """
    state, candidate = value & _MASK, 0
    while True:
        state = (_MULTIPLIER * state + 1) & _MASK
        step = ((state >> 33) + 1) / 2**31
        following = int((candidate + 1) / step)
        if following >= buckets:
            return candidate
        candidate = following
