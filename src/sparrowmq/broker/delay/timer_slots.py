"""When and where timed messages are planned, and the slot of the current second. Pure, but for reading the
timer log (broker:8.2).
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrowmq.broker.delay.rerouting import (
    DELETE_SEPARATOR,
    PRECISION_MS,
    TIMER_OUT,
    TIMER_PROPERTIES,
    deliver_time,
)
from sparrowmq.protocol import properties as property_string
from sparrowmq.store.timers.timer_log import MAGIC_DELETE, MAGIC_NORMAL, MAGIC_ROLL, NONE

if TYPE_CHECKING:
    from sparrowmq.protocol.record import StoredRecord
    from sparrowmq.store.timers.timers import Timers

log = logging.getLogger("sparrowmq.broker")
BATCH_MESSAGES: Final = 128
"""Maximum number of messages that one turn plans or delivers."""
CHAIN_UNITS: Final = 2000
"""Maximum number of units of a chain that one turn follows."""


class TimerPlacement(NamedTuple):
    """The slot of a message, epoch ms, and the magic of its unit."""

    slot: int
    magic: int


def plan(out: int, write_time: int, window_ms: int, *, is_delete: bool) -> TimerPlacement:
    """The placement at `write_time` of a message for slot `out`: in that slot, or where it is planned again.

    `window_ms` is how far ahead messages are planned. The last two stages are about equally long.
    """
    magic = MAGIC_NORMAL | (MAGIC_DELETE if is_delete else 0)
    ahead = out - write_time
    if ahead < window_ms:
        return TimerPlacement(out, magic)
    wait = window_ms // 2 if ahead - window_ms < window_ms // 3 else window_ms
    return TimerPlacement(write_time + wait // PRECISION_MS * PRECISION_MS, magic | MAGIC_ROLL)


def due_in(slot: int, own: dict[str, str], stored_at: int) -> int:
    """When a message of a slot is due, epoch ms: the requested time, within the slot's second."""
    asked = None
    if any(name in own for name in TIMER_PROPERTIES):
        asked = deliver_time(own, stored_at)
    if asked is None or not slot < asked <= slot + PRECISION_MS:
        return slot + PRECISION_MS
    return asked


def out_time(record: StoredRecord) -> int | None:
    """The slot of a message of the timer topic, epoch ms; None when the message does not specify it."""
    text = property_string.find(record.properties, TIMER_OUT.encode())
    if text is None or not text.isdigit() or len(text) > 15:
        return None
    return int(text) // PRECISION_MS * PRECISION_MS


def taken_back(marker: StoredRecord, value: str) -> tuple[str, str]:
    """Topic and unique key of the message that a deletion marker with this value cancels.

    The value is the key, or `topic+key` where 5.5.0 runs with `appendTopicForTimerDeleteKey`, which is off by
    default. A marker cancels only messages of its own topic: clients can set the property, and permission to
    send to one topic must not allow deletions in another.
    """
    topic = (property_string.find(marker.properties, b"REAL_TOPIC") or b"").decode("utf-8", "replace")
    return topic, value.removeprefix(f"{topic}{DELETE_SEPARATOR}")


class LoadedSlot:
    """One slot being processed: first its chain is followed, then its messages are sorted by due time.

    `chain` has the positions of its units, oldest first once it is followed.

    `due` holds physical offset and planning time, in turn, of the messages of each millisecond; `rolled` has
    the same for messages that are planned again.
    """

    __slots__ = (
        "_done",
        "_fresh",
        "_search",
        "chain",
        "deleted",
        "due",
        "next_unit",
        "rolled",
        "slot",
        "sorted_until",
    )

    def __init__(self, slot: int, last: int) -> None:
        self.slot = slot
        self.next_unit = last
        self.chain: array[int] = array("q")
        self._fresh: array[int] = array("q")
        self._search: Iterator[int] | None = None
        """The places of the timer log, while a slot with a damaged chain is looked for there."""
        self.sorted_until = 0
        self.due: dict[int, array[int]] = {}
        self._done: dict[int, int] = {}
        self.rolled: array[int] = array("q")
        self.deleted: set[tuple[str, str]] = set()

    @property
    def is_followed(self) -> bool:
        """Whether the chain was followed to its first unit."""
        return self.next_unit == NONE and self._search is None

    @property
    def is_sorted(self) -> bool:
        """Whether every unit was sorted."""
        return self.is_followed and self.sorted_until == len(self.chain)

    @property
    def is_empty(self) -> bool:
        """Whether all its messages are delivered."""
        return self.is_sorted and not self.due and not self.rolled

    def add(self, position: int) -> None:
        """Add a unit that was chained to the slot after loading."""
        (self.chain if self.is_followed else self._fresh).append(position)

    def follow(self, timers: Timers) -> None:
        """Follow the chain, newest unit first, for one turn. If a unit of it is damaged, the others are found
        in the timer log.
        """
        if self._search is None:
            self._go_back(timers)
            if self.is_followed:
                self.chain.reverse()
        else:
            self._look_on(self._search)
        if self.is_followed:
            self.chain.extend(self._fresh)

    def _go_back(self, timers: Timers) -> None:
        for _ in range(CHAIN_UNITS):
            position = self.next_unit
            if position < timers.log.start:  # the first unit, or the messages before were deleted
                self.next_unit = NONE
                return
            unit = timers.log.read(position)
            if unit is None or unit.slot != self.slot or unit.previous >= position:
                log.error("the timer log is damaged at %d: its units of that second are looked for", position)
                self.next_unit, self._search = NONE, timers.log.search(self.slot)
                del self.chain[:]
                return
            self.chain.append(position)
            self.next_unit = unit.previous

    def _look_on(self, search: Iterator[int]) -> None:
        fresh = set(self._fresh)
        for _ in range(CHAIN_UNITS):
            position = next(search, None)
            if position is None:
                self._search = None
                return
            if position != NONE and position not in fresh:
                self.chain.append(position)

    def unsorted(self) -> Iterator[int]:
        """The positions of the next units; each is sorted when the next one is requested, not if an error
        comes between.
        """
        for position in self.chain[self.sorted_until : self.sorted_until + BATCH_MESSAGES]:
            yield position
            self.sorted_until += 1

    def take(self, now: int) -> list[tuple[int, int]]:
        """Up to a batch of due messages: physical offsets and planning times, oldest due time first."""
        taken: list[tuple[int, int]] = []
        for moment in sorted(moment for moment in self.due if moment <= now):
            pairs = self.due[moment]
            for index in range(self._done.get(moment, 0), len(pairs), 2):
                if len(taken) == BATCH_MESSAGES:
                    return taken
                taken.append((pairs[index], pairs[index + 1]))
        return taken

    def drop(self, count: int) -> None:
        """Remove the first `count` messages that `take` returned."""
        for moment in sorted(self.due):
            size, done = len(self.due[moment]), self._done.pop(moment, 0)
            step = min(count, (size - done) // 2)
            count -= step
            done += 2 * step
            if done < size:
                if done:
                    self._done[moment] = done
                return
            del self.due[moment]
