"""Push consumption of a backlog, by Java's client and by ours."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from typing import Final

from benchmarks.load import JAVA, PYTHON, Load, LoadError
from benchmarks.options import Options
from benchmarks.peers import Peer, create_topic, running, stored
from benchmarks.report import LEAST, Floor, Report, alternate

TOPIC: Final = "BenchConsume"
QUEUES: Final = 8
SECONDS_MAX: Final = 180
TITLES: Final = {JAVA: "Java's push consumer", PYTHON: "our push consumer"}
AGAINST_JAVA: Final = "our push consumer: share of Java's rate"

FLOORS: Final = [
    Floor(f"{TITLES[JAVA]}: rate", LEAST, 1.5),
    Floor(AGAINST_JAVA, LEAST, 0.5, absolute=True),
]
_numbers = itertools.count()


def measure(kind: str, load: Load, peer: Peer, report: Report) -> None:
    """One new group reads the whole topic; raises `LoadError` unless every message came exactly once."""
    ends = stored(peer, TOPIC)
    group = f"bench_consume_{next(_numbers)}"
    count = sum(ends)
    measured = load.run(peer, "consume", topic=TOPIC, group=group, count=count, seconds_max=SECONDS_MAX)
    wanted = (count, sum(end * (end - 1) // 2 for end in ends))
    got = (measured.result["messages"], measured.result["offsets"])
    if got != wanted:
        raise LoadError(f"{TITLES[kind]} on {peer.name}: messages and sum of offsets are {got}, not {wanted}")
    report.add(f"{TITLES[kind]}: rate", "msg/s", peer.name, measured.rate)
    report.add(f"{TITLES[kind]}: broker CPU", "µs", peer.name, measured.cpu_us)


def main(options: Options, report: Report) -> None:
    """Fill a topic on each peer, then let new groups read it in turns."""
    with running(options.peers) as peers, ExitStack() as stack:
        loads = {kind: stack.enter_context(Load(kind)) for kind in (JAVA, PYTHON)}
        by_name = {peer.name: peer for peer in peers}
        for peer in peers:
            create_topic(peer, TOPIC, QUEUES)
            filled = loads[JAVA].run(peer, "send", topic=TOPIC, threads=4, batch=50, count=options.backlog)
            stored(peer, TOPIC, filled.result["acknowledged"])
        for kind, load in loads.items():
            for peer in peers:
                measure(kind, load, peer, Report())

            def turn(name: str, kind: str = kind, load: Load = load) -> None:
                measure(kind, load, by_name[name], report)

            alternate(options.rounds, options.peers, turn)
    mine, java = (report.series[f"{TITLES[kind]}: rate"] for kind in (PYTHON, JAVA))
    for name in options.peers:
        for ours, theirs in zip(mine.values[name], java.values[name], strict=True):
            report.add(AGAINST_JAVA, "", name, ours / theirs)
