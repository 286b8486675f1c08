"""Packing of records and queue entries of many messages together, without a Python step per message.

`protocol.record.encode_record` and `ENTRY.pack` give the same result, message by message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Final

from sparrowmq.protocol.batch import AlikeBatch
from sparrowmq.protocol.crc import CRC_MASK, crc32
from sparrowmq.protocol.record import RECORD_MAGIC_V1
from sparrowmq.store.queues.consume_queue import ENTRY

_SIZE_AND_MAGIC: Final = struct.Struct(">iI")
_QUEUE_AND_FLAG: Final = struct.Struct(">ii")


@lru_cache(maxsize=256)
def _record_form(head: int, body: int, middle: int, own: int, added: int) -> struct.Struct:
    """A whole record format: the varying fields between the parts that records of equal lengths share."""
    return struct.Struct(f">8sI8sqq{head}s{body}s{middle}s{own}s{added}s")


def alike_batch(
    items: Sequence[tuple[int, bytes, bytes, int]],
) -> tuple[AlikeBatch, tuple[int, ...]] | None:
    """Messages (flag, body, properties, tag code) as a batch and tag codes; None if flags or lengths
    differ."""
    flags, bodies, owns, codes = zip(*items, strict=True)
    if flags.count(flags[0]) < len(items) or len(set(map(len, bodies))) > 1 or len(set(map(len, owns))) > 1:
        return None
    return AlikeBatch(flags[0], bodies, owns), codes


def pack_alike(
    batch: AlikeBatch,
    added: bytes,
    *,
    topic_field: bytes,
    queue_id: int,
    offset: int,
    starts: range,
    common: bytes,
) -> list[bytes]:
    """The records of `batch` with queue offsets from `offset` on and physical offsets `starts`.

    `common` is the head from system flag to prepared offset, `added` is what the broker appends to the
    properties. Raises `struct.error` when a value does not fit.
    """
    bodies, owns = batch.bodies, batch.properties
    body_bytes, own_bytes = len(bodies[0]), len(owns[0])
    rest = common + body_bytes.to_bytes(4, "big")
    middle = topic_field + (own_bytes + len(added)).to_bytes(2, "big")
    form = _record_form(len(rest), body_bytes, len(middle), own_bytes, len(added))
    return list(
        map(
            form.pack,
            repeat(_SIZE_AND_MAGIC.pack(starts.step, RECORD_MAGIC_V1)),
            [crc32(body) & CRC_MASK for body in bodies],
            repeat(_QUEUE_AND_FLAG.pack(queue_id, batch.flag)),
            range(offset, offset + len(bodies)),
            starts,
            repeat(rest),
            bodies,
            repeat(middle),
            owns,
            repeat(added),
        )
    )


def pack_entries(starts: Iterable[int], sizes: Iterable[int], codes: Iterable[int]) -> bytes:
    """Packed queue entries of records, as many as the shortest of the three arguments."""
    return b"".join(map(ENTRY.pack, starts, sizes, codes))
