"""Ordered push consumption of a backlog, by Java's client and by ours."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Final

from benchmarks.consume import measure
from benchmarks.load import JAVA, PYTHON, Load
from benchmarks.options import Options
from benchmarks.peers import create_topic, running, stored
from benchmarks.report import LEAST, Floor, Report, alternate

TOPIC: Final = "BenchOrdered"
QUEUES: Final = 8
FRESH_JAVA: Final = "Java's push consumer, ordered"
OURS_READS: Final = "our push consumer, ordered"
RATE_LEAST: Final = 50_000

FLOORS: Final = [Floor(f"{OURS_READS}: rate", LEAST, RATE_LEAST, absolute=True)]


def main(options: Options, report: Report) -> None:
    """Fill a topic on each peer, then let new groups read it in turns; a Java process is new for each."""
    with running(options.peers) as peers, ExitStack() as stack:
        loads = {kind: stack.enter_context(Load(kind)) for kind in (JAVA, PYTHON)}
        by_name = {peer.name: peer for peer in peers}
        take = partial(measure, topic=TOPIC, ordered=True)
        for peer in peers:
            create_topic(peer, TOPIC, QUEUES)
            filled = loads[JAVA].run(peer, "send", topic=TOPIC, threads=4, batch=50, count=options.backlog)
            stored(peer, TOPIC, filled.result["acknowledged"])

        def fresh(name: str) -> None:
            with Load(JAVA) as load:
                take(FRESH_JAVA, load, by_name[name], report)

        alternate(options.rounds, options.peers, fresh)
        for peer in peers:
            take(OURS_READS, loads[PYTHON], peer, Report())
        alternate(
            options.rounds,
            options.peers,
            lambda name: take(OURS_READS, loads[PYTHON], by_name[name], report),
        )
