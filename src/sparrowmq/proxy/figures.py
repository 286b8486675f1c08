"""Counts the proxy's calls, and makes its figures for `/metrics`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from sparrowmq.core.figures.bounds import Bound, add_bounds
from sparrowmq.core.figures.exposition import Exposition, labels
from sparrowmq.core.settings.text import parse_labels
from sparrowmq.proxy.calls.clients import Clients
from sparrowmq.proxy.definition.messages import Code
from sparrowmq.proxy.http2.listener import Http2Listener
from sparrowmq.transport.figures import add_server_figures


class CallBook:
    """Calls by method: how many run, how they were answered, how long they took."""

    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        """Calls that run."""
        self.codes: Counter[tuple[str, int]] = Counter()
        """Answers by method and code of the API."""
        self.done: Counter[str] = Counter()
        self.seconds: dict[str, float] = {}
        """Time of finished calls, waiting for messages included."""

    @contextmanager
    def running(self, method: str) -> Iterator[None]:
        """Count a running call."""
        began = self.begun(method)
        try:
            yield
        finally:
            self.ended(method, began)

    def begun(self, method: str) -> float:
        """Count a call that runs from now on; returns what `ended` is told."""
        self.now[method] += 1
        return monotonic()

    def ended(self, method: str, began: float) -> None:
        """Count the end of a call."""
        self.now[method] -= 1
        self.done[method] += 1
        self.seconds[method] = self.seconds.get(method, 0.0) + monotonic() - began

    def dropped(self, method: str) -> None:
        """A call that `begun` counted is counted elsewhere."""
        self.now[method] -= 1

    def answered(self, method: str, code: int) -> None:
        """Count an answer."""
        self.codes[method, code] += 1


class OperatedProxy:
    """A running proxy, see `core.figures.exposition.Operated`.

    `metrics_label` is the setting of that name.
    """

    def __init__(self, listener: Http2Listener, clients: Clients, book: CallBook, metrics_label: str) -> None:
        self._listener = listener
        self._clients = clients
        self._book = book
        self._node = labels(node_type="proxy", node_id=listener.address, **parse_labels(metrics_label))

    @property
    def node(self) -> str:
        """Its kind and address."""
        return f"proxy {self._listener.address}"

    def collect(self, into: Exposition) -> Iterator[None]:
        """Add all figures."""
        book = self._book
        up = into.gauge("rocketmq_proxy_up", "1 while the proxy runs.")
        up.add(labels(self._node, proxy_mode="cluster"), 1)
        answers = into.counter(
            "sparrow_proxy_answers_total", "Answers to calls, by method and code of the API."
        )
        for (method, code), count in sorted(book.codes.items()):
            answers.add(labels(self._node, method=method, code=Code.name(code)), count)
        running = into.gauge(
            "sparrow_proxy_running_calls", "Calls that run, receives and telemetry streams included."
        )
        done = into.counter("sparrow_proxy_calls_total", "Calls that have ended.")
        took = into.counter(
            "sparrow_proxy_call_seconds_total", "Time of these calls, with waits for messages."
        )
        for method in sorted(set(book.now) | set(book.done)):
            label = labels(self._node, method=method)
            running.add(label, book.now[method])
            done.add(label, book.done[method])
            took.add(label, round(book.seconds.get(method, 0.0), 3))
        yield
        bounds = [
            Bound("calls", self._listener.calls, self._listener.calls_max),
            Bound("clients", len(self._clients), self._clients.clients_max),
        ]
        add_bounds(into, self._node, bounds)
        add_server_figures(into, self._node, self._listener)

    def faults(self) -> list[str]:
        """It keeps nothing that could fail."""
        return []

    def lacks(self) -> list[str]:
        """It serves as soon as it listens; brokers may come and go behind it."""
        return []
