"""Sends: our asyncio and sync clients, Java's client, pre-encoded frames and batches, 100-byte bodies."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.load import JAVA, PYTHON, Load
from benchmarks.options import Options
from benchmarks.peers import Peer, Servers, create_topic, running, stored
from benchmarks.report import LEAST, MOST, Floor, Report, alternate

TOPIC: Final = "BenchSend"
QUEUES: Final = 8
BODY_BYTES: Final = 100


@dataclass(frozen=True)
class Case:
    """One way to send. `fresh`: a new client process each time, warmed up for `Options.java_warm` seconds."""

    title: str
    load: str
    op: str
    arguments: dict[str, Any] = field(default_factory=dict)
    fresh: bool = False


CASES: Final = [
    Case("Java client, 64 threads", JAVA, "send", {"threads": 64}, fresh=True),
    Case("Java client, 1 thread", JAVA, "send", {"threads": 1}, fresh=True),
    Case("Java client, batches of 32, 4 threads", JAVA, "send", {"threads": 4, "batch": 32}, fresh=True),
    Case("Java client, 256 in flight", JAVA, "send", {"async": True, "in_flight": 256}, fresh=True),
    Case("frames, 1 connection × 256", PYTHON, "frames", {"connections": 1, "in_flight": 256}),
    Case("frames, 4 connections × 64", PYTHON, "frames", {"connections": 4, "in_flight": 64}),
    Case("our asyncio client, 1 in flight", PYTHON, "aio_send", {"in_flight": 1}),
    Case("our asyncio client, 64 in flight", PYTHON, "aio_send", {"in_flight": 64}),
    Case("our asyncio client, 256 in flight", PYTHON, "aio_send", {"in_flight": 256}),
    Case("our asyncio client, batches of 32, 4 in flight", PYTHON, "aio_send", {"in_flight": 4, "batch": 32}),
    Case("our sync client, 1 thread", PYTHON, "sync_send", {"threads": 1}),
    Case("our sync client, 64 threads", PYTHON, "sync_send", {"threads": 64}),
    Case("Java client, long warm, 64 threads", JAVA, "send", {"threads": 64}),
    Case("Java client, long warm, 1 thread", JAVA, "send", {"threads": 1}),
    Case("Java client, long warm, batches of 32, 4 threads", JAVA, "send", {"threads": 4, "batch": 32}),
]
"""The last three come when client and Apache's broker have compiled all they will: the steady state of
services that run for days. The first ones are what a client sees in its first half minute."""

FLOORS: Final = [
    Floor("Java client, 64 threads: rate", LEAST, 2.0),
    Floor("Java client, 64 threads: broker CPU", MOST, 0.5),
    Floor("frames, 1 connection × 256: rate", LEAST, 2.0),
    Floor("frames, 1 connection × 256: broker CPU", MOST, 1 / 3),
    Floor("Java client, 1 thread: p50", MOST, 0.8),
    Floor("Java client, batches of 32, 4 threads: rate", LEAST, 1.0),
    Floor("our asyncio client, 256 in flight: rate", LEAST, 1.0),
]


def measure(case: Case, load: Load, peer: Servers, options: Options, report: Report) -> None:
    """One run; raises `LoadError` unless exactly what was acknowledged is stored."""
    before = sum(stored(peer, TOPIC))
    measured = load.run(
        peer,
        case.op,
        topic=TOPIC,
        size=BODY_BYTES,
        queues=QUEUES,
        warm=options.java_warm if case.fresh else options.warm,
        seconds=options.seconds,
        **case.arguments,
    )
    arrived = sum(stored(peer, TOPIC, before + measured.result["acknowledged"])) - before
    measured.check_arrived(f"{case.title} on {peer.name}", arrived)
    report.add(f"{case.title}: rate", "msg/s", peer.name, measured.rate)
    report.add(f"{case.title}: broker CPU", "µs", peer.name, measured.cpu_us)
    report.add(f"{case.title}: client CPU", "µs", peer.name, measured.client_cpu_us)
    if "p50_ms" in measured.result:
        report.add(f"{case.title}: p50", "ms", peer.name, measured.result["p50_ms"])
        report.add(f"{case.title}: p99", "ms", peer.name, measured.result["p99_ms"])


def _turn(case: Case, loads: dict[str, Load], peer: Peer, options: Options, report: Report) -> None:
    if case.fresh:
        with Load(case.load) as load:
            measure(case, load, peer, options, report)
    else:
        measure(case, loads[case.load], peer, options, report)


def _warm_up(load: Load, peer: Peer, options: Options) -> None:
    for arguments in ({"threads": 64}, {"threads": 1}, {"threads": 4, "batch": 32}):
        times = {"warm": options.java_warm, "seconds": 0.1}
        load.run(peer, "send", topic=TOPIC, size=BODY_BYTES, **times, **arguments)


def main(options: Options, report: Report) -> None:
    """All cases, the peers taking turns in each round."""
    with running(options.peers) as peers, ExitStack() as stack:
        by_name = {peer.name: peer for peer in peers}
        for peer in peers:
            create_topic(peer, TOPIC, QUEUES)
        loads = {PYTHON: stack.enter_context(Load(PYTHON))}
        for case in (case for case in CASES if options.only in case.title):
            if not case.fresh and case.load not in loads:
                loads[case.load] = stack.enter_context(Load(case.load))
                for peer in peers:
                    _warm_up(loads[case.load], peer, options)

            def turn(name: str, case: Case = case) -> None:
                _turn(case, loads, by_name[name], options, report)

            alternate(options.rounds, options.peers, turn)
