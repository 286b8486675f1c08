"""Limits the rows per second, in small steps instead of one burst a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pyarrow as pa

STEPS_A_SECOND: Final = 20


def throttled(
    batches: Iterable[pa.RecordBatch],
    per_second: int,
    *,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[pa.RecordBatch]:
    """All rows in order, in batches of at most a `STEPS_A_SECOND`th of a second's rows, each when it is due.

    Time that rows came too slowly in is not made up for.
    """
    step = max(1, per_second // STEPS_A_SECOND)
    due = now()
    for batch in batches:
        for start in range(0, batch.num_rows, step):
            part = batch.slice(start, step)
            wait = due - now()
            if wait > 0:
                sleep(wait)
            due = max(due, now()) + part.num_rows / per_second
            yield part
