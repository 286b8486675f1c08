"""What nobody could read any more if a topic had fewer queues to read.

Consumers read the queues below a topic's `readQueueNums`. Messages in the others stay in the store until
retention deletes them, but no group gets them.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.admin.progress import consumed_to
from sparrowmq.protocol.bodies import MessageModel

if TYPE_CHECKING:
    from sparrowmq.broker.admin.progress import ConsumerProgress
    from sparrowmq.broker.tables.shared_tables import SharedTables
    from sparrowmq.protocol.bodies import TopicConfig
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.queues.consume_queue import ConsumeQueue

GROUPS_TOLD: Final = 5
"""Maximum groups that a refusal names."""


class Shrinking:
    """Counts the messages that a change of a topic would take from its groups."""

    def __init__(self, store: MessageStore, tables: SharedTables, progress: ConsumerProgress) -> None:
        self._store = store
        self._clients = tables.clients
        self._offsets = tables.offsets
        self._progress = progress

    def problem(self, before: TopicConfig | None, after: TopicConfig) -> Generator[None, None, str | None]:
        """Why the change must be forced, or None.

        A message counts if a group that is online, or has offsets in the topic, has not consumed it; one that
        POP handed out counts until it is acknowledged. Without any group, all messages count. Of groups that
        broadcast, nothing is known.
        """
        if before is None or after.read_queue_nums >= before.read_queue_nums:
            return None
        queues = []
        for queue_id in range(after.read_queue_nums, before.read_queue_nums):
            queue = self._store.find_queue(after.topic_name, queue_id)
            if queue is not None and queue.max_offset > queue.min_offset:
                queues.append(queue)
            yield
        left: dict[str, int] = {}
        for group in {*self._offsets.groups_of(after.topic_name), *self._online(after.topic_name)}:
            left[group] = yield from self._unread(group, queues)
        if not left:
            left = {"": sum(queue.max_offset - queue.min_offset for queue in queues)}
        return refusal_text(before, after, {group: count for group, count in left.items() if count})

    def _online(self, topic: str) -> list[str]:
        """Groups that divide the queues among themselves; a new one may have committed nothing yet."""
        clients = self._clients
        return [
            name
            for name in clients.groups_of_topic(topic)
            if clients.consumers[name].message_model != MessageModel.BROADCASTING
        ]

    def _unread(self, group: str, queues: list[ConsumeQueue]) -> Generator[None, None, int]:
        count = 0
        for queue in queues:
            committed = max(0, self._offsets.query(queue.topic, group, queue.queue_id) or 0)
            popped = self._progress.invisible(queue.topic, group).popped.get(queue.queue_id, 0)
            low = queue.min_offset
            count += max(0, queue.max_offset - max(low, consumed_to(committed, popped, low)))
            yield
        return count


def refusal_text(before: TopicConfig, after: TopicConfig, unread: dict[str, int]) -> str | None:
    """The answer to a change that would hide messages, with their number by group; None if it hides none.
    Pure.
    """
    if not unread:
        return None
    worst = sorted(unread, key=lambda group: (-unread[group], group))
    told = [f"{unread[group]} of group {group}" if group else f"{unread[group]}" for group in worst]
    more = f" and of {len(told) - GROUPS_TOLD} more groups" if len(told) > GROUPS_TOLD else ""
    name, reads = after.topic_name, after.read_queue_nums
    return (
        f"topic[{name}] has unread messages in the queues {reads} to {before.read_queue_nums - 1}, which "
        f"nobody reads when it has {reads} queues to read: {', '.join(told[:GROUPS_TOLD])}{more}; reduce the "
        f"write queues first, wait until all groups have consumed the rest, then reduce the read queues "
        f"(sparrow topic update {name} --write-queues {min(reads, after.write_queue_nums)}), or force it"
    )
