"""What consumer groups have consumed: `consumerOffset.json` (broker:1.4, 5.5)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from sparrowmq.core.errors import StoreCorruptError
from sparrowmq.protocol.java_json import dumps
from sparrowmq.store.tables.config_file import ConfigFile

if TYPE_CHECKING:
    from sparrowmq.core.clock import Clock

VERSION_STEP: Final = 500
"""The data version increases once per this many commits (`consumerOffsetUpdateVersionStep`)."""

ENTRIES_MAX: Final = 1_000_000
"""Maximum number of offsets of all groups, unless the broker's settings differ; each takes about 95 bytes."""
PAIRS_PART: Final = 10
"""One in this many may be a group's first offset of a topic, which takes 630 bytes."""
_SEPARATOR: Final = "@"
_POSITION: Final = "logPosition"
"""Our own member: the end of the log when the table was saved. RocketMQ drops it when it writes the file."""
_COMPUTED: Final = ("dataVersion", "groupTopicMap", "offsetTable", _POSITION)


class UnsavedOffsets(NamedTuple):
    """An immutable snapshot of the table after this many changes."""

    changes: int
    version: dict[str, int]
    table: Mapping[tuple[str, str], Mapping[int, int]]
    others: Mapping[str, Any]
    position: int | None = None

    def content(self) -> dict[str, Any]:
        """The full content in the file's form. Slow for a large table; may be called in any thread."""
        table = {f"{topic}{_SEPARATOR}{group}": offsets for (topic, group), offsets in self.table.items()}
        position = {} if self.position is None else {_POSITION: self.position}
        return {"dataVersion": self.version, "offsetTable": table, **self.others, **position}

    def encoding(self) -> Generator[None, None, bytes]:
        """The content as compact JSON with unquoted keys, one topic and group per step."""
        parts = []
        for (topic, group), offsets in self.table.items():
            # All values are numbers, so every quote belongs to a key.
            bare = dumps(offsets).replace(b'"', b"")
            parts.append(dumps(f"{topic}{_SEPARATOR}{group}") + b":" + bare)
            yield
        others = b"".join(
            b"," + dumps(name) + b":" + dumps(value, bare_keys=True) for name, value in self.others.items()
        )
        head = b'{"dataVersion":' + dumps(self.version) + b',"offsetTable":{'
        return b"".join((head, b",".join(parts), b"}", others, b"}"))


class QueueEnd(Protocol):
    """A queue, reduced to its end."""

    @property
    def max_offset(self) -> int:
        """The offset of the next message."""


class QueueEnds(Protocol):
    """Provides the ends of queues: the store."""

    def find_queue(self, topic: str, queue_id: int) -> QueueEnd | None:
        """The queue, or None if it was never written to."""


