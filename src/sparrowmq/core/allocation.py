"""Queue allocation strategies: who reads which queue. Pure; every member must compute the same answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparrowmq.core.message import MessageQueue

AllocationStrategy = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]
"""(own client id, sorted queues, sorted client ids) → the queues of the caller."""


def utf16_key(text: str) -> bytes:
    """Sort key that orders text as Java does, by UTF-16 code unit (client:Z-04)."""
    return text.encode("utf-16-be", "surrogatepass")


def queue_key(queue: MessageQueue) -> tuple[bytes, bytes, int]:
    """Sort key of queues as Java orders them: topic, broker name, queue id."""
    return utf16_key(queue.topic), utf16_key(queue.broker_name), queue.queue_id


def allocate_averagely(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """`AllocateMessageQueueAveragely`: contiguous shares, the first members get one more (client:C.5.1).

    An unknown `client_id` gets nothing. Raises `ValueError` when an argument is empty (client:C-16).
    """
    if not client_id or not queues or not client_ids:
        raise ValueError("allocation needs a client id, at least one queue and at least one client id")
    if client_id not in client_ids:
        return []
    index, count, members = client_ids.index(client_id), len(queues), len(client_ids)
    rest = count % members
    size = 1 if count <= members else count // members + (1 if index < rest else 0)
    start = index * size if index < rest else index * size + rest
    return list(queues[start : start + max(0, min(size, count - start))])
