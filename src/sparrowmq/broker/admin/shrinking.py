"""What nobody could read any more if a topic had fewer queues to read.

Consumers read the queues below a topic's `readQueueNums`. Messages in the others stay in the store until
retention deletes them, but no group gets them.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.admin.progress import consumed_to
from sparrowmq.core.outside import one_line
from sparrowmq.protocol.bodies import MessageModel

if TYPE_CHECKING:
    from sparrowmq.broker.admin.progress import ConsumerProgress
    from sparrowmq.broker.tables.shared_tables import SharedTables
    from sparrowmq.protocol.bodies import TopicConfig
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.queues.consume_queue import ConsumeQueue

log = logging.getLogger("sparrowmq.broker")
GROUPS_TOLD: Final = 5
"""Maximum groups that a refusal or a warning names."""


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
        POP handed out counts until it is acknowledged. Without any group, all messages count. The members of
        groups that broadcast keep their offsets themselves: those that are online are named.
        """
        if before is None or after.read_queue_nums >= before.read_queue_nums:
            return None
        queues = []
        for queue_id in range(after.read_queue_nums, before.read_queue_nums):
            queue = self._store.find_queue(after.topic_name, queue_id)
            if queue is not None and queue.max_offset > queue.min_offset:
                queues.append(queue)
            yield
        online = self._clients.groups_of_topic(after.topic_name)
        broadcasting = [name for name in online if self._broadcasts(name)] if queues else []
        left: dict[str, int] = {}
        # A new group that is online may have committed nothing yet.
        for group in {*set(online).difference(broadcasting), *self._offsets.groups_of(after.topic_name)}:
            left[group] = yield from self._unread(group, queues)
        if not left:
            left = {"": sum(queue.max_offset - queue.min_offset for queue in queues)}
        unread = {group: count for group, count in left.items() if count}
        if broadcasting and not unread:
            log.warning(
                "topic %s gets %d queues to read: %s",
                after.topic_name,
                after.read_queue_nums,
                unknown_text(broadcasting),
            )
        return refusal_text(before, after, unread, broadcasting)

    def _broadcasts(self, group: str) -> bool:
        return self._clients.consumers[group].message_model == MessageModel.BROADCASTING

    def _unread(self, group: str, queues: list[ConsumeQueue]) -> Generator[None, None, int]:
        count = 0
        for queue in queues:
            committed = max(0, self._offsets.query(queue.topic, group, queue.queue_id) or 0)
            popped = self._progress.invisible(queue.topic, group).popped.get(queue.queue_id, 0)
            low = queue.min_offset
            count += max(0, queue.max_offset - max(low, consumed_to(committed, popped, low)))
            yield
        return count


def unknown_text(broadcasting: Sequence[str]) -> str:
    """Which groups may have unread messages that do not count. Pure."""
    told = ", ".join(map(one_line, broadcasting[:GROUPS_TOLD]))
    more = f" and {len(broadcasting) - GROUPS_TOLD} more" if len(broadcasting) > GROUPS_TOLD else ""
    return f"what members of {told}{more} have not read is unknown, because they broadcast"


def refusal_text(
    before: TopicConfig, after: TopicConfig, unread: dict[str, int], broadcasting: Sequence[str] = ()
) -> str | None:
    """The answer to a change that would hide messages, with their number by group; None if it hides none.
    Pure.
    """
    if not unread:
        return None
    worst = sorted(unread, key=lambda group: (-unread[group], group))
    told = [f"{unread[group]} of group {group}" if group else f"{unread[group]}" for group in worst]
    more = f" and of {len(told) - GROUPS_TOLD} more groups" if len(told) > GROUPS_TOLD else ""
    if broadcasting:
        more += f"; {unknown_text(broadcasting)}"
    name, reads = after.topic_name, after.read_queue_nums
    return (
        f"topic[{name}] has unread messages in the queues {reads} to {before.read_queue_nums - 1}, which "
        f"nobody reads when it has {reads} queues to read: {', '.join(told[:GROUPS_TOLD])}{more}; reduce the "
        f"write queues first, wait until all groups have consumed the rest, then reduce the read queues "
        f"(sparrow topic update {name} --write-queues {min(reads, after.write_queue_nums)}), or force it"
    )
