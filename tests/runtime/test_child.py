"""Servers in a child process: addresses, clean stop, kill, and no survivors."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.client.churn import VirtualLoop
from tests.support import until_sync

from sparrowmq.core.errors import InvalidStateError, SparrowError
from sparrowmq.runtime.child import ChildServers, tell_progress


def settings(path: Path, **more: str) -> dict[str, str]:
    return {"listenPort": "0", "storePathRootDir": str(path), "mappedFileSizeCommitLog": "1048576", **more}


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_it_starts_and_stops_cleanly(tmp_path: Path) -> None:
    child = ChildServers(settings(tmp_path), {"listenPort": "0"}, log=tmp_path / "log")
    assert child.pid == 0
    with child:
        assert child.running
        assert child.nameserver_address.startswith("127.0.0.1:")
        assert child.broker_address.startswith("127.0.0.1:")
        assert (tmp_path / "abort").exists()
        with pytest.raises(InvalidStateError):
            child.start()
    assert not child.running
    assert not (tmp_path / "abort").exists()
    assert child.stop() == 0


def test_a_kill_leaves_the_mark_of_a_crash_and_the_next_start_recovers(tmp_path: Path) -> None:
    child = ChildServers(settings(tmp_path), {"listenPort": "0"}, log=tmp_path / "log")
    child.start()
    pid = child.pid
    child.kill()
    assert gone(pid)
    assert (tmp_path / "abort").exists()
    child.start()
    assert child.stop() == 0
    assert not (tmp_path / "abort").exists()


def test_a_broker_alone(tmp_path: Path) -> None:
    with ChildServers(settings(tmp_path)) as child:
        assert child.nameserver_address == ""
        assert child.broker_address


def test_the_childs_error_is_ours(tmp_path: Path) -> None:
    child = ChildServers(settings(tmp_path, listenPort="70000"))
    with pytest.raises(SparrowError, match="listenPort=70000"):
        child.start()
    assert child.pid == 0


def test_progress_is_told_whenever_it_changes() -> None:
    told: list[Mapping[str, Any]] = []

    async def main() -> None:
        begun = asyncio.get_running_loop().time()

        def progress() -> str:
            return f"recovering: {(asyncio.get_running_loop().time() - begun) // 10:g} of 40 log files"

        telling = asyncio.create_task(tell_progress(progress, told.append))
        await asyncio.sleep(25)
        telling.cancel()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())
    assert told == [{"progress": f"recovering: {number} of 40 log files"} for number in range(3)]


def test_it_ends_when_its_parent_does(tmp_path: Path) -> None:
    """The parent's end of the pipe closes with it, however it dies."""
    child = ChildServers(settings(tmp_path), log=tmp_path / "log")
    child.start()
    process = child._process
    assert process is not None and process.stdin is not None
    process.stdin.close()
    until_sync(lambda: process.poll() is not None)
    assert process.returncode == 0
    child.kill()
