"""Which source offsets stand where in a target queue: pieces of the queue, some known exactly. Pure.

After each batch the end of a target queue is asked for. When the queue grew by as many messages as one source
queue's that were sent, and the last of those is the last there, the piece between holds them and nothing
else, one after the other: an offset in it is found by subtraction. Pieces next to each other that go on from
each other become one, so a mirror that has its target to itself keeps one piece per queue, exact from the
first message on. Every other piece is unknown (others wrote there, messages came twice or were left out) and
is looked into when it matters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from sparrowmq.core.message import MessageQueue

PIECES_MAX: Final = 256
"""Of one queue; older ones become one unknown piece, which costs reading and never an offset too far."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Offsets `start` up to, not including, `end` of a target queue.

    With `source` the message at `start` is offset `first` of that queue, and so on; without, what stands
    there is not known.
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
class Places:
    """One target queue; what stood there before the mirror came to it, ends at `begin` and is not known."""

    begin: int
    pieces: tuple[Piece, ...] = ()

    @property
    def end(self) -> int:
        """Up to where it is known; what was sent later, stands behind it."""
        return self.pieces[-1].end if self.pieces else self.begin

    def grown(self, end: int, source: MessageQueue | None = None, first: int = 0) -> Places:
        """The queue ends at `end` now; `source` if the growth is its messages from offset `first` on."""
        if end <= self.end:
            return self
        piece = Piece(self.end, end, source, first if source is not None else 0)
        pieces = list(self.pieces)
        if pieces and _go_on(pieces[-1], piece):
            pieces[-1] = replace(pieces[-1], end=end)
        else:
            pieces.append(piece)
        return replace(self, pieces=_bounded(pieces))

    def unread(self, start: int, read: Mapping[MessageQueue, int]) -> tuple[int, int | None]:
        """The first offset from `start` on that may be unread, and the end of what must be looked into.

        `read` says up to where each source queue is read; of others nothing is. Without an end the message
        there is unread, or it is the end of what is known.
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


def _go_on(old: Piece, new: Piece) -> bool:
    return old.source == new.source and (new.source is None or old.last == new.first)


def _bounded(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    kept = list(pieces)
    if len(kept) > PIECES_MAX:
        half = len(kept) // 2
        kept[:half] = [Piece(kept[0].start, kept[half - 1].end)]
    return tuple(kept)
