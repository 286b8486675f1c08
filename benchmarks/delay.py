"""How late delayed messages come: 10,000 timers that are due in one second, and as many of delay level 1."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Final

from benchmarks.load import PYTHON, Load, LoadError
from benchmarks.options import Options
from benchmarks.peers import Peer, create_topic, running
from benchmarks.report import MOST, Floor, Report, alternate

TOPIC: Final = "BenchDelay"
QUEUES: Final = 8
MESSAGES: Final = 10_000
IN_FLIGHT: Final = 64


@dataclass(frozen=True)
class Case:
    """One way to wait: timers when `level` is None. `lead` is how long, in seconds."""

    title: str
    lead: float
    level: int | None = None


CASES: Final = [Case("timers", 15.0), Case("delay level 1", 1.0, 1)]
FLOORS: Final = [Floor("timers: p99 late", MOST, 1000.0, absolute=True)]
_numbers = itertools.count()


def measure(case: Case, load: Load, peer: Peer, report: Report) -> None:
    """One run; raises `LoadError` unless every message came, once and not early."""
    title, number = f"{case.title} on {peer.name}", next(_numbers)
    topic = f"{TOPIC}_{number}"
    create_topic(peer, topic, QUEUES)
    measured = load.run(
        peer,
        "delays",
        topic=topic,
        group=f"bench_delay_{number}",
        count=MESSAGES,
        size=100,
        lead=case.lead,
        level=case.level,
        in_flight=IN_FLIGHT,
    )
    result = measured.result
    measured.check_arrived(title, result["received"])
    if result["early"] or result["again"]:
        raise LoadError(f"{title}: {result['early']} came early, {result['again']} came again")
    if case.level is None and not result["in_time"]:
        raise LoadError(f"{title}: sending took longer than {case.lead:g} s, so timers were due before")
    for share in ("p50", "p99"):
        report.add(f"{case.title}: {share} late", "ms", peer.name, result[f"{share}_ms"])
        report.add(f"{case.title}: {share} late in its queue", "ms", peer.name, result[f"stored_{share}_ms"])
    report.add(f"{case.title}: broker CPU", "µs", peer.name, measured.cpu_us)


def main(options: Options, report: Report) -> None:
    """Both ways, the peers taking turns; each peer's first run of each warms it up."""
    with running(options.peers) as peers, Load(PYTHON) as load:
        by_name = {peer.name: peer for peer in peers}
        for case in CASES:
            for peer in peers:
                measure(case, load, peer, Report())

            def turn(name: str, case: Case = case) -> None:
                measure(case, load, by_name[name], report)

            alternate(options.rounds, options.peers, turn)
