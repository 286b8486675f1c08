"""Probes of the coordinator's port: as many as a week of half hours has, each of every kind."""

from __future__ import annotations

import gc
import os
import socket
from pathlib import Path
from typing import Final

import pytest
from tests.coordinator.running import Running, running
from tests.support import sqlite_url, until_sync

from sparrowmq.httpd.serving import PatientProtocol

ROUNDS: Final = 7 * 24 * 2
PROBES: Final = (
    b"",
    b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
    b"GET /api/v1/groups HTTP/1.1\r\nHo",
    b"POST /api/v1/login HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n{",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    bytes(40),
)
IN_HAND: Final = 24
"""Probes that stay open at a time, fewer than the server's places."""


def test_probes_leave_nothing_behind(migrated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for deadline in ("head_seconds", "body_seconds"):
        monkeypatch.setattr(PatientProtocol, deadline, 2.0)
    database = tmp_path / "c.db"
    database.write_bytes(migrated.read_bytes())
    with running(database_url=sqlite_url(database)) as api:
        assert api.get("/people")
        until_sync(lambda: not connections(api))
        before = open_files()
        probe(api)
        until_sync(lambda: not connections(api))
        server = api.coordinator._server
        assert server is not None
        assert not len(server.places)
        until_sync(lambda: open_files() <= before + 2)  # the pools of the database may have grown
        until_sync(lambda: not left_in_memory())
        assert api.get("/people")


def probe(api: Running) -> None:
    """Connect, send, and stay silent; every second one closes at once."""
    host, _, port = api.url.removeprefix("http://").partition(":")
    silent: list[socket.socket] = []
    for number in range(ROUNDS):
        for data in PROBES:
            one = socket.create_connection((host, int(port)), timeout=20)
            one.sendall(data)
            if number % 2:
                one.close()
                continue
            silent.append(one)
            if len(silent) > IN_HAND:
                silent.pop(0).close()
    for one in silent:
        read_all(one)


def read_all(one: socket.socket) -> None:
    """Wait until the other side has closed; never close first."""
    with one:
        try:
            while one.recv(65536):
                pass
        except ConnectionError:
            pass


def connections(api: Running) -> int:
    server = api.coordinator._server
    return 0 if server is None else len(server.server_state.connections)


def left_in_memory() -> int:
    gc.collect()
    return sum(isinstance(one, PatientProtocol) for one in gc.get_objects())


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))
