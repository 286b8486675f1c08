"""Measures how long requests take, and logs slow ones with the time of each step.

Chunks are measured where they are handled. Only those that took a millisecond or more are reported here; all
others cost one comparison. The steps of a chunk: it waits for its turn (`queue`), it is handled (`handled`,
of which the store takes `store`), and its answers wait for an fsync or for slaves (`durable`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from sparrowmq.core.figures.exposition import Exposition, labels
from sparrowmq.core.figures.histogram import Histogram
from sparrowmq.protocol.codes import ResponseCode, request_name, request_word, response_word
from sparrowmq.transport.occasional import OccasionalLog
from sparrowmq.transport.stall_names import (
    RequestIds,
    ids_of,
    ids_of_request,
    ids_of_sends,
    requests_of,
    times,
)

if TYPE_CHECKING:
    from sparrowmq.protocol.frame import Command, RawFrame

logger = logging.getLogger("sparrowmq.slow")

BOUNDS_MS: Final = (1, 3, 5, 7, 10, 100, 1000, 2000, 3000)
"""Upper bounds of the counted latencies, as in RocketMQ."""
KINDS_MAX: Final = 200
"""Pairs of a request and a response code that are counted; both are names of the protocol."""
LOG_SECONDS: Final = 1.0
"""Interval between lines of one kind; the next line has the number of those left out."""
StoredSend = tuple[int, int, int, bytes, bytes]
"""Values of the answer to a send: opaque, queue id, queue offset, message id, unique key."""


class Addressed(Protocol):
    """A connection, reduced to its address."""

    @property
    def address(self) -> str:
        """Its `host:port`."""


def _no_put() -> tuple[float, float]:
    return 0.0, 0.0


class RequestWatch:
    """Durations of the requests of one server. Belongs to its loop.

    A request is slow if it takes `slow_ms` or longer; 0 turns this off. With `counts`, latencies are counted
    for metrics. `last_put` returns when the last long write of the store ended (monotonic seconds) and what
    it took.
    """

    def __init__(
        self,
        slow_ms: int = 0,
        *,
        counts: bool = False,
        last_put: Callable[[], tuple[float, float]] = _no_put,
    ) -> None:
        self.counts = counts
        self._last_put = last_put
        self._log = OccasionalLog(logger, period=LOG_SECONDS)
        self._latencies: dict[tuple[str, str], Histogram] = {}
        self._refused: dict[tuple[str, str], int] = {}
        self._slow = inf
        self.slow_total = 0
        """Chunks and requests that were slow."""
        self.limit(slow_ms)

    def __repr__(self) -> str:
        return f"<RequestWatch limit={self._slow:g}s slow={self.slow_total}>"

    def limit(self, slow_ms: int) -> None:
        """Set the time from which a request is slow, in milliseconds; 0 turns this off."""
        self._slow = slow_ms / 1000 if slow_ms else inf

    def chunk(self, client: Addressed, frames: list[RawFrame], handled: float, queued: float) -> None:
        """Report that a chunk was handled for `handled` seconds, after it had waited for its turn for
        `queued` seconds.
        """
        if handled + queued < self._slow:
            return
        ended, put = self._last_put()
        store = put if ended >= monotonic() - handled else 0.0
        parts = {"queue": queued, "handled": handled, "store": store}
        self._tell(requests_of(frames), ids_of(frames), client.address, handled + queued, parts)

    def durable(
        self,
        client: str,
        sends: Sequence[StoredSend],
        began: float,
        waited: float,
        code: int = ResponseCode.SUCCESS,
    ) -> None:
        """Report that the answers to these sends, received at `began` (monotonic), waited `waited` seconds
        for an fsync or for slaves, and have this code.
        """
        count = len(sends)
        took = monotonic() - began
        if self.counts:
            self.add("send_message_v2", response_word(code), took, count)
        if took >= self._slow:
            ids = ids_of_sends(sends[0][0], (one[-1] for one in sends))
            self._tell(times("send", count), ids, client, took, {"handled": took - waited, "durable": waited})

    def waited(self, request: Command, client: str, took: float) -> None:
        """Report that a request that waited for something was answered."""
        if took >= self._slow:
            name, ids = request_name(request.code), ids_of_request(request)
            self._tell(name, ids, client, took, {"waited": took})

    def add(self, request: str, response: str, took: float, count: int = 1) -> None:
        """Count requests of one kind that took `took` seconds."""
        key = request, response
        found = self._latencies.get(key)
        if found is None:
            if len(self._latencies) >= KINDS_MAX:
                return
            found = self._latencies[key] = Histogram(BOUNDS_MS)
        found.add(took * 1000, count)

    def refused(self, request: int, response: int) -> None:
        """Count a request that was refused before a handler did its work, by both codes.

        Codes that the protocol lacks count as `unknown`, because clients may send any number.
        """
        word = request_word(request)
        key = "unknown" if word == str(request) else word, response_word(response)
        if key in self._refused or len(self._refused) < KINDS_MAX:
            self._refused[key] = self._refused.get(key, 0) + 1

    def collect(self, into: Exposition, node: str) -> Iterator[None]:
        """Add the latencies and refusals; `node` has the labels of the server."""
        into.counter("sparrow_slow_requests_total", "Chunks and requests that were slow.").add(
            node, self.slow_total
        )
        refused = into.counter(
            "sparrow_refused_requests_total", "Requests that access control or a limit of the server refused."
        )
        for (request, response), count in self._refused.items():
            refused.add(labels(node, request_code=request, response_code=response), count)
        family = into.histogram("rocketmq_rpc_latency_milliseconds", "Time until requests were answered.")
        for (request, response), found in list(self._latencies.items()):
            label = labels(
                node,
                protocol_type="remoting",
                request_code=request,
                response_code=response,
                is_long_polling="false",
                result="success",
            )
            family.add_histogram(label, found.by_bound(), round(found.total, 3))
            yield

    def _tell(self, what: str, ids: RequestIds, client: str, took: float, parts: dict[str, float]) -> None:
        self.slow_total += 1
        told = ", ".join(f"{name} {seconds * 1000:.0f}" for name, seconds in parts.items())
        fields: dict[str, object] = {"what": what, "client": client, "ms": round(took * 1000, 1)}
        fields |= ids.fields()
        fields |= {f"{name}_ms": round(seconds * 1000, 1) for name, seconds in parts.items()}
        kind = max(parts, key=lambda name: parts[name])
        text = f"slow: {what} from {client} took {took * 1000:.0f} ms (ms: {told}); {ids}"
        self._log.write(logging.WARNING, kind, text, fields=fields)
