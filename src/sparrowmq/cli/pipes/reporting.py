"""Reports of a run's progress to a coordinator, which shows them in its console.

A thread sends them: the run never waits for the coordinator, and never fails because of it.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.cli.base.common import complain
from sparrowmq.cli.base.remote import call, part
from sparrowmq.core.errors import SparrowError
from sparrowmq.core.outside import one_line

if TYPE_CHECKING:
    from sparrowmq.spark.pipelines.common.watch import Progress, Watch

EVERY_SECONDS: Final = 5.0
END_SECONDS: Final = 5.0
"""How long the end of a run waits for its last report to be sent."""
TOPICS_MAX: Final = 100
ERROR_CHARS_MAX: Final = 500
Send = Callable[[Mapping[str, Any]], None]


class Reporter:
    """Sends the last progress every few seconds, even if it is the same: then the run is known to be alive.

    Calling it is a `watch.Report`. The first failure is told on standard error; the following are not.
    """

    def __init__(
        self, send: Send, *, every: float = EVERY_SECONDS, tell: Callable[[str], None] = complain
    ) -> None:
        self._send, self._every, self._tell = send, every, tell
        self._run = uuid.uuid4().hex
        self._latest: Progress | None = None
        self._ending = threading.Event()
        self._outcome: Mapping[str, Any] = {"state": "running"}
        self._failed = False
        self._thread = threading.Thread(target=self._work, name="sparrow-report", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<Reporter {self._run}>"

    def __call__(self, progress: Progress) -> None:
        """Take over what the run has done."""
        self._latest = progress

    def end(self, state: str, error: str = "") -> None:
        """Send how the run ended, and wait for that for `END_SECONDS` at most."""
        self._outcome = {"state": state, "error": one_line(error)[:ERROR_CHARS_MAX]}
        self._ending.set()
        self._thread.join(END_SECONDS)

    def _work(self) -> None:
        while not self._ending.wait(self._every):
            self._post()
        self._post()

    def _post(self) -> None:
        progress = self._latest
        if progress is None or not progress.pipeline:
            return
        try:
            self._send({**report_of(progress), "run": self._run, **self._outcome})
        except (SparrowError, OSError, ValueError) as error:
            if not self._failed:
                self._failed = True
                self._tell(f"the coordinator does not take this run's progress: {error}")


def report_of(progress: Progress) -> dict[str, Any]:
    """A progress as the coordinator's API takes it. Pure."""
    lags = sorted(progress.topics or (), key=lambda one: one.messages, reverse=True)[:TOPICS_MAX]
    return {
        "kind": progress.pipeline[:32],
        "batches": progress.batches,
        "rows": progress.rows,
        "bytes": progress.size,
        "lag": progress.lag,
        "batch_seconds": float(progress.batch_seconds),
        "bad": progress.bad,
        "topics": [{"topic": one.topic, "messages": one.messages, "seconds": one.seconds} for one in lags],
    }


def to_coordinator(url: str, name: str) -> Send:
    """Sends reports of the pipeline `name`, with the token of `sparrow login` or SPARROW_TOKEN."""

    def send(report: Mapping[str, Any]) -> None:
        call(url, "PUT", f"/pipelines/{part(name)}", report)

    return send


@contextmanager
def reporting(reporter: Reporter | None, watch: Watch) -> Iterator[None]:
    """Report how what happens meanwhile ends."""
    if reporter is None:
        yield
        return
    try:
        yield
    except Exception as error:
        reporter.end("failed", str(error))
        raise
    except BaseException:
        reporter.end("stopped")
        raise
    reporter.end("stopped" if watch.stopping else "done")
