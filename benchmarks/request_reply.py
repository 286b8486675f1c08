"""Round trips of request and reply: Java asks, Java answers, the broker carries both ways."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Final

from benchmarks.load import JAVA, Load
from benchmarks.options import Options
from benchmarks.peers import create_topic, running
from benchmarks.report import LEAST, MOST, Floor, Report, alternate

TOPIC: Final = "BenchRequests"
QUEUES: Final = 4
THREADS: Final = (1, 16)

FLOORS: Final = [
    Floor(f"requests, {THREADS[1]} threads: rate", LEAST, 1.0),
    Floor(f"requests, {THREADS[0]} thread: p50", MOST, 1.5),
]
_numbers = itertools.count()


def main(options: Options, report: Report) -> None:
    """Each peer in turn carries requests of one thread and of many."""
    with running(options.peers) as peers, Load(JAVA) as load:
        by_name = {peer.name: peer for peer in peers}
        for peer in peers:
            create_topic(peer, TOPIC, QUEUES)

        def measure(name: str, threads: int, warm: float, into: Report) -> None:
            title = f"requests, {threads} thread{'s' if threads > 1 else ''}"
            measured = load.run(
                by_name[name],
                "requests",
                topic=TOPIC,
                group=f"bench_requests_{next(_numbers)}",
                threads=threads,
                warm=warm,
                seconds=options.seconds,
            )
            into.add(f"{title}: rate", "round trips/s", name, measured.rate)
            into.add(f"{title}: broker CPU", "µs", name, measured.cpu_us)
            into.add(f"{title}: p50", "ms", name, measured.result["p50_ms"])
            into.add(f"{title}: p99", "ms", name, measured.result["p99_ms"])

        for name in options.peers:
            measure(name, THREADS[1], options.java_warm, Report())
        for threads in THREADS:
            alternate(
                options.rounds,
                options.peers,
                partial(measure, threads=threads, warm=options.warm, into=report),
            )