class ConsumerOffsets:
    """The next offset to consume by topic, group and queue. Any value is accepted, including a smaller one.

    Unknown members of the file are preserved. `position` gives the end of the log; `saved_at` is what it was
    when the loaded file was saved, None if the file does not say. Without `position` it stays what it was,
    until `copied`. A snapshot does not copy the queues' offsets: those of a topic and group are copied on
    their next change.
    """

    def __init__(
        self,
        file: ConfigFile,
        clock: Clock | None = None,
        *,
        entries_max: int = ENTRIES_MAX,
        position: Callable[[], int] | None = None,
    ) -> None:
        self._position = position
        self.saved_at: int | None = None
        self._entries_max = entries_max
        self._entries = 0
        self._file = file
        self._clock = clock
        self._table: dict[tuple[str, str], dict[int, int]] = {}
        self._fresh: dict[tuple[str, str], dict[int, int]] = {}
        """Offsets of the table that no snapshot shares, so they may be modified."""
        self._others: dict[str, Any] = {}
        self._version: dict[str, int] = {"counter": 0, "stateVersion": 0, "timestamp": 0}
        self._commits = 0
        self._changes = 0
        self._saved = 0
        self.resets: dict[tuple[str, str, int], int] = {}
        """Externally reset offsets not yet received by consumers; in memory only, as in the reference."""

    @classmethod
    def load(
        cls,
        file: ConfigFile,
        clock: Clock | None = None,
        *,
        entries_max: int = ENTRIES_MAX,
        position: Callable[[], int] | None = None,
    ) -> ConsumerOffsets:
        """Load the stored offsets; raises `StoreCorruptError` when the file is not a table of offsets."""
        offsets = cls(file, clock, entries_max=entries_max, position=position)
        data = file.load()
        try:
            for key, stored in data.get("offsetTable", {}).items():
                topic, _, group = key.partition(_SEPARATOR)
                offsets._table[topic, group] = {int(queue): int(offset) for queue, offset in stored.items()}
            for name, value in (data.get("dataVersion") or {}).items():
                offsets._version[name] = int(value)
            stored = data.get(_POSITION, None if data else 0)
            offsets.saved_at = None if stored is None else int(stored)
        except (AttributeError, TypeError, ValueError) as error:
            raise StoreCorruptError(
                f"{file.path} is not a table of consumer offsets ({error}); restore or remove it",
                what="consumer offsets",
                value=file.path,
            ) from error
        offsets._entries = sum(map(len, offsets._table.values()))
        offsets._others = {name: value for name, value in data.items() if name not in _COMPUTED}
        return offsets

    def query(self, topic: str, group: str, queue_id: int) -> int | None:
        """The committed offset, or None."""
        offsets = self._table.get((topic, group))
        return None if offsets is None else offsets.get(queue_id)

    def commit(self, topic: str, group: str, queue_id: int, offset: int, *, always: bool = False) -> bool:
        """Store an offset; a reset offset stays until its consumer has received it.

        Returns False and stores nothing when there are too many offsets, see `too_many`; `always` ignores the
        limit.
        """
        key = topic, group
        if self.resets and (topic, group, queue_id) in self.resets:
            return True
        offsets = self._fresh.get(key)
        if offsets is None or queue_id not in offsets:
            known = self._table.get(key)
            if known is None or queue_id not in known:
                if not always and not self._has_room(1, new_pair=known is None):
                    return False
                self._entries += 1
            offsets = self._to_change(key) if offsets is None else offsets
        offsets[queue_id] = offset
        self._changes += 1
        self._commits += 1
        if self._commits >= VERSION_STEP:
            self._commits = 0
            self._version["counter"] += 1
            if self._clock is not None:
                self._version["timestamp"] = self._clock.now_ms()
        return True

    def _has_room(self, entries: int, *, new_pair: bool) -> bool:
        if new_pair and len(self._table) >= self._entries_max // PAIRS_PART:
            return False
        return self._entries + entries <= self._entries_max

    @property
    def entries(self) -> int:
        """Number of offsets."""
        return self._entries

    @property
    def too_many(self) -> str:
        """Why an offset was not stored."""
        return (
            f"{self._entries} offsets of {len(self._table)} pairs of a topic and a group are stored, and the "
            f"limits are {self._entries_max} and {self._entries_max // PAIRS_PART}: delete groups, or raise "
            "consumerOffsetsMax"
        )

    def _to_change(self, key: tuple[str, str]) -> dict[int, int]:
        """A topic's and group's offsets, not shared with a snapshot; empty if there were none."""
        offsets = self._table[key] = self._fresh[key] = dict(self._table.get(key, ()))
        return offsets

    def reset(self, topic: str, group: str, queue_id: int, offset: int) -> bool:
        """Set an offset externally. Commits cannot overwrite it until `take_reset` has returned it.

        False when there are too many, as with `commit`.
        """
        self.resets.pop((topic, group, queue_id), None)
        if not self.commit(topic, group, queue_id, offset):
            return False
        self.resets[topic, group, queue_id] = offset
        return True

    def take_reset(self, topic: str, group: str, queue_id: int) -> int | None:
        """Take a reset offset, which its consumer now receives; None if there is none."""
        return self.resets.pop((topic, group, queue_id), None)

    def clone(self, topic: str, source: str, target: str) -> bool:
        """Copy the offsets of a topic from one group to another; the target's previous offsets of it are
        removed.

        False when there are too many, as with `commit`.
        """
        offsets = self._table.get((topic, source))
        if offsets is not None:
            before = self._table.get((topic, target))
            more = len(offsets) - len(before or ())
            if more > 0 and not self._has_room(more, new_pair=before is None):
                return False
            self._table[topic, target] = self._fresh[topic, target] = dict(offsets)
            self._entries += more
            self._changes += 1
        return True

    def items(self) -> Iterator[tuple[str, str, int, int]]:
        """All offsets: topic, group, queue id, offset."""
        for (topic, group), offsets in self._table.items():
            for queue_id, offset in offsets.items():
                yield topic, group, queue_id, offset

    def pairs(self) -> list[tuple[str, str]]:
        """The topics and groups with offsets."""
        return list(self._table)

    def by_pair(self) -> Mapping[tuple[str, str], Mapping[int, int]]:
        """The offsets by topic and group, and by queue id, for any thread. Later commits may change those by
        queue id.
        """
        return self._table.copy()

    def of_pair(self, topic: str, group: str) -> Mapping[int, int]:
        """A group's offsets of a topic, by queue id. Later commits change the returned table."""
        return self._table.get((topic, group), {})

    def of_topic(self, topic: str) -> list[tuple[str, str, int, int]]:
        """A snapshot of one topic's offsets."""
        return [
            (topic, group, queue_id, offset)
            for (name, group), offsets in self._table.items()
            if name == topic
            for queue_id, offset in offsets.items()
        ]

    def topics_by_group(self) -> dict[str, list[str]]:
        """Topics each group has offsets for, sorted."""
        found: dict[str, list[str]] = {}
        for topic, group in sorted(self._table):
            found.setdefault(group, []).append(topic)
        return found

    def topics_of(self, group: str) -> list[str]:
        """Topics the group has offsets for, sorted."""
        return sorted(topic for topic, name in self._table if name == group)

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have offsets for the topic, sorted."""
        return sorted(group for name, group in self._table if name == topic)

    def forget_topic(self, topic: str) -> None:
        """Drop all offsets of a topic."""
        self._forget([key for key in self._table if key[0] == topic])
        self.resets = {key: offset for key, offset in self.resets.items() if key[0] != topic}

    def forget_queue(self, topic: str, queue_id: int) -> None:
        """Drop all offsets of a queue."""
        for key in [key for key, offsets in self._table.items() if key[0] == topic and queue_id in offsets]:
            del self._to_change(key)[queue_id]
            self._changes += 1
            self._entries -= 1

    def forget_group(self, group: str) -> None:
        """Drop all offsets of a group."""
        self._forget([key for key in self._table if key[1] == group])
        self.resets = {key: offset for key, offset in self.resets.items() if key[1] != group}

    def _forget(self, keys: list[tuple[str, str]]) -> None:
        for key in keys:
            self._entries -= len(self._table.pop(key))
            self._fresh.pop(key, None)
            self._changes += 1

    def copied(self, position: int) -> None:
        """The table is now the master's, as it was when its log ended at `position`, or later."""
        if position != self.saved_at:
            self.saved_at = position
            self._changes += 1

    def clamp(self, store: QueueEnds, *, absent: bool = True) -> list[str]:
        """Lower offsets beyond the end of their queue, as after a power failure or on an empty disk: to 0 if
        the store does not have the queue, unless `absent` is false. Returns one warning for each.
        """
        warnings = []
        for topic, group, queue_id, offset in list(self.items()):
            queue = store.find_queue(topic, queue_id)
            end = 0 if queue is None else queue.max_offset
            if offset > end and (absent or queue is not None):
                self.commit(topic, group, queue_id, end)
                warnings.append(
                    f"group {group} had consumed {topic}/{queue_id} up to {offset}, but the queue ends at "
                    f"{end}: the offset is lowered to it"
                )
        return warnings

    def save(self) -> None:
        """Write the file if the table changed since the last write; raises `StoreError`."""
        unsaved = self.unsaved()
        if unsaved is not None:
            self.write(unsaved)

    def unsaved(self) -> UnsavedOffsets | None:
        """A snapshot of the data to write; None when nothing changed since the last `write`."""
        if self._changes == self._saved:
            return None
        return self.snapshot()

    def frozen(self) -> Mapping[tuple[str, str], Mapping[int, int]]:
        """The offsets by topic and group, and by queue id, as they are now. Its cost is proportional to the
        number of topics and groups.
        """
        self._fresh = {}
        return self._table.copy()

    def snapshot(self) -> UnsavedOffsets:
        """A snapshot of the table; costs as much as `frozen`."""
        position = self.saved_at if self._position is None else self._position()
        return UnsavedOffsets(self._changes, dict(self._version), self.frozen(), self._others, position)

    def write(self, unsaved: UnsavedOffsets) -> None:
        """Write the result of `unsaved`, in any thread; raises `StoreError`, leaving the data unsaved."""
        self._file.save(unsaved.content())
        self._saved = unsaved.changes
