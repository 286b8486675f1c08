"""Calls from Spark's single driver thread to the loop that queries a cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from sparrowmq.loops.event_loop import loop_thread
from sparrowmq.spark.cluster import clients
from sparrowmq.spark.options.table import ReadOptions
from sparrowmq.spark.read.lookup import Lookup

T = TypeVar("T")


class Driver:
    """Runs queries of one reader's `Lookup`; it is an `Ask` of `follow`."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._lookup: Lookup | None = None

    def __call__(self, question: Callable[[Lookup], Awaitable[T]], timeout: float) -> T:
        """The result. Raises the query's errors, and `TimeoutError` after `timeout` seconds."""
        loop = loop_thread()
        if self._lookup is None:
            consumer = loop.run(clients.pull_consumer(self._options), timeout)
            self._lookup = Lookup(consumer, partial(clients.admin, self._options), self._options)
        lookup = self._lookup

        async def work() -> T:
            return await question(lookup)

        return loop.run(work(), timeout)
