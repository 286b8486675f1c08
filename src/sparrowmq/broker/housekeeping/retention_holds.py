"""Holds: topics whose messages stay until a group, mostly an archive's, has consumed them (90101 to 90103).

A hold overrides age, deletion hours and disk usage up to its own limit. Beyond the limit it has no effect,
and an error is logged as long as this lasts. The group's committed offsets define what is held; without an
offset, the whole queue is held.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.broker.base.offsets import answer, refusal
from sparrowmq.broker.tables.changes import ChangeQueue
from sparrowmq.core.errors import InvalidNameError, StoreCorruptError
from sparrowmq.core.names import check_group
from sparrowmq.protocol.bodies import RetentionHold, RetentionHoldList
from sparrowmq.protocol.call_headers import HOLD_HOURS_MAX, HOLD_SIZE_MAX, RetentionHoldRequest
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.headers import from_ext
from sparrowmq.store.log.retention import Hold, Unread, overrun
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.broker.tables.topics import TopicTable
    from sparrowmq.core.clock import Clock
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.queues.consume_queue import ConsumeQueue
    from sparrowmq.store.tables.config_file import ConfigFile
    from sparrowmq.store.tables.consumer_offsets import ConsumerOffsets
    from sparrowmq.transport.connection import Connection

log = logging.getLogger("sparrowmq.broker")
HOLDS_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class HoldState:
    """State of a hold: its group's unread messages, the oldest of them, and the reason if it has lapsed."""

    hold: Hold
    messages: int
    oldest: Unread | None
    overrun: str


def place_of(queue: ConsumeQueue, offset: int, first: int) -> int:
    """Log position to keep so that the message at `offset` of a queue and later ones can be read.

    A damaged record counts too, because the messages after it must stay readable. The next entry is also
    considered, as this entry itself may be damaged. In doubt everything is kept: from `first`, the log's
    start.
    """
    entries = [queue.entry(offset)]
    if offset + 1 < queue.max_offset:
        entries.append(queue.entry(offset + 1))
    places = [entry.physical_offset for entry in entries if entry is not None]
    return max(first, min(places, default=first))


