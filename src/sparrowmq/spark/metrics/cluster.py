"""Asks the cluster about queues that queries read: where they end, and since when messages wait."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets.offsets import Offsets
from sparrowmq.spark.options.table import ReadOptions, connection_options
from sparrowmq.spark.read.driver import Driver
from sparrowmq.spark.read.lookup import Lookup

_ANY_TOPIC = "any"
"""A read names topics; here the queries' offsets determine the queues."""


@dataclass(frozen=True, slots=True)
class QueueState:
    """The ends of the queues of all queries, and for each query the store times of the first waiting
    messages, in epoch seconds.
    """

    ends: Offsets
    stored_at: Mapping[str, Mapping[MessageQueue, float]]


class Cluster:
    """Asks the cluster of `options`, for at most `seconds` each time."""

    def __init__(self, options: Mapping[str, str], seconds: float) -> None:
        connection = connection_options(options)
        self._driver = Driver(ReadOptions.parse({**connection, "subscribe": _ANY_TOPIC}, None))
        self._seconds = seconds

    def __call__(self, queries: Mapping[str, Offsets]) -> QueueState:
        """Ask about queries; the argument maps each run to its progress. Brokers that do not answer are left
        out.

        Raises `TimeoutError`, `TransportError`, …
        """
        return self._driver(lambda lookup: _state_of(lookup, queries), self._seconds)


async def _state_of(lookup: Lookup, queries: Mapping[str, Offsets]) -> QueueState:
    queues = sorted({queue for done in queries.values() for queue in done})
    ends = await lookup.reachable_ends(queues)
    stored_at = {}
    for run, done in queries.items():
        late = {queue: offset for queue, offset in done.items() if ends.get(queue, offset) > offset}
        times = await lookup.store_times(late) if late else {}
        stored_at[run] = {queue: at / 1000 for queue, at in times.items()}
    return QueueState(ends, stored_at)
