"""The state of idempotent producers, so that a repeated send is recognised and not stored again.

For each pair of producer and queue: the epoch, its first offset in the queue, the highest stored sequence,
and the offsets of the last ranges of sequences; for each family, which epochs have ended. The log is the
source of truth. The table is updated when messages are committed, saved with every safe point if it has
changed, and completed from the log when the store is opened. `judge` decides, `note` records; both are called
on the broker's loop. `snapshot` may be called in any thread.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from sparrowmq.core.errors import RecordError
from sparrowmq.core.names import PRODUCER_ENDS_TOPIC
from sparrowmq.files import disk
from sparrowmq.protocol.producer_mark import (
    Mark,
    ProducerEnd,
    binding,
    family_of,
    fenced,
    find_end,
    find_mark,
    too_old,
)

log = logging.getLogger("sparrowmq.store")
FILE_NAME: Final = "producer-state.json"
VERSION: Final = 1
RANGES_KEPT: Final = 8
"""Number of sequence ranges with known offsets, per producer and queue."""
PRODUCERS_MAX: Final = 50_000
ENDED_MAX: Final = 10_000
"""Maximum number of families with a known end; beyond it, the oldest is forgotten."""
EXPIRE_HOURS: Final = 168
HOUR_MS: Final = 3_600_000
SWEEP_MS: Final = 60_000
"""Minimum interval between searches for idle producers."""


class StoredRange(NamedTuple):
    """Sequences `first` to `last` are in the queue from `offset` on, without gaps."""

    first: int
    last: int
    offset: int


class ProducerQueue(NamedTuple):
    """One producer's messages in one queue: `last` is the highest stored sequence of `epoch`.

    `used_ms` is the store time, epoch ms, of the newest message. `begins_at` is the queue offset of the
    epoch's first message; None in a state written by a release that did not record it.
    """

    epoch: int
    last: int
    used_ms: int
    ranges: tuple[StoredRange, ...]
    begins_at: int | None = None


Key = tuple[str, str, int]
"""Producer id, topic, queue id."""


class Ended(NamedTuple):
    """A family's epochs before `epoch` have ended, at `used_ms`; `note` belongs to the caller."""

    epoch: int
    note: str
    used_ms: int


class ProducerSnapshot(NamedTuple):
    """An immutable snapshot of the table."""

    producers: list[tuple[Key, ProducerQueue]]
    ended: list[tuple[tuple[str, str], Ended]]


NOTHING: Final = ProducerSnapshot([], [])


class SequenceFinding(Enum):
    """The outcome of a send; anything but `TAKE` refuses it."""

    TAKE = "take"
    GAP = "gap"
    TOO_OLD = "too old"
    FENCED = "fenced"
    UNKNOWN = "unknown"
    LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class SequenceVerdict:
    """A finding; with `TAKE`, the queue offsets of the first messages, which are already stored.

    For a refused send, `text` says what was expected.
    """

    finding: SequenceFinding
    repeated: tuple[int, ...] = ()
    text: str = ""


