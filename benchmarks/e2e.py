"""End-to-end latency at 1,000 messages a second, producer and push consumer in one process."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

from benchmarks.load import JAVA, PYTHON, Load
from benchmarks.options import Options
from benchmarks.peers import Peer, create_topic, running
from benchmarks.report import MOST, Floor, Report, alternate

TOPIC: Final = "BenchEndToEnd"
QUEUES: Final = 4
RATE: Final = 1000
TITLES: Final = {JAVA: "end to end, Java client", PYTHON: "end to end, our asyncio client"}

FLOORS: Final = [Floor(f"{TITLES[JAVA]}: p99", MOST, 1.25)]


def measure(kind: str, load: Load, peer: Peer, options: Options, report: Report) -> None:
    """One run; raises `LoadError` unless as many messages came as were sent."""
    topic = f"{TOPIC}_{kind}"
    measured = load.run(
        peer,
        "e2e",
        topic=topic,
        group=f"bench_e2e_{kind}",
        rate=RATE,
        size=100,
        warm=max(2.0, options.warm),
        seconds=options.seconds,
    )
    result = measured.result
    measured.check_arrived(f"{TITLES[kind]} on {peer.name}", result["received"])
    report.add(f"{TITLES[kind]}: p50", "ms", peer.name, result["p50_ms"])
    report.add(f"{TITLES[kind]}: p99", "ms", peer.name, result["p99_ms"])
    report.add(f"{TITLES[kind]}: broker CPU", "µs", peer.name, measured.cpu_us)


def main(options: Options, report: Report) -> None:
    """Both clients, the peers taking turns."""
    with running(options.peers) as peers, ExitStack() as stack:
        loads = {kind: stack.enter_context(Load(kind)) for kind in (JAVA, PYTHON)}
        by_name = {peer.name: peer for peer in peers}
        for kind, load in loads.items():
            for peer in peers:
                create_topic(peer, f"{TOPIC}_{kind}", QUEUES)
                measure(kind, load, peer, options, Report())

            def turn(name: str, kind: str = kind, load: Load = load) -> None:
                measure(kind, load, by_name[name], options, report)

            alternate(options.rounds, options.peers, turn)
