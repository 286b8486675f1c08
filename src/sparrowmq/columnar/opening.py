"""The records of a chunk in spans, each small enough after its compressed bodies were decompressed. Pure.

Kilobytes of a chunk may be gigabytes of bodies, and nothing but decompressing them tells. So bodies are
decompressed one after the other, and a span ends before the first that would make it too large.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from sparrowmq.columnar.layout import Layout
from sparrowmq.core.errors import CompressedBodyError
from sparrowmq.protocol.compression import decompress
from sparrowmq.protocol.sysflag import COMPRESSED


class ShutBody(NamedTuple):
    """A body that cannot be decompressed, or not within the limit of one body."""

    topic: str
    queue_id: int
    queue_offset: int
    reason: str

    def __str__(self) -> str:
        place = f"topic {self.topic}, queue {self.queue_id}, offset {self.queue_offset}"
        return f"{place}: the body cannot be decompressed: {self.reason}"


@dataclass(slots=True)
class OpenedSpan:
    """Records `start` to before `stop` of a layout and their decompressed bodies; rows count from `start`."""

    start: int
    stop: int
    bodies: dict[int, bytes] = field(default_factory=dict)
    shut: dict[int, ShutBody] = field(default_factory=dict)
    """Those that stay as stored."""


def opened_spans(
    buffer: bytes, places: Layout, bytes_max: int, *, bodies: bool = True
) -> Iterator[OpenedSpan]:
    """All records in order, at least one span: each of at most `bytes_max` bytes, or with a single record.

    The bytes of a record are its stored ones, with the body decompressed; without `bodies`, none is
    decompressed or counted.
    """
    heads = places.heads
    sizes = heads["store_size"].astype(np.int64) - (0 if bodies else heads["body_size"])
    packed = (heads["sys_flag"] & COMPRESSED).astype(np.bool_) & bodies
    span, held = OpenedSpan(0, 0), 0
    for row, (size, is_packed) in enumerate(zip(sizes.tolist(), packed.tolist(), strict=True)):
        found: bytes | ShutBody | None = None
        if is_packed:
            found = _open(buffer, places, row)
            if isinstance(found, bytes):
                size += len(found) - int(heads["body_size"][row])
        if span.stop > span.start and held + size > bytes_max:
            yield span
            span, held = OpenedSpan(row, row), 0
        if isinstance(found, bytes):
            span.bodies[row - span.start] = found
        elif found is not None:
            span.shut[row - span.start] = found
        span.stop, held = row + 1, held + size
    yield span


def _open(buffer: bytes, places: Layout, row: int) -> bytes | ShutBody:
    heads = places.heads
    try:
        return decompress(buffer[places.body[row] : places.body_end[row]], int(heads["sys_flag"][row]))
    except CompressedBodyError as error:
        topic = buffer[places.topic[row] : places.topic_end[row]].decode(errors="replace")
        return ShutBody(topic, int(heads["queue_id"][row]), int(heads["queue_offset"][row]), str(error))