class ProducerStates:
    """The state of all producers. `changes` counts additions and removals.

    At most `producers_max` pairs of producer and queue are kept; a pair without a message for `expire_ms` is
    forgotten.
    """

    def __init__(
        self, *, producers_max: int = PRODUCERS_MAX, expire_ms: int = EXPIRE_HOURS * HOUR_MS
    ) -> None:
        self.producers_max = producers_max
        self.expire_ms = expire_ms
        self._held: dict[Key, ProducerQueue] = {}
        self._ended: dict[tuple[str, str], Ended] = {}
        """By family and topic, oldest first."""
        self._swept_ms = 0
        self.changes = 0
        self._behind: int | None = None

    def __len__(self) -> int:
        return len(self._held)

    def __repr__(self) -> str:
        return f"<ProducerTable {len(self._held)} of {self.producers_max}>"

    @property
    def behind(self) -> int | None:
        """The log position before messages that are being committed but not recorded yet; otherwise None."""
        return self._behind

    @contextmanager
    def committing(self, position: int) -> Iterator[None]:
        """Context manager around a commit at the end of the log, `position`, and the `note` of its messages.

        A snapshot taken in between is complete up to `position` only.
        """
        self._behind = position
        try:
            yield
        finally:
            self._behind = None

    def mark_changed(self) -> None:
        """Force the next save to write the file, whatever the table contains."""
        self.changes += 1

    def find(self, producer: str, topic: str, queue_id: int) -> ProducerQueue | None:
        """The state of a producer in a queue."""
        return self._held.get((producer, topic, queue_id))

    def judge(self, topic: str, queue_id: int, mark: Mark, count: int, now_ms: int) -> SequenceVerdict:
        """The outcome of sending `count` messages, the first of which has `mark`. Changes no state."""
        if mark.epoch < (first := self.end_of(family_of(mark.producer), topic).epoch):
            return SequenceVerdict(SequenceFinding.FENCED, text=fenced(mark.epoch, first))
        held = self._held.get((mark.producer, topic, queue_id))
        if held is not None and held.used_ms + self.expire_ms < now_ms:
            self._forget((mark.producer, topic, queue_id))
            held = None
        if held is None:
            return self._judge_new(mark, now_ms)
        if mark.epoch < held.epoch:
            return SequenceVerdict(SequenceFinding.FENCED, text=fenced(mark.epoch, held.epoch))
        expected = held.last + 1 if mark.epoch == held.epoch else 0
        if mark.sequence > expected:
            return SequenceVerdict(
                SequenceFinding.GAP, text=f"sequence {mark.sequence} leaves a gap, expected is {expected}"
            )
        if mark.epoch > held.epoch:
            return SequenceVerdict(SequenceFinding.TAKE)
        repeated = places(held.ranges, mark.sequence, min(mark.sequence + count, expected))
        if repeated is None:
            known = min((one.first for one in held.ranges if one.first > mark.sequence), default=expected)
            return SequenceVerdict(
                SequenceFinding.TOO_OLD, text=too_old(mark.sequence, known, held.begins_at)
            )
        return SequenceVerdict(SequenceFinding.TAKE, repeated)

    def _judge_new(self, mark: Mark, now_ms: int) -> SequenceVerdict:
        if mark.sequence:
            return SequenceVerdict(
                SequenceFinding.UNKNOWN,
                text=f"producer {mark.producer} is unknown in this queue, so "
                f"sequence 0 is expected, not {mark.sequence}; idle ones are forgotten after "
                f"{self.expire_ms // HOUR_MS} hours",
            )
        if len(self._held) >= self.producers_max:
            self.expire(now_ms)
        if len(self._held) >= self.producers_max:
            return SequenceVerdict(
                SequenceFinding.LIMIT,
                text=f"{len(self._held)} pairs of idempotent producer and queue are known, maxProducerStates "
                f"is {self.producers_max}; raise it, or use fewer producers",
            )
        return SequenceVerdict(SequenceFinding.TAKE)

    def note(self, topic: str, queue_id: int, mark: Mark, count: int, offset: int, time_ms: int) -> None:
        """Record that `count` messages from `mark` on were stored from queue offset `offset` on.

        Known records are skipped, so a log may be processed twice.
        """
        key = mark.producer, topic, queue_id
        if mark.epoch < self.end_of(family_of(mark.producer), topic).epoch:
            return
        held = self._held.get(key)
        first, last = mark.sequence, mark.sequence + count - 1
        if held is not None and (mark.epoch < held.epoch or (mark.epoch == held.epoch and last <= held.last)):
            return
        ranges: tuple[StoredRange, ...] = ()
        begins_at: int | None = offset
        if held is not None and held.epoch == mark.epoch:
            ranges, begins_at = held.ranges, held.begins_at
        if ranges and ranges[-1].last + 1 == first and ranges[-1].offset + first - ranges[-1].first == offset:
            ranges = (*ranges[:-1], ranges[-1]._replace(last=last))
        else:
            ranges = (*ranges, StoredRange(first, last, offset))[-RANGES_KEPT:]
        self._held[key] = ProducerQueue(mark.epoch, last, time_ms, ranges, begins_at)
        self.changes += 1

    def replay(self, topic: str, queue_id: int, properties: bytes, offset: int, time_ms: int) -> None:
        """Record one message of the log if its properties have a mark for its queue, or an end."""
        try:
            if topic == PRODUCER_ENDS_TOPIC:
                self._replay_end(find_end(properties), time_ms)
                return
            mark = find_mark(properties)
        except RecordError:
            return
        if mark is not None and mark.bound_to == binding(topic, queue_id):
            self.note(topic, queue_id, mark, 1, offset, time_ms)

    def _replay_end(self, end: ProducerEnd, time_ms: int) -> None:
        if end.epoch:
            self.end(end.family, end.topic, end.epoch, end.note, time_ms)
        else:
            self.drop_topic(end.topic)

    def knows(self, topic: str) -> bool:
        """Whether there is anything to forget when a topic is deleted."""
        return any(key[1] == topic for key in self._held) or any(name[1] == topic for name in self._ended)

    def is_news(self, family: str, topic: str, epoch: int, note: str) -> bool:
        """Whether `end` would change anything."""
        known = self.end_of(family, topic)
        return epoch > known.epoch or (epoch == known.epoch and bool(note) and not known.note)

    def end_of(self, family: str, topic: str) -> Ended:
        """Which epochs of a family have ended."""
        return self._ended.get((family, topic), _NOT_ENDED)

    def end(self, family: str, topic: str, epoch: int, note: str, now_ms: int) -> Ended:
        """Remove the state of a family before `epoch`, and refuse these epochs from now on; returns the end
        in force.

        Nothing changes when a later epoch, or the same one with a note, is in force.
        """
        known = self.end_of(family, topic)
        if self.is_news(family, topic, epoch, note):
            self._ended.pop((family, topic), None)
            while len(self._ended) >= ENDED_MAX:
                del self._ended[next(iter(self._ended))]
            known = self._ended[family, topic] = Ended(epoch, note, now_ms)
            self.changes += 1
            for key, held in list(self._held.items()):
                if key[1] == topic and held.epoch < epoch and family_of(key[0]) == family:
                    self._forget(key)
        return known

    def sweep(self, now_ms: int) -> None:
        """Remove idle producers, unless that was done within the last minute."""
        if now_ms - self._swept_ms >= SWEEP_MS:
            self.expire(now_ms)

    def expire(self, now_ms: int) -> int:
        """Remove producers that have been idle too long; returns how many."""
        self._swept_ms = now_ms
        oldest = now_ms - self.expire_ms
        idle = [key for key, held in self._held.items() if held.used_ms < oldest]
        for key in idle:
            self._forget(key)
        for name in [name for name, ended in self._ended.items() if ended.used_ms < oldest]:
            del self._ended[name]
            self.changes += 1
        return len(idle)

    def drop_topic(self, topic: str, queue_id: int | None = None) -> None:
        """Remove the state of a deleted topic, or of one of its queues."""
        for key in [key for key in self._held if key[1] == topic and queue_id in (None, key[2])]:
            self._forget(key)
        if queue_id is None:
            for name in [name for name in self._ended if name[1] == topic]:
                del self._ended[name]
                self.changes += 1

    def _forget(self, key: Key) -> None:
        del self._held[key]
        self.changes += 1

    def clear(self) -> None:
        """Remove all state."""
        self._held.clear()
        self._ended.clear()
        self.changes += 1

    # The file

    def snapshot(self) -> ProducerSnapshot:
        """An immutable snapshot of the table."""
        return ProducerSnapshot(list(self._held.items()), list(self._ended.items()))

    def restore(self, rows: Iterable[Any], ended: Iterable[Any] = ()) -> None:
        """Restore the rows of a file. Raises ValueError or TypeError for invalid rows."""
        for family, topic, epoch, note, used_ms in ended:
            self._ended[str(family), str(topic)] = Ended(int(epoch), str(note), int(used_ms))
        for producer, topic, queue_id, epoch, last, used_ms, ranges, *more in rows:
            self._held[str(producer), str(topic), int(queue_id)] = ProducerQueue(
                int(epoch),
                int(last),
                int(used_ms),
                tuple(StoredRange(int(first), int(end), int(offset)) for first, end, offset in ranges),
                int(more[0]) if more and more[0] is not None else None,
            )