class Holds:
    """The broker's holds, by topic. Raises `StoreCorruptError` when its file cannot be parsed."""

    def __init__(
        self,
        file: ConfigFile,
        store: MessageStore,
        topics: TopicTable,
        offsets: ConsumerOffsets,
        clock: Clock,
        pool: Executor | None = None,
    ) -> None:
        self._changes = ChangeQueue[Command](pool)
        self._file = file
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._clock = clock
        self._occasional = OccasionalLog(log)
        try:
            self._holds = {
                str(topic): Hold(
                    topic=str(topic),
                    group=str(value["group"]),
                    hours=int(value["hours"]),
                    size_max=int(value["sizeMax"]),
                )
                for topic, value in file.load().get("holds", {}).items()
            }
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise StoreCorruptError(
                f"{file.path} is not a table of holds ({error!r}); restore or remove it",
                what="table",
                value=file.path,
            ) from error

    def held(self) -> int | None:
        """The physical offset from which the log must be kept; None when nothing is held."""
        kept: list[int] = []
        for standing in map(self._standing, self._holds.values()):
            if standing.overrun:
                topic, group = standing.hold.topic, standing.hold.group
                text = (
                    f"the hold of {topic} for {group} is overrun ({standing.overrun}): messages it has not "
                    "read may be deleted; check that its consumers run, or raise the limit with "
                    "`sparrow hold set`"
                )
                self._occasional.write(logging.ERROR, f"hold {topic}", text)
            elif standing.oldest is not None:
                kept.append(standing.oldest.position)
        return min(kept, default=None)

    def standing(self) -> Iterator[HoldState]:
        """The state of each hold, one for each step."""
        for hold in list(self._holds.values()):
            yield self._standing(hold)

    def _standing(self, hold: Hold) -> HoldState:
        messages, oldest = 0, None
        for queue in self._store.queues(hold.topic):
            offset = max(self._offsets.query(hold.topic, hold.group, queue.queue_id) or 0, queue.min_offset)
            if offset >= queue.max_offset:
                continue
            messages += queue.max_offset - offset
            position = place_of(queue, offset, self._store.min_position)
            if oldest is None or position < oldest.position:
                oldest = Unread(position, self._stored_ms(queue, offset))
        if oldest is None:
            return HoldState(hold, 0, None, "")
        why = overrun(hold, oldest, now_ms=self._clock.now_ms(), log_end=self._store.position)
        return HoldState(hold, messages, oldest, why)

    def _stored_ms(self, queue: ConsumeQueue, offset: int) -> int:
        """Store time of the message at `offset`, or of the next undamaged one; the current time if there is
        none.

        Checks at increasing distances, so that long damage needs few checks.
        """
        probe, step = offset, 1
        while probe < queue.max_offset:
            stored = self._store.store_time(queue, probe)
            if stored is not None:
                return stored
            probe, step = probe + step, step * 2
        return self._clock.now_ms()

    def put(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """90101: hold a topic's messages for a group, or change the hold. Answered once it is on disk."""
        return self._changes.run(partial(self._put, command))

    def _put(self, command: Command) -> Command:
        request = from_ext(RetentionHoldRequest, command.ext)
        problem = self._problem(request)
        if problem:
            return refusal(command, ResponseCode.INVALID_PARAMETER, problem)
        hold = Hold(topic=request.topic, group=request.group, hours=request.hours, size_max=request.size_max)
        self._save({**self._holds, request.topic: hold})
        log.warning(
            "messages of %s are held until %s has read them, up to %d hours",
            hold.topic,
            hold.group,
            hold.hours,
        )
        return answer(command)

    def delete(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """90102: end the hold of a topic's messages; does nothing when there is none."""
        return self._changes.run(partial(self._delete, command))

    def _delete(self, command: Command) -> Command:
        topic = from_ext(RetentionHoldRequest, command.ext).topic
        if topic in self._holds:
            self._save({name: hold for name, hold in self._holds.items() if name != topic})
            log.warning("messages of %s are no longer held", topic)
        return answer(command)

    def list(self, connection: Connection, command: Command) -> Command:
        """90103: all holds and their state."""
        found = []
        for topic, hold in sorted(self._holds.items()):
            one = self._standing(hold)
            position, stored = (-1, -1) if one.oldest is None else one.oldest
            found.append(
                RetentionHold(
                    topic=topic,
                    group=one.hold.group,
                    hours=one.hold.hours,
                    size_max=one.hold.size_max,
                    messages=one.messages,
                    position=position,
                    stored=stored,
                    overrun=one.overrun,
                )
            )
        return answer(command, body=RetentionHoldList(holds=found).encode())

    def _problem(self, request: RetentionHoldRequest) -> str:
        try:
            check_group(request.group)
        except InvalidNameError as error:
            return str(error)
        if request.topic not in self._topics.configs:
            return f"topic {request.topic!r} does not exist on this broker; create it first"
        if not 1 <= request.hours <= HOLD_HOURS_MAX:
            return f"a hold must last 1 to {HOLD_HOURS_MAX} hours, not {request.hours}"
        if not 0 <= request.size_max <= HOLD_SIZE_MAX:
            size = request.size_max
            return f"the size of a hold must be from 0 (no limit) to {HOLD_SIZE_MAX} bytes, not {size}"
        if request.topic not in self._holds and len(self._holds) >= HOLDS_MAX:
            return f"this broker has {HOLDS_MAX} holds already, which is the limit; delete one first"
        return ""

    def _save(self, holds: dict[str, Hold]) -> None:
        value: dict[str, Any] = {
            topic: {"group": hold.group, "hours": hold.hours, "sizeMax": hold.size_max}
            for topic, hold in sorted(holds.items())
        }
        self._file.save({"holds": value})
        self._holds = holds
