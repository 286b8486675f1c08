"""Delays between retries: growing, jittered, bounded."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays in seconds that start at `first`, grow by `factor` up to `most`, each varied by ±`jitter`.

    Raises `ValueError` on delays that cannot grow or would be negative.
    """

    first: float = 0.1
    most: float = 5.0
    factor: float = 2.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        if self.first <= 0 or self.most < self.first or self.factor < 1 or not 0 <= self.jitter < 1:
            raise ValueError(f"not a back-off: {self!r}")

    def delays(self, rng: random.Random | None = None) -> Iterator[float]:
        """Endless delays in seconds; the caller decides when to stop."""
        rng = rng or random.Random()
        base = self.first
        while True:  # endless: the caller stops asking
            yield base * (1 + self.jitter * (2 * rng.random() - 1))
            base = min(self.most, base * self.factor)
