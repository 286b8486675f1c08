"""What is stored of idempotent producers: so a repeated send is recognised and not stored again.

For each pair of producer and queue: the epoch, the highest stored sequence, and where the last ranges of
sequences lie in the queue. The log is the truth. The table is updated when messages are committed, written
beside every safe point that finds it changed, and brought up to date from the log when the store is opened.
`judge` decides, `note` learns; both belong to the broker's loop. `snapshot` may be taken in any thread.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from sparrowmq.core.errors import RecordError
from sparrowmq.protocol.producer_mark import Mark, binding, find_mark, too_old
from sparrowmq.store import disk

log = logging.getLogger("sparrowmq.store")
FILE_NAME: Final = "producer-state.json"
VERSION: Final = 1
RANGES_KEPT: Final = 8
"""Ranges of sequences whose places are known, per producer and queue."""
PRODUCERS_MAX: Final = 50_000
EXPIRE_HOURS: Final = 168
HOUR_MS: Final = 3_600_000
SWEEP_MS: Final = 60_000
"""Idle producers are looked for at most so often."""


class Stored(NamedTuple):
    """Sequences `first` to `last` lie in the queue from `offset` on, without a gap."""

    first: int
    last: int
    offset: int


class ProducerQueue(NamedTuple):
    """One producer's messages in one queue: `last` is the highest stored sequence of `epoch`.

    `used_ms` is the store time, epoch ms, of the newest one.
    """

    epoch: int
    last: int
    used_ms: int
    ranges: tuple[Stored, ...]


Key = tuple[str, str, int]
"""Producer id, topic, queue id."""


class Finding(Enum):
    """What becomes of a send; anything but `TAKE` refuses it."""

    TAKE = "take"
    GAP = "gap"
    TOO_OLD = "too old"
    FENCED = "fenced"
    UNKNOWN = "unknown"
    LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A finding; with `TAKE`, the queue offsets of the first messages, which are stored already.

    `text` says of a refused send what was expected.
    """

    finding: Finding
    repeated: tuple[int, ...] = ()
    text: str = ""


class ProducerTable:
    """The state of all producers. `changes` counts what was noted or forgotten.

    `producers_max` pairs of producer and queue are kept; a pair without a message for `expire_ms` is
    forgotten.
    """

    def __init__(
        self, *, producers_max: int = PRODUCERS_MAX, expire_ms: int = EXPIRE_HOURS * HOUR_MS
    ) -> None:
        self.producers_max = producers_max
        self.expire_ms = expire_ms
        self._held: dict[Key, ProducerQueue] = {}
        self._swept_ms = 0
        self.changes = 0
        self.behind: int | None = None
        """Set while messages are being committed that are noted afterwards: the log's position before them.
        """

    def __len__(self) -> int:
        return len(self._held)

    def __repr__(self) -> str:
        return f"<ProducerTable {len(self._held)} of {self.producers_max}>"

    def find(self, producer: str, topic: str, queue_id: int) -> ProducerQueue | None:
        """What is known of a producer in a queue."""
        return self._held.get((producer, topic, queue_id))

    def judge(self, topic: str, queue_id: int, mark: Mark, count: int, now_ms: int) -> Verdict:
        """What becomes of `count` messages whose first has `mark`. Changes nothing that is in use."""
        held = self._held.get((mark.producer, topic, queue_id))
        if held is not None and held.used_ms + self.expire_ms < now_ms:
            self._forget((mark.producer, topic, queue_id))
            held = None
        if held is None:
            return self._judge_new(mark, now_ms)
        if mark.epoch < held.epoch:
            return Verdict(Finding.FENCED, text=f"epoch {mark.epoch} is over, the queue is at {held.epoch}")
        expected = held.last + 1 if mark.epoch == held.epoch else 0
        if mark.sequence > expected:
            return Verdict(Finding.GAP, text=f"sequence {mark.sequence} leaves a gap, expected is {expected}")
        if mark.epoch > held.epoch:
            return Verdict(Finding.TAKE)
        repeated = places(held.ranges, mark.sequence, min(mark.sequence + count, expected))
        if repeated is None:
            known = min((one.first for one in held.ranges if one.first > mark.sequence), default=expected)
            return Verdict(Finding.TOO_OLD, text=too_old(mark.sequence, known))
        return Verdict(Finding.TAKE, repeated)

    def _judge_new(self, mark: Mark, now_ms: int) -> Verdict:
        if mark.sequence:
            return Verdict(
                Finding.UNKNOWN,
                text=f"nothing is known of producer {mark.producer} in this queue, so sequence 0 is "
                f"expected, not {mark.sequence}; idle ones are forgotten after "
                f"{self.expire_ms // HOUR_MS} hours",
            )
        if len(self._held) >= self.producers_max:
            self.expire(now_ms)
        if len(self._held) >= self.producers_max:
            return Verdict(
                Finding.LIMIT,
                text=f"{len(self._held)} pairs of idempotent producer and queue are known, maxProducerStates "
                f"is {self.producers_max}; raise it, or use fewer producers",
            )
        return Verdict(Finding.TAKE)

    def note(self, topic: str, queue_id: int, mark: Mark, count: int, offset: int, time_ms: int) -> None:
        """`count` messages from `mark` on were stored from queue offset `offset` on.

        Records that are known already are passed over, so a log may be noted twice.
        """
        key = mark.producer, topic, queue_id
        held = self._held.get(key)
        first, last = mark.sequence, mark.sequence + count - 1
        if held is not None and (mark.epoch < held.epoch or (mark.epoch == held.epoch and last <= held.last)):
            return
        ranges = held.ranges if held is not None and held.epoch == mark.epoch else ()
        if ranges and ranges[-1].last + 1 == first and ranges[-1].offset + first - ranges[-1].first == offset:
            ranges = (*ranges[:-1], ranges[-1]._replace(last=last))
        else:
            ranges = (*ranges, Stored(first, last, offset))[-RANGES_KEPT:]
        self._held[key] = ProducerQueue(mark.epoch, last, time_ms, ranges)
        self.changes += 1

    def replay(self, topic: str, queue_id: int, properties: bytes, offset: int, time_ms: int) -> None:
        """Note one record of the log, if a mark that is bound to its queue stands in its properties."""
        try:
            mark = find_mark(properties)
        except RecordError:
            return
        if mark is not None and mark.bound_to == binding(topic, queue_id):
            self.note(topic, queue_id, mark, 1, offset, time_ms)

    def sweep(self, now_ms: int) -> None:
        """Forget idle producers, when that was not done within the last minute."""
        if now_ms - self._swept_ms >= SWEEP_MS:
            self.expire(now_ms)

    def expire(self, now_ms: int) -> int:
        """Forget producers that have been idle for too long; how many."""
        self._swept_ms = now_ms
        oldest = now_ms - self.expire_ms
        idle = [key for key, held in self._held.items() if held.used_ms < oldest]
        for key in idle:
            self._forget(key)
        return len(idle)

    def drop_topic(self, topic: str, queue_id: int | None = None) -> None:
        """Forget a topic that was deleted, or one queue of it."""
        for key in [key for key in self._held if key[1] == topic and queue_id in (None, key[2])]:
            self._forget(key)

    def _forget(self, key: Key) -> None:
        del self._held[key]
        self.changes += 1

    def clear(self) -> None:
        """Forget everything."""
        self._held.clear()
        self.changes += 1

    # The file

    def snapshot(self) -> list[tuple[Key, ProducerQueue]]:
        """All of it, as of one moment; its values never change."""
        return list(self._held.items())

    def restore(self, rows: Iterable[Any]) -> None:
        """Take over the rows of a file. Raises ValueError or TypeError for rows that are none."""
        for producer, topic, queue_id, epoch, last, used_ms, ranges in rows:
            self._held[str(producer), str(topic), int(queue_id)] = ProducerQueue(
                int(epoch),
                int(last),
                int(used_ms),
                tuple(Stored(int(first), int(end), int(offset)) for first, end, offset in ranges),
            )


