from __future__ import annotations

from sparrowmq.core.figures.histogram import Histogram


def test_values_are_counted_in_the_bucket_of_their_bound() -> None:
    found = Histogram((1, 10))
    found.add(1)
    found.add(1.5, times=2)
    found.add_all([1, 1])
    found.add_all([2, 11])
    found.add_all([])
    assert found.by_bound() == {"1.0": 3, "10.0": 3, "+Inf": 1}
    assert found.count == 7
    assert found.total == 1 + 3 + 2 + 13
