"""The listener: receives Spark's events, polls the cluster, and serves the figures.

Spark calls it for every query of a session. Its methods store figures and return at once. A separate thread
polls the cluster with a deadline; its errors are logged and counted, so no query waits for it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from pathlib import Path
from time import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from prometheus_client import CollectorRegistry, Counter, write_to_textfile
from pyspark.sql.streaming.listener import StreamingQueryListener

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.bodies.bad_rows import BadRowsCount
from sparrowmq.spark.cluster.faults import Occasionally
from sparrowmq.spark.metrics.cluster import Cluster, QueueState
from sparrowmq.spark.metrics.collector import QueryCollector
from sparrowmq.spark.metrics.figures import Book, Figures
from sparrowmq.spark.metrics.http import address, served_registry
from sparrowmq.spark.offsets.offsets import Offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("sparrowmq.spark")

Ask = Callable[[Mapping[str, Offsets]], QueueState]

EVERY_SECONDS: Final = 10.0
ASK_SECONDS: Final = 5.0


class MetricsListener(StreamingQueryListener):
    """Lag, rates and faults of a session's streaming queries, for Prometheus.

        listener = MetricsListener(options, http="127.0.0.1:9102")
        with listener.attached(spark):
            ...

    `options` are those of the source that say which cluster (`nameServer`, `accessKey`, `tls`, …). With them
    the cluster is asked every `every` seconds, for at most `ask_seconds`, where queues end and since when
    messages wait: so lag is known while a batch runs or a query hangs, in messages and in seconds. Without
    them there is lag in messages only, as each batch left it. `queries` are names of the queries that are
    meant, none: all of them; a listener asks one cluster, so queries of two clusters need two listeners.

    `http` is `HOST:PORT` or `PORT` (port 0: any, see `port`); `text_file` is written every `every` seconds,
    whole or not at all, for the text file collector of a node exporter. `registry` is there for a server of
    one's own.

    Raises `SettingsError` for options and addresses that are wrong.
    """

    def __init__(
        self,
        options: Mapping[str, str] | None = None,
        *,
        http: str | None = None,
        text_file: str | Path | None = None,
        queries: Collection[str] = (),
        every: float = EVERY_SECONDS,
        ask_seconds: float = ASK_SECONDS,
        now: Callable[[], float] = time,
    ) -> None:
        if every <= 0 or ask_seconds <= 0:
            raise SettingsError(
                f"every={every} and ask_seconds={ask_seconds}: both must be more than 0 seconds",
                "every",
                every,
            )
        self._address = None if http is None else address(http)
        self._text_file = None if text_file is None else Path(text_file)
        self._wanted = frozenset(queries)
        self._every = every
        self._now = now
        self._ask: Ask | None = None if options is None else Cluster(options, ask_seconds)
        self._lock = threading.Lock()
        self._book = Book()
        self._ended = threading.Event()
        self._open = ExitStack()
        self._complaints = Occasionally()
        self.port: int | None = None
        """Address where HTTP is served, once attached."""
        self.registry = CollectorRegistry()
        self.registry.register(QueryCollector(self._figures, now=now))
        self._unanswered = Counter(
            "sparrow_listener_faults",
            "Listener: rounds in which the cluster did not answer or the text file could not be written.",
            registry=self.registry,
        )

    def __repr__(self) -> str:
        return (
            f"<MetricsListener {len(self._book.queries)} queries{f' port {self.port}' if self.port else ''}>"
        )

    def attached(self, spark: SparkSession) -> Self:
        """Listen to a session and serve until `close`. Raises `SettingsError` when the port is taken."""
        with ExitStack() as opened:
            if self._address is not None:
                self.port = opened.enter_context(served_registry(self.registry, *self._address))
            spark.streams.addListener(self)
            opened.callback(spark.streams.removeListener, self)
            self._open = opened.pop_all()
        if self._ask is not None or self._text_file is not None:
            thread = threading.Thread(target=self._run, name="sparrow-metrics-listener", daemon=True)
            thread.start()
            self._open.callback(thread.join, self._every + 60.0)
            self._open.callback(self._ended.set)
        return self

    def close(self) -> None:
        """Stop listening and serving. A closed listener cannot be attached again."""
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def onQueryStarted(self, event: Any) -> None:
        """A query starts; Spark waits for this to return."""
        name = event.name or str(event.id)
        if self._is_wanted(name):
            with self._lock:
                self._book.started(str(event.runId), name, self._now())

    def onQueryProgress(self, event: Any) -> None:
        """A batch has ended."""
        progress = event.progress
        if self._is_wanted(progress.name or str(progress.id)):
            with self._lock:
                self._book.progressed(progress, self._now())

    def onQueryIdle(self, event: Any) -> None:
        """A query is idle."""
        with self._lock:
            self._book.idle(str(event.runId), self._now())

    def onQueryTerminated(self, event: Any) -> None:
        """A query has ended."""
        with self._lock:
            self._book.ended(str(event.runId), event.exception, event.errorClassOnException, self._now())

    def _is_wanted(self, name: str) -> bool:
        return not self._wanted or name in self._wanted

    def bad_rows(self, count: BadRowsCount) -> None:
        """Count rows that could not be decoded: pass it as `report` to a `BadRows`."""
        with self._lock:
            self._book.judged(count.name, count.rows, count.bad)

    def _figures(self) -> Figures:
        with self._lock:
            return self._book.figures

    def _run(self) -> None:
        while not self._ended.wait(self._every):
            self.look()

    def look(self) -> None:
        """One round: ask the cluster, write the file. Errors are logged and counted, never raised."""
        try:
            self._look_at_cluster()
            if self._text_file is not None:
                write_to_textfile(str(self._text_file), self.registry)
        except Exception as error:  # no error here may end the thread
            self._unanswered.inc()
            self._complaints.warn("the metrics of queries are incomplete: %r", error)

    def _look_at_cluster(self) -> None:
        with self._lock:
            waiting = self._book.waiting()
        if self._ask is None or not waiting:
            return
        state = self._ask(waiting)
        with self._lock:
            for run, done in waiting.items():
                ends = {queue: state.ends[queue] for queue in done if queue in state.ends}
                self._book.asked(run, done, ends, state.stored_at[run], self._now())
