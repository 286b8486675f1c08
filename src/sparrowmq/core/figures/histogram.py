"""Counts of values by size, for figures. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """Counts of values up to each of `bounds`, which ascend, and of those above the last."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total: float = 0
        """Sum of the values."""

    def __repr__(self) -> str:
        return f"<Histogram of {self.count} values>"

    @property
    def count(self) -> int:
        """Number of values."""
        return sum(self.counts)

    def add(self, value: float, times: int = 1) -> None:
        """Count a value, `times` times."""
        self.counts[bisect_left(self._bounds, value)] += times
        self.total += value * times

    def add_all(self, values: Sequence[int]) -> None:
        """Count some values; quick when none is above the first bound."""
        if max(values, default=0) > self._bounds[0]:
            for value in values:
                self.add(value)
            return
        self.counts[0] += len(values)
        self.total += sum(values)

    def by_bound(self) -> dict[str, int]:
        """The counts by upper bound as text; the last one is `+Inf`."""
        return dict(zip([*(str(float(one)) for one in self._bounds), "+Inf"], self.counts, strict=True))
