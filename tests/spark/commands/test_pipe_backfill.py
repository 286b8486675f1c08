"""`sparrow pipe backfill` killed with -9 in the middle of windows, started again: each message once.

What any reader finds is audited, and windows that were done before the kill are the same files after it.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pyarrow.dataset as dataset
import pytest
from tests.spark.commands.test_pipe_archive import SECONDS, Piping
from tests.spark.counted import COLUMNS, Ledger, audit
from tests.support import until_sync

from sparrowmq.testing import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
PIPE = [sys.executable, "-m", "sparrowmq.cli.main", "pipe", "backfill"]
ROWS, WINDOW = 8_000, 1_000


def files(out: Path, number: str) -> dict[str, int]:
    """The files of a window, and which they are on disk."""
    return {path.name: path.stat().st_ino for path in (out / f"window={number}").iterdir()}


def test_a_killed_backfill_goes_on_and_no_window_is_done_twice_or_left_out(tmp_path: Path) -> None:
    out = tmp_path / "out"
    notes = out / "_backfill" / "done"

    def done() -> set[str]:
        return {path.name for path in notes.iterdir() if path.suffix == ""} if notes.is_dir() else set()

    with LocalCluster() as cluster:
        cluster.create_topic("Past", queues=3)
        ledger = Ledger(cluster.namesrv, "Past")
        ledger.send(ROWS)
        command = [*PIPE, "Past", "--to", str(out), "--namesrv", cluster.namesrv, "--parallel", "2"]
        command += ["--window-rows", str(WINDOW), "--progress", "json"]
        killed = Piping(command, tmp_path / "killed")
        try:
            until_sync(lambda: killed.alive() and len(done()) >= 2, SECONDS)
            until_sync(lambda: killed.alive() and any(out.glob("window=*/_temporary")), SECONDS)
        finally:
            killed.end(signal.SIGKILL)  # while windows are written
        before = done()
        assert 2 <= len(before) < ROWS // WINDOW, "killed in the middle"
        kept = {number: files(out, number) for number in before}
        ledger.send(500)  # not part of it: what is done was settled at the first start
        again = Piping(command, tmp_path / "again")
        try:
            assert again.process.wait(SECONDS) == 0, again.err.read_text()
        finally:
            again.process.kill()
            again.process.wait()
        lines = [json.loads(line) for line in again.out.read_text().splitlines()]
    assert {number: files(out, number) for number in before} == kept, "none is done twice"
    assert len(done()) == ROWS // WINDOW
    left = ROWS - WINDOW * len(before)
    assert (lines[-1]["rows"], lines[-1]["batches"], lines[-1]["lag"]) == (left, left // WINDOW, 0)
    assert [line["lag"] for line in lines if "lag" in line] == [*range(left, -1, -WINDOW)]
    found = audit(ledger, dataset.dataset(out, format="parquet").to_table(list(COLUMNS)))
    missing = [number for numbers in found.missing.values() for number in numbers]
    assert found.rows == ROWS
    assert sorted(missing) == list(range(ROWS, ROWS + 500)), "all of it, and nothing that came later"
    assert not found.duplicate and not found.misplaced and not found.unknown
