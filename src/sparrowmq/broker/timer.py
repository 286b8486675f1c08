"""Timed messages: planned from the timer topic, delivered at their time (broker:8.2).

Planning reads the timer topic in order and chains each message to the slot of its second. A slot is taken up
a little before its second begins; its messages are then delivered at the millisecond they asked for. The
reference delivers a slot as a whole when its second is over: never early there or here, but here not up to a
second late. A slot counts as worked off when its second is over and all its messages are out.
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrowmq.broker.inner import InnerMessage, InnerStore
from sparrowmq.broker.rerouting import (
    DELETE_SEPARATOR,
    PRECISION_MS,
    TIMER_DELETE,
    TIMER_OUT,
    TIMER_PROPERTIES,
    deliver_time,
)
from sparrowmq.broker.schedule import real_address
from sparrowmq.core.errors import InvalidMessageError, RecordError, SparrowError
from sparrowmq.core.hashing import java_hash
from sparrowmq.core.names import TIMER_TOPIC
from sparrowmq.protocol import properties as property_string
from sparrowmq.store.timer_log import MAGIC_DELETE, MAGIC_NORMAL, MAGIC_ROLL, NONE, Unit
from sparrowmq.store.timers import Timers, is_marker, is_roll
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.core.clock import Clock
    from sparrowmq.protocol.record import StoredRecord

log = logging.getLogger("sparrowmq.broker")
POLL_SECONDS: Final = 0.1
RETRY_SECONDS: Final = 0.5
"""Pause after a fault before everything is tried again, as long as it takes."""

BATCH_MESSAGES: Final = 128
BATCH_BYTES: Final = 512 * 1024
CHAIN_UNITS: Final = 2000
"""What one turn plans, delivers, or follows of a chain before the loop gets its turn again."""

AHEAD_MS: Final = 1000
"""A slot is read so long before its second begins."""

SKIP_MS: Final = 86_400_000
"""How much empty time one turn passes over at most."""

DIRECT: Final = 2**63 - 1
"""`TIMER_ENQUEUE_MS` of a message that was due before it could be planned."""


class Plan(NamedTuple):
    """Which slot a message goes to, epoch ms, and the magic of its unit."""

    slot: int
    magic: int


def plan(out: int, write_time: int, window_ms: int, *, is_delete: bool) -> Plan:
    """Where a message for slot `out` is chained at `write_time`: there, or where it is planned again.

    `window_ms` is how far ahead is planned. The last two stages are about equally long.
    """
    magic = MAGIC_NORMAL | (MAGIC_DELETE if is_delete else 0)
    ahead = out - write_time
    if ahead < window_ms:
        return Plan(out, magic)
    wait = window_ms // 2 if ahead - window_ms < window_ms // 3 else window_ms
    return Plan(write_time + wait // PRECISION_MS * PRECISION_MS, magic | MAGIC_ROLL)


def due_in(slot: int, own: dict[str, str], stored_at: int) -> int:
    """When a message of a slot is due, epoch ms: what it asked for, within the slot's second."""
    asked = None
    if any(name in own for name in TIMER_PROPERTIES):
        asked = deliver_time(own, stored_at)
    if asked is None or not slot < asked <= slot + PRECISION_MS:
        return slot + PRECISION_MS
    return asked


def out_time(record: StoredRecord) -> int | None:
    """The slot a message of the timer topic is for, epoch ms; None when it does not say."""
    text = property_string.find(record.properties, TIMER_OUT.encode())
    if text is None or not text.isdigit() or len(text) > 15:
        return None
    return int(text) // PRECISION_MS * PRECISION_MS


def taken_back(marker: StoredRecord, value: str) -> tuple[str, str]:
    """Topic and unique key of the message that a deletion marker with this value takes back.

    The value is the key, or `topic+key` where 5.5.0 runs with `appendTopicForTimerDeleteKey`, which is off by
    default. A marker takes back messages of its own topic only: clients can write the property, and who may
    send to a topic must not empty another one.
    """
    topic = (property_string.find(marker.properties, b"REAL_TOPIC") or b"").decode("utf-8", "replace")
    return topic, value.removeprefix(f"{topic}{DELETE_SEPARATOR}")


