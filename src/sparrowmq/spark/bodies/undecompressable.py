"""Bodies that are marked as compressed and cannot be decompressed: the producer sent them that way; their
records are intact.

They are bad bodies like those of a wrong format, and `mode` says how they are handled. This is a slow path:
the chunk is decoded again, with such bodies as stored and a column that marks them.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sparrowmq.columnar.decode import decode
from sparrowmq.columnar.schema import TYPES
from sparrowmq.columnar.undecompressable import as_stored
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.bodies.decoding import BODY, NOT_DECOMPRESSED, BadBodyError
from sparrowmq.spark.options.table import BodyOptions

_OFFSET: Final = "queue_offset"


def decode_undecompressable(
    buffer: bytes, schema: pa.Schema, queue: MessageQueue, offsets: range, options: BodyOptions
) -> pa.RecordBatch:
    """Like `columnar.decode.decode`, with such bodies as stored and the column `NOT_DECOMPRESSED`.

    Raises `BadBodyError` for the first of them with mode FAILFAST, if bodies are read at all.
    """
    opened, reasons = as_stored(buffer)
    wide = schema if _OFFSET in schema.names else schema.append(pa.field(_OFFSET, TYPES[_OFFSET]))
    batch = decode(opened, wide, broker_name=queue.broker_name, offsets=offsets)
    errors = pa.array([reasons.get(offset) for offset in batch[_OFFSET].to_pylist()], pa.string())
    if BODY not in schema.names:
        return batch.select(schema.names)
    if options.mode == "failfast" and errors.null_count < len(errors):
        offset = batch[_OFFSET][pc.index(pc.is_valid(errors), True).as_py()].as_py()
        raise BadBodyError(
            f"queue {queue}: the body at offset {offset} cannot be decompressed: {reasons[offset]}. Option "
            f"mode=PERMISSIVE keeps such rows with a null body, DROPMALFORMED drops them"
        )
    return batch.select(schema.names).append_column(NOT_DECOMPRESSED, errors)