def places(ranges: Iterable[Stored], first: int, end: int) -> tuple[int, ...] | None:
    """The queue offsets of sequences `first` to before `end`; None when one of them is not known."""
    found: list[int] = []
    for stored in ranges:
        low, high = max(first + len(found), stored.first), min(end - 1, stored.last)
        if low == first + len(found) and low <= high:
            found += range(stored.offset + low - stored.first, stored.offset + high - stored.first + 1)
    return tuple(found) if len(found) == max(0, end - first) else None


@dataclass(frozen=True, slots=True)
class StateFile:
    """What `load` found: the rows, and the log's position they stand for; None without a file.

    `damaged` says that there is one which cannot be used.
    """

    position: int | None = None
    rows: tuple[Any, ...] = ()
    damaged: bool = False


def load(root: Path) -> StateFile:
    """The state file of a store."""
    path = root / FILE_NAME
    try:
        data: Mapping[str, Any] = msgspec.json.decode(path.read_bytes())
        if data["version"] != VERSION:
            raise ValueError(f"version {data['version']}")
        return StateFile(int(data["position"]), tuple(data["producers"]))
    except FileNotFoundError:
        return StateFile()
    except (OSError, ValueError, KeyError, TypeError, msgspec.DecodeError) as error:
        log.warning("%s cannot be used, idempotent producers are read from the whole log: %s", path, error)
        return StateFile(damaged=True)


def save(root: Path, position: int, rows: Iterable[tuple[Key, ProducerQueue]]) -> None:
    """Replace the state file: everything in the log before `position` is in `rows`. Raises OSError."""
    data = {
        "version": VERSION,
        "position": position,
        "producers": [(*key, *held) for key, held in rows],
    }
    disk.replace(root / FILE_NAME, msgspec.json.encode(data))


def scan_start(
    file: StateFile, covered: int | None, *, log_start: int, log_end: int, recovered_from: int
) -> int:
    """Where in the log reading must begin to bring the rows of `file` up to date.

    `covered` is the position the safe point says the file is complete for, None when it says nothing: then
    no producer was known, and what recovery did not look at holds none.
    """
    if file.position is not None:
        start = max(file.position, covered or 0)
    elif file.damaged or covered is not None:
        return log_start
    else:
        start = recovered_from
    return start if log_start <= start <= log_end else log_start
