"""What consumer groups have consumed: `consumerOffset.json` (broker:1.4, 5.5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparrowmq.core.errors import StoreCorruptError
from sparrowmq.store.config_file import ConfigFile

if TYPE_CHECKING:
    from sparrowmq.core.clock import Clock
    from sparrowmq.store.message_store import MessageStore

VERSION_STEP: Final = 500
"""The data version counts once in this many commits (`consumerOffsetUpdateVersionStep`)."""

_SEPARATOR: Final = "@"
_COMPUTED: Final = ("dataVersion", "groupTopicMap", "offsetTable")


class Unsaved(NamedTuple):
    """The content of the file after so many changes."""

    changes: int
    content: dict[str, Any]


class ConsumerOffsets:
    """The next offset to consume by topic, group and queue. Any value is taken, also a smaller one.

    Members of the file that this class does not know are kept.
    """

    def __init__(self, file: ConfigFile, clock: Clock | None = None) -> None:
        self._file = file
        self._clock = clock
        self._table: dict[tuple[str, str], dict[int, int]] = {}
        self._others: dict[str, Any] = {}
        self._version: dict[str, int] = {"counter": 0, "stateVersion": 0, "timestamp": 0}
        self._commits = 0
        self._changes = 0
        self._saved = 0
        self.resets: dict[tuple[str, str, int], int] = {}
        """Offsets set from outside that no consumer was told yet; in memory only, as in the reference."""

    @classmethod
    def load(cls, file: ConfigFile, clock: Clock | None = None) -> ConsumerOffsets:
        """The stored offsets; raises `StoreCorruptError` when the file is not a table of offsets."""
        offsets = cls(file, clock)
        data = file.load()
        try:
            for key, stored in data.get("offsetTable", {}).items():
                topic, _, group = key.partition(_SEPARATOR)
                offsets._table[topic, group] = {int(queue): int(offset) for queue, offset in stored.items()}
            for name, value in (data.get("dataVersion") or {}).items():
                offsets._version[name] = int(value)
        except (AttributeError, TypeError, ValueError) as error:
            raise StoreCorruptError(
                f"{file.path} is not a table of consumer offsets ({error}); restore or remove it"
            ) from error
        offsets._others = {name: value for name, value in data.items() if name not in _COMPUTED}
        return offsets

    def query(self, topic: str, group: str, queue_id: int) -> int | None:
        """The committed offset, or None."""
        offsets = self._table.get((topic, group))
        return None if offsets is None else offsets.get(queue_id)

    def commit(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Store an offset; one that was reset stays until its consumer was told."""
        key = topic, group
        if self.resets and (topic, group, queue_id) in self.resets:
            return
        offsets = self._table.get(key)
        if offsets is None:
            offsets = self._table[key] = {}
        offsets[queue_id] = offset
        self._changes += 1
        self._commits += 1
        if self._commits >= VERSION_STEP:
            self._commits = 0
            self._version["counter"] += 1
            if self._clock is not None:
                self._version["timestamp"] = self._clock.now_ms()

    def reset(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Set an offset from outside. It cannot be committed over until `take_reset` gave it away."""
        self.resets.pop((topic, group, queue_id), None)
        self.commit(topic, group, queue_id, offset)
        self.resets[topic, group, queue_id] = offset

    def take_reset(self, topic: str, group: str, queue_id: int) -> int | None:
        """An offset that was reset, for the consumer that is told it now; None without one."""
        return self.resets.pop((topic, group, queue_id), None)

    def clone(self, topic: str, source: str, target: str) -> None:
        """Give a group the offsets that another has of a topic; what it had itself of it is forgotten."""
        offsets = self._table.get((topic, source))
        if offsets is not None:
            self._table[topic, target] = dict(offsets)
            self._changes += 1

    def items(self) -> Iterator[tuple[str, str, int, int]]:
        """All of it: topic, group, queue id, offset."""
        for (topic, group), offsets in self._table.items():
            for queue_id, offset in offsets.items():
                yield topic, group, queue_id, offset

    def topics_of(self, group: str) -> list[str]:
        """Topics the group has offsets of, sorted."""
        return sorted(topic for topic, name in self._table if name == group)

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have offsets of the topic, sorted."""
        return sorted(group for name, group in self._table if name == topic)

    def forget_topic(self, topic: str) -> None:
        """Drop all offsets of a topic."""
        self._forget([key for key in self._table if key[0] == topic])
        self.resets = {key: offset for key, offset in self.resets.items() if key[0] != topic}

    def forget_queue(self, topic: str, queue_id: int) -> None:
        """Drop all offsets of a queue."""
        for (name, _), offsets in self._table.items():
            if name == topic and offsets.pop(queue_id, None) is not None:
                self._changes += 1

    def forget_group(self, group: str) -> None:
        """Drop all offsets of a group."""
        self._forget([key for key in self._table if key[1] == group])
        self.resets = {key: offset for key, offset in self.resets.items() if key[1] != group}

    def _forget(self, keys: list[tuple[str, str]]) -> None:
        for key in keys:
            del self._table[key]
            self._changes += 1

    def clamp(self, store: MessageStore) -> list[str]:
        """Lower offsets that lie beyond their queue's end, as after a power cut; one warning for each.

        Offsets of queues that the store does not know stay: their topic may not have been written to yet.
        """
        warnings = []
        for topic, group, queue_id, offset in list(self.items()):
            queue = store.find_queue(topic, queue_id)
            if queue is not None and offset > queue.max_offset:
                self.commit(topic, group, queue_id, queue.max_offset)
                warnings.append(
                    f"group {group} had consumed {topic}/{queue_id} up to {offset}, but the queue ends at "
                    f"{queue.max_offset}: the offset is lowered to it"
                )
        return warnings

    def save(self) -> None:
        """Write the file if anything changed since the last time; raises `StoreError`."""
        unsaved = self.unsaved()
        if unsaved is not None:
            self.write(unsaved)

    def unsaved(self) -> Unsaved | None:
        """What there is to write, as it stands now; None when nothing changed since the last `write`."""
        if self._changes == self._saved:
            return None
        return Unsaved(self._changes, self.content())

    def content(self) -> dict[str, Any]:
        """All of it in the file's form; answers to code 43 have it too."""
        table = {
            f"{topic}{_SEPARATOR}{group}": dict(offsets) for (topic, group), offsets in self._table.items()
        }
        return {"dataVersion": dict(self._version), "offsetTable": table, **self._others}

    def write(self, unsaved: Unsaved) -> None:
        """Write what `unsaved` gave, in any thread; raises `StoreError`, then it is still unsaved."""
        self._file.save(unsaved.content)
        self._saved = unsaved.changes
