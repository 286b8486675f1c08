"""The command line: `python -m benchmarks [NAME …] [--quick] [--check] …`; `--help` says the rest."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import sys
from pathlib import Path
from typing import Final

from benchmarks.load import LoadError
from benchmarks.options import full, quick
from benchmarks.report import Report

NAMES: Final = [
    *("handlers", "send", "consume", "ordered", "e2e", "transactions", "request_reply", "sql92", "rebalance"),
    *(
        "delay",
        "brokers",
        "replication",
        "flush",
        "cold",
        "proxy",
        "gate",
        "start_memory",
        "recovery",
        "idle",
        "metrics",
        "spark",
        "pipelines",
        "coordination",
    ),
]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure SparrowMQ beside Apache RocketMQ."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(NAMES)}; all by default")
    parser.add_argument("--quick", action="store_true", help="short and once: a first impression")
    parser.add_argument(
        "--check", action="store_true", help="judge the floors; exit status 1 when one is missed"
    )
    parser.add_argument("--rounds", type=int, help="how many turns each peer gets")
    parser.add_argument("--seconds", type=float, help="how long one measurement of a rate takes")
    parser.add_argument(
        "--only", metavar="TEXT", help="of `send`, `spark` and `pipelines`, the cases whose title holds TEXT"
    )
    parser.add_argument("--peers", default="ours,apache", help="ours,apache (default) or one of them")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all values there")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(NAMES)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    return arguments


def main() -> int:
    """Run the named benchmarks one after the other; one that breaks off leaves the others their figures."""
    arguments = _arguments()
    options = (quick if arguments.quick else full)(arguments.peers.split(","))
    given = {"rounds": arguments.rounds, "seconds": arguments.seconds, "only": arguments.only}
    options = dataclasses.replace(
        options, **{name: value for name, value in given.items() if value is not None}
    )
    report, floors, broken = Report(), [], False
    for name in arguments.names or NAMES:
        print(f"{name} …", file=sys.stderr, flush=True)
        module = importlib.import_module(f"benchmarks.{name}")
        try:
            module.main(options, report)
        except LoadError as error:
            broken = True
            print(f"{name} is broken off: {error}", file=sys.stderr, flush=True)
        floors += module.FLOORS
    report.show()
    if arguments.json:
        report.save(arguments.json)
    if arguments.check:
        broken |= not report.check(floors)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
