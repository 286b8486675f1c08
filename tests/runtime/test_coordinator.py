from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from dataclasses import replace
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from tests.support import free_port, run, sqlite_url, until

from sparrowmq.core.errors import CoordinatorError
from sparrowmq.core.settings.servers import CoordinatorSettings
from sparrowmq.runtime import company, coordinator
from sparrowmq.runtime.company import Companion
from sparrowmq.runtime.coordinator import keep_child, missing, need_packages, serve_coordinator


def texts(tmp_path: Path, port: int = 0) -> dict[str, str]:
    return {"databaseUrl": sqlite_url(tmp_path / "c.db"), "listenPort": str(port)}


class Pauses:
    """A sleep that returns at once and keeps the seconds."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await asyncio.sleep(0)


def test_packages_that_are_missing_are_named_with_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing() == []
    need_packages()
    monkeypatch.setattr(coordinator, "PACKAGES", ("sys", "no_such_package"))
    with pytest.raises(CoordinatorError, match=r"needs no_such_package; type: \S*pip install .sparrowmq\[co"):
        need_packages()


def test_a_child_that_is_killed_is_started_again_and_stops_with_its_keeper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = Pauses()
    said: list[str] = []
    complaints: list[str] = []
    processes: list[asyncio.subprocess.Process] = []
    requests: list[dict[str, str]] = []
    spawn = company._spawn

    async def spawned(companion: Companion, given: dict[str, str]) -> asyncio.subprocess.Process:
        requests.append(dict(given))
        processes.append(await spawn(companion, given))
        return processes[-1]

    monkeypatch.setattr(company, "_spawn", spawned)

    async def main() -> None:
        task = asyncio.create_task(keep_child(texts(tmp_path), said.append, complaints.append, sleep=pauses))
        await until(lambda: len(said) == 2)
        assert said[0].startswith("coordinator  http://127.0.0.1:")
        assert "user admin, password" in said[1]
        os.kill(processes[0].pid, signal.SIGKILL)
        await until(lambda: len(processes) == 2)
        assert "the coordinator ended with status -9; the broker keeps running" in complaints[0]
        task.cancel()
        await asyncio.wait([task])
        assert processes[1].returncode is not None

    run(main())
    assert requests[1] == requests[0] | {"listenPort": said[0].split()[1].rpartition(":")[2]}
    assert len(pauses.seconds) == 1 and 0.8 <= pauses.seconds[0] <= 1.2, "1 s, spread by a fifth"


def test_the_operators_port_is_open_while_it_runs(tmp_path: Path) -> None:
    port = free_port()

    def ask(path: str) -> str:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
            return str(answer.read().decode())

    async def main() -> None:
        settings = CoordinatorSettings(
            database_url=sqlite_url(tmp_path / "c.db"),
            listen_port=0,
            metrics_exporter_type="PROM",
            metrics_prom_exporter_port=port,
        )
        stop, started = asyncio.Event(), asyncio.Event()
        serving = asyncio.create_task(serve_coordinator(settings, stop, lambda where, metrics: started.set()))
        await started.wait()
        assert '"ready": true' in await asyncio.to_thread(ask, "/ready")
        assert "\nsparrow_coordinator_database_answers{" in await asyncio.to_thread(ask, "/metrics")
        stop.set()
        await serving
        with pytest.raises(URLError):
            await asyncio.to_thread(ask, "/health")

    run(main())


def test_one_that_served_is_tried_again_when_it_cannot_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = Pauses()
    scripts = [
        """print('{"url": "here", "first_password": null}')""",
        """print('{"error": "the database cannot be reached"}')""",
        """print('{"url": "there", "first_password": null}'); import time; time.sleep(60)""",
    ]
    given, said, complaints = iter(scripts), list[str](), list[str]()

    async def spawned(companion: Companion, texts: object) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        command = (sys.executable, "-u", "-c", next(given))
        return await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)

    monkeypatch.setattr(company, "_spawn", spawned)
    monkeypatch.setattr(company, "STOP_SECONDS", 0.1)

    async def main() -> None:
        task = asyncio.create_task(keep_child(texts(tmp_path), said.append, complaints.append, sleep=pauses))
        await until(lambda: len(complaints) == 2 and next(given, None) is None)
        task.cancel()
        await asyncio.wait([task])

    run(main())
    assert said == ["coordinator  here  (console: open it in a browser)"]
    first, second = pauses.seconds
    assert 0.8 <= first <= 1.2 and 1.6 <= second <= 2.4, "twice as long after the second failure"
    assert "the coordinator ended with status 0" in complaints[0]
    assert "the coordinator did not start: the database cannot be reached; next try" in complaints[1]


def test_one_that_is_started_again_keeps_its_ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The port of its metrics is any free one if it is taken meanwhile: that is told."""
    told = {"url": "http://h:7", "first_password": None}
    answers = iter(
        [
            told | {"metrics": f"h:{port}", "ports": company.ports_of("http://h:7", f"h:{port}")}
            for port in (8, 8, 9)
        ]
        + [{"error": "it is enough"}] * 9
    )
    requests, complaints = list[dict[str, str]](), list[str]()

    async def spawned(companion: Companion, given: dict[str, str]) -> asyncio.subprocess.Process:
        requests.append(dict(given))
        pipe = asyncio.subprocess.PIPE
        command = (sys.executable, "-c", f"print({json.dumps(json.dumps(next(answers)))})")
        return await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)

    monkeypatch.setattr(company, "_spawn", spawned)

    async def main() -> None:
        keeping = keep_child(texts(tmp_path), lambda _: None, complaints.append, sleep=Pauses())
        task = asyncio.create_task(keeping)
        await until(lambda: len(complaints) == 5)
        task.cancel()
        await asyncio.wait([task])

    run(main())
    ports = {"listenPort": "7", "metricsPromExporterPort": "8"}
    assert requests[1:3] == [requests[0] | ports] * 2
    assert complaints[2] == "the coordinator has its metrics at h:9 now, not h:8"


def test_a_child_that_does_not_serve_in_time_is_ended_and_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = replace(coordinator.COMPANION, start_seconds=0.05)
    monkeypatch.setattr(coordinator, "COMPANION", quick)
    monkeypatch.setattr(company, "STOP_SECONDS", 0.1)
    complaints: list[str] = []

    async def spawned(companion: Companion, texts: object) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec("sleep", "60", stdin=pipe, stdout=pipe)

    monkeypatch.setattr(company, "_spawn", spawned)
    run(keep_child(texts(tmp_path), print, complaints.append))
    assert complaints == ["the coordinator did not start: it was not ready within 0 s; check its database"]


def test_a_child_that_cannot_start_is_told_of_once(tmp_path: Path) -> None:
    said: list[str] = []

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            await keep_child(texts(tmp_path, taken.getsockname()[1]), print, said.append)

    run(main())
    assert len(said) == 1
    assert "the coordinator did not start: the coordinator cannot listen on 127.0.0.1:" in said[0]
