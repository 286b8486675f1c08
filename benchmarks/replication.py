"""Replication: what a slave costs its master, what waiting for it costs senders, how far a slave is behind,
and how fast an empty one copies.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.frames import Generator
from benchmarks.load import PYTHON, ROOT, Load, LoadError
from benchmarks.options import Options
from benchmarks.pairs import SLAVE_SETTLE_SECONDS, Asker, Pair, Settings, log_end, make_pair, until
from benchmarks.peers import OURS, create_topic
from benchmarks.pyload import percentiles
from benchmarks.report import LEAST, MOST, Floor, Report, alternate
from benchmarks.send import QUEUES, Case, measure
from benchmarks.send import TOPIC as SEND_TOPIC

IN_FLIGHT: Final = 64
ALONE: Final = "ASYNC_MASTER without a slave"
ASYNC: Final = "ASYNC_MASTER with a slave"
SYNC: Final = "SYNC_MASTER with a slave"
ROLES: Final[dict[str, Settings]] = {
    ALONE: {"brokerRole": "ASYNC_MASTER"},
    ASYNC: {"brokerRole": "ASYNC_MASTER"},
    SYNC: {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2},
}
"""The masters. RocketMQ's `inSyncReplicas` is 1 by default: its SYNC_MASTER would wait for nobody."""

SHARE: Final = "SYNC_MASTER over ASYNC_MASTER: rate"
COST: Final = "with a slave over without: master CPU"
BEHIND: Final = "slave behind at half load: {}"
HALF: Final = "sent at half load"
COPY: Final = "copy to an empty slave"
LOOPBACK: Final = "loopback"
DISK: Final = "disk"
COPY_SHARE: Final = "copy to an empty slave over the slower of loopback and disk"

BEHIND_TOPIC: Final = "BenchBehind"
FILL_TOPIC: Final = "BenchFill"
BODY_BYTES: Final = 100
FILL_BODY_BYTES: Final = 1000
SAMPLE_SECONDS: Final = 0.005
BEHIND_SECONDS_MAX: Final = 20.0
COPY_SECONDS_MAX: Final = 600.0
PIECE_BYTES: Final = 1 << 20

FLOORS: Final = [
    Floor(SHARE, LEAST, 0.7, absolute=True),
    Floor(COST, MOST, 1.15, absolute=True),
    Floor(BEHIND.format("p99"), MOST, 10.0, absolute=True),
    Floor(COPY_SHARE, LEAST, 1.0, absolute=True, only_goal=True),
]


def case(role: str) -> Case:
    """Sends of our asyncio client to a master."""
    return Case(f"{role}, {IN_FLIGHT} in flight", PYTHON, "aio_send", {"in_flight": IN_FLIGHT})


def caught_up(pair: Pair) -> None:
    """Wait until the slave has the master's whole log. Raises `LoadError`."""
    until(
        lambda: 0 <= log_end(pair.broker_address) == log_end(pair.slave_address),
        f"{pair.name}'s slave does not have its master's log",
        COPY_SECONDS_MAX,
    )


def rates(name: str, pairs: dict[str, Pair], load: Load, options: Options, report: Report) -> None:
    """One turn of a peer: sends to each of its masters."""
    for role, pair in pairs.items():
        measure(case(role), load, pair, options, report)
        if role != ALONE:
            caught_up(pair)
    last = {
        (role, what): report.series[f"{case(role).title}: {what}"].values[name][-1]
        for role in ROLES
        for what in ("rate", "broker CPU")
    }
    report.add(SHARE, "×", name, last[SYNC, "rate"] / last[ASYNC, "rate"])
    report.add(COST, "×", name, last[ASYNC, "broker CPU"] / last[ALONE, "broker CPU"])


@contextmanager
def fed(namesrv: str, topic: str, rate: float) -> Iterator[None]:
    """Sends at a steady rate, from a process of its own."""
    command = [sys.executable, "-m", "benchmarks.feed", namesrv, topic, str(rate), str(BODY_BYTES)]
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        yield
        if process.poll() is not None:
            raise LoadError(f"the sends to {namesrv} ended with {process.returncode}")
    finally:
        process.kill()
        process.wait(10)


def lags(pair: Pair, topic: str, seconds: float) -> list[float]:
    """How long after the master the slave had the end of a queue, in seconds, many times. The time of the
    question to the slave is part of it.
    """
    found = []
    with Asker(pair.broker_address) as master, Asker(pair.slave_address) as slave:
        end = time.perf_counter() + seconds
        while (start := time.perf_counter()) < end:
            wanted = master.max_offset(topic, 0)
            asked = time.perf_counter()
            while slave.max_offset(topic, 0) < wanted:
                if time.perf_counter() - asked > BEHIND_SECONDS_MAX:
                    raise LoadError(f"{pair.name}'s slave is behind for {BEHIND_SECONDS_MAX:g} s")
            found.append(time.perf_counter() - asked)
            time.sleep(max(0.0, SAMPLE_SECONDS - (time.perf_counter() - start)))
    return found


def behind(pair: Pair, rate: float, options: Options, report: Report) -> None:
    """How far the slave is behind while the master gets `rate` messages a second."""
    with fed(pair.namesrv, BEHIND_TOPIC, rate):
        time.sleep(max(SLAVE_SETTLE_SECONDS, options.warm))
        with Asker(pair.broker_address) as master:
            before, start = master.max_offset(BEHIND_TOPIC, 0), time.perf_counter()
            found = lags(pair, BEHIND_TOPIC, options.seconds)
            sent = master.max_offset(BEHIND_TOPIC, 0) - before
            seconds = time.perf_counter() - start
    report.add(HALF, "msg/s", pair.name, sent * QUEUES / seconds)
    shares = percentiles(found)
    for share in ("p50", "p99"):
        report.add(BEHIND.format(share), "ms", pair.name, shares[f"{share}_ms"])


