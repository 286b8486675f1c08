"""`sparrow torture`: what it prints, its exit status, and its end by Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support import until_sync
from typer.testing import CliRunner, Result

from sparrowmq.cli.main import app
from sparrowmq.torture import network, rounds
from sparrowmq.torture.checker import BrokenPromise
from sparrowmq.torture.rounds import RoundResult, RoundSettings

FIGURES = {"acknowledged": 1200, "unknown": 3, "failed": 1, "received": 1300, "stored": 1203}
LOST = BrokenPromise("acknowledged-is-stored", "message m is gone", ("m",), "T/b/0", 7, 1.5)

Sparrow = Callable[..., Result]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[RoundSettings]:
    """The settings that rounds got; those with odd seeds break a promise."""
    found: list[RoundSettings] = []

    async def made_up(settings: RoundSettings, root: Path, say: Callable[[str], None]) -> RoundResult:
        found.append(settings)
        await asyncio.to_thread(root.mkdir, parents=True)
        say("   0.1 s  kill master")
        broken = (LOST,) if settings.seed % 2 else ()
        counts = {LOST.promise: 40} if broken else {}
        return RoundResult(settings.seed, ["kill master"], broken, dict(FIGURES), 12.5, root, counts)

    monkeypatch.setattr(rounds, "run_round", made_up)
    return found


@pytest.fixture
def sparrow(tmp_path: Path, given: list[RoundSettings]) -> Sparrow:
    def called(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["torture", "--data", str(tmp_path / "data"), *arguments])

    return called


def test_rounds_that_keep_all_promises(sparrow: Sparrow, given: list[RoundSettings], tmp_path: Path) -> None:
    result = sparrow("--seed", "4", "--replicas", "3", "--seconds", "2", "--set", "flushDiskType=SYNC_FLUSH")
    assert result.exit_code == 0, result.output
    assert "round 1 of 1, seed 4, " in result.stdout
    assert "0.1 s  kill master" in result.stdout
    assert (
        "12.5 s  1,200 acknowledged, 3 unknown, 1 failed, 1,300 received, 1,203 stored: all promises kept"
        in result.stdout
    )
    assert "1 rounds, 1 faults, 1,200 messages acknowledged" in result.stdout
    [settings] = given
    assert (settings.seed, settings.replicas, settings.fault_seconds) == (4, 3, 2.0)
    assert settings.texts == {"flushDiskType": "SYNC_FLUSH"}
    assert not (tmp_path / "data").exists(), "nothing is left of rounds that kept all"


def test_a_broken_promise_is_told_with_its_seed_and_kept(sparrow: Sparrow, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    result = sparrow("--seed", "6", "--rounds", "3", "--json", str(output))
    assert result.exit_code == 1
    assert "sparrow: acknowledged-is-stored: message m is gone" in result.stderr
    assert "acknowledged-is-stored: broken 40 times" in result.stderr
    assert "again: sparrow torture --seed 7" in result.stderr
    assert f"in {tmp_path / 'data' / 'round-7'}" in result.stderr
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["round-7"]
    lines: list[dict[str, Any]] = [json.loads(line) for line in output.read_text().splitlines()]
    assert [(line["seed"], line["kept"], line["directory"] is None) for line in lines] == [
        (6, True, True),
        (7, False, False),
        (8, True, True),
    ]
    assert lines[1]["broken"] == [LOST.as_json()]
    assert lines[1]["acknowledged"] == 1200
    assert (
        "3 rounds, 3 faults, 3,600 messages acknowledged, 9 unknown, 3,900 received; 1 rounds"
        in result.stdout
    )


def test_a_round_does_not_overwrite_what_was_kept(sparrow: Sparrow, tmp_path: Path) -> None:
    for _ in range(2):
        assert sparrow("--seed", "7").exit_code == 1
    assert {path.name for path in (tmp_path / "data").iterdir()} == {"round-7", "round-7-2"}
    assert sparrow("--seed", "9", "--no-keep").exit_code == 1
    assert {path.name for path in (tmp_path / "data").iterdir()} == {"round-7", "round-7-2"}


def test_without_relays_only_processes_suffer(
    sparrow: Sparrow, given: list[RoundSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sparrow("--no-network").exit_code == 0 or given[-1].seed % 2
    monkeypatch.setattr(network, "is_possible", lambda: False)
    result = sparrow("--seed", "2")
    assert "they need Linux" in result.stderr
    assert [settings.with_network for settings in given] == [False, False]


def test_a_setting_without_a_value_is_refused(sparrow: Sparrow) -> None:
    result = sparrow("--set", "flushDiskType")
    assert result.exit_code == 1
    assert "write NAME=VALUE" in result.stderr


@pytest.mark.crash
def test_ctrl_c_ends_all_processes(tmp_path: Path) -> None:
    arguments = ["torture", "--seed", "1", "--no-network", "--data", str(tmp_path / "data")]
    with subprocess.Popen(
        [sys.executable, "-m", "sparrowmq.cli.main", *arguments], stdout=subprocess.PIPE, text=True
    ) as torture:
        assert torture.stdout is not None
        while "the cluster is ready" not in (line := torture.stdout.readline()):
            assert line, "it ended before the cluster was ready"
        children = [
            int(pid) for pid in Path(f"/proc/{torture.pid}/task/{torture.pid}/children").read_text().split()
        ]
        assert len(children) >= 4
        torture.send_signal(signal.SIGINT)
        assert torture.wait(60) == 130
        for pid in children:
            until_sync(lambda pid=pid: not _runs(pid))


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
