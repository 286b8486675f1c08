"""Settings of the C allocator of a process with many threads: fewer arenas, and free memory returns to the
system.

glibc gives threads separate arenas, eight for each core. When many threads build large answers, free memory
remains in each arena and does not return to the kernel. Nothing is done with other C libraries, which do not
have this problem.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
from collections.abc import Callable
from typing import Final, Protocol

from sparrowmq.core.clock import Sleep

log = logging.getLogger("sparrowmq.runtime")

ARENAS: Final = 2
"""Few are enough, because threads of a Python process seldom allocate at the same time."""
TRIM_SECONDS: Final = 10.0
_M_ARENA_MAX: Final = -8


class CLibrary(Protocol):
    """The functions of glibc's allocator."""

    def mallopt(self, option: int, value: int) -> int:
        """Set an option; 1 if that was possible."""

    def malloc_trim(self, pad: int) -> int:
        """Return free pages of all arenas to the kernel; 1 if there were any."""


def glibc() -> CLibrary | None:
    """glibc, if this process uses it; otherwise None."""
    try:
        found = ctypes.CDLL(None)
        found.mallopt, found.malloc_trim  # noqa: B018 - raises where there are none
    except (OSError, AttributeError, TypeError):
        return None
    return found


class Allocator:
    """The C allocator of this process; `begin` before its threads start."""

    def __init__(self, library: Callable[[], CLibrary | None] = glibc) -> None:
        self._library = library()

    def __repr__(self) -> str:
        return f"<Allocator {'glibc' if self._library else 'of another C library'}>"

    def begin(self) -> None:
        """Limit the number of arenas. MALLOC_ARENA_MAX in the environment does the same."""
        if self._library is not None and self._library.mallopt(_M_ARENA_MAX, ARENAS) != 1:
            log.debug("could not limit the number of the C allocator's arenas")

    async def run(self, sleep: Sleep = asyncio.sleep) -> None:
        """Return free memory periodically, in a thread, until cancelled."""
        if self._library is None:
            return
        while True:
            await sleep(TRIM_SECONDS)
            await asyncio.to_thread(self._library.malloc_trim, 0)
