"""Ordered POP: the last messages that were handed out of each queue, and whether more may follow
(broker:13.8).

A queue is blocked for its group while a message that was handed out is neither acknowledged nor visible
again. Kept in `config/consumerOrderInfo.json` in RocketMQ's form.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import field

from sparrowmq.core.errors import StoreCorruptError

if TYPE_CHECKING:
    from sparrowmq.store.tables.config_file import ConfigFile

KEPT_MS: Final = 24 * 3600 * 1000
"""An entry without a POP for this long is dropped when the file is written."""
ENTRIES_MAX: Final = 100_000
"""Maximum number of entries; without room, a POP of one more queue is refused."""
ENTRIES_OF_STEP: Final = 50
"""Entries that one step of `collecting` takes."""

NOT_HELD: Final = -1
"""The acknowledged offset does not belong to the last hand-out."""
OUTDATED: Final = -2
"""The acknowledgement belongs to an earlier hand-out."""


class OrderInfo(msgspec.Struct, kw_only=True, rename="camel"):
    """The last hand-out of one queue to one group.

    `places` are the queue offset of the first message and the distances of the others from it; `acked` has
    bit i for the i-th. `visible_at` are the times of messages whose invisible time was changed, epoch ms.
    `counts` says how often messages were handed out before.
    """

    attempt_id: str | None = field(default=None, name="a")
    acked: int = field(default=0, name="cm")
    invisible_time: int | None = field(default=None, name="i")
    last_consume: int = field(default=0, name="l")
    places: list[int] = field(default_factory=list, name="o")
    counts: dict[int, int] | None = field(default=None, name="oc")
    visible_at: dict[int, int] | None = field(default=None, name="ot")
    pop_time: int = 0

    @property
    def offsets(self) -> list[int]:
        """The queue offsets of its messages."""
        return self.places[:1] + [self.places[0] + distance for distance in self.places[1:]]

    def visible_time(self, invisible_time: int) -> int:
        """When the last of its messages that are not acknowledged becomes visible, epoch ms; 0 if all are.

        `invisible_time` is used if the entry has none, as in old files.
        """
        hidden = self.pop_time + (self.invisible_time or invisible_time)
        changed = self.visible_at or {}
        waiting = [offset for i, offset in enumerate(self.offsets) if not self.acked >> i & 1]
        return max((changed.get(offset, hidden) for offset in waiting), default=0)

    def invisible(self, now_ms: int) -> int:
        """How many of its messages are neither acknowledged nor visible again."""
        hidden, changed = self.pop_time + (self.invisible_time or 0), self.visible_at or {}
        return sum(
            not self.acked >> i & 1 and changed.get(offset, hidden) > now_ms
            for i, offset in enumerate(self.offsets)
        )

    def is_blocked(self, attempt_id: str | None, invisible_time: int, now_ms: int) -> bool:
        """Whether a POP with this attempt id gets nothing now."""
        if self.attempt_id is not None and self.attempt_id == attempt_id:
            return False
        return now_ms < self.visible_time(invisible_time)

    @property
    def next_offset(self) -> int:
        """The group's offset: the first message that is not acknowledged, or the one after the last."""
        offsets = self.offsets
        for i, offset in enumerate(offsets):
            if not self.acked >> i & 1:
                return offset
        return offsets[-1] + 1

    def encode(self) -> str:
        """As JSON text."""
        return msgspec.json.encode(_plain(self)).decode()

    @classmethod
    def decode(cls, data: bytes) -> OrderInfo:
        """Decode JSON text. Raises `msgspec.MsgspecError`."""
        return msgspec.json.decode(data, type=cls, strict=False)

    def hide(self, offset: int, until: int) -> None:
        """Change when one message becomes visible, epoch ms; without effect for one of another hand-out."""
        if offset not in self.offsets:
            return
        self.visible_at = {**(self.visible_at or {}), offset: until}

    def acknowledge(self, offset: int, pop_time: int) -> int:
        """Acknowledge one message; the group's new offset, `NOT_HELD` or `OUTDATED`."""
        if not self.places:
            return NOT_HELD
        if pop_time != self.pop_time:
            return OUTDATED
        offsets = self.offsets
        if offset not in offsets:
            return NOT_HELD
        self.acked |= 1 << offsets.index(offset)
        return self.next_offset


def handed_out(
    before: OrderInfo | None,
    attempt_id: str | None,
    pop_time: int,
    invisible_time: int,
    offsets: Sequence[int],
) -> OrderInfo:
    """The entry after a hand-out of `offsets`. A repeated attempt does not count as another."""
    counts: dict[int, int] | None = None
    if before is not None:
        earlier = before.counts or {}
        if before.attempt_id is not None and before.attempt_id == attempt_id:
            counts = earlier
        else:
            seen = set(before.offsets)
            counts = {offset: earlier.get(offset, 0) + 1 for offset in offsets if offset in seen}
    first = offsets[0]
    return OrderInfo(
        attempt_id=attempt_id,
        invisible_time=invisible_time,
        last_consume=pop_time,
        places=[first, *(offset - first for offset in offsets[1:])],
        counts=counts,
        pop_time=pop_time,
    )


