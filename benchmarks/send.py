"""Sends: our asyncio and sync clients, Java's client, pre-encoded frames and batches, 100-byte bodies."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.load import JAVA, PYTHON, Load
from benchmarks.options import Options
from benchmarks.peers import Peer, create_topic, running, stored
from benchmarks.report import LEAST, MOST, Floor, Report, alternate

TOPIC: Final = "BenchSend"
QUEUES: Final = 8
BODY_BYTES: Final = 100


@dataclass(frozen=True)
class Case:
    """One way to send."""

    title: str
    load: str
    op: str
    arguments: dict[str, Any] = field(default_factory=dict)


CASES: Final = [
    Case("Java client, 1 thread", JAVA, "send", {"threads": 1}),
    Case("Java client, 64 threads", JAVA, "send", {"threads": 64}),
    Case("Java client, batches of 32, 4 threads", JAVA, "send", {"threads": 4, "batch": 32}),
    Case("Java client, 256 in flight", JAVA, "send", {"threads": 1, "async": True, "in_flight": 256}),
    Case("our asyncio client, 1 in flight", PYTHON, "aio_send", {"in_flight": 1}),
    Case("our asyncio client, 64 in flight", PYTHON, "aio_send", {"in_flight": 64}),
    Case("our asyncio client, 256 in flight", PYTHON, "aio_send", {"in_flight": 256}),
    Case("our asyncio client, batches of 32, 4 in flight", PYTHON, "aio_send", {"in_flight": 4, "batch": 32}),
    Case("our sync client, 1 thread", PYTHON, "sync_send", {"threads": 1}),
    Case("our sync client, 64 threads", PYTHON, "sync_send", {"threads": 64}),
    Case("frames, 1 connection × 256", PYTHON, "frames", {"connections": 1, "in_flight": 256}),
    Case("frames, 4 connections × 64", PYTHON, "frames", {"connections": 4, "in_flight": 64}),
]

FLOORS: Final = [
    Floor("Java client, 64 threads: rate", LEAST, 2.0),
    Floor("Java client, 64 threads: broker CPU", MOST, 0.5),
    Floor("frames, 1 connection × 256: rate", LEAST, 2.0),
    Floor("frames, 1 connection × 256: broker CPU", MOST, 1 / 3),
    Floor("Java client, 1 thread: p50", MOST, 0.8),
    Floor("Java client, batches of 32, 4 threads: rate", LEAST, 1.0),
    Floor("our asyncio client, 256 in flight: rate", LEAST, 1.0),
]


def measure(case: Case, load: Load, peer: Peer, options: Options, report: Report) -> None:
    """One run; raises `LoadError` unless exactly what was acknowledged is stored."""
    before = sum(stored(peer, TOPIC))
    measured = load.run(
        peer,
        case.op,
        topic=TOPIC,
        size=BODY_BYTES,
        queues=QUEUES,
        warm=options.warm,
        seconds=options.seconds,
        **case.arguments,
    )
    measured.check_arrived(f"{case.title} on {peer.name}", sum(stored(peer, TOPIC)) - before)
    report.add(f"{case.title}: rate", "msg/s", peer.name, measured.rate)
    report.add(f"{case.title}: broker CPU", "µs", peer.name, measured.cpu_us)
    if "p50_ms" in measured.result:
        report.add(f"{case.title}: p50", "ms", peer.name, measured.result["p50_ms"])
        report.add(f"{case.title}: p99", "ms", peer.name, measured.result["p99_ms"])


def main(options: Options, report: Report) -> None:
    """All cases, the peers taking turns in each round."""
    with running(options.peers) as peers, ExitStack() as stack:
        loads = {kind: stack.enter_context(Load(kind)) for kind in (JAVA, PYTHON)}
        by_name = {peer.name: peer for peer in peers}
        for peer in peers:
            create_topic(peer, TOPIC, QUEUES)
            for arguments in ({"threads": 64}, {"threads": 4, "batch": 32}):
                warm = {"warm": options.java_warm, "seconds": 0.5, "topic": TOPIC, "size": BODY_BYTES}
                loads[JAVA].run(peer, "send", **warm, **arguments)
        for case in CASES:
            alternate(
                options.rounds,
                options.peers,
                lambda name, case=case: measure(case, loads[case.load], by_name[name], options, report),  # type: ignore[misc]
            )
