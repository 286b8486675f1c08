"""`sparrow up` whose coordinator is killed: the broker notices nothing, and the coordinator comes back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import psutil
import pytest
from tests.support import until_sync

import sparrowmq as mq

pytestmark = pytest.mark.crash
COMMAND = [sys.executable, "-m", "sparrowmq.cli.main", "up"]
PORTS = ("--nameserver-port", "0", "--broker-port", "0", "--coordinator-port", "0", "--no-proxy")


def lines_until(process: subprocess.Popen[str], text: str) -> list[str]:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return lines
    raise AssertionError(f"{lines} ended without {text!r}")


def health(url: str) -> str:
    with urllib.request.urlopen(f"{url}/api/v1/health", timeout=20) as answer:
        return str(json.loads(answer.read())["coordinator"])


def test_the_broker_outlives_its_coordinator_which_comes_back(tmp_path: Path) -> None:
    with (tmp_path / "errors").open("w") as errors:
        process = subprocess.Popen(
            [*COMMAND, *PORTS, "--data", str(tmp_path / "data")],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    assert process.stdout is not None
    try:
        lines = lines_until(process, "user admin, password")
        namesrv = lines[0].split()[-1]
        url = next(line for line in lines if line.startswith("coordinator")).split()[1]
        first = health(url)
        (child,) = psutil.Process(process.pid).children()
        with mq.Producer("p", namesrv=namesrv) as producer:
            producer.send(mq.Message("T", b"before"))
            os.kill(child.pid, signal.SIGKILL)
            producer.send(mq.Message("T", b"after"))

            def again() -> bool:
                found = psutil.Process(process.pid).children()
                return bool(found) and found[0].pid != child.pid

            until_sync(again)
            producer.send(mq.Message("T", b"again"))
        assert "ended with status -9; the broker keeps running" in (tmp_path / "errors").read_text()
        assert first.endswith(f":{child.pid}")
        (second,) = psutil.Process(process.pid).children()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert not psutil.pid_exists(second.pid)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
