"""The driver's way to ask a cluster, from Spark's single thread into the loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from sparrowmq.spark import connections
from sparrowmq.spark.lookup import Lookup
from sparrowmq.spark.loop import loop_thread
from sparrowmq.spark.options import ReadOptions

T = TypeVar("T")


class Driver:
    """Runs questions of one reader's `Lookup`; it is an `Ask` of `follow`."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._lookup: Lookup | None = None

    def __call__(self, question: Callable[[Lookup], Awaitable[T]], timeout: float) -> T:
        """The answer. Raises what the question raises, `TimeoutError` after `timeout` seconds."""

        async def work() -> T:
            if self._lookup is None:
                consumer = await connections.pull_consumer(self._options)
                admin = await connections.admin(self._options)
                self._lookup = Lookup(consumer, admin, self._options)
            return await question(self._lookup)

        return loop_thread().run(work(), timeout)
