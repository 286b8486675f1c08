from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from tests.support import until_sync

from sparrowmq.spark.read.prefetch import prefetch


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "sparrowmq-prefetch"]


@pytest.mark.parametrize("depth", [0, 1, 5])
def test_items_come_in_order(depth: int) -> None:
    assert list(prefetch(lambda: iter(range(100)), depth)) == list(range(100))
    assert until_sync(lambda: not _threads())


@pytest.mark.parametrize("depth", [0, 2])
def test_errors_come_after_the_items_before_them(depth: int) -> None:
    def items() -> Iterator[int]:
        yield 1
        raise KeyError("broken")

    found = prefetch(items, depth)
    assert next(found) == 1
    with pytest.raises(KeyError, match="broken"):
        next(found)
    with pytest.raises(StopIteration):
        next(found)


def test_it_runs_ahead_but_not_further_than_its_depth() -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for item in range(100):
            made.append(item)
            yield item

    found = prefetch(items, 3)
    assert next(found) == 0
    assert until_sync(lambda: len(made) == 5)
    found.close()
    assert until_sync(lambda: not _threads())
    assert len(made) <= 6


@pytest.mark.parametrize("depth", [0, 2])
def test_closing_it_closes_the_iterator(depth: int) -> None:
    closed = threading.Event()

    def items() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    found = prefetch(items, depth)
    next(found)
    found.close()
    assert closed.wait(10)


def test_without_depth_there_is_no_thread() -> None:
    found = prefetch(lambda: iter([threading.current_thread().name]), 0)
    assert next(found) == threading.current_thread().name
