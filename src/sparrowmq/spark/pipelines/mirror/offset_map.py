"""Which source offsets are where in a target queue: pieces of the queue, some of them known exactly. Pure.

After each batch the end of a target queue is queried. If the queue grew by as many messages as were sent from
one source queue, and the last of those is its last message, the new piece holds exactly these messages in
order: offsets in it are found by subtraction. Adjacent pieces that continue each other are merged, so a
mirror that is the only writer has one exact piece per queue. All other pieces are unknown (others wrote
there, or messages were repeated or left out) and are read when needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from sparrowmq.core.message import MessageQueue

PIECES_MAX: Final = 256
"""Maximum known pieces of one queue; older ones are merged into an unknown one, which costs reads but never
moves a group too far.
"""


@dataclass(frozen=True, slots=True)
class OffsetPiece:
    """Offsets `start` up to, not including, `end` of a target queue.

    With `source`, the message at `start` is offset `first` of that queue, and so on. Without it, the content
    is unknown.
    """

    start: int
    end: int
    source: MessageQueue | None = None
    first: int = 0

    @property
    def last(self) -> int:
        """The source offset after the last one, of a known piece."""
        return self.first + self.end - self.start


@dataclass(frozen=True, slots=True)
class QueuePlaces:
    """One target queue; its content from before the mirror ends at `begin` and is unknown."""

    begin: int
    pieces: tuple[OffsetPiece, ...] = ()

    @property
    def end(self) -> int:
        """The end of the known part; later messages are after it."""
        return self.pieces[-1].end if self.pieces else self.begin

    def grown(self, end: int, source: MessageQueue | None = None, first: int = 0) -> QueuePlaces:
        """Set the queue's end to `end`; `source`, if the growth is that queue's messages from offset `first`
        on.
        """
        if end <= self.end:
            return self
        piece = OffsetPiece(self.end, end, source, first if source is not None else 0)
        pieces = list(self.pieces)
        if pieces and _go_on(pieces[-1], piece):
            pieces[-1] = replace(pieces[-1], end=end)
        else:
            pieces.append(piece)
        return replace(self, pieces=_bounded(pieces))

    def unread(self, start: int, read: Mapping[MessageQueue, int]) -> tuple[int, int | None]:
        """The first offset from `start` on that may be unread, and the end of the part that must be read.

        `read` is the position of the group in each source queue; others count as unread. Without an end, the
        message there is unread, or it is the end of the known part.
        """
        if start < self.begin:
            return start, self.begin
        at = start
        for piece in self.pieces:
            if piece.end <= at:
                continue
            if piece.source is None:
                return at, piece.end
            behind = piece.start + read.get(piece.source, 0) - piece.first
            if behind < piece.end:
                return max(at, behind), None
            at = piece.end
        return at, None


def _go_on(old: OffsetPiece, new: OffsetPiece) -> bool:
    return old.source == new.source and (new.source is None or old.last == new.first)


def _bounded(pieces: Iterable[OffsetPiece]) -> tuple[OffsetPiece, ...]:
    kept = list(pieces)
    if len(kept) > PIECES_MAX:
        half = len(kept) // 2
        kept[:half] = [OffsetPiece(kept[0].start, kept[half - 1].end)]
    return tuple(kept)