_NOT_ENDED: Final = Ended(0, "", 0)


def places(ranges: Iterable[StoredRange], first: int, end: int) -> tuple[int, ...] | None:
    """The queue offsets of sequences `first` to before `end`; None when any of them is unknown."""
    found: list[int] = []
    for stored in ranges:
        low, high = max(first + len(found), stored.first), min(end - 1, stored.last)
        if low == first + len(found) and low <= high:
            found += range(stored.offset + low - stored.first, stored.offset + high - stored.first + 1)
    return tuple(found) if len(found) == max(0, end - first) else None


@dataclass(frozen=True, slots=True)
class StateFile:
    """Result of `load`: the rows, and the log position they correspond to; None if there is no file.

    `damaged` means that the file exists but cannot be used.
    """

    position: int | None = None
    rows: tuple[Any, ...] = ()
    ended: tuple[Any, ...] = ()
    damaged: bool = False


def load(root: Path) -> StateFile:
    """The state file of a store."""
    path = root / FILE_NAME
    try:
        data: Mapping[str, Any] = msgspec.json.decode(disk.read(path))
        if data["version"] != VERSION:
            raise ValueError(f"version {data['version']}")
        return StateFile(int(data["position"]), tuple(data["producers"]), tuple(data.get("ended", ())))
    except FileNotFoundError:
        return StateFile()
    except (OSError, ValueError, KeyError, TypeError, msgspec.DecodeError) as error:
        log.warning("%s cannot be used, idempotent producers are read from the whole log: %s", path, error)
        return StateFile(damaged=True)


def save(root: Path, position: int, table: ProducerSnapshot) -> None:
    """Replace the state file: `table` covers everything in the log before `position`. Raises OSError."""
    data = {
        "version": VERSION,
        "position": position,
        "producers": [(*key, *held) for key, held in table.producers],
        "ended": [(*key, *ended) for key, ended in table.ended],
    }
    disk.replace(root / FILE_NAME, msgspec.json.encode(data))


def scan_start(
    file: StateFile, covered: int | None, *, log_start: int, log_end: int, recovered_from: int
) -> int:
    """Log position from which reading must begin to bring the rows of `file` up to date.

    `covered` is the position up to which the file is complete according to the safe point. None if the safe
    point has no such position: then there were no producers, and the part that recovery did not scan has
    none.
    """
    if file.position is not None:
        start = max(file.position, covered or 0)
    elif file.damaged or covered is not None:
        return log_start
    else:
        start = recovered_from
    return start if log_start <= start <= log_end else log_start