def fill(pair: Pair, messages: int) -> None:
    """Send at least so many messages of 1,000 bytes."""
    create_topic(pair, FILL_TOPIC, QUEUES)
    with Generator(
        pair.broker_address, FILL_TOPIC, connections=4, in_flight=64, size=FILL_BODY_BYTES, queues=QUEUES
    ) as generator:
        generator.start()
        sent, deadline = 0, time.monotonic() + COPY_SECONDS_MAX
        while sent < messages and time.monotonic() < deadline:
            sent += generator.run(0.2)
        generator.drain()


def copy(pair: Pair, report: Report) -> int:
    """Start the slave with an empty store: how fast it copies, from its first bytes to its last. Returns the
    size of the log. All queues have the master's messages then.
    """
    pair.stop_slave()
    size = log_end(pair.broker_address)
    pair.start_slave()
    until(lambda: log_end(pair.slave_address) > 0, f"{pair.name}'s slave does not begin to copy")
    with Asker(pair.slave_address) as slave:
        at, start = slave.log_end(), time.perf_counter()
        while (end := slave.log_end()) < size:
            if time.perf_counter() - start > COPY_SECONDS_MAX:
                raise LoadError(f"{pair.name}'s slave has {end} of {size} bytes")
            time.sleep(SAMPLE_SECONDS)
        seconds = time.perf_counter() - start
    compare(pair, FILL_TOPIC)
    if at < size:
        report.add(COPY, "MB/s", pair.name, (size - at) / seconds / 1e6)
    return size


def compare(pair: Pair, topic: str) -> None:
    """Raise `LoadError` unless the slave has the master's messages in each queue of a topic."""

    def ends(address: str) -> list[int]:
        with Asker(address) as asker:
            return [asker.max_offset(topic, queue_id) for queue_id in range(QUEUES)]

    wanted = ends(pair.broker_address)
    until(lambda: ends(pair.slave_address) == wanted, f"{pair.name}'s slave lacks messages of {topic}")


def _receive(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        buffer = bytearray(PIECE_BYTES)
        while sock.recv_into(buffer):
            pass


def loopback_speed(size: int) -> float:
    """Bytes a second from one process to another over TCP."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        reader = multiprocessing.get_context("spawn").Process(
            target=_receive, args=(server.getsockname()[1],)
        )
        reader.start()
        sock, _ = server.accept()
        piece, start = bytes(PIECE_BYTES), time.perf_counter()
        for _ in range(max(1, size // PIECE_BYTES)):
            sock.sendall(piece)
        sock.close()
        reader.join()
        return max(PIECE_BYTES, size) / (time.perf_counter() - start)


def disk_speed(size: int) -> float:
    """Bytes a second into a file, on disk at the end."""
    with tempfile.TemporaryDirectory(prefix="bench-disk-") as directory:
        fd = os.open(Path(directory) / "file", os.O_WRONLY | os.O_CREAT)
        try:
            piece, start = os.urandom(PIECE_BYTES), time.perf_counter()
            for _ in range(max(1, size // PIECE_BYTES)):
                os.write(fd, piece)
            os.fsync(fd)
            return max(PIECE_BYTES, size) / (time.perf_counter() - start)
        finally:
            os.close(fd)


def copies(pairs: dict[str, Pair], options: Options, report: Report) -> None:
    """Copies to empty slaves, and what loopback and disk can do with as many bytes."""
    for pair in pairs.values():
        fill(pair, options.memory_messages)

    def turn(name: str) -> None:
        size = copy(pairs[name], report)
        ceilings = {LOOPBACK: loopback_speed(size), DISK: disk_speed(size)}
        for ceiling, speed in ceilings.items():
            report.add(COPY, "MB/s", ceiling, speed / 1e6)
        if values := report.series[COPY].values.get(name):
            report.add(COPY_SHARE, "×", name, values[-1] * 1e6 / min(ceilings.values()))

    alternate(options.rounds, options.peers, turn)


def main(options: Options, report: Report) -> None:
    """Three masters of each peer, taking turns; an idle one costs the others next to nothing."""
    with ExitStack() as stack:
        pairs: dict[str, dict[str, Pair]] = {}
        for name in options.peers:
            pairs[name] = {}
            for role, settings in ROLES.items():
                pair = pairs[name][role] = make_pair(name, settings, slave=role != ALONE)
                stack.callback(pair.close)
                pair.start()
                create_topic(pair, SEND_TOPIC, QUEUES)
                if role != ALONE:
                    caught_up(pair)
            create_topic(pairs[name][ASYNC], BEHIND_TOPIC, QUEUES)
        load = stack.enter_context(Load(PYTHON))
        for pair in (pair for name in options.peers if name != OURS for pair in pairs[name].values()):
            measure(replace(case(ALONE), fresh=True), load, pair, options, Report())  # Java's warm-up
        alternate(options.rounds, options.peers, lambda name: rates(name, pairs[name], load, options, report))

        def half_load(name: str) -> None:
            rate = report.series[f"{case(ASYNC).title}: rate"].median(name)
            assert rate is not None
            behind(pairs[name][ASYNC], rate / 2, options, report)

        alternate(options.rounds, options.peers, half_load)
        copies({name: pairs[name][ASYNC] for name in options.peers}, options, report)
