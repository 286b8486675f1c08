"""Transactions of Java's client that all commit: half message, commit, and the message in its topic."""

from __future__ import annotations

from functools import partial
from typing import Final

from benchmarks.load import JAVA, Load
from benchmarks.options import Options
from benchmarks.peers import create_topic, running, stored
from benchmarks.report import LEAST, MOST, Floor, Report, alternate

TOPIC: Final = "BenchTransactions"
QUEUES: Final = 8
THREADS: Final = (1, 32)

FLOORS: Final = [
    Floor(f"transactions, {THREADS[1]} threads: rate", LEAST, 1.0),
    Floor(f"transactions, {THREADS[1]} threads: broker CPU", MOST, 0.5),
]


def main(options: Options, report: Report) -> None:
    """Each peer in turn takes transactions from one thread and from many; what committed must be stored."""
    with running(options.peers) as peers, Load(JAVA) as load:
        by_name = {peer.name: peer for peer in peers}
        arrived = dict.fromkeys(by_name, 0)
        for peer in peers:
            create_topic(peer, TOPIC, QUEUES)

        def measure(name: str, threads: int, warm: float, into: Report) -> None:
            peer = by_name[name]
            title = f"transactions, {threads} thread{'s' if threads > 1 else ''}"
            measured = load.run(
                peer,
                "send",
                topic=TOPIC,
                transactions=True,
                threads=threads,
                warm=warm,
                seconds=options.seconds,
            )
            ends = sum(stored(peer, TOPIC, arrived[name] + measured.result["acknowledged"]))
            measured.check_arrived(f"{title} on {name}", ends - arrived[name])
            arrived[name] = ends
            into.add(f"{title}: rate", "tx/s", name, measured.rate)
            into.add(f"{title}: broker CPU", "µs", name, measured.cpu_us)
            into.add(f"{title}: p99", "ms", name, measured.result["p99_ms"])

        for name in options.peers:
            measure(name, THREADS[1], options.java_warm, Report())
        for threads in THREADS:
            alternate(
                options.rounds,
                options.peers,
                partial(measure, threads=threads, warm=options.warm, into=report),
            )
