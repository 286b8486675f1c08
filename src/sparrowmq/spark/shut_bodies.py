"""Bodies that say they are compressed and cannot be opened: a producer sent them so, their record is whole.

They are bad bodies like those that are not of a read's format, and `mode` says what becomes of them. This is
off the usual way: a chunk is decoded again, with such bodies as they are stored and a column that tells them.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sparrowmq.columnar.decode import decode
from sparrowmq.columnar.schema import TYPES
from sparrowmq.columnar.shut import as_stored
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.bodies import BODY, SHUT, BadBodyError
from sparrowmq.spark.options import BodyOptions

_OFFSET: Final = "queue_offset"


def decode_shut(
    buffer: bytes, schema: pa.Schema, queue: MessageQueue, offsets: range, options: BodyOptions
) -> pa.RecordBatch:
    """As `columnar.decode.decode`, with shut bodies as they are stored, and the column `SHUT`.

    Raises `BadBodyError` for the first of them with mode FAILFAST, if bodies are read at all.
    """
    opened, reasons = as_stored(buffer)
    wide = schema if _OFFSET in schema.names else schema.append(pa.field(_OFFSET, TYPES[_OFFSET]))
    batch = decode(opened, wide, broker_name=queue.broker_name, offsets=offsets)
    shut = pc.is_in(batch[_OFFSET], pa.array(sorted(reasons), TYPES[_OFFSET]))
    if BODY not in schema.names:
        return batch.select(schema.names)
    if options.mode == "failfast" and pc.any(shut).as_py():
        offset = batch[_OFFSET][pc.index(shut, True).as_py()].as_py()
        raise BadBodyError(
            f"queue {queue}: the body at offset {offset} cannot be opened: {reasons[offset]}. Option "
            "mode=PERMISSIVE keeps such rows with a null body, DROPMALFORMED leaves them out"
        )
    return batch.select(schema.names).append_column(SHUT, shut)
