"""Several brokers on one machine: rate, latency and processor time of sends to one broker and to two."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

from benchmarks.load import PYTHON, Load
from benchmarks.options import Options
from benchmarks.peers import OURS, OurPeer, create_topic
from benchmarks.report import MOST, Floor, Report, alternate
from benchmarks.send import QUEUES, TOPIC, Case, measure

COUNTS: Final = (1, 2)
IN_FLIGHT: Final = (64, 256)
"""Sends in flight for each broker: what a broker handles at once decides what a message costs it."""
COST: Final = "two brokers over one, {} in flight each: broker CPU"
MEMORY: Final = "memory, {}"
FLOORS: Final = [Floor(COST.format(number), MOST, 1.1, absolute=True, only_goal=True) for number in IN_FLIGHT]


def case(brokers: int, in_flight: int) -> Case:
    """Sends of our asyncio client to so many brokers, `in_flight` for each."""
    title = f"{_named(brokers)}, {in_flight} in flight each"
    return Case(title, PYTHON, "aio_send", {"in_flight": in_flight * brokers})


def _named(brokers: int) -> str:
    return "1 broker" if brokers == 1 else f"{brokers} brokers"


def main(options: Options, report: Report) -> None:
    """All numbers of brokers, taking turns in each round; the idle ones cost the others next to nothing."""
    if OURS not in options.peers:
        return
    with ExitStack() as stack:
        peers = {}
        for count in COUNTS:
            peer = peers[str(count)] = OurPeer(count)
            stack.callback(peer.close)
            peer.start()
            create_topic(peer, TOPIC, QUEUES)
        load = stack.enter_context(Load(PYTHON))

        def turn(count: str) -> None:
            for in_flight in IN_FLIGHT:
                measure(case(int(count), in_flight), load, peers[count], options, report)

        alternate(options.rounds, list(peers), turn)
        for name, peer in peers.items():
            report.add(MEMORY.format(_named(int(name))), "MB", OURS, peer.memory().resident)
    for in_flight in IN_FLIGHT:
        one, two = (
            report.series[f"{case(count, in_flight).title}: broker CPU"].median(OURS) for count in COUNTS
        )
        if one and two:
            report.add(COST.format(in_flight), "×", OURS, two / one)
