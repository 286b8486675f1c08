"""How big the hostile load is: small for each run of the tests, full for the page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """`body`: bytes of a big body. `names`: entries of a big list. `state`: topics and groups that are there.
    `messages`: tiny ones in one queue, and those that share a key. `big`: messages of 4 MiB. `queues`: of the
    widest topic. `terms`: of an SQL filter. `many`: requests of one chunk.
    """

    name: str
    body: int
    names: int
    state: int
    messages: int
    big: int
    queues: int
    terms: int
    many: int


SMALL = Size("small", 1 << 20, 1000, 300, 10_000, 2, 512, 300, 100)
FULL = Size("full", 15 << 20, 20_000, 3000, 100_000, 4, 4096, 2000, 200)
