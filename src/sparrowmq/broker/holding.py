"""Holds: topics whose messages stay until a group, mostly an archive's, has consumed them (90101 to 90103).

A hold wins over age, hours and a full disk, up to its own limit; then it gives way, with an error in the log
for as long as that lasts. Where the group stands are its committed offsets; without one, everything of a
queue is held.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.broker.progress import answer, refusal
from sparrowmq.core.errors import InvalidNameError, StoreCorruptError
from sparrowmq.core.names import check_group
from sparrowmq.protocol.bodies import RetentionHold, RetentionHoldList
from sparrowmq.protocol.call_headers import RetentionHoldRequest
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers import from_ext
from sparrowmq.store.retention import Hold, Unread, overrun
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.broker.topics import TopicTable
    from sparrowmq.core.clock import Clock
    from sparrowmq.protocol.frame import Command
    from sparrowmq.store.config_file import ConfigFile
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.offsets import ConsumerOffsets
    from sparrowmq.transport.connection import Connection

log = logging.getLogger("sparrowmq.broker")
HOLDS_MAX: Final = 1000
HOURS_MAX: Final = 24 * 3650
SIZE_MAX: Final = 2**62


@dataclass(frozen=True, slots=True)
class Standing:
    """How a hold stands: messages its group has not read, the oldest of them, why it gave way if it did."""

    hold: Hold
    messages: int
    oldest: Unread | None
    overrun: str


class Holds:
    """The broker's holds, by topic. Raises `StoreCorruptError` when its file cannot be understood."""

    def __init__(
        self,
        file: ConfigFile,
        store: MessageStore,
        topics: TopicTable,
        offsets: ConsumerOffsets,
        clock: Clock,
    ) -> None:
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
                f"{file.path} is not a table of holds ({error!r}); restore or remove it"
            ) from error

    def held(self) -> int | None:
        """The physical offset from which on the log must stay; None without anything to keep."""
        kept: list[int] = []
        for standing in map(self._standing, self._holds.values()):
            if standing.overrun:
                topic, group = standing.hold.topic, standing.hold.group
                text = (
                    f"the hold of {topic} for {group} gives way ({standing.overrun}): messages it has not "
                    "read may be deleted; see that it runs, or raise the limit with `sparrow hold set`"
                )
                self._occasional.write(logging.ERROR, f"hold {topic}", text)
            elif standing.oldest is not None:
                kept.append(standing.oldest.position)
        return min(kept, default=None)

    def _standing(self, hold: Hold) -> Standing:
        messages, oldest = 0, None
        for queue in self._store.queues(hold.topic):
            offset = max(self._offsets.query(hold.topic, hold.group, queue.queue_id) or 0, queue.min_offset)
            position = queue.physical_offset(offset)
            if position is None:
                continue
            messages += queue.max_offset - offset
            if oldest is None or position < oldest.position:
                stored = self._store.store_time(queue, offset)
                oldest = Unread(position, self._clock.now_ms() if stored is None else stored)
        if oldest is None:
            return Standing(hold, 0, None, "")
        why = overrun(hold, oldest, now_ms=self._clock.now_ms(), log_end=self._store.position)
        return Standing(hold, messages, oldest, why)

    def put(self, connection: Connection, command: Command) -> Command:
        """90101: hold a topic's messages for a group, or change the hold. Answered when it is on disk."""
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

    def delete(self, connection: Connection, command: Command) -> Command:
        """90102: hold a topic's messages no more; nothing happens when they are not held."""
        topic = from_ext(RetentionHoldRequest, command.ext).topic
        if topic in self._holds:
            self._save({name: hold for name, hold in self._holds.items() if name != topic})
            log.warning("messages of %s are no longer held", topic)
        return answer(command)

    def list(self, connection: Connection, command: Command) -> Command:
        """90103: all holds and how they stand."""
        found = []
        for topic in sorted(self._holds):
            one = self._standing(self._holds[topic])
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
        if not 1 <= request.hours <= HOURS_MAX:
            return f"a hold takes 1 to {HOURS_MAX} hours, not {request.hours}"
        if not 0 <= request.size_max <= SIZE_MAX:
            return f"a hold takes 0 (no limit) to {SIZE_MAX} bytes, not {request.size_max}"
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
