"""Servers in processes of their own: killed, frozen, started again."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from tests.support import run

from sparrowmq.core.errors import SparrowError
from sparrowmq.torture.processes import ServerProcess


def name_server(root: Path, **texts: Any) -> ServerProcess:
    request = {"broker": None, "nameserver": {"listenPort": "0", **texts}}
    return ServerProcess("nameserver", "sparrowmq.runtime.child", request, root / "log")


def test_a_server_is_frozen_thawed_killed_and_started_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        server = name_server(tmp_path)
        assert (server.pid, server.is_running) == (0, False)
        try:
            answer = await server.start()
            first = server.pid
            assert answer["broker"] is None
            host, _, port = answer["nameserver"].rpartition(":")
            _, writer = await asyncio.open_connection(host, int(port))
            writer.close()
            server.freeze()
            assert server.is_frozen
            assert server.is_running
            server.thaw()
            assert not server.is_frozen
            server.freeze()
            await server.kill()
            assert not server.is_running
            with pytest.raises(ProcessLookupError):
                os.kill(first, 0)
            await server.start()
            assert server.pid != first
            await server.stop()
            assert (server.pid, server.is_running) == (0, False)
            await server.kill()
        finally:
            await server.kill()

    run(scenario())


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    async def scenario() -> None:
        server = name_server(tmp_path, listenPort="no number")
        with pytest.raises(SparrowError, match=r"nameserver did not start: .*listenPort"):
            await server.start()
        assert not server.is_running
        gone = ServerProcess("nothing", "sparrowmq.no_such_module", {}, tmp_path / "log")
        with pytest.raises(SparrowError, match="nothing did not start: it ended; see"):
            await gone.start()
        assert "no_such_module" in (tmp_path / "log").read_text()

    run(scenario())
