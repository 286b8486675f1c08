"""Connections to PostgreSQL that wait only so long for an answer: its driver would wait as long as the
connection stands, also when the server is frozen or a firewall has forgotten the connection.
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
        """Raises `psycopg.OperationalError` instead of waiting on."""

        def wait(self, gen: Generator[Any, Any, T], *arguments: Any, **named: Any) -> T:
            """What the driver waits for, until the deadline."""
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
