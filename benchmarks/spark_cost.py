"""What a stream's time is made of: so much for the query, for each micro-batch, for each row. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np


class Timed(NamedTuple):
    """One stream that ran to its end."""

    rows: int
    batches: int
    seconds: float


class Cost(NamedTuple):
    """Seconds for a query, a micro-batch and a row."""

    query: float
    batch: float
    row: float

    def seconds(self, rows: int, batches: int) -> float:
        """What a stream takes by these numbers."""
        return self.query + batches * self.batch + rows * self.row


PARTS: Final = len(Cost._fields)


def fit(streams: Sequence[Timed]) -> Cost:
    """The cost that fits best: least squares of relative errors, so that short streams count as long ones.

    Raises ValueError when the streams do not tell the three parts apart: there must be some with equally many
    rows in more micro-batches.
    """
    measured = np.array([[1.0, stream.batches, stream.rows] for stream in streams])
    weights = 1.0 / np.array([stream.seconds for stream in streams])
    scale = measured.max(axis=0, initial=1.0)
    found, _, rank, _ = np.linalg.lstsq(
        measured / scale * weights[:, None], np.ones(len(streams)), rcond=None
    )
    if rank < PARTS:
        raise ValueError(f"{len(streams)} streams do not tell query, micro-batch and row apart: {streams}")
    query, batch, row = (found / scale).tolist()
    return Cost(query, batch, row)


def without_broker(rows: int, seconds: float, broker_seconds: float, cores: int) -> float:
    """Rows a second had the broker run elsewhere: all cores were busy, some of the time with it."""
    return rows / max(seconds - broker_seconds / cores, seconds / cores)
