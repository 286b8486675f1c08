"""Bodies that are marked as compressed and cannot be decompressed: the producer sent them that way; their
records are intact.

They are bad bodies like those of a wrong format, and `mode` says how they are handled.
"""

from __future__ import annotations

import pyarrow as pa

from sparrowmq.columnar.decode import DecodedBatch
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.bodies.decoding import NOT_DECOMPRESSED, BadBodyError
from sparrowmq.spark.options.table import BodyOptions


def marked(decoded: DecodedBatch, queue: MessageQueue, options: BodyOptions) -> pa.RecordBatch:
    """The batch with the column `NOT_DECOMPRESSED`. Raises `BadBodyError` for the first such body with mode
    FAILFAST.
    """
    batch, shut = decoded
    if options.mode == "failfast":
        first = shut[min(shut)]
        raise BadBodyError(
            f"queue {queue}: the body at offset {first.queue_offset} cannot be decompressed: {first.reason}. "
            f"Option mode=PERMISSIVE keeps such rows with a null body, DROPMALFORMED drops them"
        )
    reasons = [shut[row].reason if row in shut else None for row in range(batch.num_rows)]
    return batch.append_column(NOT_DECOMPRESSED, pa.array(reasons, pa.string()))
