"""Metrics over HTTP for Prometheus. Needs prometheus-client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client import CollectorRegistry, start_http_server

from sparrowmq.core.errors import SettingsError

PORT_MAX: Final = 65535


def address(text: str) -> tuple[str, int]:
    """`HOST:PORT` or `PORT` (on the loopback address). Raises `SettingsError`."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > PORT_MAX:
        raise SettingsError(f"{text!r} is not an address for metrics: give HOST:PORT, such as 127.0.0.1:9101")
    return host.strip("[]") or "127.0.0.1", int(port)


@contextmanager
def served_registry(registry: CollectorRegistry, host: str, port: int) -> Iterator[int]:
    """Serve a registry at `http://host:port/metrics` during the block; yields the port (for port 0).

    Raises `SettingsError` when the port is taken.
    """
    try:
        server, thread = start_http_server(port, host, registry=registry)
    except OSError as error:
        raise SettingsError(
            f"metrics cannot be served at {host}:{port} ({error.strerror}); give another port, 0 for any"
        ) from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