Table = dict[tuple[str, str], dict[int, OrderInfo]]


class OrderTable:
    """The last ordered hand-outs of one broker, by topic, group and queue.

    Raises `StoreCorruptError` when its file cannot be read.
    """

    def __init__(self, file: ConfigFile) -> None:
        self._file = file
        self._table: Table = {}
        self._count = 0
        self._changes = 0
        self._saved = 0
        stored = file.load()
        try:
            for key, queues in (stored.get("table") or {}).items():
                topic, _, group = key.partition("@")
                self._table[topic, group] = {
                    int(queue): msgspec.convert(info, OrderInfo, strict=False, str_keys=True)
                    for queue, info in queues.items()
                }
        except (AttributeError, TypeError, ValueError, msgspec.ValidationError) as error:
            raise StoreCorruptError(
                f"{file.path} is not a table of ordered hand-outs ({error}); restore or remove it"
            ) from error
        self._count = sum(map(len, self._table.values()))

    def get(self, topic: str, group: str, queue_id: int) -> OrderInfo | None:
        """The last hand-out of a queue."""
        queues = self._table.get((topic, group))
        return None if queues is None else queues.get(queue_id)

    def invisible(self, topic: str, group: str, now_ms: int) -> int:
        """How many messages of a topic are handed out to a group, and neither acknowledged nor visible
        again."""
        return sum(self.of_queues(topic, group, now_ms).values())

    def pairs(self) -> list[tuple[str, str]]:
        """The topics and groups with hand-outs."""
        return list(self._table)

    def of_queues(self, topic: str, group: str, now_ms: int) -> dict[int, int]:
        """The same by queue; in any thread."""
        queues = self._table.get((topic, group), {}).copy()
        return {queue_id: info.invisible(now_ms) for queue_id, info in queues.items()}

    @property
    def is_full(self) -> bool:
        """Whether no queue can be added."""
        return self._count >= ENTRIES_MAX

    def put(self, topic: str, group: str, queue_id: int, info: OrderInfo) -> None:
        """Note a hand-out."""
        queues = self._table.setdefault((topic, group), {})
        self._count += queue_id not in queues
        queues[queue_id] = info
        self._changes += 1

    def changed(self) -> None:
        """Note that an entry was changed in place."""
        self._changes += 1

    def clear(self, topic: str, group: str, queue_id: int) -> None:
        """Unblock a queue: the group's offset was reset."""
        queues = self._table.get((topic, group))
        if queues is not None and queues.pop(queue_id, None) is not None:
            self._count -= 1
            self._changes += 1

    def end(self, topic: str) -> None:
        """Unblock all queues of a topic that is deleted. Late acknowledgements of its messages still find the
        hand-outs, without messages: they must not count for those of a later topic of this name.
        """
        self.end_if(lambda name, _: name == topic)

    def end_if(self, is_over: Callable[[str, int], bool]) -> None:
        """The same for hand-outs whose topic and time, epoch ms, are of a deleted topic."""
        for (topic, _), queues in self._table.items():
            for queue_id, info in queues.items():
                if is_over(topic, info.pop_time):
                    queues[queue_id] = OrderInfo(pop_time=info.pop_time, last_consume=info.last_consume)
                    self._changes += 1

    def drop_unused(self, now_ms: int) -> None:
        """Drop entries that were not used for a day."""
        for key, queues in list(self._table.items()):
            for queue_id in [id_ for id_, info in queues.items() if now_ms - info.last_consume > KEPT_MS]:
                self.clear(*key, queue_id)
            if not queues:
                del self._table[key]

    def moments(self) -> list[tuple[str, str, int, int]]:
        """Topic, group, queue and the time at which a blocked queue becomes free, epoch ms."""
        return [
            (topic, group, queue_id, info.visible_time(0))
            for (topic, group), queues in self._table.items()
            for queue_id, info in queues.items()
        ]

    def unsaved(self) -> tuple[int, dict[str, Any]] | None:
        """The file's content and its number; None when nothing changed since `write`."""
        steps = self.collecting()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                found: tuple[int, dict[str, Any]] | None = end.value
                return found

    def collecting(self) -> Generator[None, None, tuple[int, dict[str, Any]] | None]:
        """The same in steps. What changes meanwhile is saved now or the next time."""
        number = self._changes
        if number == self._saved:
            return None
        table: dict[str, dict[str, Any]] = {}
        for (topic, group), queues in list(self._table.items()):
            found = table[f"{topic}@{group}"] = {}
            for count, (queue, info) in enumerate(list(queues.items()), 1):
                found[str(queue)] = _plain(info)
                if not count % ENTRIES_OF_STEP:
                    yield
            yield
        return number, {"table": table}

    def write(self, unsaved: tuple[int, dict[str, Any]]) -> None:
        """Write the result of `unsaved`, in any thread. Raises `StoreError`; it then stays unsaved."""
        number, content = unsaved
        self._file.save(content)
        self._saved = number


def _plain(info: OrderInfo) -> dict[str, Any]:
    """An entry as plain values, without members that are None."""
    return {
        name: value for name, value in msgspec.to_builtins(info, str_keys=True).items() if value is not None
    }
