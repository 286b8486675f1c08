"""The delivery progress of each delay level: `delayOffset.json` (broker:1.4, 8.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparrowmq.core.errors import StoreCorruptError

if TYPE_CHECKING:
    from sparrowmq.core.clock import Clock
    from sparrowmq.store.tables.config_file import ConfigFile

VERSION_STEP: Final = 200
"""The data version increases once per this many changes (`delayOffsetUpdateVersionStep`)."""


class UnsavedDelayOffsets(NamedTuple):
    """The content of the file after this many changes."""

    changes: int
    content: dict[str, Any]


class DelayOffsets:
    """The next queue offset to deliver, by level. Levels that are no longer configured are preserved."""

    def __init__(self, file: ConfigFile, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._table: dict[int, int] = {}
        self._version: dict[str, int] = {"counter": 0, "stateVersion": 0, "timestamp": clock.now_ms()}
        self._changes = self._saved = 0

    @classmethod
    def load(cls, file: ConfigFile, clock: Clock) -> DelayOffsets:
        """Load the stored offsets; raises `StoreCorruptError` when the file is not a table of levels."""
        offsets = cls(file, clock)
        data = file.load()
        try:
            for level, offset in (data.get("offsetTable") or {}).items():
                offsets._table[int(level)] = int(offset)
            for name, value in (data.get("dataVersion") or {}).items():
                offsets._version[name] = int(value)
        except (AttributeError, TypeError, ValueError) as error:
            raise StoreCorruptError(
                f"{file.path} is not a table of delay levels ({error}); restore or remove it",
                what="delay levels",
                value=file.path,
            ) from error
        return offsets

    def get(self, level: int) -> int:
        """The next offset of a level; 0 if it was never delivered."""
        return self._table.get(level, 0)

    def set(self, level: int, offset: int) -> None:
        """Record that everything before `offset` is delivered."""
        if self._table.get(level) == offset:
            return
        self._table[level] = offset
        self._changes += 1
        if self._changes % VERSION_STEP == 0:
            self._version["counter"] += 1
            self._version["timestamp"] = self._clock.now_ms()

    def content(self) -> dict[str, Any]:
        """The table in the format of its file."""
        table = {str(level): self._table[level] for level in sorted(self._table)}
        return {"dataVersion": dict(self._version), "offsetTable": table}

    def unsaved(self) -> UnsavedDelayOffsets | None:
        """A snapshot of the data to write; None when nothing changed since the last `write`."""
        if self._changes == self._saved:
            return None
        return UnsavedDelayOffsets(self._changes, self.content())

    def write(self, unsaved: UnsavedDelayOffsets) -> None:
        """Write the result of `unsaved`, in any thread; raises `StoreError`, leaving the data unsaved."""
        self._file.save(unsaved.content)
        self._saved = unsaved.changes

    def save(self) -> None:
        """Write the file if the table changed since the last write; raises `StoreError`."""
        unsaved = self.unsaved()
        if unsaved is not None:
            self.write(unsaved)
