"""Sends while another reader scans a store that is not in the page cache."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.frames import send_frame
from benchmarks.load import PYTHON, ROOT, Load, LoadError
from benchmarks.options import Options
from benchmarks.peers import Peer, create_topic, running, stored
from benchmarks.recovery import RECOVERY_SECONDS_MAX
from benchmarks.report import LEAST, Floor, Report, alternate
from benchmarks.send import QUEUES, TOPIC, Case, measure
from benchmarks.start_memory import wait_answered

COLD_TOPIC: Final = "BenchCold"
COLD_BODY_BYTES: Final = 4096
BATCH: Final = 32
FILL_IN_FLIGHT: Final = 8
FILL_SECONDS: Final = 5.0
FILL_SECONDS_MAX: Final = 1200.0

HOT: Final = Case("sends, 64 in flight", PYTHON, "aio_send", {"in_flight": 64})
BESIDE: Final = Case("sends, 64 in flight, beside a cold reader", PYTHON, "aio_send", {"in_flight": 64})
SHARE: Final = "sends beside a cold reader over sends alone: rate"
READ: Final = "the cold reader"

FLOORS: Final = [Floor(SHARE, LEAST, 0.8, absolute=True)]


def fill(peer: Peer, load: Load, size: int) -> None:
    """Send batches until the topic has `size` bytes of bodies. Raises `LoadError` unless all are stored."""
    create_topic(peer, COLD_TOPIC, QUEUES)
    sent, deadline = 0, time.monotonic() + FILL_SECONDS_MAX
    while sent * COLD_BODY_BYTES < size:
        given = {"topic": COLD_TOPIC, "size": COLD_BODY_BYTES, "batch": BATCH, "in_flight": FILL_IN_FLIGHT}
        sent += load.run(peer, "aio_send", warm=0.0, seconds=FILL_SECONDS, **given).result["acknowledged"]
        if time.monotonic() > deadline:
            raise LoadError(f"{peer.name} took {sent * COLD_BODY_BYTES} bytes in {FILL_SECONDS_MAX:g} s")
    arrived = sum(stored(peer, COLD_TOPIC, sent))
    if arrived != sent:
        raise LoadError(f"{peer.name}: {sent} acknowledged, {arrived} stored")


def restart(peer: Peer) -> None:
    """Kill the broker and start it again, so that it has no page of its log mapped."""
    peer.kill()
    peer.launch_broker()
    wait_answered(peer, peer.broker_address, send_frame("BenchFirst", 0, 2, b"first"), RECOVERY_SECONDS_MAX)


def forget(directory: Path) -> None:
    """Drop a log from the page cache, as far as no process has it mapped."""
    for path in sorted(directory.iterdir()):
        fd = os.open(path, os.O_RDWR)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


@contextmanager
def scanning(peer: Peer, report: Report) -> Iterator[None]:
    """A reader that scans the topic from its beginning, as fast as the broker serves it."""
    command = [sys.executable, "-m", "benchmarks.scan", peer.namesrv, COLD_TOPIC]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            first, start = process.stdout.readline(), time.perf_counter()
            if not first:
                raise LoadError(f"the reader of {peer.name} ended with {process.wait(10)}")
            yield
            if process.poll() is not None:
                raise LoadError(f"the reader of {peer.name} ended with {process.returncode}")
            seconds = time.perf_counter() - start
        finally:
            process.kill()
        last = [first, *process.stdout.read().split("\n")]
        read = int([line for line in last if line.strip()][-1]) - int(first)
        report.add(READ, "MB/s", peer.name, read / seconds / 1e6)


def main(options: Options, report: Report) -> None:
    """Fill both peers, then let them take turns: sends alone, then beside a reader."""
    with running(options.peers) as peers, Load(PYTHON) as load:
        by_name = {peer.name: peer for peer in peers}
        for peer in peers:
            create_topic(peer, TOPIC, QUEUES)
            fill(peer, load, options.cold_bytes)
            restart(peer)

        def turn(name: str) -> None:
            peer = by_name[name]
            forget(peer.log_directory)
            measure(HOT, load, peer, options, report)
            with scanning(peer, report):
                measure(BESIDE, load, peer, options, report)
            alone, beside = (report.series[f"{one.title}: rate"].values[name][-1] for one in (HOT, BESIDE))
            report.add(SHARE, "×", name, beside / alone)

        alternate(options.rounds, options.peers, turn)
