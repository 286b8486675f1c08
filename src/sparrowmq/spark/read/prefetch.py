"""An iterator run ahead in a thread with a bounded queue; it stops with its reader (spark:R-01, R-02)."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

T = TypeVar("T")

_LOOK_SECONDS: Final = 0.1
"""How often a thread that waits for room checks whether its reader still exists."""


@dataclass(frozen=True, slots=True)
class _End:
    error: BaseException | None = None


def prefetch(make: Callable[[], Iterator[T]], depth: int) -> Generator[T, None, None]:
    """The items of `make()`, produced up to `depth` items ahead in a thread; 0 uses no thread.

    The iterator's errors are raised here. Closing the generator stops the thread and closes the iterator.
    """
    if not depth:
        yield from make()
        return
    items: queue.Queue[T | _End] = queue.Queue(depth)
    stop = threading.Event()

    def put(item: T | _End) -> None:
        while not stop.is_set():
            try:
                items.put(item, timeout=_LOOK_SECONDS)
                return
            except queue.Full:
                pass

    def work() -> None:
        iterator = make()
        try:
            for item in iterator:
                put(item)
                if stop.is_set():
                    break
            put(_End())
        except BaseException as error:
            put(_End(error))
        finally:
            close = getattr(iterator, "close", None)
            if close is not None:
                close()

    thread = threading.Thread(target=work, name="sparrowmq-prefetch", daemon=True)
    thread.start()
    try:
        while True:  # ends with _End, which the thread always puts
            item = items.get()
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            yield item
    finally:
        stop.set()
