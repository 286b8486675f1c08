"""How long an operator waits for the same fact: a page of the console beside Apache's mqadmin.

    python -m benchmarks.console_beside [--topics 100] [--groups 20] [--rounds 5]

The cluster is Apache's. mqadmin runs as operators run it, a process for each command, and also as calls in
one JVM, without its start. A page is requested with a new connection. Each figure is a median.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

from tests.interop.apache import OPEN_MODULES, class_path
from tests.interop.driver import JavaDriver

from benchmarks.console import LOOKS_SECONDS, Coordinator, coordinator, make
from benchmarks.peers import ApachePeer

STARTUP: Final = "org.apache.rocketmq.tools.command.MQAdminStartup"
GROUP: Final = "group000"
TOPIC: Final = "Topic0000"
FACTS: Final = (
    ("brokers, versions, rates", ("clusterList",), "/brokers"),
    ("lag of all groups", ("consumerProgress",), "/groups"),
    ("lag of one group by queue", ("consumerProgress", "-g", GROUP), f"/groups/{GROUP}"),
    ("queues of a topic", ("topicStatus", "-t", TOPIC), f"/topics/{TOPIC}"),
    (
        "a message by its key",
        ("queryMsgByKey", "-t", TOPIC, "-k", "k0-3"),
        f"/messages?topic={TOPIC}&by=key&key=k0-3",
    ),
)
"""Each with the command of mqadmin and the page that shows it."""


def median_ms(rounds: int, work: Callable[[], object]) -> float:
    """The median of some rounds, in milliseconds."""
    took = []
    for _ in range(rounds):
        begun = time.perf_counter()
        work()
        took.append((time.perf_counter() - begun) * 1000)
    return statistics.median(took)


def process(arguments: tuple[str, ...], namesrv: str, home: Path) -> None:
    """A command of mqadmin in a process of its own. Raises `CalledProcessError`."""
    command = ["java", f"-Duser.home={home}", *OPEN_MODULES, "-cp", class_path(), STARTUP]
    subprocess.run([*command, *arguments, "-n", namesrv], check=True, capture_output=True, timeout=120)


def page(console: Coordinator, path: str) -> None:
    """A page of the console over a new connection."""
    connection = HTTPConnection(console.address, timeout=60)
    try:
        status, _ = console.page(path, connection)
        assert status == 200, (path, status)
    finally:
        connection.close()


def main(arguments: list[str]) -> int:
    """Print the table; the exit status."""
    parser = argparse.ArgumentParser(description="The console beside Apache's mqadmin.")
    for name, default in (("topics", 100), ("groups", 20), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args(arguments)
    peer = ApachePeer()
    try:
        peer.start()
        asyncio.run(make(peer.namesrv, options.topics, options.groups))
        with (
            tempfile.TemporaryDirectory() as directory,
            coordinator(peer.namesrv, Path(directory) / "coordinator.db") as console,
            JavaDriver() as java,
        ):
            time.sleep(LOOKS_SECONDS)
            print("| fact | mqadmin | mqadmin without its start | page |")
            for fact, command, path in FACTS:
                alone = median_ms(options.rounds, partial(process, command, peer.namesrv, Path(directory)))
                said = [*command, "-n", peer.namesrv]
                warm = median_ms(options.rounds, partial(java.call, "Lookups.mqadmin", arguments=said))
                shown = median_ms(4 * options.rounds, partial(page, console, path))
                print(f"| {fact} | {alone:.0f} ms | {warm:.0f} ms | {shown:.0f} ms |", flush=True)
    finally:
        peer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
