"""Recovery after `kill -9`: time until a broker with many messages, started again, acknowledges a send."""

from __future__ import annotations

import time
from typing import Final

from benchmarks.frames import send_frame
from benchmarks.load import LoadError
from benchmarks.options import Options
from benchmarks.peers import Peer, make_peer, stored
from benchmarks.report import MOST, Floor, Report
from benchmarks.start_memory import TOPIC, fill, wait_answered

RECOVERY_SECONDS_MAX: Final = 300.0
RECOVERY: Final = "recovery after kill -9, to the first send"
MEMORY: Final = "memory after the recovery"

FLOORS: Final = [Floor(RECOVERY, MOST, 0.2)]


def recover(peer: Peer, sent: int) -> float:
    """Kill the broker and start it again: seconds until a send is acknowledged. All `sent` messages are there
    then.
    """
    peer.kill()
    start = time.perf_counter()
    peer.launch_broker()
    wait_answered(peer, peer.broker_address, send_frame("BenchFirst", 0, 2, b"first"), RECOVERY_SECONDS_MAX)
    seconds = time.perf_counter() - start
    arrived = sum(stored(peer, TOPIC, sent))
    if arrived != sent:
        raise LoadError(f"{peer.name}: {sent} acknowledged, {arrived} after the recovery")
    return seconds


def main(options: Options, report: Report) -> None:
    """One peer after the other; its broker is killed and started again in each round."""
    for name in options.peers:
        peer = make_peer(name)
        try:
            peer.start()
            sent = fill(peer, options.recovery_messages)
            for _ in range(options.rounds):
                report.add(RECOVERY, "s", name, recover(peer, sent))
            report.add(MEMORY, "MB", name, peer.memory().resident)
        finally:
            peer.close()
