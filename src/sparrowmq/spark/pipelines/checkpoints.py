"""What Spark logs in the checkpoint of a streaming query, as pipelines need it."""

from __future__ import annotations

import json
from pathlib import Path

from sparrowmq.spark.offsets import Span, StreamOffset, spans


def query_id(checkpoint: Path) -> str:
    """The id of the streaming query that a checkpoint belongs to."""
    value = json.loads((checkpoint / "metadata").read_text())
    return str(value["id"])


def batch_spans(checkpoint: Path, batch: int) -> list[Span]:
    """What a micro-batch reads, from the offsets that Spark logs before it runs (spark:S-12).

    Raises ValueError, which names the file, for one that cannot be read.
    """
    start = StreamOffset({}) if batch == 0 else _logged(checkpoint, batch - 1)
    return spans(start, _logged(checkpoint, batch))


def _logged(checkpoint: Path, batch: int) -> StreamOffset:
    path = checkpoint / "offsets" / str(batch)
    try:
        return StreamOffset.from_json(json.loads(path.read_text().splitlines()[2]))
    except (OSError, IndexError, ValueError) as error:
        raise ValueError(f"{path} holds no offsets of batch {batch}") from error
