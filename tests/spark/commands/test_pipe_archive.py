"""`sparrow pipe archive` killed with -9 while a batch is written, started again, watched and stopped.

What any reader finds is audited each time.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from tests.spark.counted import COLUMNS, Ledger, Verdict, audit
from tests.spark.fleet import FIRST, Fleet
from tests.support import until_sync

import sparrowmq as mq
from sparrowmq.spark.pipelines.archive.directory import ArchiveDirectory

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
PIPE = [sys.executable, "-m", "sparrowmq.cli.main", "pipe", "archive"]
SECONDS = 240
GROUP = "keepers"


class Piping:
    """A followed archive in a process of its own."""

    def __init__(self, command: list[str], where: Path) -> None:
        where.mkdir()
        self.out, self.err = where / "out", where / "err"
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = subprocess.Popen(command, stdout=out, stderr=err, start_new_session=True)

    def alive(self) -> bool:
        assert self.process.poll() is None, self.err.read_text()
        return True

    def end(self, number: signal.Signals) -> int:
        """Send a signal to all its processes, as a terminal does; the exit status."""
        os.killpg(self.process.pid, number)
        return self.process.wait(SECONDS)

    def metrics(self) -> str:
        """What its metrics end point says."""
        port = re.fullmatch(r"metrics at port (\d+), path /metrics\n", self.err.read_text())
        assert port is not None, self.err.read_text()
        with urllib.request.urlopen(f"http://127.0.0.1:{port[1]}/metrics", timeout=10) as answer:
            return str(answer.read().decode())


def verdict(ledger: Ledger, home: ArchiveDirectory) -> Verdict:
    import pyarrow.dataset as dataset

    files = dataset.dataset(home.data, format="parquet", partitioning="hive")
    return audit(ledger, files.to_table(list(COLUMNS)))


def held(fleet: Fleet) -> list[str]:
    """Brokers that keep messages until the archive has them."""
    with mq.Admin(fleet.namesrv) as admin:
        return [hold.broker_name for hold in admin.holds.list() if hold.group == GROUP]


def test_a_killed_archive_goes_on_without_gap_or_double_and_new_brokers_hold(tmp_path: Path) -> None:
    home = ArchiveDirectory(tmp_path / "archive")
    with Fleet(tmp_path) as fleet:
        fleet.create_topic("Kept", 2)
        ledger = Ledger(fleet.namesrv, "Kept")
        ledger.send(600)
        command = [*PIPE, "Kept", "--to", str(home.root), "--namesrv", fleet.namesrv, "--follow"]
        command += ["--compact-batches", "3", "--group", GROUP, "--hold-hours", "5"]
        command += ["--every", "0.1", "--option", "discoveryIntervalMs=200"]
        killed = Piping([*command, "--batch-rows", "250", "--progress", "none"], tmp_path / "killed")

        def batches() -> int:
            return home.load().next_number if home.exists else 0

        try:
            until_sync(lambda: killed.alive() and batches() >= 2, SECONDS)
            assert held(fleet) == [FIRST]
            fleet.start("broker-b")
            fleet.create_topic("Kept", 2)
            ledger.send(4000)
            until_sync(lambda: killed.alive() and held(fleet) == [FIRST, "broker-b"], SECONDS)
            until_sync(lambda: killed.alive() and any(home.staging.iterdir()), SECONDS)
        finally:
            killed.end(signal.SIGKILL)  # while a batch is written
        before = verdict(ledger, home)
        assert not before.duplicate and not before.misplaced and not before.unknown
        assert 0 < before.rows < ledger.count, "killed in the middle"

        command += ["--batch-rows", "1000", "--progress", "json", "--metrics", "127.0.0.1:0"]
        again = Piping(command, tmp_path / "again")

        def rows() -> int:
            lines = again.out.read_text().splitlines()
            return int(json.loads(lines[-1])["rows"]) if again.alive() and lines else 0

        try:
            left = ledger.count - before.rows
            until_sync(lambda: rows() == left, SECONDS)
            ledger.send(5)
            until_sync(lambda: rows() == left + 5, SECONDS)
            assert f'sparrow_pipe_rows{{pipeline="archive"}} {left + 5}.0\n' in again.metrics()
            assert again.end(signal.SIGINT) == 0, again.err.read_text()
        finally:
            again.process.kill()
            again.process.wait()
        assert len(again.err.read_text().splitlines()) == 1, "nothing but where its metrics are"
        found = verdict(ledger, home)
        assert (found.faults, found.rows) == ("", 4605)
        with mq.Admin(fleet.namesrv) as admin:
            assert sum(hold.messages for hold in admin.holds.list()) == 0
