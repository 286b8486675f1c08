"""Timed messages: planned from the timer topic, delivered at their time (broker:8.2).

Planning reads the timer topic in order and chains each message to the slot of its second. A slot is loaded
shortly before its second begins; its messages are then delivered at their exact millisecond. RocketMQ
delivers a whole slot when its second has passed, so up to a second late; neither delivers early. A slot is
finished when its second has passed and all its messages are delivered.
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.base.internal_store import InnerMessage, InnerStore
from sparrowmq.broker.delay.rerouting import PRECISION_MS, TIMER_DELETE
from sparrowmq.broker.delay.schedule import real_address
from sparrowmq.broker.delay.timer_slots import (
    BATCH_MESSAGES,
    LoadedSlot,
    TimerPlacement,
    due_in,
    out_time,
    plan,
    taken_back,
)
from sparrowmq.core.clock import Sleep
from sparrowmq.core.errors import InvalidMessageError, SparrowError
from sparrowmq.core.hashing import java_hash
from sparrowmq.core.names import TIMER_TOPIC
from sparrowmq.protocol import properties as property_string
from sparrowmq.store.timers.timer_log import MAGIC_ROLL, NONE, Unit
from sparrowmq.store.timers.timers import Timers, is_marker, is_roll
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.core.clock import Clock
    from sparrowmq.protocol.record import StoredRecord

log = logging.getLogger("sparrowmq.broker")
POLL_SECONDS: Final = 0.1
RETRY_SECONDS: Final = 0.5
"""Pause after an error before everything is retried, for as long as the error persists."""

OFFSET_MAX: Final = 2**62
LOOK_MESSAGES: Final = 512
MARKERS_MAX: Final = 100_000
"""Maximum number of markers that are remembered before they are planned."""
BATCH_BYTES: Final = 512 * 1024

AHEAD_MS: Final = 1000
"""How long before its second begins a slot is read."""

WAIT_MAX_MS: Final = 2**31 - 1
"""Maximum delay that the timer log can represent: nearly 25 days."""

SKIP_MS: Final = 86_400_000
"""Maximum span of empty time that one turn skips."""

DIRECT: Final = 2**63 - 1
"""`TIMER_ENQUEUE_MS` of a message that was already due when it was planned."""


class MarkersAhead:
    """What markers cancel that are behind the messages being planned: a message that is due already is
    delivered when it is planned, and its marker may come much later in the timer topic."""

    def __init__(self, inner: InnerStore) -> None:
        self._inner = inner
        self._read_until = 0
        self.found: set[tuple[str, str]] = set()
        """Topics and unique keys."""

    def read_on(self, offset: int) -> bool:
        """Read the next messages of the timer topic, from `offset` on or where the last call stopped. Returns
        whether there may be more."""
        begun = max(self._read_until, offset)
        scan = self._inner.scan(TIMER_TOPIC, 0, begun, LOOK_MESSAGES, BATCH_BYTES)
        for record in scan.records:
            key = property_string.find(record.properties, TIMER_DELETE.encode())
            if key is not None and len(self.found) < MARKERS_MAX:
                self.found.add(taken_back(record, key.decode("utf-8", "replace")))
        self._read_until = max(begun, scan.next_offset)
        return scan.next_offset > begun

    def forget(self, planned: int) -> None:
        """Planning has reached this offset: the markers before it are in their slots."""
        if planned >= self._read_until:
            self.found.clear()


class TimerService:
    """Plans and delivers the timed messages of one broker. `run` is its task."""

    def __init__(
        self,
        inner: InnerStore,
        timers: Timers,
        clock: Clock,
        *,
        window_ms: int,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._sleep = sleep
        self._inner = inner
        self._timers = timers
        self._clock = clock
        self._window_ms = window_ms
        self._loaded: dict[int, LoadedSlot] = {}
        self._write_time = 0
        self._occasional = OccasionalLog(log)
        self._chained: set[int] = set()
        """Messages before `_chained_end` in the timer topic that were planned before the broker died."""
        self._chained_end = 0
        self._markers = MarkersAhead(inner)
        self._begun = 0
        """The end of the timer topic at the start. Slots wait until it is planned up to there: after a change
        of the master it is planned again, and a marker may be far behind the message that it cancels."""
        self._resume()

    def _resume(self) -> None:
        """Continue at the checkpoint, except with messages that have a unit already.

        Those between them without a unit were due when they were planned, so they were delivered directly. A
        power failure may have kept the units and lost these messages, so they are delivered again.

        After a power failure the commit log may be shorter than timer log and checkpoint assume. New messages
        take the positions of the lost ones, so planning continues at the topic's end at the latest.
        """
        timers = self._timers
        unit = timers.log.last_unit()
        record = None if unit is None or timers.replay_until else self._message(unit.physical_offset)
        scan = self._inner.scan(TIMER_TOPIC, 0, timers.queue_offset, 1, 1)
        reachable = scan.next_offset
        if record is not None and scan.records and record.queue_offset >= timers.queue_offset:
            self._chained = timers.chained_from(scan.records[0].physical_offset)
            self._chained_end = record.queue_offset + 1
        end = self._inner.scan(TIMER_TOPIC, 0, OFFSET_MAX, 1, 1).next_offset
        self._begun = end if end < OFFSET_MAX else 0
        if reachable < timers.queue_offset:
            log.warning("timed messages from %d on were lost before they reached the disk", reachable)
            timers.plan_from(reachable)

    def _message(self, physical_offset: int) -> StoredRecord | None:
        """The timed message at a unit's physical offset; None when it is deleted or not a timed message."""
        record = self._inner.read(physical_offset)
        return record if record is not None and record.topic == TIMER_TOPIC else None

    def _reported(self, physical_offset: int) -> StoredRecord | None:
        """Like `_message`, but a missing message is reported."""
        record = self._message(physical_offset)
        if record is None:
            text = f"the timed message at {physical_offset} is missing or damaged and is skipped"
            self._occasional.write(logging.ERROR, "gone", text)
        return record

    async def run(self) -> None:
        """Plan and deliver until cancelled; an error is logged and retried."""
        while True:  # until cancelled by close
            seconds = RETRY_SECONDS
            try:
                seconds = self.turn()
            except Exception as error:
                trace = None if isinstance(error, SparrowError) else error
                text = f"timed messages cannot be planned or delivered now: {error}"
                self._occasional.write(logging.ERROR, "timer", text, error=trace)
            await self._sleep(seconds)

    def turn(self) -> float:
        """One bounded step of all work; returns seconds until the next, 0 when there is more to do.

        Raises `StoreError`; undelivered messages are retried.
        """
        self._follow_clock()
        planned = self.enqueue()
        worked = self.work_off()
        if planned or worked:
            return 0.0
        now = self._clock.now_ms()
        moments = [min(slot.due) - now for slot in self._loaded.values() if slot.due]
        return max(0.0, min([POLL_SECONDS * 1000, *moments])) / 1000

    def _follow_clock(self) -> None:
        """Restart at the current slot when the clock was set back: no message may be delivered early.

        The reference continues where it was, and at once delivers messages due in the time that is repeated.
        """
        now = self._clock.now_ms()
        current = now // PRECISION_MS * PRECISION_MS
        if self._timers.read_time > current:
            self._timers.turn_back(current)
            self._write_time = 0

    @property
    def behind_ms(self) -> int:
        """Age of the oldest unprocessed slot, beyond the current second; 0 when on time."""
        return max(0, self._clock.now_ms() - self._timers.read_time - PRECISION_MS)

    @property
    def waiting(self) -> int:
        """Number of planned, undelivered messages."""
        return max(0, self._timers.waiting)

    @property
    def planned_until(self) -> int:
        """Offset in the timer topic up to which messages are planned."""
        return self._timers.queue_offset

    @property
    def delivered_until(self) -> int:
        """A time, epoch ms: every planned message that was due then, or earlier, is in its topic."""
        current = self._timers.read_time
        slot = self._loaded.get(current)
        if slot is None:
            return current if self._timers.slot(current) is not None else current + PRECISION_MS
        if not slot.is_sorted:
            return current
        return min(slot.due) - 1 if slot.due else current + PRECISION_MS

    # Planning

    def enqueue(self) -> bool:
        """Plan the next messages of the timer topic; returns whether there may be more."""
        timers = self._timers
        timers.commit()  # units left by an earlier error
        now = self._clock.now_ms()
        # Units are never added to processed slots.
        self._write_time = max(self._write_time, timers.read_time, now // PRECISION_MS * PRECISION_MS)
        start = timers.queue_offset
        scan = self._inner.scan(TIMER_TOPIC, 0, start, BATCH_MESSAGES, BATCH_BYTES)
        end = scan.next_offset
        overdue: list[tuple[StoredRecord, int]] = []
        waiting: list[tuple[StoredRecord, TimerPlacement]] = []
        deleted: set[tuple[str, str]] = set()
        for record in scan.records:
            out = out_time(record)
            key = property_string.find(record.properties, TIMER_DELETE.encode())
            if key is not None:
                deleted.add(taken_back(record, key.decode("utf-8", "replace")))
            if record.physical_offset in self._chained and record.queue_offset < self._chained_end:
                continue
            if out is None:
                text = f"the timed message at {record.physical_offset} does not say when it is due"
                self._occasional.write(logging.ERROR, "out", text)
            elif out < self._write_time and (key is None or out < timers.read_time):
                if key is None and timers.is_open(record.queue_offset, out):
                    overdue.append((record, DIRECT))
            else:
                planned = plan(out, self._write_time, self._window_ms, is_delete=key is not None)
                while timers.has_room_for(planned.slot) and timers.is_taken(planned.slot):
                    planned = TimerPlacement(planned.slot + PRECISION_MS, planned.magic | MAGIC_ROLL)
                if not timers.has_room_for(planned.slot):
                    end = record.queue_offset
                    break
                waiting.append((record, planned))
        if overdue and self._markers.read_on(end):
            return True
        self._deliver(overdue, deleted | self._markers.found, now)
        for record, planned in waiting:
            self._chain(record, planned)
        timers.plan_from(end)
        timers.commit()
        if end <= start:
            self._begun = 0  # it waits for room in the wheel, which slots make
        self._markers.forget(end)
        if end >= self._chained_end:
            self._chained.clear()
        return end > start

    def _chain(self, record: StoredRecord, planned: TimerPlacement) -> None:
        """Chain one message to its slot."""
        topic = property_string.find(record.properties, b"REAL_TOPIC") or b""
        wait = planned.slot - self._write_time
        begun = self._write_time if abs(wait) < WAIT_MAX_MS else planned.slot  # the clock jumped forward
        unit = Unit(
            NONE,
            planned.magic,
            begun,
            planned.slot - begun,
            record.physical_offset,
            record.size,
            java_hash(topic.decode("utf-8", "replace")),
        )
        position = self._timers.add(planned.slot, unit)
        loaded = self._loaded.get(planned.slot)
        if loaded is not None:
            loaded.add(position)

    # Delivering

    def work_off(self) -> bool:
        """Follow, sort and deliver the current slot and the next; returns whether there is more to do now."""
        timers, now = self._timers, self._clock.now_ms()
        if timers.queue_offset < self._begun:
            return False
        current = timers.read_time
        busy = False
        for time_ms in (current, current + PRECISION_MS):
            if now >= time_ms - AHEAD_MS:
                busy = self._work_on(time_ms, now) or busy
        if busy or now < current + PRECISION_MS:
            return busy
        loaded = self._loaded.get(current)
        if loaded is not None and not loaded.is_empty:
            return False
        self._loaded.pop(current, None)
        timers.worked_off(current)
        timers.read_from(self._next_time(current + PRECISION_MS, now))
        return True

    def _next_time(self, following: int, now: int) -> int:
        """The next slot to check: empty ones are skipped, up to the current second."""
        limit = min(now // PRECISION_MS * PRECISION_MS, following + SKIP_MS)
        if following in self._loaded or limit <= following:
            return following
        found = self._timers.wheel.next_slot(following, limit)
        return limit if found is None else found

    def _work_on(self, time_ms: int, now: int) -> bool:
        """One turn for one slot; returns whether there is more to do now."""
        slot = self._loaded.get(time_ms)
        if slot is None:
            stored = self._timers.slot(time_ms)
            if stored is None:
                return False
            slot = self._loaded[time_ms] = LoadedSlot(time_ms, stored.last)
        if not slot.is_followed:
            slot.follow(self._timers)
            return True
        if not slot.is_sorted:
            self._sort(slot)
            return True
        taken = slot.take(now)
        if taken:
            records, count = self._read(taken)
            self._deliver(records, slot.deleted, now)
            slot.drop(count)
            return True
        if slot.rolled and now >= time_ms + PRECISION_MS:
            self._roll(slot)
            return True
        return False

    def _sort(self, slot: LoadedSlot) -> None:
        """Sort the next messages of a slot: when each is due, or which one it cancels."""
        for position in slot.unsorted():
            unit = self._timers.log.read(position)
            if unit is None:
                continue
            if is_roll(unit.magic):
                slot.rolled.extend((unit.physical_offset, unit.planned))
                continue
            record = self._reported(unit.physical_offset)
            if record is None or out_time(record) != slot.slot:
                continue  # a message that replaced one lost in a power failure has its own slot
            own = property_string.decode(record.properties)
            if is_marker(unit.magic):
                slot.deleted.add(taken_back(record, own.get(TIMER_DELETE, "")))
                continue
            moment = due_in(slot.slot, own, record.store_timestamp)
            slot.due.setdefault(moment, array("q")).extend((unit.physical_offset, unit.planned))

    def _read(self, taken: Sequence[tuple[int, int]]) -> tuple[list[tuple[StoredRecord, int]], int]:
        """The first of these messages, up to a batch of bytes, and their number including deleted ones."""
        found: list[tuple[StoredRecord, int]] = []
        size = 0
        for count, (physical, planned) in enumerate(taken):
            if size > BATCH_BYTES:
                return found, count
            record = self._reported(physical)
            if record is not None:
                found.append((record, planned))
                size += record.size
        return found, len(taken)

    def _deliver(self, due: list[tuple[StoredRecord, int]], deleted: set[tuple[str, str]], now: int) -> None:
        """Deliver messages to their topics, except cancelled ones."""
        messages: list[InnerMessage] = []
        for record, planned in due:
            own = property_string.decode(record.properties)
            address = real_address(record)
            key = own.get("UNIQ_KEY", "")
            if TIMER_DELETE in own:
                continue
            if address is None:
                text = (
                    f"the timed message at {record.physical_offset} does not name its target topic and queue"
                )
                self._occasional.write(logging.ERROR, "address", text)
                continue
            if key and (address[0], key) in deleted:
                continue
            own |= {"TIMER_ENQUEUE_MS": str(planned), "TIMER_DEQUEUE_MS": str(now)}
            self._add(messages, record, address, own)
        self._inner.put_those_that_fit(messages, "a timed message")

    def _roll(self, slot: LoadedSlot) -> None:
        """Put messages that are still too far ahead into the timer topic again."""
        pairs = slot.rolled[: 2 * BATCH_MESSAGES]
        messages: list[InnerMessage] = []
        now = str(self._clock.now_ms())
        records, count = self._read(list(zip(pairs[::2], pairs[1::2], strict=True)))
        for record, planned in records:
            own = property_string.decode(record.properties)
            times = own.get("TIMER_ROLL_TIMES", "0")
            rolled = int(times) + 1 if times.isdecimal() and len(times) < 9 else 1
            own |= {"TIMER_ROLL_TIMES": str(rolled)}
            own |= {"TIMER_ENQUEUE_MS": str(planned), "TIMER_DEQUEUE_MS": now}
            self._add(messages, record, (TIMER_TOPIC, 0), own)
        self._inner.put_those_that_fit(messages, "a timed message")
        del slot.rolled[: 2 * count]

    def _add(
        self,
        messages: list[InnerMessage],
        record: StoredRecord,
        address: tuple[str, int],
        own: dict[str, str],
    ) -> None:
        message = InnerMessage.copy_of(record, *address)
        try:
            message.properties = property_string.encode(own)
        except InvalidMessageError:  # no room for the two times: stored unchanged
            message.properties = record.properties
        messages.append(message)