class LoadedSlot:
    """One slot being worked off: first its chain is followed, then its messages are sorted by due time.

    `chain` has the positions of its units, oldest first once it is followed.

    `due` holds physical offset and planning time, in turn, of the messages of each millisecond; `rolled`
    the same of those that are planned again.
    """

    __slots__ = ("_done", "_fresh", "chain", "deleted", "due", "next_unit", "rolled", "slot", "sorted_until")

    def __init__(self, slot: int, last: int) -> None:
        self.slot = slot
        self.next_unit = last
        self.chain: array[int] = array("q")
        self._fresh: array[int] = array("q")
        self.sorted_until = 0
        self.due: dict[int, array[int]] = {}
        self._done: dict[int, int] = {}
        self.rolled: array[int] = array("q")
        self.deleted: set[tuple[str, str]] = set()

    @property
    def is_followed(self) -> bool:
        """Whether the chain was followed to its first unit."""
        return self.next_unit == NONE

    @property
    def is_sorted(self) -> bool:
        """Whether every unit was looked at."""
        return self.is_followed and self.sorted_until == len(self.chain)

    @property
    def is_empty(self) -> bool:
        """Whether nothing of it is to be delivered any more."""
        return self.is_sorted and not self.due and not self.rolled

    def add(self, position: int) -> None:
        """A unit was chained to the slot since it was taken up."""
        (self.chain if self.is_followed else self._fresh).append(position)

    def follow(self, timers: Timers) -> None:
        """Go along the chain, newest unit first, for one turn."""
        for _ in range(CHAIN_UNITS):
            unit = timers.log.read(self.next_unit) if self.next_unit != NONE else None
            if unit is None or unit.slot != self.slot:
                self.next_unit = NONE
                break
            self.chain.append(self.next_unit)
            self.next_unit = unit.previous if unit.previous < self.next_unit else NONE
        if self.is_followed:
            self.chain.reverse()
            self.chain.extend(self._fresh)

    def take(self, now: int) -> list[tuple[int, int]]:
        """Up to a batch of what is due: physical offsets and planning times, oldest due time first."""
        taken: list[tuple[int, int]] = []
        for moment in sorted(moment for moment in self.due if moment <= now):
            pairs = self.due[moment]
            for index in range(self._done.get(moment, 0), len(pairs), 2):
                if len(taken) == BATCH_MESSAGES:
                    return taken
                taken.append((pairs[index], pairs[index + 1]))
        return taken

    def drop(self, count: int) -> None:
        """Forget the first `count` of what `take` gave."""
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


