"""`SYNC_FLUSH`: sends with 64 in flight, beside the disk's rate of one fsync after the other."""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.load import PYTHON, Load
from benchmarks.options import Options
from benchmarks.pairs import PATIENT
from benchmarks.peers import OURS, Peer, create_topic, make_peer
from benchmarks.report import LEAST, Floor, Report, alternate
from benchmarks.send import QUEUES, TOPIC, Case, measure

IN_FLIGHT: Final = 64
FILE_BYTES: Final = 64 * 1024 * 1024
RECORD_BYTES: Final = 256
"""About what a message of 100 bytes takes in the log."""

CASES: Final = [
    Case("SYNC_FLUSH, frames, 64 in flight", PYTHON, "frames", {"connections": 1, "in_flight": IN_FLIGHT}),
    Case("SYNC_FLUSH, our asyncio client, 64 in flight", PYTHON, "aio_send", {"in_flight": IN_FLIGHT}),
]
DISK: Final = "disk"
SINGLE: Final = "one fsync after the other"
TIMES: Final = "{}: over one fsync after the other"

FLOORS: Final = [Floor(TIMES.format(CASES[0].title), LEAST, 20.0, absolute=True)]


def single_fsyncs(seconds: float) -> float:
    """How often a second this disk has a record written and synced, one after the other, in a file of full
    size.
    """
    with tempfile.TemporaryDirectory(prefix="bench-disk-") as directory:
        fd = os.open(Path(directory) / "file", os.O_RDWR | os.O_CREAT)
        try:
            os.posix_fallocate(fd, 0, FILE_BYTES)
            os.fsync(fd)
            record, count, start = os.urandom(RECORD_BYTES), 0, time.perf_counter()
            while (took := time.perf_counter() - start) < seconds:
                os.pwrite(fd, record, count * RECORD_BYTES % FILE_BYTES)
                os.fdatasync(fd)
                count += 1
            return count / took
        finally:
            os.close(fd)


def main(options: Options, report: Report) -> None:
    """Both peers with `SYNC_FLUSH`, taking turns; the disk is measured before each turn."""
    with ExitStack() as stack:
        by_name: dict[str, Peer] = {}
        for name in options.peers:
            more = {} if name == OURS else PATIENT
            peer = by_name[name] = make_peer(name, {"flushDiskType": "SYNC_FLUSH", **more})
            stack.callback(peer.close)
            peer.start()
            create_topic(peer, TOPIC, QUEUES)
        with Load(PYTHON) as load:

            def turn(name: str) -> None:
                single = single_fsyncs(options.seconds / 2)
                report.add(SINGLE, "1/s", DISK, single)
                for case in CASES:
                    measure(case, load, by_name[name], options, report)
                    rate = report.series[f"{case.title}: rate"].values[name][-1]
                    report.add(TIMES.format(case.title), "×", name, rate / single)

            alternate(options.rounds, options.peers, turn)
