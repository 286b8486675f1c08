"""The C allocator: few arenas from the start, and free memory goes back to the kernel."""

from __future__ import annotations

import asyncio
import threading

import pytest

from sparrowmq.runtime.allocator import ARENAS, TRIM_SECONDS, Allocator, glibc


class Library:
    """Notes what is asked of it, and on which thread."""

    def __init__(self) -> None:
        self.options: list[tuple[int, int]] = []
        self.trims: list[int] = []

    def mallopt(self, option: int, value: int) -> int:
        self.options.append((option, value))
        return 1

    def malloc_trim(self, pad: int) -> int:
        self.trims.append(threading.get_ident())
        return 1


def test_arenas_are_limited_and_memory_is_given_back_on_a_thread() -> None:
    library, slept = Library(), list[float]()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) > 2:
            raise asyncio.CancelledError

    allocator = Allocator(lambda: library)
    allocator.begin()
    assert library.options == [(-8, ARENAS)]
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(allocator.run(sleep))
    assert slept == [TRIM_SECONDS] * 3 and len(library.trims) == 2
    assert threading.get_ident() not in library.trims


def test_another_c_library_is_left_alone() -> None:
    allocator = Allocator(lambda: None)
    allocator.begin()
    asyncio.run(allocator.run())


@pytest.mark.skipif(glibc() is None, reason="this system's C library is not glibc")
def test_glibc_takes_both() -> None:
    library = glibc()
    assert library is not None
    assert library.malloc_trim(0) in (0, 1)