class TimerService:
    """Plans and delivers the timed messages of one broker. `run` is its task."""

    def __init__(self, inner: InnerStore, timers: Timers, clock: Clock, *, window_ms: int) -> None:
        self._inner = inner
        self._timers = timers
        self._clock = clock
        self._window_ms = window_ms
        self._loaded: dict[int, LoadedSlot] = {}
        self._write_time = 0
        self._occasional = OccasionalLog(log)
        self._resume()

    def _resume(self) -> None:
        """Go on behind the message of the newest unit: it may be newer than the checkpoint.

        After a power cut the commit log may be shorter than timer log and checkpoint know. What is sent now
        takes the lost messages' places, so planning goes on at the topic's end at the latest.
        """
        timers = self._timers
        unit = timers.log.last_unit()
        record = None if unit is None or timers.replay_until else self._message(unit.physical_offset)
        if record is not None:
            timers.queue_offset = max(timers.queue_offset, record.queue_offset + 1)
        reachable = self._inner.scan(TIMER_TOPIC, 0, timers.queue_offset, 1, 1).next_offset
        if reachable < timers.queue_offset:
            log.warning("timed messages from %d on were lost before they were on disk", reachable)
            timers.queue_offset = reachable

    def _message(self, physical_offset: int) -> StoredRecord | None:
        """The timed message at a unit's physical offset; None when it is gone or something else is there."""
        record = self._inner.read(physical_offset)
        return record if record is not None and record.topic == TIMER_TOPIC else None

    def _reported(self, physical_offset: int) -> StoredRecord | None:
        """The same of a message that is to be there."""
        record = self._message(physical_offset)
        if record is None:
            text = f"the timed message at {physical_offset} is gone or damaged and is left out"
            self._occasional.write(logging.ERROR, "gone", text)
        return record

    async def run(self) -> None:
        """Plan and deliver until cancelled; a fault is logged and tried again."""
        while True:  # until cancelled by close
            seconds = RETRY_SECONDS
            try:
                seconds = self.turn()
            except Exception as error:
                trace = None if isinstance(error, SparrowError) else error
                text = f"timed messages cannot be planned or delivered now: {error}"
                self._occasional.write(logging.ERROR, "timer", text, error=trace)
            await asyncio.sleep(seconds)

    def turn(self) -> float:
        """One bounded step of everything; seconds until the next, 0 when there is more to do.

        Raises `StoreError`; what was not delivered is tried again.
        """
        planned = self.enqueue()
        worked = self.work_off()
        if planned or worked:
            return 0.0
        now = self._clock.now_ms()
        moments = [min(slot.due) - now for slot in self._loaded.values() if slot.due]
        return max(0.0, min([POLL_SECONDS * 1000, *moments])) / 1000

    @property
    def behind_ms(self) -> int:
        """How old the oldest slot is that is not worked off, beyond the current second; 0 in time."""
        return max(0, self._clock.now_ms() - self._timers.read_time - PRECISION_MS)

    @property
    def waiting(self) -> int:
        """Messages that are planned and not delivered."""
        return max(0, self._timers.waiting)

    # Planning

    def enqueue(self) -> bool:
        """Plan the next messages of the timer topic; whether there may be more."""
        timers = self._timers
        timers.commit()  # what an earlier fault left
        now = self._clock.now_ms()
        # It never goes back, as the reference's: no slot is filled that was worked off before the clock did.
        self._write_time = max(self._write_time, timers.read_time, now // PRECISION_MS * PRECISION_MS)
        start = timers.queue_offset
        scan = self._inner.scan(TIMER_TOPIC, 0, start, BATCH_MESSAGES, BATCH_BYTES)
        end = scan.next_offset
        overdue: list[tuple[StoredRecord, int]] = []
        waiting: list[tuple[StoredRecord, Plan]] = []
        deleted: set[tuple[str, str]] = set()
        for record in scan.records:
            out = out_time(record)
            key = property_string.find(record.properties, TIMER_DELETE.encode())
            if key is not None:
                deleted.add(taken_back(record, key.decode("utf-8", "replace")))
            if out is None:
                text = f"the timed message at {record.physical_offset} does not say when it is due"
                self._occasional.write(logging.ERROR, "out", text)
            elif out < self._write_time and (key is None or out < timers.read_time):
                if key is None and (record.queue_offset >= timers.replay_until or out >= timers.read_time):
                    overdue.append((record, DIRECT))
            else:
                planned = plan(out, self._write_time, self._window_ms, is_delete=key is not None)
                if not timers.has_room_for(planned.slot):
                    end = record.queue_offset
                    break
                waiting.append((record, planned))
        self._deliver(overdue, deleted, now)
        for record, planned in waiting:
            self._chain(record, planned)
        timers.queue_offset = end
        timers.commit()
        return end > start

    def _chain(self, record: StoredRecord, planned: Plan) -> None:
        """Chain one message to its slot."""
        topic = property_string.find(record.properties, b"REAL_TOPIC") or b""
        unit = Unit(
            NONE,
            planned.magic,
            self._write_time,
            planned.slot - self._write_time,
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
        """Follow, sort and deliver the current slot and the next one; whether there is more to do now."""
        timers, now = self._timers, self._clock.now_ms()
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
        timers.read_time = self._next_time(current + PRECISION_MS, now)
        return True

    def _next_time(self, following: int, now: int) -> int:
        """The next slot to look at: empty ones are passed over, up to the current second."""
        limit = min(now // PRECISION_MS * PRECISION_MS, following + SKIP_MS)
        if following in self._loaded or limit <= following:
            return following
        found = self._timers.wheel.next_slot(following, limit)
        return limit if found is None else found

    def _work_on(self, time_ms: int, now: int) -> bool:
        """One turn for one slot; whether there is more to do now."""
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
        """Look at the next messages of a slot: when each is due, or which one it takes back."""
        end = min(len(slot.chain), slot.sorted_until + BATCH_MESSAGES)
        while slot.sorted_until < end:
            unit = self._timers.log.read(slot.chain[slot.sorted_until])
            slot.sorted_until += 1
            if unit is None:
                continue
            if is_roll(unit.magic):
                slot.rolled.extend((unit.physical_offset, unit.planned))
                continue
            record = self._reported(unit.physical_offset)
            if record is None or out_time(record) != slot.slot:
                continue  # one that took the place of what a power cut lost has a slot of its own
            own = property_string.decode(record.properties)
            if is_marker(unit.magic):
                slot.deleted.add(taken_back(record, own.get(TIMER_DELETE, "")))
                continue
            moment = due_in(slot.slot, own, record.store_timestamp)
            slot.due.setdefault(moment, array("q")).extend((unit.physical_offset, unit.planned))

    def _read(self, taken: Sequence[tuple[int, int]]) -> tuple[list[tuple[StoredRecord, int]], int]:
        """The first of these messages, up to a batch of bytes, and how many that are, gone ones included."""
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
        """Put messages where they were sent to, but those that were taken back."""
        messages: list[InnerMessage] = []
        for record, planned in due:
            own = property_string.decode(record.properties)
            address = real_address(record)
            key = own.get("UNIQ_KEY", "")
            if TIMER_DELETE in own:
                continue
            if address is None:
                text = f"the timed message at {record.physical_offset} names no topic and queue to go to"
                self._occasional.write(logging.ERROR, "address", text)
                continue
            if key and (address[0], key) in deleted:
                continue
            own |= {"TIMER_ENQUEUE_MS": str(planned), "TIMER_DEQUEUE_MS": str(now)}
            self._add(messages, record, address, own)
        self._put(messages)

    def _roll(self, slot: LoadedSlot) -> None:
        """Put messages that are still far away into the timer topic again."""
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
        self._put(messages)
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
        except InvalidMessageError:  # no room for the two times: it goes as it is
            message.properties = record.properties
        messages.append(message)

    def _put(self, messages: list[InnerMessage]) -> None:
        try:
            self._inner.put(messages)
        except RecordError:
            self._put_singly(messages)

    def _put_singly(self, messages: list[InnerMessage]) -> None:
        """One message of them fits no record, perhaps because the limits are lower now: only it is lost."""
        for message in messages:
            try:
                self._inner.put([message])
            except RecordError as error:
                text = f"a timed message for {message.topic} cannot be delivered: {error}"
                self._occasional.write(logging.ERROR, "record", text)
