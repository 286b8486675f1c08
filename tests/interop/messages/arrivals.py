"""What a test may ask of a delivery at least once: all messages come, some perhaps again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from tests.support import until_sync

T = TypeVar("T")


def expect_all(came: Callable[[], Iterable[T]], wanted: Collection[T]) -> None:
    """Wait until all of `wanted` came, however often; nothing else may have come."""
    until_sync(lambda: set(wanted) <= set(came()))
    assert set(came()) == set(wanted)


def first_arrivals(came: Iterable[T]) -> list[T]:
    """The same without repeats: a queue's order is promised for what comes for the first time."""
    return list(dict.fromkeys(came))
