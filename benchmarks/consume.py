"""Push consumption of a backlog, by Java's client and by ours."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from functools import partial
from typing import Final

from benchmarks.load import JAVA, PYTHON, Load, LoadError
from benchmarks.options import Options
from benchmarks.peers import Peer, create_topic, running, stored
from benchmarks.report import LEAST, Floor, Report, alternate

TOPIC: Final = "BenchConsume"
QUEUES: Final = 8
SECONDS_MAX: Final = 180
FRESH_JAVA: Final = "Java's push consumer"
WARM_JAVA: Final = "Java's push consumer, long warm"
OURS_READS: Final = "our push consumer"
AGAINST_JAVA: Final = "our push consumer: share of Java's rate"

FLOORS: Final = [
    Floor(f"{FRESH_JAVA}: rate", LEAST, 1.5),
    Floor(AGAINST_JAVA, LEAST, 0.5, absolute=True),
]
_numbers = itertools.count()


def measure(
    title: str, load: Load, peer: Peer, report: Report, *, topic: str = TOPIC, ordered: bool = False
) -> None:
    """One new group reads the whole topic.

    Raises `LoadError` unless every message came exactly once, with `ordered` one after the other.
    """
    ends = stored(peer, topic)
    group = f"bench_{'ordered' if ordered else 'consume'}_{next(_numbers)}"
    count = sum(ends)
    given = {"topic": topic, "group": group, "count": count, "ordered": ordered}
    measured = load.run(peer, "consume", **given, seconds_max=SECONDS_MAX)
    if ordered and measured.result["disordered"]:
        raise LoadError(f"{title} on {peer.name}: {measured.result['disordered']} messages out of order")
    wanted = (count, sum(end * (end - 1) // 2 for end in ends))
    got = (measured.result["messages"], measured.result["offsets"])
    if got != wanted:
        raise LoadError(f"{title} on {peer.name}: messages and sum of offsets are {got}, not {wanted}")
    report.add(f"{title}: rate", "msg/s", peer.name, measured.rate)
    report.add(f"{title}: broker CPU", "µs", peer.name, measured.cpu_us)


def main(options: Options, report: Report) -> None:
    """Fill a topic on each peer, then let new groups read it in turns.

    A consumer that catches up is usually one that was just started, so a Java process is new for each
    measurement; "long warm" is one that has read the backlog several times before.
    """
    with running(options.peers) as peers, ExitStack() as stack:
        loads = {kind: stack.enter_context(Load(kind)) for kind in (JAVA, PYTHON)}
        by_name = {peer.name: peer for peer in peers}
        for peer in peers:
            create_topic(peer, TOPIC, QUEUES)
            filled = loads[JAVA].run(peer, "send", topic=TOPIC, threads=4, batch=50, count=options.backlog)
            stored(peer, TOPIC, filled.result["acknowledged"])

        def fresh(name: str) -> None:
            with Load(JAVA) as load:
                measure(FRESH_JAVA, load, by_name[name], report)

        def turn(name: str, title: str, kind: str) -> None:
            measure(title, loads[kind], by_name[name], report)

        alternate(options.rounds, options.peers, fresh)
        for title, kind in ((WARM_JAVA, JAVA), (OURS_READS, PYTHON)):
            for peer in peers:
                measure(title, loads[kind], peer, Report())
            alternate(options.rounds, options.peers, partial(turn, title=title, kind=kind))
    mine, java = (report.series[f"{title}: rate"] for title in (OURS_READS, FRESH_JAVA))
    for name in options.peers:
        for ours, theirs in zip(mine.values[name], java.values[name], strict=True):
            report.add(AGAINST_JAVA, "", name, ours / theirs)
