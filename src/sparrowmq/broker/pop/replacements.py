"""The records that take a message's place: its copy in the retry topic, or a check point with another time.

The broker itself acknowledges a message when it stores such a record, in the same chunk. A power failure may
lose any unflushed sector of a chunk and keep the others. So the acknowledgement names the record of each of
its messages, and counts only for those whose record is in the log: otherwise the check point still makes the
message visible again.

RocketMQ ignores the property. Its recovery ends the log at the first damaged record, and the acknowledgement
is after the records that it names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from sparrowmq.protocol.properties import find

if TYPE_CHECKING:
    from sparrowmq.protocol.pop.records import Ack
    from sparrowmq.store.message_store import MessageStore

INSTEAD: Final = "POP_INSTEAD"
"""SparrowMQ's property of an acknowledgement in the revive topic: for each of its messages the physical
offset of the record that takes its place, separated by commas; empty for a message that has none.
"""
_DIGITS_MAX: Final = 19


def instead_text(positions: Sequence[int | None]) -> str:
    """The value of `INSTEAD` for these physical offsets."""
    return ",".join("" if position is None else str(position) for position in positions)


class Replacements:
    """Says which acknowledgements count. Records that are stored after it was made are known to be there."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._read_until = store.position

    def counted(self, ack: Ack, properties: bytes) -> list[int]:
        """The queue offsets of the messages that an acknowledgement with these properties acknowledges."""
        offsets, text = ack.offsets, find(properties, INSTEAD.encode())
        places = [] if text is None else text.split(b",")
        if len(places) != len(offsets):
            return offsets  # a client's
        return [offset for offset, place in zip(offsets, places, strict=True) if self._is_there(place)]

    def _is_there(self, place: bytes) -> bool:
        """Whether a record is in the log, or was deleted with the oldest files; true if there was none."""
        if not place.isdigit() or len(place) > _DIGITS_MAX:
            return True
        position = int(place)
        if position >= self._read_until or position < self._store.min_position:
            return True
        return self._store.decoded_record(position) is not None
