"""A drawing of the assignment: queues on the left, members on the right, a line per assigned queue. Pure.

The table next to the picture has the same content.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

QUEUES_MAX: Final = 64
"""Maximum number of queues in the picture; the table has all."""
STEP: Final = 22
LEFT: Final = 320
RIGHT: Final = 560
WIDTH: Final = 880
NAME_CHARS: Final = 44


@dataclass(frozen=True, slots=True)
class QueueLine:
    """A queue, its owner, and why the owner has it; an empty text means none."""

    queue: str
    owner: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Box:
    """A name and its position."""

    name: str
    shown: str
    y: int


@dataclass(frozen=True, slots=True)
class PictureLine:
    """A line from a queue to its owner, and its tooltip."""

    path: str
    title: str


@dataclass(frozen=True, slots=True)
class Picture:
    """The picture's content. `left_out` queues are not drawn."""

    queues: Sequence[Box]
    members: Sequence[Box]
    paths: Sequence[PictureLine]
    free: Sequence[Box]
    height: int
    width: int = WIDTH
    left_out: int = 0


def picture(lines: Sequence[QueueLine], members: Sequence[str]) -> Picture:
    """The picture of the assignment; `members` includes members without queues, of which some are left out
    when there are very many.
    """
    drawn = sorted(lines, key=lambda one: (one.owner or "\uffff", one.queue))[:QUEUES_MAX]
    owners = {one.owner for one in drawn if one.owner}
    others = sorted(set(members) - owners)[: QUEUES_MAX - len(owners)]
    names = sorted({*owners, *others})
    height = STEP * max(len(drawn), len(names), 1) + STEP
    queues = [Box(one.queue, short(one.queue), STEP * (index + 1)) for index, one in enumerate(drawn)]
    gap = (height - STEP) / max(1, len(names))
    boxes = {
        name: Box(name, short(name), round(gap * (index + 0.5) + STEP / 2))
        for index, name in enumerate(names)
    }
    paths = [
        PictureLine(_curve(queue.y, boxes[one.owner].y), _title(one))
        for one, queue in zip(drawn, queues, strict=True)
        if one.owner in boxes
    ]
    free = [queue for one, queue in zip(drawn, queues, strict=True) if not one.owner]
    return Picture(queues, list(boxes.values()), paths, free, height, left_out=len(lines) - len(drawn))


def short(name: str) -> str:
    """A shortened name; its end is the most useful part."""
    return name if len(name) <= NAME_CHARS else f"…{name[-NAME_CHARS + 1 :]}"


def _title(one: QueueLine) -> str:
    return " – ".join(filter(None, (one.queue, one.owner, one.why)))


def _curve(begin: int, end: int) -> str:
    middle = (LEFT + RIGHT) // 2
    return f"M {LEFT + 6} {begin} C {middle} {begin}, {middle} {end}, {RIGHT - 6} {end}"
