"""What POP handed out in a part of the log that is not restored. Pure.

An offset of POP passes messages that only their check point makes visible again. When a check point is not
restored, the offset has to return to where its hand-out began; else nobody would get the messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparrowmq.core.errors import SparrowError
from sparrowmq.core.names import TIMER_TOPIC
from sparrowmq.protocol.pop.receipts import REVIVE_PREFIX
from sparrowmq.protocol.pop.records import ACK_TAG, CHECK_POINT_TAG, read_ack, read_check_point
from sparrowmq.protocol.properties import find
from sparrowmq.protocol.record import decode_record

if TYPE_CHECKING:
    from sparrowmq.protocol.pop.records import Ack, CheckPoint
    from sparrowmq.protocol.record import StoredRecord

Place = tuple[str, str, int]
"""Topic, group and queue."""
_NAME: Final = REVIVE_PREFIX.encode()
_REPEATED: Final = b"TIMER_DEQUEUE_MS"
"""The property of what the timer delivered or stored again: the first record came before."""


class HandedOut:
    """Collects where hand-outs began. `visit` gets each record of the part, in order; `begins` has the first
    offset that was handed out, by place.

    A member that changes the invisible time of a message stores a check point of it and an acknowledgement of
    its former one. That is no hand-out.
    """

    def __init__(self) -> None:
        self.begins: dict[Place, int] = {}
        self._single: CheckPoint | None = None

    def visit(self, view: memoryview, at: int, size: int) -> None:
        """A record of the log; ignored if it has nothing to do with POP."""
        if _NAME not in bytes(view[at : at + size]):
            return
        record = decode_record(view, at)
        real = find(record.properties, b"REAL_TOPIC") or b""
        is_timed = record.topic == TIMER_TOPIC and real.startswith(_NAME)
        if (is_timed or record.topic.startswith(REVIVE_PREFIX)) and find(
            record.properties, _REPEATED
        ) is None:
            self._take(record)

    def _take(self, record: StoredRecord) -> None:
        tag = (find(record.properties, b"TAGS") or b"").decode("utf-8", "replace")
        try:
            if tag == ACK_TAG:
                self._acknowledged(read_ack(record.body, ""))
            else:
                self.finish()
                if tag == CHECK_POINT_TAG:
                    self._single = read_check_point(record.body, 0)
        except SparrowError:
            return  # brokers skip it, too

    def _acknowledged(self, ack: Ack) -> None:
        point = self._single
        is_change = (
            point is not None
            and (ack.topic, ack.group, ack.queue_id) == (point.topic, point.group, point.queue_id)
            and ack.offsets == point.offsets
            and ack.pop_time != point.pop_time
        )
        if is_change:
            self._single = None
        self.finish()

    def finish(self) -> None:
        """There are no more records, or no acknowledgement follows."""
        point, self._single = self._single, None
        if point is not None:
            place = (point.topic, point.group, point.queue_id)
            self.begins[place] = min(point.start_offset, self.begins.get(place, point.start_offset))
