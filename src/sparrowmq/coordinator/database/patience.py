"""Connections to PostgreSQL with a timeout for answers: the driver would wait as long as the connection is
open, even if the server is frozen or a firewall has dropped the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from time import monotonic
from typing import Any, TypeVar

import psycopg

T = TypeVar("T")


def patient(seconds: float) -> Callable[..., psycopg.Connection[Any]]:
    """A `psycopg.connect` whose connections are closed when an answer takes longer than `seconds`."""

    class PatientConnection(psycopg.Connection[Any]):
        """Raises `psycopg.OperationalError` after the timeout."""

        def wait(self, gen: Generator[Any, Any, T], *arguments: Any, **named: Any) -> T:
            """The driver's wait, with a deadline."""
            return super().wait(self._until(gen, monotonic() + seconds), *arguments, **named)

        def _until(self, gen: Generator[Any, Any, T], deadline: float) -> Generator[Any, Any, T]:
            try:
                wanted = next(gen)
                while True:
                    ready = yield wanted
                    if not ready and monotonic() >= deadline:
                        self.pgconn.finish()
                        raise psycopg.OperationalError(f"no answer within {seconds:g} s")
                    wanted = gen.send(ready)
            except StopIteration as end:
                found: T = end.value
                return found

    return PatientConnection.connect
