"""JUnit reports of pytest runs: what they count, and one report made of all of them."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from scripts.second_look import Flaky

FAULTS: Final = ("failure", "error")
MESSAGE_MAX: Final = 200


@dataclass(slots=True)
class Count:
    """Results so far."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add(self, other: Count) -> None:
        """Add the results of one check."""
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def __str__(self) -> str:
        text = f"{self.passed} passed, {self.failed} failed"
        return f"{text}, {self.skipped} skipped" if self.skipped else text


@dataclass(slots=True)
class Report:
    """One run: its count, the message of each failure and the seconds of each test, by names as pytest's."""

    count: Count = field(default_factory=Count)
    messages: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def read_report(path: Path) -> Report:
    """What a JUnit report says; nothing when there is none."""
    found = Report()
    if not path.is_file():
        return found
    outcomes: dict[str, str] = {}
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = _name(case)
        found.seconds[name] = found.seconds.get(name, 0.0) + float(case.get("time", 0))
        # A test that fails and cannot be cleaned up has two of these.
        faults = _faults(case)
        for fault in faults:
            lines = (fault.get("message") or "").splitlines() or ["no message"]
            found.messages.setdefault(name, lines[0][:MESSAGE_MAX])
        if faults or outcomes.get(name) != "failed":
            outcomes[name] = "failed" if faults else "passed" if case.find("skipped") is None else "skipped"
    kinds = [*outcomes.values()]
    found.count = Count(*(kinds.count(kind) for kind in ("passed", "failed", "skipped")))
    return found


def junit_name(test: str) -> str:
    """How a report names a test, given its name in pytest."""
    path, bracket, parameters = test.partition("[")
    file, *inner = path.split("::")
    return ".".join((file.removesuffix(".py").replace("/", "."), *inner)) + bracket + parameters


def merge_reports(paths: Iterable[Path], flaky: Iterable[Flaky], target: Path) -> None:
    """Write one report of these runs, in which each suite has the number of its flaky tests.

    A flaky test has `flakyFailure` in place of `failure`, as Maven and Jenkins know it.
    """
    names = {junit_name(one.test) for one in flaky}
    root = ElementTree.Element("testsuites", name="sparrow")
    for path in paths:
        if path.is_file():
            root.extend(ElementTree.parse(path).getroot().iter("testsuite"))
    for suite in root:
        counts = {"failures": 0, "errors": 0, "flaky": 0}
        for case in suite.iter("testcase"):
            is_flaky = _name(case) in names
            for fault in _faults(case):
                if is_flaky:
                    fault.tag = "flakyFailure"
                else:
                    counts["failures" if fault.tag == "failure" else "errors"] += 1
            counts["flaky"] += is_flaky
        suite.attrib.update({kind: str(number) for kind, number in counts.items()})
    root.set("flaky", str(len(names)))
    target.parent.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(root).write(target, encoding="utf-8", xml_declaration=True)


def slowest(seconds: Mapping[str, float], number: int = 10) -> list[str]:
    """Lines about the tests that took longest."""
    found = sorted(seconds.items(), key=lambda one: -one[1])[:number]
    return [f"{taken:7.1f} s  {name}" for name, taken in found]


def _name(case: ElementTree.Element) -> str:
    return f"{case.get('classname', '')}.{case.get('name', '')}"


def _faults(case: ElementTree.Element) -> list[ElementTree.Element]:
    return [fault for kind in FAULTS for fault in case.findall(kind)]
