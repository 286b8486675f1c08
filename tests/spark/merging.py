"""Runs a program that merges a topic into a table: killed in the middle of a batch, then started again."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Final

from tests.repository.test_examples import EXAMPLES
from tests.support import until_sync

import sparrowmq as mq
from sparrowmq.testing import LocalCluster

SECONDS: Final = 600
TOPIC: Final = "ExampleOrders"
BATCHES_BEFORE: Final = {
    "spark_merge_postgresql.py": 3,
    "spark_merge_delta.py": 2,
    "spark_merge_iceberg.py": 1,  # its Spark has no limits: what is there is one batch
}
"""How many batches a program has begun when it is killed; the last of them is in hand, or just done."""
RUNS_AFTER: Final = {
    "spark_merge_postgresql.py": 1,
    "spark_merge_delta.py": 1,
    "spark_merge_iceberg.py": 2,  # its Spark makes one batch a run, after a kill the one that was cut off
}
"""How many runs it takes then to merge everything."""


def merged_across_a_kill(python: Path, program: str, table: str, where: Path, environ: dict[str, str]) -> str:
    """What the program's last run prints: the first is killed with -9 while it has a batch in hand.

    Then Spark's last note that a batch is done is taken away, if there is one, and what was planned after it:
    so a batch that is in the table for certain runs again, and one that may be comes in another cut.
    """
    checkpoint = where / "checkpoint"
    with LocalCluster() as cluster:
        command = [str(python), str(EXAMPLES / program), cluster.namesrv, table, str(checkpoint)]
        with (where / "log").open("w") as log:
            first = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=environ)

        def in_hand() -> bool:
            assert first.poll() is None, (where / "log").read_text()[-4000:]
            return len(batches(checkpoint / "offsets")) >= BATCHES_BEFORE[program]

        try:
            until_sync(in_hand, SECONDS)
        finally:
            os.killpg(first.pid, signal.SIGKILL)
            first.wait(SECONDS)
        assert stored(cluster) == 1000
        for done in batches(checkpoint / "commits")[-1:]:
            forget(checkpoint / "commits", done)
            for planned in batches(checkpoint / "offsets"):
                if planned > done:
                    forget(checkpoint / "offsets", planned)
        for run in range(1, RUNS_AFTER[program] + 1):
            again = subprocess.run(
                command, capture_output=True, text=True, timeout=SECONDS, check=False, env=environ
            )
            assert again.returncode == 0, again.stdout[-2000:] + again.stderr[-4000:]
            assert stored(cluster) == 1000 * (1 + run)
    return again.stdout.splitlines()[-1]


def forget(directory: Path, batch: int) -> None:
    """Remove a note of Spark's checkpoint."""
    (directory / str(batch)).unlink()
    (directory / f".{batch}.crc").unlink(missing_ok=True)


def batches(directory: Path) -> list[int]:
    """The batches that Spark has noted in a directory of its checkpoint."""
    return sorted(int(path.name) for path in directory.glob("*") if path.name.isdecimal())


def stored(cluster: LocalCluster) -> int:
    """Messages in the topic."""
    with mq.Admin(cluster.namesrv) as admin:
        return sum(status.max_offset for status in admin.topics.status(TOPIC))
