"""Histories made by hand: a clean one, and changes of it that each break one promise."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparrowmq.torture.events import (
    AnyEvent,
    MessageReceived,
    MessageStored,
    OffsetCommitted,
    QueueExtent,
    SendAcknowledged,
    SendFailed,
    SendInvoked,
    SendUnknown,
)

QUEUE = "T/broker-a/0"
OTHER = "T/broker-a/1"


@dataclass
class Made:
    """Notes, each a millisecond after the one before unless a time is given."""

    events: list[AnyEvent] = field(default_factory=list)
    now: float = 100.0

    def _at(self, at: float | None) -> float:
        self.now = self.now + 0.001 if at is None else at
        return self.now

    def send(
        self,
        id_: str,
        *,
        client: str = "p",
        once: bool = True,
        in_order: bool = False,
        at: float | None = None,
    ) -> None:
        self.events.append(SendInvoked(at=self._at(at), client=client, id=id_, once=once, in_order=in_order))

    def ack(
        self, id_: str, offset: int, queue: str = QUEUE, *, client: str = "p", at: float | None = None
    ) -> None:
        self.events.append(
            SendAcknowledged(at=self._at(at), client=client, id=id_, queue=queue, offset=offset)
        )

    def unknown(self, id_: str, *, client: str = "p") -> None:
        self.events.append(SendUnknown(at=self._at(None), client=client, id=id_, reason="timeout"))

    def failed(self, id_: str, *, client: str = "p") -> None:
        self.events.append(SendFailed(at=self._at(None), client=client, id=id_, reason="no route"))

    def receive(
        self,
        id_: str,
        offset: int,
        queue: str = QUEUE,
        *,
        client: str = "c1",
        in_order: bool = True,
        at: float | None = None,
    ) -> None:
        self.events.append(
            MessageReceived(
                at=self._at(at),
                client=client,
                group="g",
                id=id_,
                queue=queue,
                offset=offset,
                in_order=in_order,
            )
        )

    def commit(self, offset: int, queue: str = QUEUE, *, client: str = "c1", at: float | None = None) -> None:
        self.events.append(
            OffsetCommitted(at=self._at(at), client=client, group="g", queue=queue, offset=offset)
        )

    def read(
        self, ids: list[str | None], queue: str = QUEUE, *, first: int = 0, reader: str = "reader"
    ) -> None:
        """The queue as a reader found it; None is an offset without a message."""
        for offset, id_ in enumerate(ids, first):
            if id_ is not None:
                self.events.append(
                    MessageStored(at=self._at(None), client=reader, id=id_, queue=queue, offset=offset)
                )
        self.events.append(
            QueueExtent(at=self._at(None), client=reader, queue=queue, first=first, end=first + len(ids))
        )


def clean() -> Made:
    """Two queues, answers of all kinds, two members of a group, one of which begins again at a commit."""
    made = Made()
    for id_, offset in (("a", 0), ("b", 1)):
        made.send(id_, in_order=True)
        made.ack(id_, offset)
    made.send("lost", client="q")
    made.unknown("lost", client="q")
    made.send("late", client="q")
    made.unknown("late", client="q")
    made.send("never", client="q")
    made.failed("never", client="q")
    made.send("twice", client="r", once=False)
    made.ack("twice", 3, client="r")
    made.send("elsewhere", client="r")
    made.ack("elsewhere", 0, OTHER, client="r")
    for id_, offset in (("a", 0), ("b", 1)):
        made.receive(id_, offset)
    made.commit(2)
    made.receive("late", 2)
    made.receive("late", 2, client="c2")
    made.receive("twice", 3, client="c2")
    made.receive("twice", 4, client="c2")
    made.commit(5, client="c2")
    made.commit(3)
    made.receive("elsewhere", 0, OTHER)
    made.commit(1, OTHER)
    made.send("unanswered", client="p")
    for reader in ("reader", "reader of the slave"):
        made.read(["a", "b", "late", "twice", "twice"], reader=reader)
        made.read(["elsewhere"], OTHER, reader=reader)
    return made
