"""How far the opening of a store is, which may take minutes after a crash, and a way to stop it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from sparrowmq.core.errors import StoreError

if TYPE_CHECKING:
    from sparrowmq.store.base.segments import SegmentSequence

T = TypeVar("T")
_Visit: TypeAlias = Callable[[memoryview, int, int, int], None]


class OpeningProgress:
    """Kept by the thread that opens a store. `stop` and the text may be used in any thread."""

    __slots__ = ("_is_stopped", "_tell")

    def __init__(self) -> None:
        self._is_stopped = False
        self._tell: Callable[[], str] = _opening

    def __str__(self) -> str:
        return self._tell()

    def stop(self) -> None:
        """Let the opening end soon with a `StoreError`; the next one begins again."""
        self._is_stopped = True

    def check(self) -> None:
        """Raise `StoreError` after `stop`."""
        if self._is_stopped:
            raise StoreError("the store was not opened: it was to stop meanwhile", what="stopped")

    def step(self, what: str) -> None:
        """Tell what is done now, such as "it reads its tables". Raises `StoreError` after `stop`."""
        self.check()
        self._tell = lambda: what

    def until_stopped(self, things: Iterable[T]) -> Iterator[T]:
        """Iterate over things that take little time each. Raises `StoreError` after `stop`."""
        for thing in things:
            self.check()
            yield thing

    def each(self, what: str, things: Sequence[T]) -> Iterator[T]:
        """Iterate over things to read, such as "queues". Raises `StoreError` after `stop`."""
        done, total = 0, len(things)
        self._tell = lambda: f"recovering: {done} of {total} {what}"
        for done, thing in enumerate(self.until_stopped(things)):  # noqa: B007 - the text has it
            yield thing

    def reading(self, files: SegmentSequence, start: int, visit: _Visit) -> _Visit:
        """`visit` for a scan of the log from `start` on. It raises `StoreError` after `stop`."""
        at, size = start, files.file_bytes
        first = start // size
        total = files.end // size - first
        self._tell = lambda: f"recovering: {at // size - first} of {total} log files"

        def step(view: memoryview, place: int, position: int, record_size: int) -> None:
            nonlocal at
            if self._is_stopped:
                self.check()
            at = position
            visit(view, place, position, record_size)

        return step


def _opening() -> str:
    return "it opens its store"
