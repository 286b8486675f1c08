"""The unfinished messages of one answer to a POP. They belong to this member until their time is over.

A batch takes the place of a process queue, but its messages come from several queues, and none of them delays
an offset: each is acknowledged by itself. Messages that are not handled in time belong to others; the batch
then leaves, so that no handler starts with the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from sparrowmq.client.cluster.pop_calls import PoppedMessage
from sparrowmq.client.consumer.process_queue import Limits, ProcessQueue
from sparrowmq.client.push.message_stream import StreamedMessage
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.protocol.pop.receipts import Receipt


class PopBatch(ProcessQueue):
    """The messages of one answer: each `message` with the receipt that acknowledges it.

    They are this member's until `until`, monotonic seconds. `changed` is called when one is finished.
    """

    __slots__ = ("_changed", "_held", "_monotonic", "until")

    def __init__(
        self,
        queue: MessageQueue,
        received: Iterable[tuple[StreamedMessage, Receipt]],
        until: float,
        monotonic: Callable[[], float],
        changed: Callable[[], None],
    ) -> None:
        super().__init__(queue, 0, Limits(), now=monotonic())
        self._held = {id(message): (message, receipt) for message, receipt in received}
        self._monotonic = monotonic
        self._changed = changed
        self.until = until

    def __len__(self) -> int:
        return len(self._held)

    def __repr__(self) -> str:
        return f"<PopBatch {self.queue} {self.life.value} unfinished={len(self)}>"

    @property
    def is_over(self) -> bool:
        """Whether the messages belong to others now."""
        return self._monotonic() >= self.until

    @property
    def messages(self) -> list[StreamedMessage]:
        """The unfinished messages, as they were received."""
        return [message for message, _ in self._held.values()]

    def holds(self, message: ReceivedMessage) -> bool:
        """Whether a message is unfinished."""
        return id(message) in self._held

    def may_start(self) -> bool:
        """Whether a handler may start: not with a message that others may get."""
        return not self.leaving and not self.is_over

    def finish(self, messages: Sequence[ReceivedMessage]) -> list[Receipt]:
        """Messages are handled; the receipts of those that were unfinished."""
        found = [self._held.pop(id(message), None) for message in messages]
        self._changed()
        return [entry[1] for entry in found if entry is not None]

    def drop(self) -> None:
        """Drop the messages; they come again when their time is over."""
        self._held.clear()
        super().drop()


def streamed(message: PoppedMessage, message_type: type[StreamedMessage]) -> StreamedMessage:
    """A received message as handlers and iterators of push consumers get it."""
    return message_type(*(getattr(message, name) for name in _FIELDS))


_FIELDS = tuple(ReceivedMessage.__dataclass_fields__)
