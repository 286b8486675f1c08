"""Scrapes of `/metrics` of a broker with thousands of topics: their duration, size and cost, and what other
requests wait for meanwhile.
"""

from __future__ import annotations

import gzip
import json
import statistics
import threading
import time
from contextlib import suppress
from typing import Final
from urllib.request import Request, urlopen

from tests.interop.apache import free_port

from benchmarks.frames import call, frame, send_frame
from benchmarks.load import LoadError
from benchmarks.options import Options
from benchmarks.peers import OURS, ApachePeer, OurPeer, Peer
from benchmarks.process import cpu_seconds
from benchmarks.report import MOST, Floor, Report

CREATE_TOPICS: Final = 18
GET_MAX_OFFSET: Final = 30
UPDATE_OFFSET: Final = 15
CREATE_GROUP: Final = 200
CREATED_AT_ONCE: Final = 500
GROUPS: Final = 50
SCRAPES: Final = 10
ANSWER_SECONDS: Final = 20.0
PROBE_SECONDS: Final = 0.001

DURATION: Final = "a scrape of all topics"
SIZE: Final = "size of a scrape"
COST: Final = "broker CPU of a scrape"
WAIT: Final = "longest wait of another request during a scrape"
QUIET: Final = "the same without scrapes"

FLOORS: Final = [
    Floor(DURATION, MOST, 200.0, absolute=True),
    Floor(WAIT, MOST, 50.0, absolute=True, only_goal=True),
]


def _topic(number: int) -> str:
    return f"BenchTopic{number}"


def _ask(peer: Peer, request: bytes) -> None:
    header, _ = call(peer.broker_address, request, ANSWER_SECONDS)
    if header.get("code") != 0:
        raise LoadError(f"{peer.name}: {header}")


def fill(peer: Peer, topics: int) -> None:
    """Topics with a message and one of the groups each."""
    for first in range(0, topics, CREATED_AT_ONCE):
        configs = [
            {
                "topicName": _topic(number),
                "readQueueNums": 1,
                "writeQueueNums": 1,
                "perm": 6,
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": 0,
                "order": False,
                "attributes": {},
            }
            for number in range(first, min(topics, first + CREATED_AT_ONCE))
        ]
        _ask(peer, frame(CREATE_TOPICS, {}, 1, json.dumps({"topicConfigList": configs}).encode()))
    for number in range(GROUPS):
        _ask(peer, frame(CREATE_GROUP, {}, 1, json.dumps({"groupName": f"g{number}"}).encode()))
    for number in range(topics):
        _ask(peer, send_frame(_topic(number), 0, number + 1, b"x" * 100))
        fields = {
            "consumerGroup": f"g{number % GROUPS}",
            "topic": _topic(number),
            "queueId": 0,
            "commitOffset": 0,
        }
        _ask(peer, frame(UPDATE_OFFSET, fields, 1))


class Probe(threading.Thread):
    """Asks the broker a small question again and again; `longest` is the longest time of an answer."""

    def __init__(self, peer: Peer) -> None:
        super().__init__(daemon=True)
        self._peer = peer
        self._over = threading.Event()
        self.longest = 0.0

    def run(self) -> None:
        """Ask until `end`."""
        request = frame(GET_MAX_OFFSET, {"topic": _topic(0), "queueId": 0}, 1)
        while not self._over.is_set():
            start = time.perf_counter()
            with suppress(OSError):
                call(self._peer.broker_address, request, ANSWER_SECONDS)
            self.longest = max(self.longest, time.perf_counter() - start)
            time.sleep(PROBE_SECONDS)

    def end(self) -> float:
        """Stop asking; returns `longest` in milliseconds."""
        self._over.set()
        self.join()
        return self.longest * 1000


def scrape(url: str) -> tuple[float, int]:
    """Seconds of one scrape as Prometheus does it, and bytes of its text."""
    start = time.perf_counter()
    with urlopen(Request(url, headers={"Accept-Encoding": "gzip"}), timeout=60) as answer:
        text = answer.read()
    seconds = time.perf_counter() - start
    packed = answer.headers.get("Content-Encoding") == "gzip"
    return seconds, len(gzip.decompress(text) if packed else text)


def measure(peer: Peer, url: str, options: Options, report: Report) -> None:
    """Scrapes of a full broker."""
    fill(peer, options.topics)
    scrape(url)  # the first one loads what the others use
    probe = Probe(peer)
    probe.start()
    time.sleep(2.0)
    report.add(QUIET, "ms", peer.name, probe.end())
    probe = Probe(peer)
    probe.start()
    before, durations, size = cpu_seconds(peer.broker_pid), [], 0
    for _ in range(SCRAPES):
        seconds, size = scrape(url)
        durations.append(seconds)
        time.sleep(0.1)
    report.add(WAIT, "ms", peer.name, probe.end())
    used = cpu_seconds(peer.broker_pid) - before
    report.add(DURATION, "ms", peer.name, statistics.median(durations) * 1000)
    report.add(COST, "ms", peer.name, used * 1000 / SCRAPES)
    report.add(SIZE, "kB", peer.name, size / 1000)


def main(options: Options, report: Report) -> None:
    """Ours, then Apache's broker with its own exporter."""
    for name in options.peers:
        port = free_port()
        exporter: dict[str, str | int] = {"metricsExporterType": "PROM", "metricsPromExporterPort": port}
        peer: Peer = OurPeer(metrics_port=port) if name == OURS else ApachePeer(exporter)
        try:
            peer.start()
            measure(peer, f"http://127.0.0.1:{port}/metrics", options, report)
        finally:
            peer.close()
