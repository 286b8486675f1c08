"""Servers as a process of their own: ready, signals, clean stop."""

from __future__ import annotations

import asyncio
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support import run, until_sync

from sparrowmq.core.clock import Sleep
from sparrowmq.runtime import process as module
from sparrowmq.runtime.allocator import Allocator
from sparrowmq.runtime.process import raise_open_files_limit
from sparrowmq.runtime.servers import Listening

UP = [
    sys.executable,
    "-m",
    "sparrowmq.cli.main",
    "up",
    "--no-coordinator",
    "--metrics-port",
    "0",
    "--no-proxy",
    "--nameserver-port",
    "0",
    "--broker-port",
    "0",
    "--data",
]


def start(data: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*UP, str(data), *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def read_until(process: subprocess.Popen[str], text: str) -> list[str]:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if line.startswith(text):
            return lines
    raise AssertionError(f"it ended: {lines}, {process.stderr.read() if process.stderr else ''}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with start(tmp_path) as process:
        head = read_until(process, "Ctrl-C")
        assert (tmp_path / "store" / "abort").exists()
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert [line.split()[0] for line in head] == ["name", "broker", "data", "metrics", "Ctrl-C"]
    assert head[3].split()[1].startswith("http://127.0.0.1:")
    assert out == "stopped cleanly\n"
    assert err == ""
    assert process.returncode == 0
    assert not (tmp_path / "store" / "abort").exists()


def test_a_start_that_fails_is_one_line(tmp_path: Path) -> None:
    with start(tmp_path) as process:
        read_until(process, "Ctrl-C")
        with start(tmp_path) as second:
            out, err = second.communicate(timeout=60)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert out == ""
    assert second.returncode == 1
    assert err.startswith("sparrow: ")
    assert len(err.splitlines()) == 1
    assert str(tmp_path) in err


def test_servers_return_free_memory_while_they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    class Noted(Allocator):
        def begin(self) -> None:
            done.append("begin")

        async def run(self, sleep: Sleep = asyncio.sleep) -> None:
            done.append("run")
            stop.set()

    class Servers:
        async def start(self) -> Listening:
            done.append("start")
            return Listening(None, None, None)

        async def close(self) -> None:
            done.append("close")

    stop = asyncio.Event()
    monkeypatch.setattr(module, "Allocator", Noted)
    run(module.serve(Servers(), stop, lambda listening: None))
    assert done == ["begin", "start", "run", "close"]


def test_a_stop_during_the_start_ends_it() -> None:
    done: list[str] = []

    class Servers:
        async def start(self) -> Listening:
            stop.set()
            try:
                await asyncio.Event().wait()
            finally:
                done.append("ended")
            raise AssertionError("it does not start")

        async def close(self) -> None:
            done.append("close")

    stop = asyncio.Event()
    run(module.serve(Servers(), stop, lambda listening: done.append("ready")))
    assert done == ["ended"]


@pytest.mark.parametrize(
    ("limits", "raised"),
    [
        ((1024, 4096), (4096, 4096)),
        ((1024, 1 << 20), (65_536, 1 << 20)),
        ((1024, resource.RLIM_INFINITY), (65_536, resource.RLIM_INFINITY)),
        ((100_000, 1 << 20), None),
        ((4096, 4096), None),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None),
    ],
)
def test_the_limit_of_open_files_is_raised_as_far_as_it_may(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], raised: tuple[int, int] | None
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: asked.append(wanted))
    raise_open_files_limit()
    assert asked == ([] if raised is None else [raised])


def test_a_limit_that_cannot_be_raised_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def refuse(_: int, wanted: object) -> None:
        asked.append(wanted)
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    raise_open_files_limit()
    assert asked == [(4096, 4096)]


def test_several_brokers_are_started_and_stopped_as_one(tmp_path: Path) -> None:
    with start(tmp_path, "--brokers", "2") as process:
        head = read_until(process, "Ctrl-C")
        aborts = [tmp_path / name / "abort" for name in ("store", "store-b")]
        assert all(abort.exists() for abort in aborts)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    metrics = ["metrics"] * 3
    assert [line.split()[0] for line in head] == ["name", "broker", "broker", *metrics, "Ctrl-C"]
    assert len({line.split()[1] for line in head[3:6]}) == 3, "each process has a port of its own"
    assert [line.split()[2] for line in head[1:3]] == ["(broker-a,", "(broker-b,"]
    assert (out, process.returncode) == ("stopped cleanly\n", 0)
    assert "sparrow:" not in err
    assert not any(abort.exists() for abort in aborts)


def test_no_broker_outlives_a_killed_parent(tmp_path: Path) -> None:
    with start(tmp_path, "--brokers", "2") as process:
        read_until(process, "Ctrl-C")
        process.kill()
        process.communicate(timeout=60)
    until_sync(lambda: not list(tmp_path.glob("*/abort")))
