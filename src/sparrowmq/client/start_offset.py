"""Where a push consumer starts to read a queue (client:C.10)."""

from __future__ import annotations

from sparrowmq.client.instance import ClientInstance
from sparrowmq.client.offset_store import OffsetStore
from sparrowmq.client.requests import need_address
from sparrowmq.client.settings import ConsumeFrom
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import RETRY_PREFIX


async def start_offset(
    instance: ClientInstance, store: OffsetStore, queue: MessageQueue, consume_from: ConsumeFrom
) -> int:
    """The stored offset; without one, what `consume_from` says.

    A retry topic starts at its beginning, except with a time, when it starts at its end, as RocketMQ does.
    Raises `SparrowError` when a broker cannot be asked; the queue is tried again at the next rebalance.
    """
    stored = await store.read(queue)
    if stored is not None:
        return stored
    is_retry = queue.topic.startswith(RETRY_PREFIX)
    if consume_from == "first" or (consume_from == "last" and is_retry):
        return 0
    address = need_address(instance.routes.master(queue.broker_name), queue, "master")
    if isinstance(consume_from, str) or is_retry:
        return await instance.brokers.max_offset(address, queue)
    return await instance.brokers.search_offset(address, queue, int(consume_from.timestamp() * 1000))
