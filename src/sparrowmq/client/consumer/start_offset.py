"""The offset at which a push consumer starts to read a queue (client:C.10)."""

from __future__ import annotations

from sparrowmq.client.base.settings import ConsumeFrom
from sparrowmq.client.cluster.broker_api import need_address
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.client.consumer.offset_store import BrokerOffsetStore, OffsetStore
from sparrowmq.client.consumer.queue_reader import DEFAULT_GROUP
from sparrowmq.core.clock import epoch_ms
from sparrowmq.core.errors import BrokerError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import RETRY_PREFIX


async def start_offset(
    instance: ClientInstance, store: OffsetStore, queue: MessageQueue, consume_from: ConsumeFrom
) -> int:
    """The stored offset, or else the offset that `consume_from` defines.

    A retry topic starts at its beginning; if `consume_from` is a time, it starts at its end, as in RocketMQ.
    Raises `SparrowError` when a broker cannot be asked; the next rebalance tries again.
    """
    stored = await store.read(queue)
    if stored is not None:
        return stored
    is_retry = queue.topic.startswith(RETRY_PREFIX)
    if consume_from == "first" or (consume_from == "last" and is_retry):
        return 0
    address = need_address(await instance.master_of(queue), queue, "master")
    if isinstance(consume_from, str) or is_retry:
        is_local = not (is_retry or isinstance(store, BrokerOffsetStore))
        if is_local and await _is_young(instance, address, queue):
            return 0
        return await instance.brokers.max_offset(address, queue)
    return await instance.brokers.search_offset(address, queue, epoch_ms("consume_from", consume_from))


async def _is_young(instance: ClientInstance, address: str, queue: MessageQueue) -> bool:
    """Whether the broker would let a new group read the queue from its beginning. Other stores than the
    brokers' have to ask: messages that are sent between two answers about "empty" and "the end" would be
    missed. False if a caller may not ask.
    """
    try:
        return await instance.brokers.query_offset(address, DEFAULT_GROUP, queue) == 0
    except BrokerError:
        return False
