"""`sparrow pipe archive` killed with -9 while a batch is written: what any reader finds is audited."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.spark.counted import COLUMNS, Ledger, Verdict, audit
from tests.spark.fleet import FIRST, Fleet
from tests.support import until_sync

import sparrowmq as mq
from sparrowmq.spark.pipelines.archive_home import ArchiveHome

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
PIPE = [sys.executable, "-m", "sparrowmq.cli.main", "pipe", "archive"]
SECONDS = 240
GROUP = "keepers"


def verdict(ledger: Ledger, home: ArchiveHome) -> Verdict:
    import pyarrow.dataset as dataset

    files = dataset.dataset(home.data, format="parquet", partitioning="hive")
    return audit(ledger, files.to_table(list(COLUMNS)))


def held(fleet: Fleet) -> list[str]:
    """Brokers that keep messages until the archive has them."""
    with mq.Admin(fleet.namesrv) as admin:
        return [hold.broker_name for hold in admin.holds() if hold.group == GROUP]


def test_a_killed_archive_goes_on_without_gap_or_double_and_new_brokers_hold(tmp_path: Path) -> None:
    home, log = ArchiveHome(tmp_path / "archive"), tmp_path / "log"
    with Fleet(tmp_path) as fleet:
        fleet.create_topic("Kept", 2)
        ledger = Ledger(fleet.namesrv, "Kept")
        ledger.send(2000)
        command = [*PIPE, "Kept", "--to", str(home.root), "--namesrv", fleet.namesrv, "--progress", "none"]
        command += ["--batch-rows", "250", "--compact-batches", "3", "--group", GROUP, "--hold-hours", "5"]
        follow = ["--follow", "--every", "0.1", "--option", "discoveryIntervalMs=200"]
        with log.open("w") as file:
            running = subprocess.Popen([*command, *follow], stdout=file, stderr=file, start_new_session=True)

        def alive() -> bool:
            assert running.poll() is None, log.read_text()
            return True

        def batches() -> int:
            return home.load().next_number if home.exists else 0

        try:
            until_sync(lambda: alive() and batches() >= 2, SECONDS)
            assert held(fleet) == [FIRST]
            fleet.start("broker-b")
            fleet.create_topic("Kept", 2)
            ledger.send(6000)
            until_sync(lambda: alive() and held(fleet) == [FIRST, "broker-b"], SECONDS)
            until_sync(lambda: alive() and any(home.staging.iterdir()), SECONDS)
        finally:
            os.killpg(running.pid, signal.SIGKILL)  # while a batch is written
            running.wait()
        before = verdict(ledger, home)
        assert not before.duplicate and not before.misplaced and not before.unknown
        assert 0 < before.rows < ledger.count, "killed in the middle"
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert done.returncode == 0, done.stderr
        found = verdict(ledger, home)
        assert (found.faults, found.rows) == ("", 8000)
        with mq.Admin(fleet.namesrv) as admin:
            assert sum(hold.messages for hold in admin.holds()) == 0
