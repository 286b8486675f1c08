"""The demo's directories: a separate one for each run, so that runs do not interfere, and the results."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparrowmq.cli.base.common import UsageError

PREFIX: Final = "run-"
SHORT_ROOT: Final = "/tmp"


@dataclass(frozen=True, slots=True)
class Workplace:
    """The directories of one run: everything under `run`, the results beside it, Spark's sockets
    elsewhere.
    """

    root: Path
    run: Path
    sockets: Path
    """Directory of Unix sockets; short, because their paths may only have little more than 100 bytes."""

    @property
    def store(self) -> Path:
        """The broker's store."""
        return self.run / "store"

    @property
    def parquet(self) -> Path:
        """The flights, one directory for each micro-batch."""
        return self.run / "flights.parquet"

    @property
    def checkpoint(self) -> Path:
        """Spark's checkpoint."""
        return self.run / "checkpoint"

    @property
    def scratch(self) -> Path:
        """Spark's temporary files."""
        return self.run / "spark"

    @property
    def servers_log(self) -> Path:
        """Standard error of the servers."""
        return self.run / "servers.log"

    @property
    def spark_log(self) -> Path:
        """Standard error of Spark."""
        return self.run / "spark.log"

    @property
    def page(self) -> Path:
        """The HTML page of the latest run."""
        return self.root / "report.html"

    @property
    def result(self) -> Path:
        """The Parquet files of the latest run."""
        return self.root / "flights.parquet"

    def finish(self, keep: bool) -> Path | None:
        """Remove the run's directory; with `keep`, rename it to keep it. Returns its new name."""
        shutil.rmtree(self.sockets, ignore_errors=True)
        if keep:
            kept = self.root / time.strftime("kept-%Y%m%d-%H%M%S")
            self.run.rename(kept)
            return kept
        shutil.rmtree(self.run, ignore_errors=True)
        return None

    def save_logs(self) -> Path:
        """Keep the logs of a failed run. Returns their directory."""
        saved = self.root / time.strftime("failed-%Y%m%d-%H%M%S")
        saved.mkdir(exist_ok=True)
        for log in (self.servers_log, self.spark_log):
            if log.is_file():
                shutil.copy(log, saved / log.name)
        return saved

    def publish(self) -> None:
        """Make this run's Parquet files the result, replacing an earlier run's."""
        shutil.rmtree(self.result, ignore_errors=True)
        shutil.copytree(self.parquet, self.result, dirs_exist_ok=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def prepare(root: Path) -> Workplace:
    """A new directory for this process; files that killed runs left are removed."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        for old in root.glob(f"{PREFIX}*"):
            pid = old.name.removeprefix(PREFIX)
            if pid.isdecimal() and (int(pid) == os.getpid() or not _alive(int(pid))):
                shutil.rmtree(old, ignore_errors=True)
        run = root / f"{PREFIX}{os.getpid()}"
        run.mkdir()
        sockets = Path(tempfile.mkdtemp(prefix="sparrow-", dir=SHORT_ROOT))
    except OSError as error:
        text = f"{root} cannot be used ({error.strerror}); give another one with --data"
        raise UsageError(text, what="--data", value=root) from error
    return Workplace(root.absolute(), run.absolute(), sockets)
